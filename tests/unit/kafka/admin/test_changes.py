"""Who is asked for a change: any broker, or the controller where only that makes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import pytest

from onceover.errors import NeedsOperator, UsageError
from onceover.kafka.admin import changes
from onceover.kafka.admin.changes import AdminAnswer, changed, refused
from tests.support.fakes.fakecluster import FakeCluster

NOT_CONTROLLER = AdminAnswer(41, "")
DONE = AdminAnswer(0, "")


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([{"a": DONE}], [1]),
        ([{"a": AdminAnswer(31, "")}], [1]),
        ([{"a": DONE, "b": NOT_CONTROLLER}, {"a": DONE, "b": DONE}], [1, 7]),
        ([{"a": NOT_CONTROLLER}, {"a": NOT_CONTROLLER}], [1, 7]),
    ],
)
def test_the_controller_is_asked_where_another_broker_says_that_it_is_none(
    answers: list[Mapping[str, AdminAnswer]], asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: one that moves meanwhile is for the next attempt. The cluster that is meant is asked for."""
    monkeypatch.setattr(changes, "controller", lambda _: 7)
    left, seen = deque(answers), []

    def ask(connection: Any) -> Mapping[str, AdminAnswer]:
        seen.append(connection.node)
        return left.popleft()

    meant = FakeCluster()
    meant.nodes = {1, 7}
    assert changed(meant, ask) == answers[-1]
    assert (seen, meant.log) == (asked, ["closed"]), "by a connection of its own"


def test_a_right_that_is_missing_is_named_and_not_the_brokers_inner_state() -> None:
    """What KRaft's controllers say of ACLs is a page of Java, and of topics no more than that it failed."""
    page = AdminAnswer(31, "Request Request(processor=0, session=...Session@48b26dd7) needs ALTER.")
    error = refused("east", "create ACLs", page, right="ALTER on the cluster")
    assert type(error) is UsageError
    assert error.message.startswith("east did not create ACLs (error 31, not authorized, it takes ALTER on")
    other = refused("east", "create ACLs", AdminAnswer(42, "no kind"), right="ALTER on the cluster")
    assert type(other) is NeedsOperator
    assert other.message == "east did not create ACLs: no kind (error 42)"
