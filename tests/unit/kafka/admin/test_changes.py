"""Who is asked for a change: any broker, or the controller where only that makes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from onceover.kafka.admin import changes
from onceover.kafka.admin.changes import AdminAnswer, changed

NOT_CONTROLLER = AdminAnswer(41, "")
DONE = AdminAnswer(0, "")


class Brokers:
    """A cluster of which node 7 is the controller."""

    config, expected_id = None, "id"
    opened: ClassVar[list[tuple[object, object]]] = []

    def __init__(self, config: object, expected_id: object) -> None:
        self.opened.append((config, expected_id))

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
    monkeypatch.setattr(changes, "Cluster", Brokers)
    monkeypatch.setattr(changes, "controller", lambda _: 7)
    left, seen = deque(answers), []

    def ask(connection: Any) -> Mapping[str, AdminAnswer]:
        seen.append(connection)
        return left.popleft()

    meant: Any = Brokers("keys", "id")
    assert changed(meant, ask) == answers[-1]
    assert (seen, Brokers.opened[-1]) == (asked, (None, "id"))
