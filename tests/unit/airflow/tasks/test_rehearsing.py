"""What the end of a rehearsal means for its task."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.drills.rehearsing.rehearsal import RehearsalOutcome
from onceover.planning.plan import Refusal
from onceover.wiring import flows
from onceover.wiring.failovers.drills import about_drill
from onceover.wiring.flows import login
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.tasks import orphans, rehearsing, switching
from onceover_airflow.tasks.rehearsing import judge
from tests.support.flows.flows import write_flow

HERE = {"bootstrap.servers": "h:1"}


def outcome(exit_code: int, code: str) -> RehearsalOutcome:
    waiting = [Refusal("a step", code, "what it was", "what resolves it")]
    told: Any = SimpleNamespace(exit_code=exit_code, waiting=waiting, findings=(), verdict="FAIL")
    return cast(RehearsalOutcome, told)


@pytest.mark.parametrize(
    ("exit_code", "code", "error"),
    [
        (5, "Retriable", JobInterrupted),
        (3, "CANARY_LOST", TaskFailed),
    ],
)
def test_only_a_cluster_that_is_away_is_tried_again(
    exit_code: int, code: str, error: type[Exception]
) -> None:
    """Whatever it was is in the message, with the report."""
    with pytest.raises(error, match=r"what resolves it.*report: page\.html"):
        judge("orders-dr", outcome(exit_code, code), "page.html")


@pytest.mark.parametrize(
    ("run", "by"),
    [
        (SimpleNamespace(triggering_user_name="admin"), "admin (in Airflow)"),
        (SimpleNamespace(triggering_user_name=None), None),
    ],
    ids=["a person", "a schedule"],
)
def test_report_names_whoever_started_the_run(
    monkeypatch: pytest.MonkeyPatch, run: object, by: str | None
) -> None:
    """Not the user that Airflow's worker runs as: it is evidence."""
    asked: list[str | None] = []

    def opened(_flow: object, make: Any) -> Any:
        asked.append(make.keywords["options"].started_by)
        return nullcontext()

    monkeypatch.setattr(flows, "opened", opened)
    params = {"topics": None, "group": None, "sample": 1, "canaries": 2, "rebuild": False}
    context: Any = {"dag_run": run, "params": {**params, "forget_groups": None, "mode": "planned"}}
    context["params"]["take_over"] = False
    with rehearsing.opened(cast(Flow, None), context):
        pass
    for tasks in (switching, orphans):
        monkeypatch.setattr(tasks, "flow_at_hand", lambda _: nullcontext())
    for made in (switching.SwitchTasks(), orphans.OrphanTasks()):
        with made.opened("orders-dr", context):
            pass
    assert asked == [by] * 3


def test_started_by_is_the_user_where_nobody_is_named(tmp_path: Path) -> None:
    """As on the command line."""
    flow = load_flow(write_flow(tmp_path, "orders-dr", HERE, HERE, ["orders"]))
    assert about_drill(flow, "rehearsal", "admin (in Airflow)").started_by == "admin (in Airflow)"
    assert about_drill(flow, "rehearsal", None).started_by == login()
