"""Every offset is inside the bounds, or said to be outside and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.model import Mode, Reason
from onceover.audit.ranges.bounds import Bounds, PairMap, bound
from onceover.audit.ranges.logs import PartitionLog
from onceover.audit.ranges.snapshot import PartitionSnapshot
from onceover.audit.ranges.tiling import again, behind, first_behind
from onceover.model import TopicPartition
from onceover.state.records.verified import Watermark
from onceover.stops.record import Stop
from onceover.wire.offsetlookup import Translated, translate, translate_back
from onceover.wire.offsetmap import MapRecord, Segment

SOURCE_ID, TARGET_ID, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
STOP = Stop("X", "stopped", "a", "b", "c", None)


class Straight:
    """A map on which every offset is the same on both sides, from ``start`` on."""

    def __init__(self, start: int = 0, end: int = 1 << 40) -> None:
        self._start, self._end = start, end

    def to_target(self, offset: int) -> int | None:
        return offset if self._start <= offset <= self._end else None

    to_source = to_target

    def first(self, source: int = 0, target: int = 0) -> tuple[int, int] | None:
        at = max(self._start, source, target)
        return None if at > self._end else (at, at)

    def behind(self, offset: int) -> int | None:
        return offset if self._start < offset <= self._end else None

    def again(self, offset: int, target: int) -> int | None:
        return target if self._start <= target < min(offset, self._end) else None


class Copied:
    """A map of transactions, asked as the stored one is."""

    def __init__(self, records: Sequence[MapRecord]) -> None:
        self._records = records

    def to_target(self, offset: int) -> int | None:
        found = translate(self._records, offset)
        return found.offset if isinstance(found, Translated) else None

    def to_source(self, offset: int) -> int | None:
        found = translate_back(self._records, offset)
        return found.offset if isinstance(found, Translated) else None

    def first(self, source: int = 0, target: int = 0) -> tuple[int, int] | None:
        return first_behind(self._records, source, target)

    def behind(self, offset: int) -> int | None:
        return behind(self._records, offset)

    def again(self, offset: int, target: int) -> int | None:
        return again(self._records, offset, target)


NOTHING = Straight(1, 0)


def seen(**changes: object) -> PartitionSnapshot:
    """Return a partition of 100 records, all copied."""
    facts = PartitionSnapshot(
        TopicPartition("a", 0),
        TopicPartition("b", 0),
        0,
        (SOURCE_ID, TARGET_ID),
        PartitionLog(SOURCE_ID, 0, 100, 100),
        PartitionLog(TARGET_ID, 0, 100, 100),
        100,
        100,
        moved=False,
    )
    return replace(facts, **changes)  # pyrefly: ignore[bad-argument-type]


def mark(offset: int, source_id: UUID = SOURCE_ID) -> Watermark:
    """Return what was proven before."""
    return Watermark(
        offset=offset, target_offset=offset, source_id=source_id, target_id=TARGET_ID, timestamp_ms=1, at_ms=2
    )


def bounded(facts: PartitionSnapshot, pairs: PairMap = NOTHING, *, from_watermark: bool = False) -> Bounds:
    """Return the bounds."""
    return bound(facts, pairs, from_watermark=from_watermark, handled=False)


def spans(found: Bounds) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return source and target bounds."""
    return (found.source_from, found.source_to), (found.target_from, found.target_to)


def gaps(found: Bounds) -> list[tuple[Reason, int, int]]:
    """Return what cannot be compared."""
    return [(each.reason, each.offset_from, each.offset_to) for each in found.unverifiable]


def test_whole_logs_need_no_map() -> None:
    """A copy that began at offset 0 of both logs is compared whole, though the map is empty."""
    found = bounded(seen())
    assert (spans(found), gaps(found)) == (((0, 100), (0, 100)), [])


@pytest.mark.parametrize("copied", [Straight(62, 100), NOTHING])
def test_behind_where_the_copy_was_placed_everything_is_the_copys(copied: PairMap) -> None:
    """Before its first record, too: what a stranger has written there would be in nobody's bounds."""
    facts = seen(start=60, began=40, target_log=PartitionLog(TARGET_ID, 0, 80, 80))
    assert (spans(bounded(facts, copied)), gaps(bounded(facts, copied))) == (((60, 100), (40, 80)), [])
    nothing = replace(facts, position=60, target_end=40)
    assert spans(bounded(nothing))[1] == (40, 80)
    # What others hold of it is told apart by the map alone: copies of other partitions, or of a predecessor.
    for told in ({"handled": True}, {"handled": False, "repeats": True}):
        assert bound(facts, Straight(62, 100), from_watermark=False, **told).target_from == 62


@pytest.mark.parametrize(("expires", "reason"), [(True, Reason.RETENTION), (False, Reason.DELETED)])
def test_what_the_source_no_longer_holds_is_counted(expires: bool, reason: Reason) -> None:
    """By retention, or by a person where nothing expires."""
    facts = seen(source_log=PartitionLog(SOURCE_ID, 30, 100, 100, expires=expires))
    found = bounded(facts, Straight())
    assert (spans(found), gaps(found)) == (((30, 100), (30, 100)), [(reason, 0, 30)])


def test_what_was_proven_before_it_was_lost_is_no_gap() -> None:
    """The evidence is kept in the watermark."""
    facts = seen(source_log=PartitionLog(SOURCE_ID, 30, 100, 100), watermark=mark(20))
    assert gaps(bounded(facts, Straight())) == [(Reason.RETENTION, 20, 30)]
    assert gaps(bounded(replace(facts, watermark=mark(40)), Straight())) == []


def test_target_that_begins_later_raises_both_bounds() -> None:
    """Its retention took what the source still has."""
    found = bounded(seen(target_log=PartitionLog(TARGET_ID, 60, 100, 100)), Straight())
    assert (spans(found), gaps(found)) == (((60, 100), (60, 100)), [(Reason.RETENTION, 0, 60)])


def test_log_that_begins_later_without_a_map_is_compared_from_where_the_map_begins() -> None:
    """Nothing is guessed about the border."""
    found = bounded(seen(source_log=PartitionLog(SOURCE_ID, 30, 100, 100)), Straight(50))
    assert spans(found) == ((50, 100), (50, 100))
    assert gaps(found) == [(Reason.RETENTION, 0, 30), (Reason.NOT_IN_MAP, 30, 50)]
    assert gaps(bounded(seen(source_log=PartitionLog(SOURCE_ID, 30, 100, 100)))) == [
        (Reason.RETENTION, 0, 30),
        (Reason.NOT_IN_MAP, 30, 100),
    ]


def test_lag_and_open_transactions_are_told_apart() -> None:
    """The progress, then the last stable offset, then the end."""
    facts = seen(source_log=PartitionLog(SOURCE_ID, 0, 120, 130))
    assert spans(bounded(facts))[0] == (0, 100)
    assert gaps(bounded(facts)) == [
        (Reason.NOT_COPIED_YET, 100, 120),
        (Reason.OPEN_TRANSACTION, 120, 130),
    ]
    assert gaps(bounded(replace(facts, stop=STOP)))[0] == (Reason.STOPPED, 100, 120)


def test_flow_that_goes_on_bounds_the_target_by_its_own_progress() -> None:
    """What lies behind belongs to what was copied while the ends were read."""
    log = PartitionLog(TARGET_ID, 0, 150, 150)
    assert spans(bounded(seen(target_log=log, moved=True)))[1] == (0, 100)
    assert spans(bounded(seen(target_log=log)))[1] == (0, 150)


def test_incremental_audit_begins_at_the_watermark_of_these_topics() -> None:
    """Another topic's watermark counts for nothing."""
    found = bounded(seen(watermark=mark(40)), from_watermark=True)
    assert (spans(found), found.watermark) == (((40, 100), (40, 100)), mark(40))
    found = bounded(seen(watermark=mark(40, OTHER)), from_watermark=True)
    assert (spans(found)[0], found.watermark) == ((0, 100), None)


@pytest.mark.parametrize(
    "facts",
    [
        seen(source_log=None),
        seen(target_log=None),
        seen(target_log=PartitionLog(OTHER, 0, 100, 100)),
        seen(position=None),
    ],
)
def test_topic_that_is_gone_and_lost_progress_leave_everything_unverifiable(facts: PartitionSnapshot) -> None:
    """Never an empty result that looks like PASS."""
    found = bounded(facts)
    assert found.empty
    assert [each.offset_to - each.offset_from for each in found.unverifiable] == [100]


def test_compaction_on_either_side_and_a_handler_choose_how_it_is_compared() -> None:
    """A handler outweighs."""
    log = PartitionLog(TARGET_ID, 0, 100, 100, compacted=True)
    assert bounded(seen()).mode is Mode.RECORDS
    assert bounded(seen(target_log=log)).mode is Mode.COMPACTED
    handled = bound(seen(target_log=log), NOTHING, from_watermark=False, handled=True)
    assert handled.mode is Mode.HANDLER


offsets = st.integers(0, 60)


@given(st.data())
def test_every_offset_up_to_the_end_is_inside_or_named(data: st.DataObject) -> None:
    """For any state of both logs, of the map and of the watermark."""
    start, stable, end = sorted(data.draw(st.tuples(offsets, offsets, offsets)))
    position = data.draw(offsets)
    known = data.draw(st.none() | offsets.map(mark))
    first = data.draw(offsets)
    facts = seen(
        source_log=PartitionLog(SOURCE_ID, start, stable, end),
        target_log=PartitionLog(TARGET_ID, data.draw(offsets), 60, 60),
        position=position,
        watermark=known,
        start=data.draw(st.just(0) | offsets),
        stop=data.draw(st.none() | st.just(STOP)),
    )
    found = bounded(facts, Straight(first), from_watermark=data.draw(st.booleans()))
    assert found.source_from <= found.source_to <= stable or found.empty
    proven = -1 if known is None else known.offset
    covered = set(range(found.source_from, found.source_to))
    for each in found.unverifiable:
        covered |= set(range(each.offset_from, each.offset_to))
    missing = set(range(max(facts.start, proven), end)) - covered
    assert not missing


def transaction(source: tuple[int, int], target: int, segments: Sequence[tuple[int, int, int]]) -> MapRecord:
    """Return what the map says of one transaction."""
    return MapRecord(
        source=TopicPartition("a", 0), target=TopicPartition("b", 0),
        source_start=source[0], source_end=source[1], target_start=target,
        segments=tuple(Segment(*each) for each in segments),
        bytes=1, generation=1, lane=0, batch=0, attempt=0, begin_ms=1, commit_ms=2,
    )  # fmt: skip


@pytest.mark.parametrize("asked_from", [101, 130, 150])
def test_time_behind_all_that_is_copied_leaves_nothing_to_compare(asked_from: int) -> None:
    """A lagging flow: no target record is as young, so none is surplus."""
    facts = seen(source_log=PartitionLog(SOURCE_ID, 0, 150, 150), asked_from=asked_from)
    found = bounded(facts, Straight(0, 100))
    assert found.empty
    assert gaps(found) == [(Reason.NOT_COPIED_YET, 100, 150)]


def test_source_that_lost_what_was_not_copied_leaves_nothing_to_compare() -> None:
    """Its log begins behind the progress: everything on the target is older."""
    found = bounded(seen(source_log=PartitionLog(SOURCE_ID, 120, 150, 150)), Straight(0, 100))
    assert found.empty
    assert gaps(found) == [(Reason.RETENTION, 0, 100), (Reason.NOT_COPIED_YET, 100, 150)]


def test_target_that_holds_nothing_any_more_is_not_asked_for_it() -> None:
    """Its log begins behind the last commit marker, where the map says nothing."""
    found = bounded(seen(target_log=PartitionLog(TARGET_ID, 101, 101, 101)), Straight(0, 100))
    assert found.empty
    assert gaps(found) == [(Reason.RETENTION, 0, 100)]


def test_handler_goes_on_with_what_other_target_partitions_hold() -> None:
    """One of them that holds nothing any more says nothing about those."""
    facts = seen(target_log=PartitionLog(TARGET_ID, 101, 101, 101))
    found = bound(facts, Straight(0, 100), from_watermark=False, handled=True)
    assert (spans(found)[0], gaps(found)) == ((0, 100), [])


def test_time_among_records_that_were_skipped_begins_where_the_copy_goes_on() -> None:
    """The target's records from before are no part of it."""
    pairs = Copied([transaction((0, 40), 0, [(0, 0, 40)]), transaction((60, 100), 41, [(60, 41, 40)])])
    found = bounded(seen(target_log=PartitionLog(TARGET_ID, 0, 82, 82), asked_from=50), pairs)
    assert (spans(found), gaps(found)) == (((50, 100), (41, 82)), [])


@pytest.mark.parametrize(("proven", "joins"), [(49, False), (50, False), (61, True)])
def test_time_whose_first_record_lies_behind_what_was_proven_on_the_target_proves_nothing(
    proven: int, joins: bool
) -> None:
    """What somebody else wrote in between would be passed."""
    pairs = Copied([transaction((50, 100), 60, [(50, 60, 50)])])
    known = replace(mark(50), target_offset=proven)
    facts = seen(target_log=PartitionLog(TARGET_ID, 0, 111, 111), watermark=known, asked_from=50)
    assert bounded(facts, pairs).joins is joins


def test_time_before_the_copy_asks_for_all_of_it() -> None:
    """Also where the source holds nothing: every record on the target is surplus."""
    empty = seen(source_log=PartitionLog(SOURCE_ID, 0, 0, 0), position=0, target_end=0, asked_from=0)
    assert spans(bounded(empty)) == ((0, 0), (0, 100))


@st.composite
def copies(draw: st.DrawFn) -> tuple[list[MapRecord], dict[int, int], int, int]:
    """Return transactions, the target offset of every copied record, the position and the target's end."""
    records, copied, source, target = [], {}, 0, 0
    for _ in range(draw(st.integers(1, 4))):
        source += draw(st.sampled_from([0, 0, 0, 3]))  # skipped by an operator
        begin, start, segments = source, target, []
        for _ in range(draw(st.integers(0, 3))):
            source += draw(st.sampled_from([0, 1]))  # a marker of the source
            count = draw(st.integers(1, 4))
            segments.append((source, target, count))
            copied.update({source + n: target + n for n in range(count)})
            source, target = source + count, target + count
        source += draw(st.sampled_from([0, 0, 2])) if segments else 1
        records.append(transaction((begin, source), start, segments))
        target += 1
    return records, copied, source, target


@given(copies(), st.data())
def test_both_bounds_hold_the_same_records_wherever_they_begin(
    copy: tuple[list[MapRecord], dict[int, int], int, int], data: st.DataObject
) -> None:
    """A right copy has none on one side alone: for any time, lag, retention and holes."""
    records, copied, position, end = copy
    log = PartitionLog(SOURCE_ID, data.draw(st.integers(0, position + 5)), position + 9, position + 9)
    facts = seen(
        source_log=log,
        target_log=PartitionLog(TARGET_ID, data.draw(st.integers(0, end)), end, end),
        position=position,
        asked_from=data.draw(st.none() | st.integers(0, position + 9)),
    )
    found = bounded(facts, Copied(records))
    here = {each for each in copied if found.source_from <= each < found.source_to}
    there = {each for each, at in copied.items() if found.target_from <= at < found.target_to}
    assert here == there


@pytest.mark.parametrize(
    "lost",
    [
        {"target_log": PartitionLog(TARGET_ID, 0, 30, 30)},
        {"target_log": PartitionLog(TARGET_ID, 0, 100, 100), "parted_at": (None, 30)},
        {"source_log": PartitionLog(SOURCE_ID, 0, 30, 30)},
        {"source_log": PartitionLog(SOURCE_ID, 0, 100, 100), "parted_at": (30, None)},
    ],
    ids=["target", "target, grown", "source", "source, grown"],
)
def test_what_was_proven_of_a_log_that_has_lost_it_is_looked_at_again(lost: dict[str, object]) -> None:
    """By an unclean election: a PASS that stands on the proof would be one of records that are gone."""
    found = bounded(seen(watermark=mark(100), **lost), from_watermark=True)
    assert (found.watermark, found.source_from, found.target_from) == (None, 0, 0)
    assert not found.empty
    # Proven before where it has parted: all of that is still there.
    assert bounded(seen(watermark=mark(30), **lost), from_watermark=True).watermark == mark(30)
