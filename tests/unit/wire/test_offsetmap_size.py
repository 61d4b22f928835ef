"""What a million copied records cost in the offset map, by kind of source: the table of docs/positions.md."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from onceover.model import TopicPartition
from onceover.wire.batches.records import encode
from onceover.wire.offsetlookup import merge
from onceover.wire.offsetmap import MapRecord, SegmentBuilder, encode_map_key, encode_map_value

TP = TopicPartition("flights.departures", 11)
RECORDS = 1_000_000
# A flow that moves 10,000 records a second in a partition and commits twice a second.
PER_TRANSACTION = 5_000
MERGED_SEGMENTS = 1024
# A batch of the lane's own with one record, and the commit marker behind it.
MARKER_BYTES = 78


def plain() -> Iterator[tuple[int, int]]:
    """Runs of kept source offsets, as (first, count)."""
    yield 0, RECORDS


def transactional() -> Iterator[tuple[int, int]]:
    """70 records and a marker, again and again."""
    for number in range(RECORDS // 70):
        yield number * 71, 70


def compacted() -> Iterator[tuple[int, int]]:
    """One record in three is left, anywhere: hardly two in a row."""
    rng = random.Random(1)
    offset = 0
    for _ in range(RECORDS):
        offset += rng.choice((1, 2, 3, 4, 5))
        yield offset, 1


def transactions(runs: Iterator[tuple[int, int]]) -> Iterator[MapRecord]:
    """What a lane writes for them."""
    builder, filled, start, target, end = SegmentBuilder(), 0, 0, 0, 0
    for first, count in runs:
        while count:
            taken = min(count, PER_TRANSACTION - filled)
            builder.add(first, target + filled, taken)
            first, count, filled = first + taken, count - taken, filled + taken
            end = first
            if filled == PER_TRANSACTION:
                yield made(start, end, target, builder)
                start, target = end, target + filled + 1
                builder, filled = SegmentBuilder(), 0
    if filled:
        yield made(start, end, target, builder)


def made(start: int, end: int, target: int, builder: SegmentBuilder) -> MapRecord:
    return MapRecord(
        source=TP,
        target=TP,
        source_start=start,
        source_end=end,
        target_start=target,
        segments=builder.build(),
        bytes=PER_TRANSACTION * 300,
        generation=17,
        lane=1,
        batch=40,
        attempt=9,
        begin_ms=1_760_000_000_000 + start,
        commit_ms=1_760_000_000_500 + start,
    )


def log_bytes(record: MapRecord) -> int:
    """Bytes of a record in the topic's log, alone in its batch and transaction."""
    return len(encode([(0, encode_map_key(record), encode_map_value(record), ())]).batch) + MARKER_BYTES


@pytest.mark.parametrize(
    ("runs", "written", "merged"),
    [
        (plain, 44_000, 850),
        (transactional, 72_000, 33_000),
        pytest.param(compacted, 1_450_000, 1_450_000, marks=pytest.mark.soak),
    ],
    ids=["plain", "70 records a transaction", "compacted"],
)
def test_a_million_records_cost_no_more_than_the_documented_bytes(
    runs: Callable[[], Iterator[tuple[int, int]]], written: int, merged: int
) -> None:
    """Up to a tenth less is fine; docs/positions.md has to follow when it is more or much less."""
    records = list(transactions(runs()))
    assert sum(record.records for record in records) == pytest.approx(RECORDS, abs=70)
    after = merge(records, max_segments=MERGED_SEGMENTS)
    for limit, found in ((written, sum(map(log_bytes, records))), (merged, sum(map(log_bytes, after)))):
        assert 0.9 * limit <= found <= limit
