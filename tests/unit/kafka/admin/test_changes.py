"""Who is asked for a change: any broker, or the controller where only that makes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import pytest

from onceover.kafka.admin import changes
from onceover.kafka.admin.changes import AdminAnswer, changed

NOT_CONTROLLER = AdminAnswer(41, "")
DONE = AdminAnswer(0, "")


class Brokers:
    """A cluster of which node 7 is the controller."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def cluster_id(self) -> str:
        self.asked.append("its id")
        return "id"

    def another(self) -> Brokers:
        self.asked.append("another")
        return self

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def retry(self, attempt: Any) -> Any:
        return attempt()

    def control(self, node: int | None = None) -> str:
        return f"broker {node}"


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([{"a": DONE}], ["broker None"]),
        ([{"a": AdminAnswer(31, "")}], ["broker None"]),
        ([{"a": DONE, "b": NOT_CONTROLLER}, {"a": DONE, "b": DONE}], ["broker None", "broker 7"]),
        ([{"a": NOT_CONTROLLER}, {"a": NOT_CONTROLLER}], ["broker None", "broker 7"]),
    ],
)
def test_the_controller_is_asked_where_another_broker_says_that_it_is_none(
    answers: list[Mapping[str, AdminAnswer]], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: one that moves meanwhile is for the next attempt. The cluster that is meant is asked for."""
    monkeypatch.setattr(changes, "controller", lambda _: 7)
    left, seen = deque(answers), []

    def ask(connection: Any) -> Mapping[str, AdminAnswer]:
        seen.append(connection)
        return left.popleft()

    meant: Any = Brokers()
    assert changed(meant, ask) == answers[-1]
    assert (seen, meant.asked) == (asked, ["its id", "another"])
