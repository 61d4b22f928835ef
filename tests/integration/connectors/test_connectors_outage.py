"""A broker that is killed and started again while a run writes: the run goes on, and nothing is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.connectors import steps
from onceover.connectors.offsets.write import Entry, write_in_transaction, write_plainly
from onceover.connectors.record.manifest import Manifest
from onceover.connectors.record.runrecords import RunRecords
from onceover.connectors.steps import StepName
from onceover.kafka.cluster import LiveCluster
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import ClusterFactory
from tests.support.flows.feeds import held
from tests.support.raw.adversary import Adversary
from tests.support.session.wait import wait_until

PARTITIONS = 2
ENTRIES = [Entry(0, b"a", b"1"), Entry(1, b"b", b"2"), Entry(0, b"a", None), Entry(0, b"c", b"3")]


@pytest.fixture
def broker(start_cluster: ClusterFactory) -> KafkaCluster:
    """One broker of its own."""
    return start_cluster("restarted")


@contextmanager
def restarted(broker: KafkaCluster, at: StepName) -> Iterator[None]:
    """Kill the broker at the first such step, and start it again."""
    reached: list[StepName] = []

    def listen(step: StepName) -> None:
        if step is at and not reached:
            reached.append(step)
            broker.nodes[0].kill()
            broker.nodes[0].start()

    steps.listen(listen)
    try:
        yield
    finally:
        steps.listen(lambda _step: None)
    assert reached


def await_values(
    broker: KafkaCluster, topic: str, expected: dict[tuple[int, bytes | None], bytes | None]
) -> None:
    """Wait until a reader of committed records takes this for true."""

    def seen() -> bool:
        found = held(broker.client, topic, PARTITIONS)
        return expected == {(number, one.key): one.value for number, some in found.items() for one in some}

    wait_until(seen, 30.0, f"all of {topic} is there")


def test_offsets_are_all_there(broker: KafkaCluster, unique_name: str) -> None:
    """In a transaction that was open meanwhile, and without one, on connections that were lost."""
    with Adversary(broker.bootstrap) as adversary:
        topics = [adversary.create_topic(f"{unique_name}.{kind}", PARTITIONS) for kind in "ab"]
    with LiveCluster(ClientConfig("restarted", broker.client)) as cluster:
        with restarted(broker, StepName.COPY_COMMIT):
            write_in_transaction(cluster, topics[0], unique_name, ENTRIES, lambda: None)
        broker.nodes[0].kill()
        broker.nodes[0].start()
        write_plainly(cluster, topics[1], ENTRIES)
    for topic in topics:
        await_values(broker, topic, {(0, b"a"): None, (0, b"c"): b"3", (1, b"b"): b"2"})


@pytest.mark.soak
def test_a_run_is_written_down(broker: KafkaCluster, unique_name: str) -> None:
    """And so is what follows."""
    with Adversary(broker.bootstrap) as adversary:
        like = adversary.create_topic(unique_name)
    run = Manifest.begin("migrate", "c", ("from", "to"), "RUNNING", {}, {}, exactly_once=True)
    with LiveCluster(ClientConfig("restarted", broker.client)) as cluster:
        records = RunRecords(cluster, unique_name, like)
        claim = records.claim("c")
        try:
            claim.write(run)
            stopped = replace(run, offsets={b"k": b"v"}).with_step("stop")
            with restarted(broker, StepName.RECORD):
                claim.write(stopped)
            fenced = stopped.with_step("fence")
            claim.write(fenced)
            found = records.load("c", "migrate")
        finally:
            claim.close()
            records.close()
    assert found is not None and (found.steps, found.values) == (fenced.steps, {b"k": b"v"})
