"""One write for all groups of a log, and a log that is known as brokers know it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.engine.groupsettle import GroupSettler, offsets_partition
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.model import TopicPartition

TP = TopicPartition("orders", 0)
LOGS = 4


class Settler(GroupSettler):
    """The code under test without a producer.

    Attributes:
        refuses: what a write for a group comes to.
        written: groups that were written for, try by try.
    """

    def __init__(self, refuses: dict[str, OnceoverError] | None = None, logs: int = LOGS) -> None:
        known = {"__consumer_offsets": SimpleNamespace(partitions=range(logs))} if logs else {}
        cluster = SimpleNamespace(topics=lambda _: known, retry=lambda attempt, _: attempt())
        super().__init__(cast(Any, cluster), "onceover.f.groups")
        self.refuses = refuses or {}
        self.written: list[list[str]] = []

    def _retry(self, groups: Any) -> None:
        self.written.append(list(groups))
        for group in groups:
            if group in self.refuses:
                raise self.refuses[group]


def named(log: int, count: int) -> list[str]:
    """Return groups of one log."""
    names = (f"group-{number}" for number in range(10_000))
    return [name for name in names if offsets_partition(name, LOGS) == log][:count]


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ("", 0),
        ("hello", 99162322),
        ("Onceover \U0001f600", None),
        ("polygenelubricants", 0),
        ("zzzzzzz", None),
    ],
)
def test_a_group_is_looked_for_where_brokers_keep_it(group: str, code: int | None) -> None:
    """Java's hash, cut to what is above zero; the smallest number has no counterpart there."""
    units = memoryview(group.encode("utf-16-be")).cast("B")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = value * 31 + (high << 8 | low)
    value = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    expected = 0 if value == -(1 << 31) else abs(value)
    assert code in (None, expected)
    assert offsets_partition(group, 50) == expected % 50


def test_a_write_for_each_log_settles_thousands_of_groups() -> None:
    settler = Settler()
    assert settler.settle({f"group-{number}": TP for number in range(5000)}) == {}
    assert [len(written) for written in settler.written] == [LOGS]


def test_a_missing_right_for_one_group_is_not_its_neighbours() -> None:
    first, second, third = named(1, 3)
    refused = UsageError("not authorized", code="NOT_AUTHORIZED")
    settler = Settler({first: refused})
    assert settler.settle(dict.fromkeys([first, second, third], TP)) == {first: refused}
    assert settler.written[-1] == [second]


def test_a_coordinator_that_is_away_is_away_for_all_of_its_groups() -> None:
    away, other = named(1, 3), named(2, 3)
    error = Retriable("it reads its log")
    settler = Settler({away[0]: error})
    assert settler.settle(dict.fromkeys([*away, *other], TP)) == dict.fromkeys(away, error)


def test_where_the_log_is_not_shown_each_group_is_written_for() -> None:
    settler = Settler(logs=0)
    assert settler.settle(dict.fromkeys(["a", "b", "c"], TP)) == {}
    assert settler.written == [["a", "b", "c"]]
