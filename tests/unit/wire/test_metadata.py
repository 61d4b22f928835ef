"""Metadata by hand says what the library's schema says."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataResponse

from onceover.errors import Fatal
from onceover.wire.metadata import (
    BrokerMetadata,
    Metadata,
    PartitionMetadata,
    TopicMetadata,
    decode_metadata,
)

VERSION = 12
_BROKER = MetadataResponse.MetadataResponseBroker
_TOPIC = MetadataResponse.MetadataResponseTopic
_PARTITION = _TOPIC.MetadataResponsePartition
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
# Names longer than 127 bytes have a length of two.
TEXT = st.text(max_size=200)
NODES = st.lists(INT32, max_size=3) | st.just([1] * 130)


def partitions() -> st.SearchStrategy[Any]:
    return st.builds(
        lambda error, index, leader, epoch, nodes: _PARTITION(
            version=VERSION,
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=nodes,
            isr_nodes=nodes[1:],
            offline_replicas=nodes[:1],
        ),
        INT16,
        INT32,
        INT32,
        INT32,
        NODES,
    )


def topics() -> st.SearchStrategy[Any]:
    return st.builds(
        lambda error, name, topic_id, internal, parts: _TOPIC(
            version=VERSION,
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=internal,
            partitions=parts,
        ),
        INT16,
        TEXT,
        st.uuids(),
        st.booleans(),
        st.lists(partitions(), max_size=3),
    )


def brokers() -> st.SearchStrategy[Any]:
    return st.builds(
        lambda node, host, port, rack: _BROKER(
            version=VERSION, node_id=node, host=host, port=port, rack=rack
        ),
        INT32,
        TEXT,
        INT32,
        st.none() | TEXT,
    )


def encoded(brokers: list[Any], topics: list[Any], cluster_id: str | None = "EAST") -> bytes:
    answer = MetadataResponse(
        version=VERSION,
        throttle_time_ms=7,
        brokers=brokers,
        cluster_id=cluster_id,
        controller_id=3,
        topics=topics,
    )
    # Behind the tags of a flexible header.
    return b"\0" + bytes(answer.encode(version=VERSION))


@given(st.lists(brokers(), max_size=3), st.lists(topics(), max_size=3), TEXT)
def test_it_says_what_the_library_reads(brokers: list[Any], topics: list[Any], cluster_id: str) -> None:
    """Every field that we take, whatever stands in those that we leave out."""
    assert decode_metadata(memoryview(encoded(brokers, topics, cluster_id))) == Metadata(
        cluster_id,
        tuple(BrokerMetadata(b.node_id, b.host, b.port) for b in brokers),
        tuple(
            TopicMetadata(
                t.error_code,
                t.name,
                t.topic_id,
                t.is_internal,
                tuple(
                    PartitionMetadata(p.partition_index, p.leader_id, p.leader_epoch) for p in t.partitions
                ),
            )
            for t in topics
        ),
    )


def test_tags_of_newer_brokers_are_passed_over() -> None:
    """KIP-482: whoever does not know a tag skips it."""
    plain = encoded([], [])
    tagged = b"\x01\x05\x02ab" + plain[1:-1] + b"\x02\x00\x01x\x09\x00"
    assert decode_metadata(memoryview(tagged)) == decode_metadata(memoryview(plain))


@given(st.lists(brokers(), max_size=2), st.lists(topics(), max_size=2), st.data())
def test_an_answer_that_is_cut_off_is_refused(
    brokers: list[Any], topics: list[Any], data: st.DataObject
) -> None:
    """Wherever it ends: nothing is made up."""
    whole = encoded(brokers, topics)
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(Fatal, match="Metadata response"):
        decode_metadata(memoryview(whole)[:end])


def test_null_where_something_has_to_be_is_refused() -> None:
    """A cluster without an id, or a topic without a name, would be taken for another."""
    for broken in (
        encoded([], [], None),
        encoded([], [_TOPIC(version=VERSION, name=None, topic_id=UUID(int=1), partitions=[])]),
    ):
        with pytest.raises(Fatal):
            decode_metadata(memoryview(broken))
