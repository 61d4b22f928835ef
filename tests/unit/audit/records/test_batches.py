"""Record batches as the audit reads them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.records.batches import Unreadable, walk
from tests.support.raw.mutations import Content, correct_pair
from tests.unit.audit.stored import ABORT, COMMIT, batches, log_append, marker, patched, stored

# With the compiled code and without it.
pytestmark = pytest.mark.usefixtures("both_ways")
RECORDS = correct_pair(random.Random(8), partitions=1).source[0]
CODECS = range(5)

_data = st.none() | st.binary(max_size=200)
_contents = st.lists(
    st.builds(
        Content,
        _data,
        _data,
        st.lists(st.tuples(st.text(max_size=9).map(str.encode), _data), max_size=4).map(tuple),
        st.integers(0, 1 << 50),
    ),
    min_size=1,
    max_size=30,
)


@given(_contents, st.sampled_from(CODECS), st.integers(0, 1 << 60))
def test_what_was_stored_is_read(contents: list[Content], codec: int, base: int) -> None:
    """Every field of every record, null and empty told apart, in every compression."""
    (batch,) = batches(stored(contents, codec=codec, base=base))
    read = list(batch.decode())
    assert [Content(*record[1:5]) for record in read] == contents
    assert [record.offset for record in read] == list(range(base, base + len(contents)))
    assert (batch.base_offset, batch.last_offset, batch.records) == (
        base,
        base + len(contents) - 1,
        len(contents),
    )


def test_snappy_in_blocks_is_read() -> None:
    """Java clients frame snappy; aiokafka's builder does, too, and raw snappy exists as well."""
    (batch,) = batches(stored(RECORDS, codec=2))
    assert bytes(batch.payload[:8]) == b"\x82SNAPPY\x00"


def test_compacted_batches_keep_their_offsets() -> None:
    """What compaction left of a batch is read with the offsets it has."""
    (batch,) = batches(stored(RECORDS[:3], base=10, deltas=[0, 4, 9]))
    assert [record.offset for record in batch.decode()] == [10, 14, 19]
    assert batch.last_offset == 19


def test_log_append_time_is_everybodys_time() -> None:
    """Readers see the broker's time on every record, and so does the audit."""
    (batch,) = batches(log_append(stored(RECORDS[:3]), 77))
    assert {record.timestamp_ms for record in batch.decode()} == {77}


def test_a_time_that_does_not_fit_wraps_around_as_it_does_for_readers() -> None:
    """Whoever writes a batch chooses both numbers: neither may end an audit."""
    base = (1 << 63) - 1
    records = [RECORDS[0]._replace(timestamp_ms=0), RECORDS[1]._replace(timestamp_ms=5)]
    (batch,) = batches(patched(stored(records), at=27, layout=">q", value=base))
    assert [record.timestamp_ms for record in batch.decode()] == [base, -(1 << 63) + 4]


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_markers_are_known(kind: int) -> None:
    """A control batch says how a transaction ended."""
    (batch,) = batches(marker(kind, base=5, producer=9))
    assert batch.is_control and batch.control_type() == kind and batch.producer_id == 9


def test_a_part_of_a_batch_at_the_end_is_left_out() -> None:
    """A broker cuts its answer at the size that was asked for."""
    one, other = stored(RECORDS[:5]), stored(RECORDS[5:9], base=5)
    for size in range(len(one), len(one + other)):
        assert len(list(walk(memoryview((one + other)[:size])))) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_refused_and_nothing_else_raised(codec: int) -> None:
    """A flipped bit breaks the checksum; where that was made to match, what cannot be read is refused."""
    whole = stored(RECORDS, codec=codec)
    rng = random.Random(codec)
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        data[rng.randrange(61, len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(Unreadable):
            list(walk(memoryview(bytes(data))))
        (batch,) = batches(patched(bytes(data), at=0, layout=">q", value=0))
        try:
            assert len(list(batch.decode())) == len(RECORDS)
        except Unreadable:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("at", "layout", "value"), [(16, ">b", 1), (8, ">i", 48), (57, ">i", 61), (57, ">i", 59)]
)
def test_headers_that_cannot_be_are_refused(at: int, layout: str, value: int) -> None:
    """Old magic, a length that is none, one record more or less than there are."""
    data = patched(stored(RECORDS), at=at, layout=layout, value=value)
    with pytest.raises(Unreadable):
        [list(batch.decode()) for batch in walk(memoryview(data))]


def test_bytes_are_the_same_whatever_is_written_around_them() -> None:
    """Offsets, producer and transaction are no content; one bit of the payload is."""
    (one,) = batches(stored(RECORDS))
    (other,) = batches(stored(RECORDS, base=999, producer=7, transactional=True))
    assert one.same_bytes(other) and one.content_hash() == other.content_hash()
    (third,) = batches(stored([*RECORDS[:-1], RECORDS[-1]._replace(value=b"?")]))
    assert not one.same_bytes(third) and one.content_hash() != third.content_hash()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_other_bytes_may_be_the_same_records(codec: int) -> None:
    """Recompression changes bytes, and no record."""
    (one,) = batches(stored(RECORDS))
    (other,) = batches(stored(RECORDS, codec=codec))
    assert not one.same_bytes(other)
    assert [record.hash for record in one.decode()] == [record.hash for record in other.decode()]


def test_whose_time_counts_is_content() -> None:
    """The same payload under LogAppendTime shows other timestamps."""
    plain = stored(RECORDS)
    (one,), (other,) = batches(plain), batches(log_append(plain, RECORDS[-1].timestamp_ms))
    assert not one.same_bytes(other)
    assert [r.hash for r in one.decode()] != [r.hash for r in other.decode()]
    assert [r.hash for r in one.decode(timed=False)] == [r.hash for r in other.decode(timed=False)]
