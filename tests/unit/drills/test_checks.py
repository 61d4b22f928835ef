"""What has to be so for a switchover to go on, each with the near-miss that lets it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.drills.switching.checks import (
    check_audited,
    check_denied,
    check_same,
    check_scope,
    check_stops,
)
from onceover.drills.switching.tail import TailCompared
from onceover.errors import NeedsOperator
from onceover.model import TopicPartition
from tests.unit.drills.test_switching import enrolment

MINE = enrolment("a")


def topics(**ids: UUID) -> Any:
    return {name: cast(Any, SimpleNamespace(topic_id=topic_id)) for name, topic_id in ids.items()}


HERE, THERE = topics(a=MINE.source_id), topics(a=MINE.target_id)
STOPPED = [TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)]


@pytest.mark.parametrize(
    "check",
    [
        lambda: check_same("f", [MINE], {**HERE, **topics(b=UUID(int=9))}, THERE),
        lambda: check_denied("west", []),
        lambda: check_scope(["a"], {"a", "b"}, ()),
        lambda: check_stops("f", "west", ["c"], STOPPED),
        lambda: check_audited("f", TailCompared(records=3, different=0, unverifiable=7)),
    ],
)
def test_what_is_as_it_should_be_lets_it_go_on(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize(
    ("check", "code", "told"),
    [
        (lambda: check_same("f", [MINE], topics(a=UUID(int=9)), THERE), "LOG_CHANGED", "a, or its copy a"),
        (lambda: check_same("f", [MINE], HERE, {}), "LOG_CHANGED", "another topic than"),
        (lambda: check_denied("west", ["DENY WRITE on a", "more"]), "TARGET_DENIES", "2 ACLs .* DENY WRITE"),
        (lambda: check_scope(["a", "b"], {"a"}, ()), "SCOPE_CHANGED", "planned: b"),
        (lambda: check_scope(["a"], {"a"}, {"d", "c"}), "SCOPE_CHANGED", "planned: c, d"),
        (lambda: check_stops("f", "west", ["a"], STOPPED), "COPY_STOPPED", "stopped at a:0, a:2"),
        (lambda: check_audited("f", TailCompared(3, 1, 0)), "COPY_DIFFERS", "1 records .* not as they"),
        (
            lambda: check_audited("f", TailCompared(3, 0, 0, 4, "west refuses fetch")),
            "COPY_DIFFERS",
            "4 offsets .* their age: west refuses fetch",
        ),
    ],
)
def test_what_is_not_ends_it_with_its_code(check: Callable[[], None], code: str, told: str) -> None:
    with pytest.raises(NeedsOperator, match=told) as raised:
        check()
    assert (raised.value.code, bool(raised.value.resolve)) == (code, True)
