"""Why a partition may not go on: a minimal violation and a near miss for every code (G5)."""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import NeedsOperator
from onceover.model import TopicPartition
from onceover.stops.contents import damaged_batch, refused_record
from onceover.stops.judge import Evidence, TopicSeen, judge, needs_epoch
from onceover.stops.record import Stop
from onceover.wire.batches.batch import DELETE_HORIZON, BatchHeader, CorruptBatch
from onceover.wire.progress import CopiedBatch, ProgressMeta

SOURCE_ID, TARGET_ID, OTHER_ID = UUID(int=1), UUID(int=2), UUID(int=3)
SOURCE, TARGET = TopicPartition("t", 1), TopicPartition("copy.t", 1)
META = ProgressMeta(
    source_topic_id=str(SOURCE_ID),
    target_topic_id=str(TARGET_ID),
    leader_epoch=4,
    target_end=50,
    generation=1,
    instance=(1, 0),
)
GOOD = Evidence(
    flow="f",
    source=SOURCE,
    target=TARGET,
    enrolled_source_id=SOURCE_ID,
    enrolled_target_id=TARGET_ID,
    position=100,
    meta=META,
    source_topic=TopicSeen(SOURCE_ID, 2),
    target_topic=TopicSeen(TARGET_ID, 2),
    log_start=0,
    log_end=200,
    epoch_end=(4, 200),
    target_end=50,
)

EPOCHAL = replace(META, target_epoch=7)
# The last batch before position 100, as it was copied, and as it lies there.
COPIED = CopiedBatch(90, 100, 800, 7)
HELD = BatchHeader(90, 788, 4, 2, 7, 0, 9, 0, 0, -1, -1, -1, 10)
BATCHED = replace(GOOD, meta=replace(META, batch=COPIED), last_batch=HELD)
FOREIGN = NeedsOperator("changed", code="PROGRESS_FOREIGN", expected="metadata of ours", seen="none")
UNREADABLE = NeedsOperator("damaged", code="PROGRESS_UNREADABLE", expected="JSON", seen="none")
VIOLATIONS = {
    "SOURCE_MISSING": [replace(GOOD, source_topic=None)],
    "SOURCE_RECREATED": [replace(GOOD, source_topic=TopicSeen(OTHER_ID, 2))],
    "SOURCE_SHRUNK": [replace(GOOD, source_topic=TopicSeen(SOURCE_ID, 1))],
    "TARGET_MISSING": [replace(GOOD, target_topic=None)],
    "TARGET_RECREATED": [replace(GOOD, target_topic=TopicSeen(OTHER_ID, 2))],
    "TARGET_SHRUNK": [replace(GOOD, target_topic=TopicSeen(TARGET_ID, 1))],
    "PROGRESS_MISSING": [replace(GOOD, position=None, meta=None)],
    "PROGRESS_FOREIGN": [replace(GOOD, meta=None, doubt=FOREIGN), replace(GOOD, log_end=0, doubt=FOREIGN)],
    "PROGRESS_UNREADABLE": [replace(GOOD, meta=None, doubt=UNREADABLE)],
    "SOURCE_TRUNCATED": [replace(GOOD, log_start=101)],
    "SOURCE_DIVERGED": [
        replace(GOOD, log_end=99, epoch_end=None),
        replace(GOOD, log_end=99),
        # the log has grown again, but our history ends before our position
        replace(GOOD, epoch_end=(4, 99)),
        replace(GOOD, epoch_end=(3, 150)),
        # restored from a copy that is older than our epoch, and grown past our position since
        replace(GOOD, epoch_end=(-1, -1)),
        # or from one whose next life began in the very epoch that ours had then: only the records tell
        replace(BATCHED, last_batch=HELD._replace(crc=8)),
        replace(BATCHED, last_batch=HELD._replace(base_offset=91, last_offset_delta=8, count=9)),
        # compaction takes records out of batches, and never moves their ends
        replace(BATCHED, last_batch=HELD._replace(crc=8, last_offset_delta=12, count=3)),
        # the position is in the middle of the batch, which goes on behind it
        replace(BATCHED, position=95, last_batch=HELD._replace(crc=8)),
    ],
    "TARGET_SHORTENED": [
        replace(GOOD, target_end=49),
        # it has grown again behind an unclean election, but what we wrote to ends before our end
        replace(GOOD, meta=EPOCHAL, target_end=90, target_epoch_end=(7, 49)),
        # by a leader that has nothing of the epoch at all
        replace(GOOD, meta=EPOCHAL, target_end=90, target_epoch_end=(5, 0)),
    ],
}
CASES = [(code, evidence) for code, found in VIOLATIONS.items() for evidence in found]
NEAR_MISSES = [
    GOOD,
    replace(GOOD, log_start=100),
    # an election that lost nothing: the epoch ends where we ended, or behind
    replace(GOOD, meta=EPOCHAL, target_end=90, target_epoch_end=(7, 50)),
    # the epoch has nothing of its own, the one before has everything
    replace(GOOD, meta=EPOCHAL, target_end=90, target_epoch_end=(6, 50)),
    # no answer is no proof: a log may have lost its list of epochs, and nothing else
    replace(GOOD, meta=EPOCHAL, target_end=90, target_epoch_end=(-1, -1)),
    replace(GOOD, meta=EPOCHAL, target_end=90),
    replace(GOOD, log_end=100, epoch_end=(4, 100)),
    replace(GOOD, epoch_end=None),
    # a newer epoch has begun, exactly where we are
    replace(GOOD, epoch_end=(4, 100)),
    BATCHED,
    # served by another leader, or again by the same: neither is in the checksum
    replace(BATCHED, last_batch=HELD._replace(leader_epoch=5)),
    # compaction has taken records out of it, all of them, or has marked it
    replace(BATCHED, last_batch=HELD._replace(crc=8, count=4)),
    replace(BATCHED, last_batch=HELD._replace(crc=8, count=0)),
    replace(BATCHED, last_batch=HELD._replace(crc=8, attributes=DELETE_HORIZON)),
    # deleted by retention, compacted away, or not told
    replace(BATCHED, last_batch=None),
    # written by an older release, by hand, or beside another position
    replace(GOOD, last_batch=HELD._replace(crc=8)),
    replace(BATCHED, position=90, last_batch=HELD._replace(crc=8)),
    replace(BATCHED, position=101, last_batch=HELD._replace(crc=8)),
    replace(GOOD, target_end=51),
    replace(GOOD, source_topic=TopicSeen(SOURCE_ID, 3)),
    # a position of an older release, or one that was written by hand: nothing to compare
    replace(GOOD, meta=replace(META, leader_epoch=-1, target_end=0), epoch_end=None, target_end=0),
]


@pytest.mark.parametrize(("code", "evidence"), CASES, ids=[code for code, _ in CASES])
def test_violation_stops_with_its_code_and_says_what_to_do(code: str, evidence: Evidence) -> None:
    """Expected, seen, and a command that resolves it."""
    stop = judge(evidence)
    assert stop is not None
    assert stop.code == code
    assert stop.position == evidence.position
    assert all((stop.message, stop.expected, stop.seen, stop.resolve))
    assert "f t:1" in stop.resolve or "seed plan f" in stop.resolve


@pytest.mark.parametrize("evidence", NEAR_MISSES)
def test_near_miss_goes_on(evidence: Evidence) -> None:
    """What looks similar and is right."""
    assert judge(evidence) is None


topics = st.none() | st.builds(
    TopicSeen, st.sampled_from([SOURCE_ID, TARGET_ID, OTHER_ID]), st.integers(0, 3)
)
offsets = st.integers(0, 6)
metas = st.none() | st.builds(replace, st.just(META), leader_epoch=st.integers(-1, 3), target_end=offsets)


@given(
    st.builds(
        Evidence,
        flow=st.just("f"),
        source=st.just(SOURCE),
        target=st.just(TARGET),
        enrolled_source_id=st.just(SOURCE_ID),
        enrolled_target_id=st.just(TARGET_ID),
        position=st.none() | offsets,
        meta=metas,
        source_topic=topics,
        target_topic=topics,
        log_start=offsets,
        log_end=offsets,
        epoch_end=st.none() | st.just((-1, -1)) | st.tuples(st.integers(0, 3), offsets),
        target_end=offsets,
        target_epoch_end=st.none() | st.just((-1, -1)) | st.tuples(st.integers(0, 3), offsets),
        doubt=st.none() | st.sampled_from([FOREIGN, UNREADABLE]),
    )
)
def test_going_on_implies_that_nothing_would_be_skipped_or_repeated(e: Evidence) -> None:
    """Position inside the log and our own history, topics the enrolled ones, target not shorter."""
    if judge(e) is not None:
        return
    assert e.position is not None and e.doubt is None
    assert e.log_start <= e.position <= e.log_end
    assert e.source_topic is not None and e.source_topic.topic_id == e.enrolled_source_id
    assert e.target_topic is not None and e.target_topic.topic_id == e.enrolled_target_id
    assert e.source.partition < e.source_topic.partitions
    assert e.target.partition < e.target_topic.partitions
    if e.epoch_end is not None:
        assert e.position <= e.epoch_end[1]
        assert e.meta is None or e.epoch_end[0] >= e.meta.leader_epoch
    assert e.meta is None or e.target_end >= e.meta.target_end
    if e.meta is not None and e.target_epoch_end is not None:
        assert e.target_epoch_end[1] == -1 or e.target_epoch_end[1] >= e.meta.target_end


def test_another_last_batch_names_both_and_where_they_must_have_parted_by() -> None:
    """Whichever begins first: behind that nothing is the same."""
    seen = HELD._replace(base_offset=97, last_offset_delta=5, crc=255)
    stop = judge(replace(BATCHED, last_batch=seen))
    assert stop is not None
    assert "offsets 90 to 99, CRC-32C 0x00000007" in stop.expected
    assert stop.seen == "another one at offset 99: offsets 97 to 102, CRC-32C 0x000000ff"
    assert "audit" in stop.resolve and "skip-to f t:1 90`" in stop.resolve


def test_an_epoch_that_the_log_has_lost_whole_is_not_said_to_have_lost_records() -> None:
    """Compaction may have taken all of it before a replica was built anew: nothing need be gone.

    Nothing proves that either; a copy of another life of the source may look the same.
    """
    stop = judge(replace(GOOD, meta=replace(META, leader_epoch=5), epoch_end=(3, 150), log_end=200))
    assert stop is not None and stop.code == "SOURCE_DIVERGED"
    assert "has lost records" not in stop.message and "proves" in stop.message
    assert "leader epoch 5" in stop.expected and "leader epoch 3 ends at offset 150" in stop.seen
    assert "audit" in stop.resolve and "skip-to f t:1 100`" in stop.resolve and "reseed f t:1" in stop.resolve


@pytest.mark.parametrize(("epoch_end", "log_end"), [((3, 99), 200), ((3, 150), 99), ((5, 99), 200)])
def test_a_history_that_ends_before_the_position_has_lost_records(
    epoch_end: tuple[int, int], log_end: int
) -> None:
    """The near miss: here something that was copied is gone, and from where on is told."""
    meta = replace(META, leader_epoch=5)
    stop = judge(replace(GOOD, meta=meta, epoch_end=epoch_end, log_end=log_end))
    assert stop is not None and "has lost records" in stop.message
    assert stop.seen == "that history ends at offset 99" and "skip-to f t:1 99`" in stop.resolve


def test_stop_survives_json_and_ignores_later_fields() -> None:
    """As written under ``stop/<topic>/<partition>``."""
    stop = judge(replace(GOOD, log_start=101))
    assert stop is not None
    assert Stop.from_json({**stop.to_json(), "later": 1}) == stop


def test_epoch_is_compared_only_where_one_is_known() -> None:
    """A position that an operator wrote has none."""
    assert needs_epoch(META)
    assert not needs_epoch(replace(META, leader_epoch=-1))
    assert not needs_epoch(None)


def test_refused_record_names_the_record_and_the_way_out() -> None:
    """Too large differs: the topic's limit can be raised."""
    large = refused_record("f", SOURCE, 5, 10, "")
    assert (large.code, large.position) == ("RECORD_TOO_LARGE", 5)
    assert "max.message.bytes" in large.resolve and "skip-to f t:1 6" in large.resolve
    other = refused_record("f", SOURCE, 5, 32, "timestamp")
    assert (other.code, other.position) == ("RECORD_REFUSED", 5)
    assert "error 32: timestamp" in other.seen and "skip-to f t:1 6" in other.resolve


def test_damaged_batch_names_its_offset() -> None:
    """The source has to be repaired, or the batch left out."""
    stop = damaged_batch("f", SOURCE, 5, CorruptBatch("CRC", behind=9))
    assert (stop.code, stop.position, stop.seen) == ("SOURCE_DAMAGED", 5, "CRC")
    assert "skip-to f t:1 9`" in stop.resolve
    # Its header is damaged, too: at least one further.
    assert "skip-to f t:1 6`" in damaged_batch("f", SOURCE, 5, CorruptBatch("length")).resolve


def test_a_request_speaks_of_one_stop_and_no_other() -> None:
    """By equality: it may be older by the asking person's clock than the stop is by the worker's."""
    stop = replace(refused_record("f", SOURCE, 9, 87, ""), at_ms=1_000, generation=3)
    request = {"v": 1, "at_ms": 1, "stop": replace(stop, resolve="otherwise").name}
    assert stop.is_meant_by(request)
    for other in (replace(stop, at_ms=1_001), replace(stop, generation=4), replace(stop, position=8)):
        assert not other.is_meant_by(request)
    assert not stop.is_meant_by({"v": 1, "at_ms": 2_000})
    assert not stop.is_meant_by(None)


_SKIP = re.compile(r"partition skip-to f t:1 ([0-9]+)`")


@given(
    position=st.integers(1, 120),
    log=st.tuples(st.integers(0, 120), st.integers(0, 120)).map(sorted),
    epoch_end=st.none() | st.just((-1, -1)) | st.tuples(st.sampled_from([3, 4]), st.integers(0, 120)),
    base=st.integers(0, 119),
    seen=st.none() | st.integers(0, 119),
)
def test_an_offset_that_a_stop_names_is_one_that_the_log_has(
    position: int, log: list[int], epoch_end: tuple[int, int] | None, base: int, seen: int | None
) -> None:
    """`skip-to` refuses any other; what retention has taken lies before the start."""
    start, end = log
    copied = CopiedBatch(min(base, position - 1), position, 800, 7)
    held = None if seen is None else HELD._replace(base_offset=min(seen, position - 1), crc=8)
    stop = judge(
        replace(
            GOOD,
            position=position,
            meta=replace(META, batch=copied),
            log_start=start,
            log_end=end,
            epoch_end=epoch_end,
            last_batch=held,
        )
    )
    for offset in _SKIP.findall("" if stop is None else stop.resolve):
        assert start <= int(offset) <= end
