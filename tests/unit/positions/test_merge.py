"""Upkeep of the offset map: beside the driver's work, never in its way; what is merged is bounded."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from uuid import UUID

import pytest

from onceover.errors import Fenced, MustReset, OnceoverError, Retriable, UsageError
from onceover.model import TopicPartition
from onceover.positions import merge as mapmerge
from onceover.positions.merge import MapMerger, MapUpkeep, MergeRules
from onceover.wire.offsetlookup import mergeable
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.positions.maplog import MapLog

HOUR_MS = 3600_000


class FakeMerger:
    """Passes of so many steps; each does away with one record. ``wrong`` ends a pass in its second step."""

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.wrong: Exception | None = None
        self.passes = self.done = 0

    def steps(self) -> Iterator[int]:
        self.passes += 1
        for number in range(self.length):
            if number == 1 and self.wrong is not None:
                raise self.wrong
            self.done += 1
            yield 1

    def close(self) -> None:
        self.done = -1


def upkeep(merger: FakeMerger, first_s: float = 0.0, interval_s: float = 3600.0) -> MapUpkeep:
    return MapUpkeep(merger, first_s=first_s, interval_s=interval_s)  # pyrefly: ignore[bad-argument-type]


def test_a_pass_goes_on_over_ticks_of_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapmerge, "_BUDGET_S", 0.0)
    merger = FakeMerger()
    kept = upkeep(merger)
    for number in range(1, 6):
        kept.tick()
        assert (merger.passes, merger.done) == (1, number)


def test_a_pass_within_the_budget_ends_and_the_next_one_waits() -> None:
    merger = FakeMerger()
    kept = upkeep(merger)
    for _ in range(3):
        kept.tick()
    assert (merger.passes, merger.done) == (1, 5)


def test_nothing_is_done_before_the_first_pass_is_due() -> None:
    merger = FakeMerger()
    upkeep(merger, first_s=60.0).tick()
    assert merger.passes == 0


@pytest.mark.parametrize("wrong", [Retriable("away"), MustReset("fenced"), UsageError("no right")])
def test_a_failure_is_told_and_never_ends_the_run(
    wrong: OnceoverError, caplog: pytest.LogCaptureFixture
) -> None:
    merger = FakeMerger()
    merger.wrong = wrong
    kept = upkeep(merger, interval_s=0.0)
    kept.tick()
    assert "was not merged and will be tried again" in caplog.text
    merger.wrong = None
    kept.tick()
    assert merger.passes == 2


def test_a_newer_generation_ends_the_run() -> None:
    merger = FakeMerger()
    merger.wrong = Fenced("newer")
    with pytest.raises(Fenced):
        upkeep(merger).tick()


@pytest.mark.parametrize(
    ("retention_ms", "span_ms"), [(14 * 24 * HOUR_MS, 24 * HOUR_MS), (HOUR_MS, HOUR_MS // 8)]
)
def test_a_merged_record_spans_a_small_part_of_the_retention(retention_ms: int, span_ms: int) -> None:
    """Time retention goes by its newest part: so much later at most does the oldest one expire."""
    assert MergeRules.for_retention(retention_ms).max_span_ms == span_ms


def test_runs_end_at_segments_span_and_generation() -> None:
    log = MapLog()
    for _ in range(10):
        log.transaction([True], 1)
    log.start(0)
    log.transaction([True], 1)
    records = log.arranged()
    assert [len(run) for run in mergeable(records)] == [10, 1]
    assert [len(run) for run in mergeable(records, max_segments=4)] == [4, 4, 2, 1]
    # One record a millisecond, each of one: six of them span six milliseconds.
    assert [len(run) for run in mergeable(records, max_span_ms=6)] == [6, 4, 1]


class Tape:
    """Takes down in which order a pass asks for things."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.not_yet = 1


class FakeProducer:
    producer_id = 7

    def __init__(self, tape: Tape, transactional_id: str) -> None:
        self._tape, self._id = tape, transactional_id

    def init(self) -> bool:
        self._tape.log.append(f"init {self._id}")
        self._tape.not_yet -= 1
        return self._tape.not_yet < 0

    def decide(self, partitions: Collection[TopicPartition], *, commit: bool) -> None:
        self._tape.log.append(f"{'commit' if commit else 'abort'} {', '.join(map(str, partitions))}")

    def close(self) -> None:
        self._tape.log.append("drop")


class FakeIndex:
    store: Any = None

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def refreshing(self, *, settled: bool) -> Iterator[None]:
        self._tape.log.append(f"read the map{' to its end' if settled else ''}")
        yield

    def close(self) -> None:
        pass


def merged(
    tape: Tape,
    target: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    producer: type[FakeProducer] = FakeProducer,
) -> None:
    """Do a pass in which nothing is merged."""
    monkeypatch.setattr(mapmerge, "TransactionalProducer", lambda _c, tid, **_: producer(tape, tid))
    monkeypatch.setattr(mapmerge, "MapIndex", lambda *_: FakeIndex(tape))
    merger = MapMerger(target, "f", None, lambda: tape.log.append("read the layout"), dict)
    assert set(merger.steps()) == {0}
    merger.close()


def test_the_id_is_taken_then_the_layout_read_then_the_progress_then_the_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In another order a generation that goes back, or a lane, could write below what is merged."""
    tape, target = Tape(), FakeCluster()
    target.heard = lambda request, _: tape.log.append(request)
    merged(tape, target, monkeypatch)
    assert tape.log == [
        "read the layout",
        "init onceover.f.map",
        "read the layout",
        "init onceover.f.map",
        "DescribeProducers",
        "read the layout",
        "OffsetFetch",
        "read the map to its end",
        "drop",
    ]


def test_what_an_earlier_merge_left_open_is_ended_before_the_map_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No coordinator knows of it, and reading the map to its end would wait for it for ever."""
    tape, target = Tape(), FakeCluster()
    topic = target.add_topic("__onceover.f.offsets", UUID(int=1), (5, 5, 5, 5))
    topic.logs[2].pending[7] = 3
    topic.logs[3].pending[8] = 3  # a lane's, under way

    class Deciding(FakeProducer):
        def decide(self, partitions: Collection[TopicPartition], *, commit: bool) -> None:
            super().decide(partitions, commit=commit)
            topic.logs[2].pending.clear()

    merged(tape, target, monkeypatch, Deciding)
    # The layout is read before each time that the id is asked for.
    assert tape.log == [
        "read the layout",
        "init onceover.f.map",
        "read the layout",
        "init onceover.f.map",
        "abort __onceover.f.offsets:2",
        "read the layout",
        "init onceover.f.map",
        "read the layout",
        "read the map to its end",
        "drop",
    ]
