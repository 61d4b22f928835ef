"""One partition under copy: what is passed, what is re-encoded, and where the position stands."""

from __future__ import annotations

import struct
from itertools import islice

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.copy.partition import MERGING, PartitionCopy
from onceover.errors import Fatal
from onceover.handling.obstacles import Blocked, Obstacle
from onceover.kafka.ports import Acknowledged, Outgoing
from onceover.stops.record import Stop
from onceover.wire.batches.batch import CorruptBatch, parse_header
from onceover.wire.batches.records import decode
from onceover.wire.batches.runs import Run, seen
from onceover.wire.batches.visibility import Visible
from onceover.wire.offsetmap import MAX_SEGMENTS, encode_map_value
from tests.support.raw.hostile import seal
from tests.support.raw.rawkafka import LOG_APPEND_TIME, Codec, RawRecord, build_batch, encode_record
from tests.unit.copy.batches import stored
from tests.unit.copy.loop import TARGET_START, A, partition, sent

pytestmark = pytest.mark.usefixtures("codec_path")
STOP = Stop("RECORD_REFUSED", "m", "e", "s", "r", 3)


def visible(*batches: bytes) -> list[Visible | Run]:
    """Return batches as a read_committed reader meets them, and those that are worth merging together."""
    return list(seen(memoryview(bytearray(b"".join(batches))), (), 0, MERGING))


def skipped(batch: bytes) -> Visible:
    """Return a marker or an aborted batch."""
    return Visible(parse_header(batch), None)


def values(outgoing: Outgoing) -> list[bytes | None]:
    """Return the values of a batch on its way."""
    return [r.value for r in decode(outgoing.header, memoryview(outgoing.batch))]


def take(copy: PartitionCopy, *batches: Visible | Run) -> list[Outgoing]:
    """Return everything that goes out."""
    return list(sent(copy, list(batches)))


def test_plain_batch_passes_as_the_very_bytes_of_the_receive_buffer() -> None:
    """Nothing is copied, nothing decoded."""
    copy, [one] = partition(A), visible(stored(0, 3, epoch=2, codec=Codec.LZ4))
    [outgoing] = take(copy, one)
    assert outgoing.batch is one.batch and outgoing.source_runs == ((0, 3),)
    assert (copy.position, copy.leader_epoch, copy.moved) == (3, 2, True)


def test_skipped_batch_moves_the_position_alone() -> None:
    """A marker, an aborted or an emptied batch."""
    copy = partition(A)
    assert take(copy, skipped(stored(0, 4, epoch=5))) == []
    assert (copy.position, copy.leader_epoch) == (4, 5)


def test_batch_with_holes_is_reencoded_and_its_runs_are_exact() -> None:
    """Faking the count would corrupt the target (docs/facts.md)."""
    # What a cleaner leaves: record 1 of two became record 5 of six.
    records = [RawRecord(b"k", b"v", timestamp_ms=5)]
    holed = bytearray(build_batch(records))
    struct.pack_into(">i", holed, 23, 5)
    struct.pack_into(">I", holed, 17, crc_of(holed))
    copy, [one] = partition(A), visible(bytes(holed))
    [outgoing] = take(copy, one)
    assert outgoing.header.count == outgoing.header.last_offset_delta + 1 == 1
    assert outgoing.source_runs == ((0, 1),)
    assert copy.position == 6


def crc_of(batch: bytearray) -> int:
    """Return the CRC that the header's field should hold."""
    return crc32c.crc32c(bytes(batch[21:]))


def test_straddling_batch_gives_its_tail_only() -> None:
    """The committed position lies inside: the head is on the target already."""
    copy = partition(A)
    copy.committed = copy.position = 3
    [outgoing] = take(copy, *visible(stored(0, 5)))
    assert values(outgoing) == [b"v3", b"v4"]
    assert outgoing.source_runs == ((3, 2),) and copy.position == 5


def test_log_append_time_is_reencoded() -> None:
    """Readers see the broker's time on every record; it has to be written into them."""
    batch = build_batch([RawRecord(b"k", b"v", timestamp_ms=7)], extra_attributes=LOG_APPEND_TIME)
    [outgoing] = take(partition(A), *visible(batch))
    assert not outgoing.header.is_log_append_time


def test_batch_above_the_cap_is_split_without_losing_a_record() -> None:
    """Error 10: pieces below the cap, single records at the least."""
    copy = partition(A)
    copy.obstacle = Obstacle(max_batch_bytes=1)
    pieces = take(copy, *visible(stored(0, 4)))
    assert [values(p) for p in pieces] == [[b"v0"], [b"v1"], [b"v2"], [b"v3"]]
    assert [p.source_runs for p in pieces] == [((n, 1),) for n in range(4)]


def test_barrier_inside_a_batch_copies_up_to_it_and_blocks() -> None:
    """The records before it belong to the target; the position is exactly the barrier."""
    copy = partition(A)
    copy.obstacle = Obstacle(barrier=3, stop=STOP)
    stream = sent(copy, visible(stored(0, 2), stored(2, 3)))
    first, second = islice(stream, 2)
    assert (values(first), values(second)) == ([b"v0", b"v1"], [b"v2"])
    with pytest.raises(Blocked) as blocked:
        next(stream)
    assert blocked.value.stop is STOP and copy.position == 3


def test_barrier_on_a_skipped_batch_blocks_there() -> None:
    """Nothing to copy before it."""
    copy = partition(A)
    copy.obstacle = Obstacle(barrier=3, stop=STOP)
    with pytest.raises(Blocked):
        take(copy, skipped(stored(0, 3)), skipped(stored(3, 2)))
    assert copy.position == 3


def test_barrier_just_behind_a_batch_does_not_touch_it() -> None:
    """Offsets 0 to 2 are free when 3 is the barrier."""
    copy = partition(A)
    copy.obstacle = Obstacle(barrier=3, stop=STOP)
    assert len(take(copy, *visible(stored(0, 3)))) == 1


def test_barrier_without_reason_is_a_bug() -> None:
    """It would stop silently."""
    copy = partition(A)
    copy.obstacle = Obstacle(barrier=0)
    with pytest.raises(Fatal, match="without its reason"):
        take(copy, *visible(stored(0)))


def test_damaged_batch_does_not_go_out() -> None:
    """Its CRC is checked before a new one hides the damage."""
    bad = bytearray(stored(0, 2))
    bad[-1] ^= 1
    copy = partition(A)
    with pytest.raises(CorruptBatch):
        take(copy, *visible(bytes(bad)))
    assert copy.position == 0


def test_what_comes_before_a_damaged_batch_is_copied_also_from_a_run_of_tiny_ones() -> None:
    """They are merged; the damaged one is named, and what a person leaves out is it alone."""
    batches = [bytearray(stored(offset)) for offset in range(9)]
    batches[4][-1] ^= 1
    copy = partition(A)
    stream = sent(copy, visible(*map(bytes, batches)))
    taken = [next(stream) for _ in range(4)]
    with pytest.raises(CorruptBatch) as caught:
        next(stream)
    assert (copy.position, caught.value.behind) == (4, 5)
    assert [run for one in taken for run in one.source_runs] == [(offset, 1) for offset in range(4)]


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=12), st.integers(0, 3))
def test_map_record_holds_every_record_once_with_its_offsets(
    batches: list[tuple[int, bool]], foreign: int
) -> None:
    """Over any mix of kept and skipped batches, with offsets of others in between on the target."""
    copy, source, target, expected = partition(A), 0, TARGET_START, []
    for count, kept in batches:
        if kept:
            [one] = take(copy, *visible(stored(source, count)))
            copy.acknowledged(Acknowledged(one, target))
            expected += [(source + n, target + n) for n in range(count)]
            target += count + foreign
        else:
            take(copy, skipped(stored(source, count)))
        source += count
    [record] = copy.map_records(3, 1, (5, 2), 10, 20)
    seen = [(s.source + n, s.target + n) for s in record.segments for n in range(s.count)]
    assert seen == expected
    assert (record.source_start, record.source_end) == (0, source)
    copy.committed_now()
    assert not copy.moved and copy.written.runs == copy.written.bytes == 0
    assert copy.has_written is False and copy.target_end == (
        expected[-1][1] + 1 if expected else TARGET_START
    )


def test_map_is_full_before_a_record_of_it_is_too_large() -> None:
    """A transaction of very many runs commits early."""
    copy = partition(A)
    copy.written.runs = MAX_SEGMENTS // 2 - 1
    assert not copy.map_full
    copy.written.runs += 1
    assert copy.map_full


def test_one_transaction_of_very_many_runs_has_several_map_records() -> None:
    """A batch of a million offsets that compaction left every second record of: one map record would be
    larger than its topic takes, and the lane would try again for ever."""
    records = b"".join(encode_record(RawRecord(None, None), delta, 0) for delta in range(0, 80_000, 2))
    copy = partition(A)
    target = TARGET_START
    for one in take(copy, *visible(seal(records, count=40_000, last_delta=79_999))):
        copy.acknowledged(Acknowledged(one, target))
        target += one.header.count
    parts = copy.map_records(3, 1, (5, 2), 10, 20)
    assert [len(part.segments) for part in parts] == [MAX_SEGMENTS, 40_000 - MAX_SEGMENTS]
    assert [(part.source_start, part.source_end) for part in parts] == [(0, 60_000), (60_000, 80_000)]
    assert sum(part.bytes for part in parts) == copy.written.bytes
    assert all(len(encode_map_value(part)) < 1_000_000 for part in parts)


def test_caught_up_is_the_lso_in_hand_or_a_stop() -> None:
    """A stopped partition never keeps a transaction open."""
    copy = partition(A)
    copy.lso = 1
    assert not copy.caught_up
    copy.stopped = True
    assert copy.caught_up
