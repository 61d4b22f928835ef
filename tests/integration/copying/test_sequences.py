"""Sequence numbers on a real broker: from just below the largest to 0 and on, nothing dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.kafka.ports import Features, Outgoing
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.model import TopicPartition
from onceover.state.fencing import LANE_TIMEOUT_MS
from onceover.txn.txnstate import RequestSet
from onceover.wire.batches.batch import parse_header
from onceover.wiring.flows import open_clusters
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.feeds import held
from tests.support.flows.flows import InlineFlow, write_flow
from tests.support.raw.adversary import EPOCH_MS, Adversary
from tests.support.raw.rawkafka import RawConnection, RawRecord, build_batch
from tests.support.session.wait import wait_until

LARGEST = 2**31 - 1
_TIMEOUT_S = 30.0


def batch(target: TopicPartition, first: int, count: int) -> Outgoing:
    """Return a batch of numbered records."""
    records = [RawRecord(b"k", b"%d" % n, timestamp_ms=EPOCH_MS) for n in range(first, first + count)]
    data = bytearray(build_batch(records))
    return Outgoing(target, parse_header(data), data)


@pytest.mark.parametrize("per_transaction", [9, 2], ids=["one transaction", "several"])
def test_sequences_wrap_and_every_record_is_there_once(
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    monkeypatch: pytest.MonkeyPatch,
    per_transaction: int,
) -> None:
    """The older request set, whose sequences go on from transaction to transaction; batches that straddle."""
    monkeypatch.setattr("onceover.kafka.cluster.Features", lambda *_: Features(0))
    path = write_flow(tmp_path, unique_name, source_cluster.client, target_cluster.client, [unique_name])
    _, target = open_clusters(InlineFlow(path).watch.flow)
    tp = TopicPartition(unique_name, 0)
    with target, Adversary(target_cluster.bootstrap) as adversary:
        adversary.create_topic(unique_name, 1)
        producer = TransactionalProducer(
            target, unique_name, timeout_ms=LANE_TIMEOUT_MS, first_sequence=LARGEST - 2
        )
        try:
            # On a fresh cluster the topic of the coordinators is made for the first one who asks.
            wait_until(lambda: target.retry(producer.init), _TIMEOUT_S, "the producer has its id")
            assert producer.requests is RequestSet.V3
            for number in range(9):
                producer.send([batch(tp, number * 2, 2)])
                if number % per_transaction == per_transaction - 1:
                    producer.drain()
                    producer.commit()
            producer.drain()
            producer.commit()
        finally:
            producer.close()
    with RawConnection(target_cluster.bootstrap) as connection:
        connection.await_markers(unique_name)
    values = [record.value for record in held(target_cluster.client, unique_name, 1)[0]]
    assert values == [b"%d" % n for n in range(18)]
