"""Headers: parse, check, stamp. What a reader sees of a record never changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.wire.batches.batch import (
    HEADER_BYTES,
    CorruptBatch,
    iter_batches,
    parse_header,
    seal,
    stamp,
    verify,
)
from onceover.wire.batches.records import decode
from tests.support.raw.rawkafka import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Codec,
    ProducerState,
    RawRecord,
    build_batch,
)

records = st.lists(
    st.builds(
        RawRecord,
        st.none() | st.binary(max_size=8),
        st.none() | st.binary(max_size=40),
        st.lists(st.tuples(st.binary(max_size=4), st.none() | st.binary(max_size=4)), max_size=3).map(tuple),
        st.integers(0, 1 << 41),
    ),
    min_size=1,
    max_size=6,
)


@given(
    records,
    st.sampled_from(list(Codec)),
    st.integers(0, 1 << 60),
    st.integers(0, 32767),
    st.integers(0, 2**31 - 1),
)
def test_stamped_batch_is_valid_ours_and_holds_the_same_records(
    wanted: list[RawRecord], codec: Codec, producer_id: int, epoch: int, sequence: int
) -> None:
    """Only producer fields, offsets, leader epoch, bits and CRC change; the payload's bytes never."""
    batch = bytearray(build_batch(wanted, codec=codec, producer=ProducerState(9, 9, 9)))
    before, payload = parse_header(batch), bytes(batch[HEADER_BYTES:])
    stamp(batch, before, producer_id, epoch, sequence)
    after = parse_header(batch)
    verify(after, batch)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (producer_id, epoch, sequence)
    assert (after.base_offset, after.leader_epoch, after.is_transactional) == (0, -1, True)
    kept = ("length", "magic", "last_offset_delta", "base_timestamp", "max_timestamp", "count", "codec")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert bytes(batch[HEADER_BYTES:]) == payload
    seen = [(r.key, r.value, r.timestamp) for r in decode(after, memoryview(batch))]
    assert seen == [(r.key, r.value, r.timestamp_ms) for r in wanted]


@pytest.mark.parametrize("bit", [LOG_APPEND_TIME, DELETE_HORIZON])
def test_bits_that_must_not_reach_the_target_are_cleared(bit: int) -> None:
    """Error 32, or tombstones that vanish within seconds (docs/facts.md)."""
    batch = bytearray(build_batch([RawRecord(b"k", b"v")], extra_attributes=bit))
    stamp(batch, parse_header(batch), 1, 1, 1)
    after = parse_header(batch)
    assert after.attributes & bit == 0
    verify(after, batch)


@pytest.mark.parametrize("was", [False, True])
def test_stamped_without_a_transaction_the_bit_is_cleared(was: bool) -> None:
    """A broker refuses it from a producer that has no transaction, whatever the source's producer had."""
    wanted = [RawRecord(b"k", b"v")]
    batch = bytearray(build_batch(wanted, extra_attributes=TRANSACTIONAL if was else 0))
    assert parse_header(batch).is_transactional is was
    stamp(batch, parse_header(batch), 1, 1, 1, transactional=False)
    after = parse_header(batch)
    assert not after.is_transactional
    verify(after, batch)


@given(st.integers(21, 90), st.integers(0, 7))
def test_any_flipped_bit_behind_the_crc_is_noticed(at: int, bit: int) -> None:
    """Before a new CRC would hide it."""
    batch = bytearray(build_batch([RawRecord(b"k", b"v" * 30)]))
    batch[at % len(batch) if at % len(batch) >= 21 else 21] ^= 1 << bit
    with pytest.raises(CorruptBatch, match="damaged"):
        verify(parse_header(batch), batch)


@given(st.lists(records, min_size=1, max_size=3), st.integers(1, 80))
def test_last_batch_that_is_cut_off_is_left_out(batches: list[list[RawRecord]], cut: int) -> None:
    """A broker cuts a response at partition_max_bytes, but never its first batch: such a length is a lie."""
    whole = [build_batch(one) for one in batches]
    data = memoryview(b"".join(whole))[: -min(cut, len(whole[-1]))]
    if len(whole) > 1 or not data:
        assert [bytes(batch) for _, batch in iter_batches(data)] == whole[:-1]
        return
    with pytest.raises(CorruptBatch):
        list(iter_batches(data))


@pytest.mark.parametrize(("at", "value"), [(16, 1), (16, 0), (11, 10)], ids=["magic 1", "magic 0", "length"])
def test_bytes_that_are_no_batch_are_refused(at: int, value: int) -> None:
    """Copying on would lose records."""
    batch = bytearray(build_batch([RawRecord(b"k", b"v")]))
    if at == 11:
        batch[8:12] = bytes(4)
    batch[at] = value
    with pytest.raises(CorruptBatch):
        list(iter_batches(memoryview(batch)))


def test_header_that_is_too_short_is_refused() -> None:
    """Fewer than 61 bytes."""
    with pytest.raises(CorruptBatch, match="shorter than its header"):
        parse_header(bytes(60))


def test_sealed_payload_is_a_batch_to_be_stamped() -> None:
    """What re-encoding makes."""
    model = build_batch([RawRecord(b"k", b"v", timestamp_ms=5)])
    header = parse_header(model)
    sealed = seal(
        model[HEADER_BYTES:],
        attributes=0,
        last_offset_delta=0,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        count=1,
    )
    verify(parse_header(sealed), sealed)
    assert bytes(sealed[HEADER_BYTES:]) == model[HEADER_BYTES:]
