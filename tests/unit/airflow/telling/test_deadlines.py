"""A run that has not ended in time is told to a person, with what Airflow knows of it then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.definitions.callback import SyncCallback

from onceover_airflow.telling.deadlines import tell_of_lateness, told_after
from onceover_airflow.telling.notify import VARIABLE

SENT: list[str] = []
# As the scheduler makes it of a run.
CONTEXT: dict[str, Any] = {
    "dag_run": {
        "dag_id": "rehearse",
        "dag_run_id": "by hand\n1",
        "conf": {"flow": "orders"},
        "state": "running",
    },
    "deadline": {"id": "x", "deadline_time": "2030-01-01T00:00:00Z"},
}


class LateNotifier(BaseNotifier):
    """As the ones of the providers are, with the text that docs/airflow.md shows."""

    template_fields = ("text",)

    def __init__(self) -> None:
        super().__init__()
        self.text = "{{ ti.dag_id }} {{ params.flow }}: {{ reason }}"

    def notify(self, context: Any) -> None:
        SENT.append(self.text)


def late(context: Any) -> None:
    LateNotifier()(context)


def test_a_notifier_gets_what_a_task_would_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as there is any without a task; the text of a name begins no line."""
    monkeypatch.setenv(VARIABLE, f"{__name__}:late")
    SENT.clear()
    tell_of_lateness(context=CONTEXT, limit="1:00:00")
    assert SENT == [
        "rehearse orders: late: run by hand\\n1 of rehearse has not ended 1:00:00 after it was queued"
    ]


def test_airflow_finds_what_it_is_to_call() -> None:
    """It imports it by its name, in a process of the executor."""
    alert = told_after(timedelta(hours=1))
    assert isinstance(alert.callback, SyncCallback)
    assert alert.callback.path == "onceover_airflow.telling.deadlines.tell_of_lateness"
    assert alert.callback.kwargs == {"limit": "1:00:00"}
