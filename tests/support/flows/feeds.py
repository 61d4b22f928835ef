"""Small topics with everything that matters to a commit, and what both sides hold of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from onceover.state import names
from onceover.wiring.flows import open_clusters
from tests.support.flows.flows import InlineFlow
from tests.support.raw.adversary import Adversary
from tests.support.raw.rawkafka import Codec

PARTITIONS = 3
# With the smallest memory a lane fetches 256 KiB of a partition at once, and with the smallest
# max_bytes it commits after each fetch: batches of this size make one transaction each.
SMALL = {
    "transaction": {"max_interval": "100ms", "max_bytes": "64KiB"},
    "limits": {"memory_per_lane": "8MiB"},
}
_BIG_BYTES = 16_000
_BIG_RECORDS = 10
_READ_TIMEOUT_S = 30.0


class Held(NamedTuple):
    """One record as a read_committed reader sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def feed(adversary: Adversary, topic: str, *, big: int = 2, seed: int = 0) -> None:
    """Write plain, transactional, aborted, tiny and ``big`` large batches into every partition."""
    rng = random.Random(seed)
    for partition in range(PARTITIONS):
        adversary.plain(topic, partition, adversary.records(10), Codec.LZ4)
        adversary.interleaved(topic, partition)
        adversary.tiny_batches(topic, partition, 2)
        for _ in range(big):
            value = rng.randbytes(_BIG_BYTES)
            adversary.idempotent(topic, partition, adversary.records(_BIG_RECORDS, value=value))
        aborted = adversary.transaction(topic)
        aborted.send(partition, adversary.records(5))
        aborted.abort()


def held(client: Mapping[str, str], topic: str, partitions: int = PARTITIONS) -> dict[int, list[Held]]:
    """Return what a read_committed reader sees of every partition now."""
    consumer = Consumer(
        {
            **client,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # The end of a partition is told by an empty answer, which the broker holds back for so long.
            "fetch.wait.max.ms": 10,
        }
    )
    found: dict[int, list[Held]] = {number: [] for number in range(partitions)}
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in found])
        open_ends = set(found)
        while open_ends:
            message = consumer.poll(_READ_TIMEOUT_S)
            if message is None:
                raise TimeoutError(f"{topic} cannot be read to its end within {_READ_TIMEOUT_S:g} s")
            error = message.error()
            if error is None:
                record = Held(message.offset(), message.key(), message.value(), message.timestamp()[1])
                found[message.partition()].append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_ends.discard(message.partition())
            else:
                raise RuntimeError(f"{topic}: {error}")
    finally:
        consumer.close()
    return found


def progress(flow: InlineFlow, topic: str) -> dict[int, int]:
    """Return the stable committed progress of every partition that has one."""
    source, target = open_clusters(flow.watch.flow)
    with source, target:
        committed = target.retry(lambda: target.committed(names.progress_group(flow.name), None))
    return {tp.partition: offset.offset for tp, offset in committed.items() if tp.topic == topic}


def assert_agreement(
    flow: InlineFlow, topic: str, source: Mapping[str, str], target: Mapping[str, str]
) -> dict[int, int]:
    """Fail unless the target holds exactly the records before the committed progress (G2); return that.

    To be called when no lane has a transaction open.
    """
    committed = progress(flow, topic)
    theirs, ours = held(source, topic), held(target, topic)
    for partition, offset in committed.items():
        expected = [record[1:] for record in theirs[partition] if record.offset < offset]
        seen = [record[1:] for record in ours[partition]]
        where = f"{topic}:{partition}: progress {offset} stands for {len(expected)} records"
        assert len(seen) == len(expected), f"{where}, the target holds {len(seen)}"
        assert seen == expected, f"{topic}:{partition}: other records than those before offset {offset}"
    assert all(not records for number, records in ours.items() if number not in committed)
    return committed
