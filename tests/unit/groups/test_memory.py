"""What is remembered of groups: however large one is, however often a write is cut off, nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onceover.errors import NeedsOperator, NotNow, Retriable
from onceover.groups import memory as groupmemory
from onceover.groups.decide import Direction, OtherPosition, Remembered
from onceover.groups.entries import Key, entries_of, rewritten
from onceover.groups.memory import GroupMemory
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.state.records.value import Illegible
from tests.support.raw.junk import damaged
from tests.support.session.examples import examples
from tests.unit.topics.topicworld import target_id, topic

# What brokers and librdkafka take by default.
_LARGEST_BYTES = 1_000_000
NAME = "__onceover.f.groups"
TP = TopicPartition("orders", 0)


class Log:
    """The memory's topic on a target.

    Attributes:
        values: what lies in it; None where there is no topic.
        refuses: groups whose records the broker refuses, beside those that are too large.
        made: topics that were asked for.
        before_read: called between the look for the topic and the reading of it, once.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] | None = {}
        self.number = 1
        self.refuses: set[str] = set()
        self.made: list[str] = []
        self.before_read: Callable[[], None] = lambda: None

    def delete(self) -> None:
        self.values = None

    def make_anew(self) -> None:
        self.values, self.number = {}, self.number + 1

    # ---- Cluster

    config, alias = None, "west"

    def topics(self, _: Any) -> Any:
        return {} if self.values is None else {NAME: topic(NAME, 1, target_id(str(self.number)))}

    def retry(self, attempt: Any) -> Any:
        try:
            return attempt()
        except NotNow:
            return attempt()

    # ---- NoteWriter and Admin

    def write_all(self, records: Mapping[str, Any]) -> None:
        if self.values is None:
            raise Retriable("west did not take it: Message timed out")
        for key, value in records.items():
            text = json.dumps(value, separators=(",", ":"))
            if len(text) > _LARGEST_BYTES or any(key.endswith(f"/{group}") for group in self.refuses):
                raise NeedsOperator("west did not take it: Message size too large", code="WRITE_REFUSED")
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = json.loads(text)

    def make_topics(self, specs: Any) -> None:
        self.made += [spec.name for spec in specs]
        if self.values is None:
            self.make_anew()

    def close(self) -> None:
        """Nothing is open."""


class Reader:
    """Stands in for ``StateLog``: the values of one topic, and of none that was made anew in its place."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._number: int | None = None

    def catch_up(self, *, wait: bool) -> dict[str, Any]:
        assert not wait
        before, self._log.before_read = self._log.before_read, lambda: None
        before()
        if self._log.values is None or self._number not in (None, self._log.number):
            raise NeedsOperator("the state topic does not exist", code="STATE_MISSING")
        self._number = self._log.number
        return dict(self._log.values)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Put a log in the place of everything that reads and writes it."""
    made = Log()
    monkeypatch.setattr(groupmemory, "StateLog", lambda *_: Reader(made))
    monkeypatch.setattr(groupmemory, "NoteWriter", lambda *_: made)
    monkeypatch.setattr(groupmemory, "Admin", lambda *_: made)
    return made


def opened(log: Log) -> GroupMemory:
    memory = GroupMemory(cast(Cluster, log), "f")
    memory.read()
    return memory


def entry(number: int, at_ms: int = 1_763_800_000_000) -> Remembered:
    known = frozenset(10**10 + number + each for each in range(6))
    return Remembered(10**10 + number, known, at_ms)


def test_what_positions_stand_for_is_remembered_as_long_as_they_are_known(log: Log) -> None:
    memory = opened(log)
    first = Remembered(10, frozenset({5, 40}), 1, {40: OtherPosition(10, 30)})
    memory.write(Direction.FAILOVER, {"a": {TP: first}})
    assert opened(log).of(Direction.FAILOVER, "a") == {TP: first}
    # Exact by now; then others, until the first are forgotten.
    memory.write(Direction.FAILOVER, {"a": {TP: Remembered(40, frozenset({45}), 2)}})
    assert opened(log).of(Direction.FAILOVER, "a")[TP].stands == {40: OtherPosition(10, 30)}
    memory.write(Direction.FAILOVER, {"a": {TP: Remembered(40, frozenset({40}), 3)}})
    assert opened(log).of(Direction.FAILOVER, "a")[TP].stands == {}


def test_what_was_replaced_is_forgotten_once_that_is_seen_and_what_another_sync_may_yet_write_is_not(
    log: Log,
) -> None:
    memory, now = opened(log), 10

    def write(seen: int, *meant: int) -> tuple[list[int], list[int]]:
        nonlocal now
        now += 1
        new = Remembered(1, frozenset({seen, *meant}), now, {}, frozenset(meant))
        memory.write(Direction.FAILOVER, {"a": {TP: new}})
        told = opened(log).of(Direction.FAILOVER, "a")[TP]
        return sorted(told.known), sorted(told.meant)

    assert write(100, 200) == ([100, 200], [200])
    # Two syncs, each from where it has seen the group: the later look was the first to remember.
    assert write(200, 300) == ([200, 300], [300])
    assert write(200) == ([200, 300], [300])
    assert write(200, 250) == ([200, 250, 300], [250, 300])
    assert write(300) == ([250, 300], [250])
    assert write(300, 400) == ([250, 300, 400], [250, 400])
    # It was seen twice where it was put instead: nobody comes to write the other place any more.
    assert write(400) == ([400], [])
    assert write(400, 500) == ([400, 500], [500])
    # Whoever means a place anew may write it.
    assert write(400, 600) == ([400, 500, 600], [500, 600])
    assert write(600) == ([500, 600], [500])
    assert write(600, 500) == ([500, 600], [500])
    assert write(600, 550) == ([500, 550, 600], [500, 550])
    assert write(550) == ([500, 550], [500])


def large(count: int, name: str = "payments.transactions") -> dict[TopicPartition, Remembered]:
    return {TopicPartition(name, number): entry(number) for number in range(count)}


def test_a_group_over_thousands_of_partitions_is_remembered(log: Log) -> None:
    many = large(12_000)
    assert opened(log).write(Direction.FAILOVER, {"big": many, "small": {TP: entry(1)}}) == {}
    assert log.values is not None
    memory = opened(log)
    assert memory.groups(Direction.FAILOVER) == {"big", "small"}
    assert memory.of(Direction.FAILOVER, "big") == many
    assert memory.of(Direction.FAILOVER, "small") == {TP: entry(1)}
    assert memory.of(Direction.FAILBACK, "big") == {}


def test_the_longest_names_and_numbers_fit(log: Log) -> None:
    """A topic of its own for each partition."""
    last, at_ms = 2**63 - 1, 10**13
    known = frozenset(last - each for each in range(6))
    stands = dict.fromkeys(known, OtherPosition(last, last))
    meant, overdue = known - {last}, known - {last, last - 5}
    entry = Remembered(last, known, at_ms, stands, meant, overdue)
    many = {TopicPartition(f"{n:0249}", 999_999): entry for n in range(3000)}
    assert opened(log).write(Direction.FAILOVER, {"big": many}) == {}
    assert opened(log).of(Direction.FAILOVER, "big") == many


def test_a_record_of_an_older_release_is_read_and_outgrown(log: Log) -> None:
    """It held all of a group; what is new joins it."""
    old = large(7000)
    piece = {
        str(tp.partition): {"given": e.given, "known": sorted(e.known), "at_ms": e.at_ms}
        for tp, e in old.items()
    }
    assert log.values is not None
    log.values["failover/big"] = {"v": 1, "topics": {"payments.transactions": piece}}
    memory = opened(log)
    assert memory.of(Direction.FAILOVER, "big") == old
    assert memory.write(Direction.FAILOVER, {"big": large(3000, "more")}) == {}
    assert opened(log).of(Direction.FAILOVER, "big") == {**old, **large(3000, "more")}


def test_only_what_has_changed_is_written_again(log: Log) -> None:
    memory = opened(log)
    memory.write(Direction.FAILOVER, {"big": large(4000)})
    assert log.values is not None
    before = dict(log.values)
    memory.write(
        Direction.FAILOVER, {"big": {TopicPartition("payments.transactions", 3999): entry(7, 2**41)}}
    )
    assert len([key for key, value in log.values.items() if before[key] != value]) == 1


def test_a_group_that_cannot_be_remembered_is_refused_alone(log: Log) -> None:
    log.refuses = {"b"}
    memory = opened(log)
    refused = memory.write(Direction.FAILOVER, {name: {TP: entry(1)} for name in "abc"})
    assert {group: error.code for group, error in refused.items()} == {"b": "NOT_REMEMBERED"}
    assert memory.groups(Direction.FAILOVER) == opened(log).groups(Direction.FAILOVER) == {"a", "c"}


def test_deleted_under_a_running_sync_it_is_made_anew(log: Log) -> None:
    """ "Deleting it loses no record" (docs/groups.md)."""
    memory = opened(log)
    memory.prepare(1)
    memory.write(Direction.FAILOVER, {"a": {TP: entry(1)}})
    assert log.made == []
    log.delete()
    with pytest.raises(NotNow):
        memory.write(Direction.FAILOVER, {"a": {TP: entry(1)}})
    memory.read()
    assert memory.groups(Direction.FAILOVER) == set()
    memory.prepare(1)
    assert memory.write(Direction.FAILOVER, {"b": {TP: entry(2)}}) == {}
    assert log.made == [NAME]
    assert memory.groups(Direction.FAILOVER) == opened(log).groups(Direction.FAILOVER) == {"b"}


def test_made_anew_by_another_sync_it_is_read_from_its_start(log: Log) -> None:
    memory = opened(log)
    memory.write(Direction.FAILOVER, {"a": {TP: entry(1)}})
    log.make_anew()
    opened(log).write(Direction.FAILOVER, {"b": {TP: entry(2)}})
    memory.read()
    assert memory.groups(Direction.FAILOVER) == {"b"}


@pytest.mark.parametrize("change", [Log.delete, Log.make_anew])
def test_deleted_while_it_is_read_it_is_looked_for_again(log: Log, change: Callable[[Log], None]) -> None:
    """It is not the flow's state that is missing, and starting the flow would not bring it back."""
    memory = opened(log)
    memory.write(Direction.FAILOVER, {"a": {TP: entry(1)}})
    log.before_read = lambda: change(log)
    with pytest.raises(NotNow):
        memory.read()
    memory.read()
    assert memory.groups(Direction.FAILOVER) == set()


def test_what_is_refused_to_everybody_is_no_groups_own(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Retriable("not acknowledged")

    def fail(_: object) -> None:
        raise away

    memory = opened(log)
    monkeypatch.setattr(log, "write_all", fail)
    with pytest.raises(Retriable):
        memory.write(Direction.FAILOVER, {"a": {TP: entry(1)}})


@pytest.mark.parametrize("group", ["", "a", "a/b", "+1/a", "failover/a", "failover+1/a", "\u00e4 \U0001f600"])
@pytest.mark.parametrize("piece", [0, 1, 12])
def test_a_key_is_read_as_it_was_written(group: str, piece: int) -> None:
    key = Key(str(Direction.FAILOVER), group, piece)
    assert Key.read(str(key)) == key
    assert (piece > 0) or str(key) == f"failover/{group}"


@pytest.mark.parametrize("text", ["", "failover", "layout", "other/a", "failover+x/a"])
def test_what_is_no_key_is_left_alone(text: str) -> None:
    assert Key.read(text) is None


_PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 6))
_CHANGES = st.dictionaries(_PLACES, st.booleans(), max_size=8)


_A, _B, _C = (TopicPartition("a", number) for number in range(3))


@example([({_A: True, _B: True, _C: True}, 5, 3), ({_C: True}, 1, 2), ({_B: True}, 1, 3)])
@given(st.lists(st.tuples(_CHANGES, st.integers(0, 5), st.integers(1, 3)), max_size=8))
def test_a_kill_between_two_records_loses_and_revives_nothing(
    looks: list[tuple[dict[TopicPartition, bool], int, int]],
) -> None:
    """Each look is written down to some record only; limits differ, as between releases."""
    pieces: dict[int, Any] = {}
    for number, (changed, taken, at_most) in enumerate(looks):
        before = entries_of(pieces)
        changes = {
            tp: Remembered(number, frozenset({number}), number) if kept else None
            for tp, kept in changed.items()
        }
        records = rewritten(pieces, changes, at_most)
        whole = taken >= len(records)
        for piece in list(records)[:taken]:
            value = records[piece]
            if value is None:
                del pieces[piece]
            else:
                pieces[piece] = value
                assert sum(map(len, value["topics"].values())) <= at_most
        now = entries_of(pieces)
        for tp in before.keys() | changes.keys():
            wanted = changes.get(tp, before.get(tp))
            told = now.get(tp)
            if whole:
                assert (told is None) == (wanted is None)
            if wanted is not None and told is not None and (whole or tp not in changes):
                assert told.given == wanted.given
                assert wanted.known <= told.known
            if tp not in changes and wanted is not None:
                assert told is not None


ENTRY = {"given": 1, "known": [1, 2], "at_ms": 3, "stands": {"2": [1, 1]}}
ODD = {"failover/odd": {"v": 1, "topics": {"t": {"0": ENTRY}}}}


@pytest.mark.parametrize("value", [[], 5, "x", True, {}, {"v": 1}, Illegible("no JSON")], ids=repr)
def test_what_is_remembered_of_a_group_and_cannot_be_read_is_said_with_its_key(log: Log, value: Any) -> None:
    """Of that group alone; nothing is written over it."""
    assert opened(log).write(Direction.FAILOVER, {"fine": {TP: entry(1)}}) == {}
    assert log.values is not None
    log.values["failover/odd"] = value
    memory = opened(log)
    assert memory.of(Direction.FAILOVER, "fine") == {TP: entry(1)}
    for use in (
        lambda: memory.of(Direction.FAILOVER, "odd"),
        lambda: memory.write(Direction.FAILOVER, {"odd": {TP: entry(2)}}),
    ):
        with pytest.raises(NeedsOperator) as refused:
            use()
        assert refused.value.code in ("STATE_UNREADABLE", "STATE_VERSION")
    assert log.values["failover/odd"] == value


@settings(
    max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(damaged(ODD))
def test_one_odd_value_in_what_is_remembered_is_read_or_said(log: Log, values: dict[str, Any]) -> None:
    """What is read computes: another entry is written over it."""
    log.values = values
    memory = opened(log)
    for direction in Direction:
        for group in memory.groups(direction):
            with suppress(NeedsOperator):
                memory.of(direction, group)
                memory.write(direction, {group: {TP: entry(2)}})


@pytest.mark.parametrize(
    "key", ["failover+" + "9" * 5000 + "/g", "failover+-1/g", "failover+/g", "failover+²/g"]
)
def test_a_key_that_names_no_record_is_none(key: str) -> None:
    """Who writes there may write any."""
    assert Key.read(key) is None
