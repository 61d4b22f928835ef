"""What the benchmark writes in small batches: every record once, and a batch of a partition in a request."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.wire.batches.batch import parse_header, verify
from onceover.wire.batches.compression import LZ4
from onceover_lab.bench.clients.batches import requests_of
from onceover_lab.bench.clients.payload import Payload

POOL = [Payload(b"%d" % number, b"value-%d" % number) for number in range(20)]


@given(wanted=st.lists(st.integers(0, 50), max_size=6), batch_records=st.integers(1, 20))
def test_each_partition_gets_its_records_one_batch_in_a_request(
    wanted: list[int], batch_records: int
) -> None:
    written: Counter[int] = Counter()
    for data in requests_of("t", POOL, LZ4, wanted, batch_records):
        partitions = [each.partition for each in data]
        assert len(set(partitions)) == len(partitions)
        for each in data:
            count = parse_header(each.batch).count
            written[each.partition] += count
            assert count == batch_records or written[each.partition] == wanted[each.partition]
    assert [written[partition] for partition in range(len(wanted))] == wanted


@pytest.mark.parametrize("batch_records", [1, 15])
def test_batches_are_whole_and_nobody_in_particular_wrote_them(batch_records: int) -> None:
    (data,) = requests_of("t", POOL, LZ4, [batch_records], batch_records)
    header = parse_header(data[0].batch)
    verify(header, data[0].batch)
    assert (header.codec, header.producer_id, header.base_sequence) == (LZ4, -1, -1)
    assert not header.is_transactional
