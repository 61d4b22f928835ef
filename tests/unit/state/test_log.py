"""Reading the state: everything up to the high watermark of the beginning, nothing that is undecided."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any
from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, Retriable
from onceover.kafka import calls
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.logs.fetcher import Position
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.state import log as statelog
from onceover.state.log import LogCapacity, StateLog
from onceover.state.read import FlowState
from onceover.state.records.value import VALUE_BYTES, VALUE_PARTS, Illegible
from onceover.wire.batches.compression import ZSTD
from onceover.wire.batches.records import encode
from onceover.wire.hotpath import FetchedPartition
from tests.support.raw.rawkafka import RawRecord, build_batch
from tests.unit.copy.batches import answer

TOPIC = "__onceover.f.state"
TP = TopicPartition(TOPIC, 0)


def state(base_offset: int, **values: Any) -> bytes:
    """Return one batch with a record per key; None removes it."""
    records = [
        RawRecord(key.encode(), None if value is None else json.dumps(value).encode(), timestamp_ms=1)
        for key, value in values.items()
    ]
    return base_offset.to_bytes(8, "big") + build_batch(records)[8:]


class FakeTarget:
    """A cluster whose state partition has the given ends and gives the scripted answers."""

    alias = "west"

    def __init__(self, answers: list[FetchedPartition | Exception], *, high_watermark: int, lso: int) -> None:
        self.answers = answers
        self.high_watermark, self.lso = high_watermark, lso
        self.exists, self.topic_id = True, UUID(int=7)
        self.fetchers: list[FakeFetcher] = []
        self.fetched_from: list[int] = []
        self.held_ms: list[int] = []
        self.waited_s: list[float] = []

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        info = TopicInfo(TOPIC, self.topic_id, {0: PartitionInfo(1, 0)}, False)
        return {TOPIC: info} if self.exists else {}

    def list_offsets(
        self, tps: list[TopicPartition], at: int, isolation: int = 1
    ) -> dict[TopicPartition, int]:
        if at == calls.EARLIEST:
            return {TP: 5}
        return {TP: self.lso if isolation == calls.READ_COMMITTED else self.high_watermark}


class FakeFetcher:
    """Stands in for the Fetcher that StateLog opens."""

    def __init__(self, cluster: FakeTarget, *, isolation: int, **_: object) -> None:
        self.cluster, self.isolation = cluster, isolation
        self.positions: dict[TopicPartition, Position] = {}
        self.closed = False
        cluster.fetchers.append(self)

    def assign(self, tp: TopicPartition, position: Position) -> None:
        self.positions[tp] = position

    @property
    def waiting(self) -> bool:
        return False

    def request(self, *, max_wait_ms: int, **_: object) -> None:
        self.cluster.fetched_from.append(self.positions[TP].offset)
        self.cluster.held_ms.append(max_wait_ms)

    def poll(self, timeout_s: float) -> list[tuple[TopicPartition, FetchedPartition]]:
        self.cluster.waited_s.append(timeout_s)
        if self.closed:
            raise ConnectionLost("used after it was closed")
        found = self.cluster.answers.pop(0) if self.cluster.answers else answer()
        if isinstance(found, BaseException):
            raise found
        return [(TP, found)]

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def fetcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statelog, "Fetcher", FakeFetcher)


def log_of(target: FakeTarget) -> StateLog:
    """Return a reader of the leader's partition."""
    return StateLog(target, TOPIC, 0)  # pyrefly: ignore[bad-argument-type]


def test_catch_up_waits_for_the_lso_to_pass_the_high_watermark() -> None:
    """A transaction that is being decided is neither missed nor believed too early (``SECOND_LOOK``)."""
    target = FakeTarget(
        [answer([state(0, layout=1)]), answer(), answer(), answer([state(1, layout=2)])],
        high_watermark=2,
        lso=1,
    )
    assert log_of(target).catch_up() == {"layout": 2}
    assert target.fetched_from == [0, 1, 1, 1]


def test_catch_up_without_waiting_reads_to_the_lso_only() -> None:
    """A lane's first read: a layout that is being written must not hold it up."""
    target = FakeTarget([answer([state(0, layout=1)])], high_watermark=2, lso=1)
    assert log_of(target).catch_up(wait=False) == {"layout": 1}
    assert not target.answers


def test_catch_up_goes_on_where_it_was() -> None:
    """The second look reads what is new."""
    target = FakeTarget([answer([state(0, a=1)]), answer([state(1, b=2)])], high_watermark=1, lso=1)
    reader = log_of(target)
    reader.catch_up()
    target.high_watermark = 2
    assert reader.catch_up() == {"a": 1, "b": 2}
    assert target.fetched_from == [0, 1]


def test_whoever_was_interrupted_reads_on_by_another_connection() -> None:
    """What takes a drill back reads the journal that it was interrupted in."""
    interrupted: Any = KeyboardInterrupt()
    target = FakeTarget([interrupted, answer([state(0, a=1)])], high_watermark=1, lso=1)
    reader = log_of(target)
    with pytest.raises(KeyboardInterrupt):
        reader.catch_up()
    assert reader.catch_up() == {"a": 1}
    assert [each.closed for each in target.fetchers] == [True, False]


def test_catch_up_gives_up_when_a_transaction_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure, not an empty state."""
    monkeypatch.setattr(statelog, "_CATCH_UP_S", 0.0)
    with pytest.raises(Retriable, match="a transaction is open"):
        log_of(FakeTarget([], high_watermark=2, lso=1)).catch_up()


def test_what_was_read_counts_however_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that slept amid the answer was told that a transaction is open."""
    target = FakeTarget([answer([state(0, a=1)])], high_watermark=1, lso=1)

    class Asleep:
        @property
        def passed(self) -> bool:
            return bool(target.fetched_from)

    monkeypatch.setattr(statelog, "Deadline", lambda _seconds: Asleep())
    assert log_of(target).catch_up() == {"a": 1}


def test_readers_of_the_layout_read_committed() -> None:
    """An unready layout of a dead starter would be believed otherwise."""
    target = FakeTarget([answer([state(0, a=1)])], high_watermark=1, lso=1)
    log_of(target).catch_up()
    assert target.fetchers[0].isolation == calls.READ_COMMITTED


def test_later_values_win_and_tombstones_remove() -> None:
    """Compaction may have run, or not."""
    target = FakeTarget(
        [answer([state(0, a=1, b=1), state(2, a=2), state(3, b=None)])], high_watermark=4, lso=4
    )
    assert log_of(target).catch_up() == {"a": 2}


def test_batch_that_begins_before_the_position_is_not_applied_again() -> None:
    """A fetch answers whole batches."""
    target = FakeTarget([answer([state(0, a=1, b=1)]), answer([state(0, a=9, b=2)])], high_watermark=2, lso=2)
    reader = log_of(target)
    reader._offset = 1
    reader.catch_up()
    assert reader.values == {"b": 1}


def test_log_start_that_moved_is_followed() -> None:
    """Retention of a compacted topic's head."""
    target = FakeTarget([answer(error=1), answer([state(5, a=1)])], high_watermark=6, lso=6)
    assert log_of(target).catch_up() == {"a": 1}
    assert target.fetched_from == [0, 5]


def test_lost_broker_is_retriable_and_the_next_call_connects_anew() -> None:
    """The old connection is closed and never used again."""
    target = FakeTarget([ConnectionLost("gone"), answer([state(0, a=1)])], high_watermark=1, lso=1)
    reader = log_of(target)
    with pytest.raises(Retriable):
        reader.catch_up()
    assert reader.catch_up() == {"a": 1}
    assert [fetcher.closed for fetcher in target.fetchers] == [True, False]


NOT_NOW = pytest.mark.parametrize(
    "code", [6, 74, 100], ids=["leader moved", "younger epoch", "not known yet"]
)


@NOT_NOW
def test_a_leader_of_a_moment_ago_is_asked_again(code: int) -> None:
    """Its topic may be as young: the leader is looked for anew."""
    target = FakeTarget([answer(error=code), answer([state(0, a=1)])], high_watermark=1, lso=1)
    assert log_of(target).catch_up() == {"a": 1}
    assert [fetcher.closed for fetcher in target.fetchers] == [True, False]


@NOT_NOW
def test_it_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Whoever waits is told; who only looks is told at once."""
    monkeypatch.setattr(statelog, "_NOT_NOW_S", 0.0)
    for look in ("catch_up", "poll"):
        with pytest.raises(Retriable, match="cannot be read at the moment"):
            getattr(log_of(FakeTarget([answer(error=code)], high_watermark=1, lso=1)), look)()


def test_poll_tells_whether_something_came() -> None:
    """And never waits."""
    target = FakeTarget([answer([state(0, a=1)]), answer()], high_watermark=1, lso=1)
    reader = log_of(target)
    assert reader.poll() and not reader.poll()


def test_who_looks_often_waits_for_nothing() -> None:
    """The target keeps the question instead: its answer from far away is there at one of the next looks."""
    target = FakeTarget([], high_watermark=0, lso=0)
    log_of(target).poll(held_ms=500)
    assert (target.held_ms, target.waited_s) == ([500, 500], [0.0, 0.0]), "and asked again at once"
    log_of(target).poll()
    assert target.held_ms[2:] == [0] and target.waited_s[2] > 0


def test_missing_topic_needs_an_operator() -> None:
    """Deleted state is not an empty state."""
    target = FakeTarget([], high_watermark=1, lso=1)
    target.exists = False
    with pytest.raises(NeedsOperator, match="does not exist") as refusal:
        log_of(target).catch_up()
    assert refusal.value.code == "STATE_MISSING"


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_topic_that_was_deleted_meanwhile_needs_an_operator(*, made_anew: bool) -> None:
    """What was read of it may not be followed up in another one of the same name."""
    target = FakeTarget([answer([state(0, a=1)]), answer(error=100)], high_watermark=1, lso=1)
    reader = log_of(target)
    reader.catch_up()
    target.exists, target.topic_id = made_anew, UUID(int=8)
    with pytest.raises(NeedsOperator) as refusal:
        reader.poll()
    assert refusal.value.code == "STATE_MISSING"


def raw(base_offset: int, key: bytes, value: bytes | None) -> bytes:
    """Return a batch of one record, whose value need not be JSON."""
    return base_offset.to_bytes(8, "big") + build_batch([RawRecord(key, value, timestamp_ms=1)])[8:]


@pytest.mark.parametrize(
    "value",
    [
        b"not json",
        b"\xff{",
        b"null",
        b"[" * 9000,
        b"9" * 5000,
        b"1" * (VALUE_BYTES + 1),
        b"[]," * VALUE_PARTS,
    ],
    ids=["text", "no UTF-8", "null", "deep", "long number", "large", "of too many parts"],
)
def test_a_value_that_cannot_be_read_is_no_record_of_anything(value: bytes) -> None:
    """Whoever wants it as a record is told; a broken layout is not a missing one."""
    target = FakeTarget([answer([raw(0, b"layout", value)])], high_watermark=1, lso=1)
    state = FlowState(leader=log_of(target).catch_up())
    with pytest.raises(NeedsOperator, match="the layout in the flow's state cannot be read") as refusal:
        _ = state.layout
    assert refusal.value.code == "STATE_UNREADABLE"


@pytest.mark.parametrize("after", [b'{"v":1}', None], ids=["replaced", "deleted"])
def test_what_was_replaced_does_not_matter_whatever_it_was(after: bytes | None) -> None:
    """The cleaner takes hours; until then the older value lies in the log."""
    batches = [raw(0, b"layout", b"\xff{"), raw(1, b"layout", after)]
    found = log_of(FakeTarget([answer(batches)], high_watermark=2, lso=2)).catch_up()
    assert found == ({} if after is None else {"layout": {"v": 1}})


def test_only_the_wanted_keys_are_kept() -> None:
    """Whatever another flow's user writes beside them."""
    target = FakeTarget([answer([state(0, layout=1, junk=2, claim=3)])], high_watermark=3, lso=3)
    assert StateLog(target, TOPIC, 0, prefixes=("layout", "claim")).catch_up() == {  # pyrefly: ignore[bad-argument-type]
        "layout": 1,
        "claim": 3,
    }


@pytest.mark.parametrize("room", [LogCapacity(60, 1000), LogCapacity(1000, 8)], ids=["bytes", "parts"])
def test_what_is_kept_has_a_ceiling_that_is_about_the_latest_values(room: LogCapacity) -> None:
    """A value that is written a hundred times counts once; keys count as well."""
    value = [1, 2, 3]
    batches = [state(n, **{"key": value}) for n in range(100)] + [
        state(100, key=None),
        state(101, other=value),
    ]
    target = FakeTarget([answer(batches)], high_watermark=102, lso=102)
    log = StateLog(target, TOPIC, 0, room=room)  # pyrefly: ignore[bad-argument-type]
    assert log.catch_up() == {"other": value}
    target.answers = [answer([state(102, more=value), state(103, **{"k" * 60: 1})])]
    target.high_watermark = target.lso = 104
    with pytest.raises(NeedsOperator, match="holds more than any flow writes there") as refusal:
        log.catch_up()
    assert (refusal.value.code, refusal.value.where) == ("STATE_UNREADABLE", "west")


def test_a_few_bytes_in_a_compressed_batch_do_not_become_gigabytes() -> None:
    """1200 bytes on the wire were 344 MiB, and stayed."""
    plain = b"[" + b"[]," * 4_000_000 + b"[]]"
    batch = bytes(encode([(0, b"topic/x", plain, ())], codec=ZSTD).batch)
    assert len(batch) < 4000
    tracemalloc.start()
    try:
        log = log_of(FakeTarget([answer([batch])], high_watermark=1, lso=1))
        found = log.catch_up()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(found["topic/x"], Illegible)
    assert kept < len(plain) and peak < 8 * len(plain)
