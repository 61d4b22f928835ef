"""Transactions that end while one of their partitions has no leader: its only broker is being stopped.

Some releases of Kafka then write no marker there and tell that all is over (``kafka.produce.leftopen``);
3.9.1 waits until somebody leads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.errors import MustReset
from onceover.kafka import calls
from onceover.state import names, steps
from onceover.state.steps import Step
from onceover.wiring.flows import open_clusters
from onceover_lab.embed.kafka import KafkaCluster
from onceover_lab.embed.node import KafkaNode
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.replica import Replica
from tests.support.raw.adversary import KEEP_FOREVER
from tests.support.session.wait import wait_until

pytestmark = pytest.mark.soak
_TIMEOUT_S = 60.0
_HEAP_MB = 320


class Leaving:
    """A target of three brokers, and a flow of one lane with a partition that only one of them holds."""

    def __init__(self, replica: Replica, target: KafkaCluster) -> None:
        self.replica, self.target = replica, target
        self.admin = AdminClient(target.client)
        self.topic = replica.topic("a", 2)
        replica.configure(state={"replication_factor": 3}, lanes=1)
        self.node = self._node_without_coordinators()
        other = next(node for node in target.nodes if node is not self.node)
        new = NewTopic(
            self.topic,
            2,
            replica_assignment=[[self.node.node_id], [other.node_id]],
            config={**KEEP_FOREVER, "min.insync.replicas": "1"},
        )
        self.admin.create_topics([new])[self.topic].result(_TIMEOUT_S)
        wait_until(lambda: self.led() == {0, 1}, _TIMEOUT_S, "both are led")

    def _node_without_coordinators(self) -> KafkaNode:
        _, target = open_clusters(self.replica.flow.watch.flow)
        wanted = [
            (names.lane_id(self.replica.name, 0), calls.TRANSACTION),
            (names.progress_group(self.replica.name), calls.GROUP),
        ]
        with target:
            busy = {target.retry(partial(target.coordinator_node, *one)) for one in wanted}
        return next(node for node in self.target.nodes if node.node_id not in busy)

    def led(self) -> set[int]:
        found = self.admin.list_topics(self.topic, timeout=_TIMEOUT_S).topics[self.topic]
        return {number for number, p in found.partitions.items() if p.leader >= 0}

    def feed(self) -> None:
        for partition in range(2):
            self.replica.source.plain(self.topic, partition, self.replica.source.records(10))

    def take_away(self) -> None:
        self.node.stop()
        wait_until(lambda: self.led() == {1}, _TIMEOUT_S, "nobody leads it")

    def bring_back(self) -> None:
        self.node.start()
        wait_until(lambda: self.led() == {0, 1}, _TIMEOUT_S, "it is led again")

    def is_held_up(self) -> bool:
        """Tell whether readers of the partition wait for the end of a transaction."""
        ends = []
        for isolation in ("read_committed", "read_uncommitted"):
            consumer = Consumer({**self.target.client, "group.id": "never", "isolation.level": isolation})
            ends.append(consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=_TIMEOUT_S)[1])
            consumer.close()
        return bool(ends[0] < ends[1])


@contextmanager
def once_at(step: Step, action: Callable[[], None]) -> Iterator[None]:
    """Do something the first time that a step is reached."""
    left = [action]

    def listen(reached: Step) -> None:
        if reached is step and left:
            left.pop()()

    steps.listen(listen)
    try:
        yield
    finally:
        steps.listen(lambda _: None)


@pytest.fixture
def leaving(
    start_cluster: ClusterFactory,
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
) -> Iterator[Leaving]:
    target = start_cluster("leaving", brokers=3, heap_mb=_HEAP_MB)
    with Replica(tmp_path, unique_name, source_cluster.client, target.client) as replica:
        yield Leaving(replica, target)


def reset() -> None:
    raise MustReset("the test has it so")


def test_a_commit_and_an_abort_while_nobody_leads_a_partition(leaving: Leaving) -> None:
    """Nothing is lost by an abort behind the first, nothing doubled by the commit behind the second."""
    leaving.feed()
    with once_at(Step.COMMIT, leaving.take_away):
        leaving.replica.copy()
    leaving.bring_back()
    assert leaving.is_held_up(), "the broker wrote its marker: this release needs no help"
    leaving.feed()
    with once_at(Step.DATA_ACKED, reset):
        leaving.replica.copy()
    leaving.replica.assert_same()

    def lose() -> None:
        leaving.take_away()
        reset()

    leaving.feed()
    with once_at(Step.COMMIT, lose):
        leaving.replica.copy()
    leaving.bring_back()
    assert leaving.is_held_up(), "the broker wrote its marker: this release needs no help"
    leaving.replica.copy()
    leaving.replica.assert_same()
    assert len(leaving.replica.target_records(leaving.topic, 0)) == 30
