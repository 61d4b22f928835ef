"""Keys and values of offsets topics."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.connectors.model import OffsetKey
from onceover.connectors.offsets.keys import (
    OffsetMove,
    compare,
    differing,
    hash_map_order,
    holds_null,
    is_unusual_order,
    parse_key,
    partition_of,
    sentinel_key,
)
from onceover.handlers.murmur2 import partitions_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b'["a",{"p":1}]', OffsetKey("a", '{"p": 1}')),
        (b'["a"]', OffsetKey("a", None)),
        (b'["\xc3\xa4",{}]', OffsetKey("ä", "{}")),
        (b'["a",null]', OffsetKey("a", "null")),
        (b'["a",{},1]', None),
        (b'{"a":1}', None),
        (b"[1,{}]", None),
        (b"plain", None),
        (b"", None),
        (None, None),
        (b"\xff\xfe", None),
    ],
)
def test_key_is_what_connect_wrote(key: bytes | None, expected: OffsetKey | None) -> None:
    """Connector and partition are told apart from sentinels and from what is not Connect's."""
    assert parse_key(key) == expected


def test_deeply_nested_key_is_foreign() -> None:
    """What no JSON reader takes is none of Connect's, not an error."""
    assert parse_key(b"[" * 100_000) is None


def test_connectors_whose_names_begin_alike_are_told_apart() -> None:
    """``a`` does not own the keys of ``ab``."""
    found = parse_key(b'["ab",{}]')
    assert found is not None and found.connector == "ab"


def test_sentinel_is_compact_json_as_connect_writes_it() -> None:
    """KIP-618: ``["reddit-source"]``, without spaces and without escapes."""
    assert sentinel_key("reddit-source") == b'["reddit-source"]'
    assert sentinel_key("ä") == '["ä"]'.encode()


# pyarrow imports pandas at its first array, which takes seconds.
@given(st.binary(max_size=64), st.integers(1, 50))
def test_partition_is_that_of_kafkas_partitioner(key: bytes, count: int) -> None:
    """One key at a time gives what whole columns give."""
    assert partition_of(key, count) == int(partitions_of(pa.array([key], pa.binary()), count)[0])


@pytest.mark.parametrize(
    ("text", "expected"), [(b"21", -973932308), (b"foobar", -790332482), (b"", 275646681)]
)
def test_partition_follows_javas_hash(text: bytes, expected: int) -> None:
    """Values from Kafka's own ``UtilsTest.testMurmur2`` and of the empty key."""
    assert partition_of(text, 1 << 20) == (expected & 0x7FFFFFFF) % (1 << 20)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b'["a",{"p":1}]', b'{"o":1}', False),
        (b'["a",{"p":1}]', b'{"o":null}', False),
        (b'["a",{"p":1}]', None, False),
        (b'["a",{"p":1}]', b"null", True),
        (b'["a",{"p":1}]', b"[]", True),
        (b'["a",{"p":1}]', b"not json", True),
        (b'["a",null]', b'{"o":1}', True),
    ],
)
def test_null_is_found_where_connect_wants_a_map(key: bytes, value: bytes | None, expected: bool) -> None:
    """A tombstone is no null, and null fields are the connector's own business."""
    assert holds_null(key, value) is expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("partition,topic,cluster", "cluster,partition,topic"),
        ("b,a", "a,b"),
        ("q,a,Aa,BB", "Aa,BB,q,a"),
        ("q,a,BB,Aa", "BB,Aa,q,a"),
        ("zeta,alpha,mid,shard,kind", "zeta,kind,alpha,mid,shard"),
        ("protocol,database,schema,table,offset_name", "schema,protocol,database,offset_name,table"),
        ("ä,ö,ü", "ä,ö,ü"),
        (
            "n1,n2,n3,n4,n5,n6,n7,n8,n9,n10,n11,n12,n13,n14",
            "n1,n2,n3,n4,n5,n6,n7,n8,n9,n10,n12,n11,n14,n13",
        ),
    ],
)
def test_hash_map_order_is_javas(names: str, expected: str) -> None:
    """As ``java.util.HashMap`` lists these keys, equal hashes and a grown table included."""
    assert ",".join(hash_map_order(names.split(","))) == expected


def test_other_order_than_hash_maps_is_unusual() -> None:
    """Only one of two orders is what the REST API would write."""
    first = is_unusual_order(b'["a",{"a":1,"b":2}]')
    second = is_unusual_order(b'["a",{"b":2,"a":1}]')
    assert (first, second) == (False, True)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (b'{"offset":5}', b'{"offset":5}', OffsetMove.SAME),
        (b'{"offset":5}', b'{"offset":6}', OffsetMove.FORWARD),
        (b'{"offset":5}', b'{"offset":4}', OffsetMove.BACK),
        (b'{"offset":5}', b'{ "offset":5 }', OffsetMove.CHANGED),
        (b'{"offset":5}', None, OffsetMove.BACK),
        (b'{"offset":5}', b"null", OffsetMove.BACK),
        (b'{"o":"b"}', b'{"o":"a"}', OffsetMove.CHANGED),
        (b'{"o":true}', b'{"o":false}', OffsetMove.CHANGED),
        (b'{"o":5,"x":1}', b'{"o":4,"x":1}', OffsetMove.CHANGED),
        (b'{"offset":5}', b'{"p":4}', OffsetMove.CHANGED),
        # What RabbitMQ's source writes: its channel counts anew at each start.
        (b'{"deliveryTag":5000}', b'{"deliveryTag":1}', OffsetMove.CHANGED),
        (b'{"file":"b.1","pos":9}', b'{"file":"b.2","pos":4}', OffsetMove.FORWARD),
    ],
)
def test_step_back_is_seen_where_an_order_is_known(
    before: bytes, after: bytes | None, expected: OffsetMove
) -> None:
    """What has no known order has changed; what is gone went back."""
    assert compare(before, after) is expected


@given(st.integers(), st.integers())
def test_numbers_compare_as_numbers(first: int, second: int) -> None:
    """9 is below 10."""
    moved = compare(json.dumps({"position": first}).encode(), json.dumps({"position": second}).encode())
    expected = (
        OffsetMove.SAME if first == second else OffsetMove.FORWARD if second > first else OffsetMove.BACK
    )
    assert moved is expected


def test_differing_names_keys_of_either_side() -> None:
    """Missing on one side is different."""
    assert differing({b"a": b"1", b"b": b"2", b"d": b"4"}, {b"b": b"3", b"c": b"3", b"d": b"4"}) == [
        b"a",
        b"b",
        b"c",
    ]
