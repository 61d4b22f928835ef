"""Source transactions that an unplanned switchover has torn, written by real transactional producers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer

from onceover.backoff import Deadline
from onceover.clock import now_ms
from onceover.config.clients.resolve import ClientConfig
from onceover.drills.leaving import commits
from onceover.drills.orphans import view
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.kafka.produce.rounds import own_batches
from onceover.model import TopicPartition
from onceover.state.fenced import await_markers, take_id
from tests.support.drills.orphaned import DONE, Capture, Orphaned

_TIMEOUT_S = 30.0
Transaction = Mapping[int, int]


def by_an_older_client(client: Mapping[str, str], name: str, topic: str, *written: Transaction) -> None:
    """Commit transactions under one epoch: librdkafka."""
    producer = Producer({**client, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(_TIMEOUT_S)
    for transaction in written:
        producer.begin_transaction()
        for partition, count in transaction.items():
            for number in range(count):
                producer.produce(topic, key=b"k", value=b"%d" % number, partition=partition)
        producer.commit_transaction(_TIMEOUT_S)


def by_a_newer_client(client: Mapping[str, str], name: str, topic: str, *written: Transaction) -> None:
    """Commit transactions each of which has an epoch of its own (KIP-890)."""
    with LiveCluster(ClientConfig("source", dict(client))) as cluster:
        producer = TransactionalProducer(cluster, name, timeout_ms=60_000)
        try:
            places = [TopicPartition(topic, partition) for partition in written[0]]
            take_id(cluster, producer, places, Deadline(_TIMEOUT_S))
            for transaction in written:
                tps = [TopicPartition(topic, partition) for partition in transaction]
                for tp in tps:
                    records = [(b"k", b"%d" % number) for number in range(transaction[tp.partition])]
                    for batch in own_batches(tp, records, now_ms()):
                        producer.send([batch])
                producer.drain()
                producer.commit()
                await_markers(cluster, producer, tps, Deadline(_TIMEOUT_S))
        finally:
            producer.close()


@pytest.mark.parametrize(
    ("write", "certain"), [(by_an_older_client, False), (by_a_newer_client, True)], ids=["older", "newer"]
)
def test_a_transaction_that_was_copied_in_one_partition_alone_is_named(
    replica: Orphaned, capsys: Capture, write: Callable[..., None], certain: bool
) -> None:
    """With its transactional id, and the offsets on both sides of the cut; those before it are not."""
    topic = replica.topic(partitions=3)
    name = f"{replica.name}-orders"
    write(replica.source_client, name, topic, {0: 2, 1: 2, 2: 1}, {0: 1, 1: 3})
    replica.copy()
    # Each takes an offset more, for its marker: 0 ends at 5, 1 at 7, 2 at 2.
    write(replica.source_client, name, topic, {0: 4, 1: 6})
    replica.copy_only(TopicPartition(topic, 0))
    write(replica.source_client, f"{name}-2", topic, {2: 1})
    replica.switch_over(capsys)
    code, plan = replica.orphans(capsys, "plan")
    assert (code, plan["orphans"], plan["not_looked_back_far_enough"]) == (DONE, 7, [])
    (torn,) = plan["torn"]
    assert (torn["transactional_id"], torn["certain"], torn["open"]) == (name, certain, False)
    assert torn["copied"] == [{"partition": f"{topic}:0", "first": 5, "last": 8}]
    assert torn["not_copied"] == [{"partition": f"{topic}:1", "first": 7, "last": 12}]


def test_where_not_as_far_back_was_looked_as_needed_it_is_said(
    replica: Orphaned, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copied part lies behind records of others, further back than is read: that is not none."""
    topic = replica.topic(partitions=2)
    by_a_newer_client(replica.source_client, f"{replica.name}-orders", topic, {0: 4, 1: 6})
    replica.source.plain(topic, 0, replica.source.records(9))
    replica.copy_only(TopicPartition(topic, 0))
    replica.switch_over(capsys)
    with monkeypatch.context() as less:
        less.setattr(view, "_BACK_OFFSETS", 3)
        code, plan = replica.orphans(capsys, "plan")
    assert (code, plan["orphans"], plan["torn"]) == (DONE, 6, [])
    assert plan["not_looked_back_far_enough"] == [f"{topic}:0"]
    _, plan = replica.orphans(capsys, "plan")
    assert (len(plan["torn"]), plan["not_looked_back_far_enough"]) == (1, [])


@pytest.mark.soak
def test_a_planned_switchover_tears_none(
    replica: Orphaned, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is copied before anything is promoted."""
    monkeypatch.setattr(commits, "COMMITS_S", 0.5)
    moved = {"fence": "command", "redirect": "command", "command": ["./switch"], "quiet": "500ms"}
    replica.configure(switchover=moved)
    topic = replica.topic(partitions=2)
    by_an_older_client(replica.source_client, f"{replica.name}-orders", topic, {0: 2, 1: 2}, {0: 3, 1: 1})
    replica.copy()
    code, told = replica.command(
        capsys, "drill", "run", str(replica.flow.path), "--mode", "planned", "--approve"
    )
    assert (code, told["verdict"]) == (DONE, "PASS"), told
    code, plan = replica.orphans(capsys, "plan")
    assert (code, plan["orphans"], plan["torn"]) == (DONE, 0, [])
