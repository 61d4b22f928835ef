"""The leader epoch of a committed offset counts within one cluster: what the other one's does to a reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from onceover.wiring.groups import GroupRequest
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.drills.movers import SUBSCRIBED, Applications, Role
from tests.support.flows.operations import apply_groups
from tests.support.flows.replica import Replica
from tests.support.raw.epochs import NO_EPOCH, Epochs, epochs_of
from tests.support.session.wait import wait_until

JAVA = "4.3.0"
AHEAD_EPOCH = 5
COUNT, POSITION = 40, 20
TIMEOUT_S = 60.0


def write(client: Mapping[str, str], topic: str, count: int) -> None:
    """Write so many records."""
    producer = Producer(dict(client))
    for number in range(count):
        producer.produce(topic, value=str(number).encode(), partition=0)
    producer.flush(TIMEOUT_S)


def place(source: Epochs, replica: Replica, topic: str, group: str) -> None:
    """Have a group of the source, whose consumer is in a late epoch there, put in place on the target."""
    source.raise_to(topic, AHEAD_EPOCH)
    write(replica.source_client, topic, COUNT)
    replica.copy()
    source.commit(group, topic, POSITION, AHEAD_EPOCH)
    assert source.committed(group, topic) == (POSITION, AHEAD_EPOCH)
    assert apply_groups(replica.flow.watch.flow, GroupRequest()).exit_code == 0


@pytest.mark.soak
def test_java_reads_on_at_once_where_the_source_was_in_a_later_leader_epoch(
    start_cluster: ClusterFactory,
    tmp_path: Path,
    unique_name: str,
    target_cluster: SharedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No epoch is committed. With the source's, Kafka's consumer waits for it without a word, for ever."""
    source = start_cluster("source", brokers=2)
    group, carried, own = (f"{unique_name}-{each}" for each in ("placed", "carried", "own"))
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    with Replica(tmp_path, unique_name, source.client, target_cluster.client) as replica:
        topic = f"{replica.name}.a"
        with epochs_of(source.bootstrap) as there:
            there.create(topic, [1, 2])
            place(there, replica, topic, group)
        with epochs_of(target_cluster.bootstrap) as here:
            assert here.committed(group, topic) == (POSITION, NO_EPOCH)
            here.commit(carried, topic, POSITION, AHEAD_EPOCH)
            here.commit(own, topic, POSITION, here.partition(topic)["leader_epoch"])
        settings = {**target_cluster.client, "auto.offset.reset": "none"}
        roles = {name: Role(name, SUBSCRIBED, topic, settings=settings) for name in (group, carried, own)}
        applications = Applications(list(roles.values()), tmp_path / "java", JAVA)
        applications.start()

        def read(name: str) -> list[str]:
            return [each.words for each in applications.said(roles[name]) if each.what == "read"]

        try:
            wait_until(lambda: len(read(group)) == len(read(own)) == COUNT - POSITION, TIMEOUT_S, "both read")
        finally:
            applications.end()
        assert read(group) == read(own) == [str(number) for number in range(POSITION, COUNT)]
        assert applications.said(roles[carried]) == []
