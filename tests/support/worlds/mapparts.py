"""Parts of a flow's offset map, and what can keep them from being read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from onceover.model import TopicPartition, lane_of
from onceover.state import names
from tests.support.flows.replica import Replica

_TIMEOUT_S = 30.0


def mapped(topic: str, partition: int) -> int:
    """Return the partition of the offset map that tells of a source partition."""
    return lane_of(TopicPartition(topic, partition), names.MAP_PARTITIONS)


@contextmanager
def hanging(replica: Replica, partition: int) -> Iterator[None]:
    """Let a transaction stay open in a partition of the offset map."""
    writer = Producer({**replica.target_client, "transactional.id": f"{replica.name}-hanging"})
    writer.init_transactions(_TIMEOUT_S)
    writer.begin_transaction()
    writer.produce(names.map_topic(replica.name), b"never committed", b"nor read", partition=partition)
    writer.flush(_TIMEOUT_S)
    try:
        yield
    finally:
        writer.abort_transaction(_TIMEOUT_S)
