"""One write for all groups of a log, and a log that is known as brokers know it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover import backoff
from onceover.backoff import Patience
from onceover.errors import MustReset, OnceoverError, Retriable, UsageError
from onceover.groups import settle as groupsettle
from onceover.groups.settle import GroupSettler, offsets_partition
from onceover.kafka.each import Each
from onceover.kafka.link.connection import ConnectionLost
from onceover.model import TopicPartition

TP = TopicPartition("orders", 0)
LOGS = 4


class Coordinators:
    """The cluster and the producer of the code under test.

    Attributes:
        refuses: what a write for a group comes to; ``unknown`` what asking for its coordinator comes to.
        written: groups that were written for, try by try; ``places`` the partitions.
        began: how many transactions were begun; ``is_open`` one is.
        fails_to_end: what an abort comes to, once.
        taken: called when a write was.
        held_up: transactional ids whose earlier transaction does not come to an end; with ``holds_up``, one
            that a log has refused a write for becomes one.
    """

    def __init__(self, refuses: dict[str, OnceoverError] | None = None, logs: int = LOGS) -> None:
        self.known = {"__consumer_offsets": SimpleNamespace(partitions=range(logs))} if logs else {}
        self.refuses = refuses or {}
        self.unknown: dict[str, OnceoverError] = {}
        self.written: list[str] = []
        self.places: set[TopicPartition] = set()
        self.began = 0
        self.is_open = False
        self.fails_to_end: OnceoverError | None = None
        self.held_up: set[str] = set()
        self.holds_up = False
        self.ids: list[str] = []
        self.patience = Patience()
        self.taken: Callable[[str], None] = lambda _: None

    # ---- Cluster

    def topics(self, _: object) -> Any:
        return self.known

    def retry(self, attempt: Any, _: object) -> Any:
        return attempt()

    def coordinator_nodes(self, groups: list[str], _: int) -> Each[str, int]:
        failed = {group: self.unknown[group] for group in groups if group in self.unknown}
        return Each({group: len(group) for group in groups if group not in failed}, failed)

    def hasty(self, _: float) -> Coordinators:
        return self

    def __enter__(self) -> Coordinators:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


@dataclass
class Writer:
    """The producer of one transactional id; those of logs of their own write at the same time."""

    world: Coordinators
    id: str

    def init(self) -> bool:
        if self.id in self.world.held_up:
            return False
        self.world.began += 1
        self.world.is_open = False
        return True

    def add_offsets(self, group: str, offsets: Any, *, moving: bool) -> None:
        assert not moving
        self.world.written.append(group)
        self.world.places.update(offsets)
        self.world.is_open = True
        if group in self.world.refuses:
            if self.world.holds_up:
                self.world.held_up.add(self.id)
            raise self.world.refuses[group]
        self.world.taken(group)

    def abort(self) -> None:
        error, self.world.fails_to_end = self.world.fails_to_end, None
        if error is not None:
            raise error
        self.world.is_open = False

    def close(self) -> None:
        """Nothing is kept open by it."""


@pytest.fixture
def settler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the code under test before coordinators."""

    def before(world: Coordinators, at: TopicPartition | None = None, retry_s: float = 0.05) -> GroupSettler:
        def made(_: object, transactional_id: str, **__: object) -> Writer:
            world.ids.append(transactional_id)
            return Writer(world, transactional_id)

        monkeypatch.setattr(groupsettle, "TransactionalProducer", made)
        return GroupSettler(cast(Any, world), "onceover.f.groups", at, retry_s)

    return before


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


def test_a_write_for_each_log_settles_thousands_of_groups(settler: Any) -> None:
    world = Coordinators()
    assert settler(world).settle({f"group-{number}": TP for number in range(5000)}) == {}
    assert (len(world.written), world.began, world.is_open) == (LOGS, 1, False)


def test_a_missing_right_for_one_group_is_not_its_neighbours(settler: Any) -> None:
    first, second, third = named(1, 3)
    refused = UsageError("not authorized", code="NOT_AUTHORIZED")
    world = Coordinators({first: refused})
    assert settler(world).settle(dict.fromkeys([first, second, third], TP)) == {first: refused}
    assert world.written == [first, second]


def test_a_coordinator_that_is_away_is_away_for_all_of_its_groups(settler: Any) -> None:
    away, other = named(1, 3), named(2, 3)
    error = Retriable("it reads its log")
    world = Coordinators({away[0]: error})
    assert settler(world).settle(dict.fromkeys([*away, *other], TP)) == dict.fromkeys(away, error)
    assert world.written.count(other[0]) == 1
    assert not world.is_open


def test_a_log_without_a_leader_is_not_written_to(settler: Any) -> None:
    """A transaction that holds it cannot be ended before it has one."""
    away, other = named(1, 3), named(2, 3)
    world = Coordinators()
    world.unknown = dict.fromkeys(away, Retriable("no leader"))
    assert settler(world).settle(dict.fromkeys([*away, *other], TP)) == world.unknown
    assert (set(world.written), world.began) == ({other[0]}, 1)


def test_logs_that_take_no_write_are_waited_for_together(
    settler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """17 of 50, as where one broker of three leads them without replicas: 5 s each made 90."""
    by_log: dict[int, str] = {}
    for number in range(5000):
        by_log.setdefault(offsets_partition(f"g{number}", 50), f"g{number}")
    groups = list(by_log.values())
    clock = SimpleNamespace(now_s=0.0)
    times = SimpleNamespace(
        monotonic=lambda: clock.now_s, sleep=lambda s: setattr(clock, "now_s", clock.now_s + s)
    )
    monkeypatch.setattr(backoff, "time", times)
    world = Coordinators(dict.fromkeys(groups[:17], Retriable("error 15 to txn offset commit")), 50)
    failed = settler(world, retry_s=5.0).settle(dict.fromkeys(groups, TP))
    assert set(failed) == set(groups[:17])
    assert 5.0 <= clock.now_s < 5.5
    assert all(world.written.count(group) == 1 for group in groups[17:])


def test_a_log_that_takes_no_marker_either_holds_up_no_other(settler: Any) -> None:
    """Seen with 4.3.0, too few replicas: the transaction that has written there cannot be ended before."""
    groups = [named(log, 1)[0] for log in range(LOGS)]
    world = Coordinators({groups[1]: MustReset("not ready for a write")})
    world.holds_up = True
    made = settler(world, TopicPartition("__onceover.f.state", 1))
    for _ in range(2):
        assert set(made.settle(dict.fromkeys(groups, TP))) == {groups[1]}
    assert world.held_up == {"onceover.f.groups", "onceover.f.groups.1"}
    world.held_up, world.refuses, world.ids = set(), {}, []
    assert made.settle(dict.fromkeys(groups, TP)) == {}
    assert set(world.ids) == {"onceover.f.groups"}


def test_logs_of_their_own_are_written_to_at_the_same_time(settler: Any) -> None:
    """Brokers take 5 s to refuse what they cannot replicate."""
    world = Coordinators()
    world.held_up = {"onceover.f.groups"}
    together = threading.Barrier(LOGS)

    def wait(_: str) -> None:
        together.wait(30.0)

    world.taken = wait
    groups = [named(log, 1)[0] for log in range(LOGS)]
    assert settler(world, TopicPartition("__onceover.f.state", 1)).settle(dict.fromkeys(groups, TP)) == {}


def test_where_one_transactional_id_is_all_there_is_the_others_wait(settler: Any) -> None:
    """The source's principal has no right to more."""
    groups = [named(log, 1)[0] for log in range(LOGS)]
    world = Coordinators({groups[0]: MustReset("not ready for a write")})
    world.holds_up = True
    assert set(settler(world).settle(dict.fromkeys(groups, TP))) == set(groups)
    assert set(world.ids) == {"onceover.f.groups"}


def test_a_broker_that_is_silent_is_waited_for_once_in_a_round(settler: Any) -> None:
    groups = [named(log, 1)[0] for log in range(LOGS)]
    assert len(set(map(len, groups))) == 1
    lost = MustReset("no answer")
    lost.__cause__ = ConnectionLost("it does not answer")
    world = Coordinators({groups[0]: lost})
    assert set(settler(world, retry_s=0.0).settle(dict.fromkeys(groups, TP))) == set(groups)
    assert world.written == [groups[0]]


def test_a_log_that_is_back_is_settled_after_all(settler: Any) -> None:
    first, second = (named(log, 1)[0] for log in (1, 2))
    world = Coordinators({first: MustReset("it reads its log")})
    world.taken = lambda _: world.refuses.clear()
    assert settler(world, retry_s=60.0).settle({first: TP, second: TP}) == {}


def test_no_readers_partition_is_written_for_where_the_flow_has_one_of_its_own(settler: Any) -> None:
    """Killed before the abort, or without its marker, we would have its readers wait for their offsets."""
    own, world = TopicPartition("__onceover.f.state", 1), Coordinators()
    assert settler(world, own).settle({"a": TP}) == {}
    assert world.places == {own}
    assert settler(world).settle({"a": TP}) == {}
    assert world.places == {own, TP}


def test_what_was_taken_is_taken_though_the_end_is_not_known(settler: Any) -> None:
    """The next beginning aborts it."""
    world = Coordinators()
    world.fails_to_end = MustReset("no answer")
    made = settler(world)
    assert made.settle({"a": TP}) == {}
    assert made.settle({"a": TP}) == {}
    assert (world.began, world.is_open) == (2, False)


def test_where_the_log_is_not_shown_each_group_is_written_for(settler: Any) -> None:
    world = Coordinators(logs=0)
    assert settler(world).settle(dict.fromkeys(["a", "b", "c"], TP)) == {}
    assert world.written == ["a", "b", "c"]
