"""Ranges tile their bounds, whatever the offset map proposes."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.model import Mode
from onceover.audit.ranges.bounds import Bounds
from onceover.audit.ranges.tasks import tasks
from onceover.audit.ranges.tiling import Border, Copied, Hole, holes, tile
from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord, Segment

IDS = (UUID(int=1), UUID(int=2))
PAIR = (TopicPartition("a", 0), TopicPartition("b", 0))
offsets = st.integers(0, 1000)


def bounds(source: tuple[int, int], target: tuple[int, int]) -> Bounds:
    """Return bounds of one pair."""
    return Bounds(*PAIR, IDS, Mode.RECORDS, *source, *target)


@given(
    st.tuples(offsets, offsets).map(sorted),
    st.tuples(offsets, offsets).map(sorted),
    st.lists(st.builds(Border, offsets, offsets, st.integers(0, 50)), max_size=30),
    st.integers(1, 100),
)
def test_ranges_tile_the_bounds_for_any_map(
    source: list[int], target: list[int], proposed: list[Border], size: int
) -> None:
    """Wrong borders, out of order or outside, never leave a gap or an overlap on either side."""
    whole = bounds((source[0], source[1]), (target[0], target[1]))
    found = tile(whole, proposed, size)
    if whole.empty:
        assert found == []
        return
    assert (found[0].source_from, found[-1].source_to) == (whole.source_from, whole.source_to)
    assert (found[0].target_from, found[-1].target_to) == (whole.target_from, whole.target_to)
    for before, after in pairwise(found):
        assert before.source_to == after.source_from > before.source_from
        assert before.target_to == after.target_from >= before.target_from


def test_range_ends_at_the_first_border_behind_its_size() -> None:
    """Small runs are gathered."""
    proposed = [Border(10 * n, 11 * n, 40) for n in range(1, 6)]
    found = tile(bounds((0, 50), (0, 60)), proposed, 100)
    assert [(each.source_from, each.source_to, each.target_to) for each in found] == [
        (0, 30, 33),
        (30, 50, 60),
    ]


def test_tasks_hold_neighbours_only() -> None:
    """What is read in one go has no gap; a sample's ranges stand alone."""
    found = tile(bounds((0, 60), (0, 60)), [Border(10 * n, 10 * n, 1) for n in range(1, 6)], 1)
    chosen = [found[0], found[1], found[2], found[4], found[5]]
    assert [len(task.ranges) for task in tasks(IDS, chosen, 2)] == [2, 1, 2]
    assert [each for task in tasks(IDS, chosen, 2) for each in task.ranges] == chosen


def record(start: int, end: int) -> MapRecord:
    segments = (Segment(start, start, end - start),)
    return MapRecord(
        source=PAIR[0], target=PAIR[1], source_start=start, source_end=end, target_start=start,
        segments=segments, bytes=1, generation=1, lane=0, batch=1, attempt=1, begin_ms=0, commit_ms=0,
    )  # fmt: skip


def test_holes_lie_between_map_records_that_do_not_join() -> None:
    """What an operator skipped; overlaps of a repeat are none."""

    copied = Copied(start=0, position=70, alone=True, begins=False)
    found = holes([record(0, 10), record(10, 20), record(25, 30), record(5, 40), record(50, 60)], copied)
    assert list(found) == [Hole(20, 25), Hole(40, 50), Hole(60, 70)]


def test_hole_before_the_first_map_record_is_known_only_where_nothing_was_copied_before() -> None:
    """The map may as well have forgotten what was."""
    fresh = Copied(start=5, position=20, alone=True, begins=True)
    assert list(holes([record(10, 20)], fresh)) == [Hole(5, 10)]
    assert list(holes([record(10, 20)], fresh._replace(begins=False))) == [Hole(5, 10, known=False)]
    assert list(holes([], fresh)) == [Hole(5, 20)]
    assert list(holes([], fresh._replace(begins=False))) == [Hole(5, 20, known=False)]
