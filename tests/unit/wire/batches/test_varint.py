"""Varints agree with the published examples and refuse what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.wire.batches.varint import (
    MalformedVarint,
    decode_uvarint,
    decode_varint,
    encode_uvarint,
    encode_varint,
    unzigzag,
    wrap_int64,
    zigzag,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)


@given(UINT64, st.binary(max_size=3), st.binary(max_size=3))
def test_any_unsigned_number_survives_and_its_end_is_found(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_uvarint(value)
    assert (value, len(before) + len(encoded)) == decode_uvarint(before + encoded + after, len(before))


@given(INT64)
def test_any_signed_number_survives(value: int) -> None:
    encoded = encode_varint(value)
    assert (value, len(encoded)) == decode_varint(encoded, 0)
    assert value == unzigzag(zigzag(value))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-(2**63), "ff" * 9 + "01")],
)
def test_known_values_have_the_bytes_of_kafka(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


@given(UINT64, st.data())
def test_every_truncation_is_refused(value: int, data: st.DataObject) -> None:
    encoded = encode_uvarint(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(MalformedVarint, match="ends in the varint at byte 0"):
        decode_uvarint(encoded[:cut], 0)


@pytest.mark.parametrize("encoded", ["ff" * 10 + "01", "ff" * 9 + "02", "80" * 11])
def test_more_than_64_bits_are_refused(encoded: str) -> None:
    with pytest.raises(MalformedVarint, match="exceeds 64 bits"):
        decode_uvarint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_unsigned_range_is_checked(value: int) -> None:
    with pytest.raises(ValueError, match="no unsigned 64-bit number"):
        encode_uvarint(value)


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**63])
def test_signed_range_is_checked(value: int) -> None:
    with pytest.raises(ValueError, match="no signed 64-bit number"):
        encode_varint(value)


@given(INT64, INT64)
def test_wrapped_difference_and_sum_are_inverse_as_in_java(one: int, other: int) -> None:
    assert one == wrap_int64(other + wrap_int64(one - other))
