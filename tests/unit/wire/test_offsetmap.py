"""The map's format is stable, compact and strict; receipts follow from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import Fatal, NeedsOperator
from onceover.model import TopicPartition
from onceover.wire.offsetmap import (
    MapKey,
    MapRecord,
    Segment,
    SegmentBuilder,
    decode_map_key,
    decode_map_value,
    encode_map_key,
    encode_map_value,
    key_named_by,
    receipt,
)

SOURCE, TARGET = TopicPartition("orders", 3), TopicPartition("east.orders", 3)
NUMBERS = st.integers(0, 2**62)
TOPICS = st.text(min_size=1, max_size=20)


def record(**changes: Any) -> MapRecord:
    fields: dict[str, Any] = {
        "source": SOURCE,
        "target": TARGET,
        "source_start": 100,
        "source_end": 200,
        "target_start": 50,
        "segments": (Segment(100, 51, 70), Segment(171, 121, 29)),
        "bytes": 12345,
        "generation": 7,
        "lane": 1,
        "batch": 12,
        "attempt": 2,
        "begin_ms": 1_700_000_000_000,
        "commit_ms": 1_700_000_000_450,
    }
    return MapRecord(**{**fields, **changes})


@st.composite
def map_records(draw: st.DrawFn) -> MapRecord:
    source = source_start = draw(st.integers(0, 2**50))
    target = target_start = draw(st.integers(0, 2**50))
    segments: list[Segment] = []
    for source_gap, target_gap, count in draw(
        st.lists(st.tuples(st.integers(-1, 2**20), st.integers(0, 2**20), st.integers(1, 2**30)), max_size=9)
    ):
        # A repeated source offset (gap -1) needs a segment before it to repeat.
        segment = Segment(
            source + (max(source_gap, 0) if not segments else source_gap), target + target_gap, count
        )
        segments.append(segment)
        source, target = segment.source_end, segment.target_end
    numbers = {
        name: draw(NUMBERS) for name in ("bytes", "generation", "lane", "batch", "attempt", "begin_ms")
    }
    return record(
        source=TopicPartition(draw(TOPICS), draw(st.integers(0, 2**31 - 1))),
        target=TopicPartition(draw(TOPICS), draw(st.integers(0, 2**31 - 1))),
        source_start=source_start,
        source_end=source + draw(st.integers(1, 2**20)),
        target_start=target_start,
        segments=tuple(segments),
        commit_ms=draw(NUMBERS),
        **numbers,
    )


@given(map_records())
def test_any_record_survives(one: MapRecord) -> None:
    key = decode_map_key(encode_map_key(one.key))
    assert one.key == key
    assert one == decode_map_value(key, encode_map_value(one))


def test_the_bytes_of_version_1_never_change() -> None:
    """Topics of users hold these bytes: a change of the format needs a new version."""
    one = record()
    assert encode_map_key(one.key).hex() == "01066f7264657273030b656173742e6f72646572730364"
    assert encode_map_value(one).hex() == "0107010c026432b96080d095ffbc31840702980275"


@pytest.mark.parametrize(
    ("second", "size"),
    [
        (Segment(110, 61, 10), 1),  # our commit marker between two transactions
        (Segment(111, 60, 10), 1),  # a marker of a source transaction
        (Segment(150, 60, 10), 2),  # compacted
        (Segment(109, 60, 10), 3),  # a handler's second record for one source record
        (Segment(111, 61, 10), 3),
    ],
)
def test_a_further_segment_takes_one_to_three_bytes(second: Segment, size: int) -> None:
    first = Segment(100, 50, 10)
    one, two = record(segments=(first,)), record(segments=(first, second))
    assert len(encode_map_value(two)) - len(encode_map_value(one)) == size
    assert two == decode_map_value(two.key, encode_map_value(two))


@given(map_records(), st.data())
def test_every_truncation_is_refused(one: MapRecord, data: st.DataObject) -> None:
    key, value = encode_map_key(one.key), encode_map_value(one)
    with pytest.raises(NeedsOperator, match="key of an offset map record cannot be read"):
        decode_map_key(key[: data.draw(st.integers(0, len(key) - 1))])
    with pytest.raises(NeedsOperator, match="value of an offset map record cannot be read"):
        decode_map_value(one.key, value[: data.draw(st.integers(0, len(value) - 1))])


@given(map_records(), st.integers(0, 255), st.binary(max_size=9))
def test_keys_of_any_version_name_what_they_speak_of(one: MapRecord, version: int, more: bytes) -> None:
    """A later version's key begins as this one's does; one that is none of ours names nothing."""
    assert key_named_by(bytes([version]) + encode_map_key(one.key)[1:] + more) == one.key
    assert key_named_by(b"") is key_named_by(b"x") is key_named_by(b'{"group"') is None


def test_numbers_that_no_offset_has_are_refused() -> None:
    """They would be no numbers of the index's either."""
    key = MapKey(TopicPartition("a", 0), TopicPartition("b", 0), 1 << 63)
    with pytest.raises(NeedsOperator, match="key"):
        decode_map_key(encode_map_key(key))
    one = record()
    fitting, far = encode_map_value(one), encode_map_value(replace(one, source_end=1 << 63))
    assert decode_map_value(one.key, fitting) == one
    with pytest.raises(NeedsOperator, match="value"):
        decode_map_value(one.key, far)


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read_never_something_else(garbage: bytes) -> None:
    data = b"\x01" + garbage
    for decode in (decode_map_key, lambda value: decode_map_value(record().key, value)):
        try:
            decode(data)
        except NeedsOperator as error:
            assert error.code == "MAP_UNREADABLE"  # noqa: PT017 - the other outcome, success, is right as well


def test_a_newer_version_and_left_over_bytes_are_refused() -> None:
    key, value = encode_map_key(record().key), encode_map_value(record())
    for call in (
        lambda: decode_map_key(b"\x02" + key[1:]),
        lambda: decode_map_key(key + b"\0"),
        lambda: decode_map_value(record().key, b"\x02" + value[1:]),
        lambda: decode_map_value(record().key, value + b"\x04"),
    ):
        with pytest.raises(NeedsOperator) as caught:
            call()
        assert caught.value.code == "MAP_UNREADABLE"


def test_keys_differ_in_each_part() -> None:
    keys = [
        MapKey(SOURCE, TARGET, 100),
        MapKey(SOURCE._replace(partition=4), TARGET, 100),
        MapKey(SOURCE._replace(topic="order"), TARGET._replace(topic="seast.orders"), 100),
        MapKey(SOURCE, TARGET._replace(partition=4), 100),
        MapKey(SOURCE, TARGET, 101),
    ]
    assert len({encode_map_key(key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    "changes",
    [
        {"segments": (Segment(99, 51, 1),)},
        {"segments": (Segment(100, 49, 1),)},
        {"segments": (Segment(100, 51, 101),)},
        {"segments": (Segment(100, 51, 0),)},
        {"segments": (Segment(100, 51, 5), Segment(105, 55, 1))},
        {"segments": (Segment(100, 51, 5), Segment(101, 56, 1))},
        {"segments": (Segment(110, 51, 5), Segment(109, 56, 20))},
        {"segments": (), "source_end": 100},
        {"segments": (), "source_end": 99},
        {"segments": (), "target_start": -1},
        {"segments": (), "source_start": -1},
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Fatal):
        record(**changes)


def test_builder_joins_only_what_touches_on_both_sides() -> None:
    builder = SegmentBuilder()
    for step in [(10, 5, 3), (13, 8, 2), (16, 10, 1), (17, 12, 1), (17, 13, 1)]:
        builder.add(*step)
    assert builder.build() == (Segment(10, 5, 5), Segment(16, 10, 1), Segment(17, 12, 1), Segment(17, 13, 1))


@pytest.mark.parametrize("step", [(9, 20, 9), (12, 14, 3), (10, 15, 2), (15, 15, 0), (-1, 15, 1)])
def test_builder_refuses_to_run_backwards(step: tuple[int, int, int]) -> None:
    builder = SegmentBuilder()
    builder.add(10, 10, 5)
    with pytest.raises(Fatal, match="run backwards"):
        builder.add(*step)


def test_a_receipt_has_the_columns_of_the_table() -> None:
    assert receipt("demo", record()) == {
        "flow": "demo",
        "generation": 7,
        "lane": 1,
        "source_topic": "orders",
        "source_partition": 3,
        "source_start": 100,
        "source_end": 200,
        "target_topic": "east.orders",
        "target_partition": 3,
        "target_start": 50,
        "target_end": 150,
        "records": 99,
        "bytes": 12345,
        "begin_ms": 1_700_000_000_000,
        "commit_ms": 1_700_000_000_450,
    }
