"""What the producer's tests share: batches, an initialised producer, a whole transaction."""

from __future__ import annotations

from uuid import UUID

import pytest

from onceover.errors import MustReset
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.ports import Features, Outgoing
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.model import TopicPartition
from onceover.txn.txnstate import IllegalTransition
from onceover.wire.batches.batch import parse_header
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.raw.rawkafka import RawRecord, build_batch

TOPIC_ID = UUID(int=7)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = "onceover.f"
OFFSETS = {P0: OffsetToCommit(5, 1, "{}")}
SETS = {"v5": (2, 13), "v5 by name": (2, 12), "v3": (0, 11)}


def batch(target: TopicPartition, count: int = 1) -> Outgoing:
    """Return a batch for ``target``."""
    data = bytearray(build_batch([RawRecord(b"k", b"v", timestamp_ms=1)] * count))
    return Outgoing(target, parse_header(data), data)


def producer(cluster: FakeCluster, first_sequence: int = 0) -> TransactionalProducer:
    """Return an initialised producer."""
    made = TransactionalProducer(cluster, "id", timeout_ms=1000, first_sequence=first_sequence)
    assert made.init()
    cluster.log.clear()
    return made


def target(
    transaction_version: int = 2, max_produce_version: int = 13, *, alias: str = "west"
) -> FakeCluster:
    """Return a target with topic ``t``: partition 0 led by broker 1, partition 1 by broker 2."""
    made = FakeCluster(alias, feature=Features(transaction_version))
    made.produce_version = max_produce_version
    made.add_topic("t", TOPIC_ID, ends=(100, 200), leaders={0: 1, 1: 2})
    return made


def end_of(cluster: FakeCluster, tp: TopicPartition) -> int:
    """Return where a log ends."""
    return cluster.all_topics[tp.topic].logs[tp.partition].end


def v5() -> FakeCluster:
    return target(2, 13)


def v3() -> FakeCluster:
    return target(0, 11)


def names_of(cluster: FakeCluster) -> tuple[str, str]:
    """Return the names of TxnOffsetCommit and EndTxn in the cluster's request set."""
    version = 5 if cluster.feature.transaction_version >= 2 else 3
    return f"TxnOffsetCommit v{version}", f"EndTxn v{version}"


def whole_transaction(made: TransactionalProducer) -> None:
    """Data, progress, commit."""
    made.send([batch(P0)])
    made.drain()
    made.add_offsets(GROUP, OFFSETS)
    made.commit()


def never_committed(made: TransactionalProducer, cluster: FakeCluster) -> None:
    """Fail unless the producer refuses to commit, and no EndTxn was sent."""
    with pytest.raises((IllegalTransition, MustReset)):
        made.commit()
    assert not any(request.startswith("EndTxn") for request in cluster.log)
