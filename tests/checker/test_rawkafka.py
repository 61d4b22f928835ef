"""The adversary's batches, read by another library: what breaks a copy must be the batch, not its maker."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from tests.support.raw.rawkafka import (
    TRANSACTIONAL,
    Codec,
    ProducerState,
    RawRecord,
    build_batch,
    iter_batches,
)

RECORDS = [
    RawRecord(None, None, (), 5),
    RawRecord(b"", b"", ((b"", None), (b"", b"")), 3),
    RawRecord(b"k" * 200, b"v" * 70_000, ((b"h", b"1"), (b"h", b"2")), 2**40),
]


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_reads_back_with_another_library(codec: Codec) -> None:
    """Every field, null and empty apart, and the CRC, as aiokafka reads them."""
    batch = DefaultRecordBatch(build_batch(RECORDS, codec=codec))
    assert batch.validate_crc()
    assert batch.max_timestamp == 2**40
    read = [
        RawRecord(
            record.key,
            record.value,
            tuple((name.encode(), value) for name, value in record.headers),
            record.timestamp,
        )
        for record in batch
    ]
    assert read == RECORDS


def test_header_view_reads_what_was_built() -> None:
    """Two batches in a row, then a cut one: the cut one is not shown."""
    state = ProducerState(7, 1, 0)
    one = build_batch(RECORDS, producer=state, transactional=True)
    two = build_batch(RECORDS[:1])
    views = list(iter_batches(one + two + one[:-1]))
    assert [view.record_count for view in views] == [3, 1]
    assert views[0].producer_id == 7
    assert views[0].attributes & TRANSACTIONAL
    assert not views[0].has_holes


def test_count_below_the_offset_delta_is_a_hole() -> None:
    """A batch as compaction leaves it: the header's last offset delta stays, records go."""
    whole = next(iter_batches(build_batch(RECORDS)))
    assert whole._replace(record_count=2).has_holes
