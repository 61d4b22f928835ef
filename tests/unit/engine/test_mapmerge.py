"""Upkeep of the offset map: beside the driver's work, never in its way; what is merged is bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceover.engine import mapmerge
from onceover.engine.mapmerge import MapUpkeep, MergeRules
from onceover.errors import Fenced, MustReset, OnceoverError, Retriable, UsageError
from onceover.wire.offsetlookup import mergeable
from tests.unit.engine.maplog import MapLog

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
    return MapUpkeep(merger, first_s=first_s, interval_s=interval_s)  # type: ignore[arg-type]


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
