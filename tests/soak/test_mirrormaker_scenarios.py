"""What MirrorMaker 2's own integration tests ask of it, asked of a flow: exact answers where it has bounds.

After ``MirrorConnectorsIntegrationBaseTest`` of Apache Kafka: what stands there as "at most so many records
again" stands here as none. Names are its own, in our spelling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from onceover.groups.decide import Allowed
from onceover.wiring.groups import GroupRequest
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.groups import commit, committed, offset_of, unread
from tests.support.flows.operations import apply_groups
from tests.support.flows.replica import Replica, alter_config, topic_config
from tests.support.session.wait import wait_until

pytestmark = pytest.mark.soak

_TIMEOUT_S = 60.0
_PARTITIONS = 3
_EACH = 20


class Scenario:
    """A flow from primary to backup, whose copies are called ``primary.<topic>``."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        replica.configure(
            source={"alias": "primary"}, target={"alias": "backup"}, topics={"naming": "prefix"}
        )
        self.primary, self.backup = replica.source_client, replica.target_client

    def topic(self, suffix: str, **config: str) -> str:
        return self.replica.topic(suffix, _PARTITIONS, config)

    @staticmethod
    def remote(topic: str) -> str:
        return f"primary.{topic}"

    def produce(self, topic: str, partitions: int = _PARTITIONS) -> None:
        for number in range(partitions):
            records = [self.replica.source.record(key=b"%d" % key) for key in range(_EACH)]
            self.replica.source.plain(topic, number, records)

    def group(self, suffix: str) -> str:
        return f"{self.replica.name}-{suffix}"

    def sync_groups(self, **allowed: bool) -> None:
        request = GroupRequest(patterns=[f"{self.replica.name}-.*"], allowed=Allowed(**allowed))
        apply_groups(self.replica.flow.watch.flow, request)

    def assert_at_the_end(self, group: str, topic: str, each: int) -> None:
        """The group has read all ``each`` records of every partition: on the backup none comes again."""
        there = committed(self.backup, group, self.remote(topic))
        for number in range(_PARTITIONS):
            copies = list(self.replica.target_records(self.remote(topic), number))
            # Behind the last record, or behind the marker that ends its transaction.
            assert unread(copies, there[number][0]) == len(copies) == each

    def assert_copied(self, topic: str, each: list[int]) -> None:
        counts = [len(self.replica.target_records(self.remote(topic), n)) for n in range(_PARTITIONS)]
        assert counts == each


def consume(client: Mapping[str, str], group: str, topic: str, count: int) -> None:
    """Read so many records of all partitions as a member of the group, and commit what was read of each."""
    settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**client, **settings, "isolation.level": "read_committed"})
    try:
        consumer.subscribe([topic])
        left = [count]

        def done() -> bool:
            left[0] -= consumer.poll(0.1) is not None
            return not left[0]

        wait_until(done, _TIMEOUT_S, f"{group} reads {topic}")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


@pytest.fixture
def scenario(
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scenario]:
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    with Replica(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        yield Scenario(replica)


def test_replication(scenario: Scenario) -> None:
    """All records, the topic's configuration, a group over and back; then a topic that comes later."""
    topic, group = scenario.topic("one", **{"cleanup.policy": "compact"}), scenario.group("replication")
    scenario.produce(topic)
    half = _EACH * _PARTITIONS // 2
    consume(scenario.primary, group, topic, half)
    scenario.replica.copy()
    assert topic_config(scenario.backup, scenario.remote(topic))["cleanup.policy"] == "compact"
    scenario.assert_copied(topic, [_EACH] * _PARTITIONS)
    scenario.sync_groups()
    # Failover: with the first record that was not read, to the end.
    consume(scenario.backup, group, scenario.remote(topic), _EACH * _PARTITIONS - half)
    scenario.assert_at_the_end(group, topic, _EACH)
    later = scenario.topic("two")
    scenario.produce(later, 1)
    scenario.replica.copy()
    scenario.assert_copied(later, [_EACH, 0, 0])


def test_replication_with_an_empty_partition(scenario: Scenario) -> None:
    """A group's position on it is carried over as well, and is 0."""
    topic, group = scenario.topic("empty"), scenario.group("empty")
    scenario.produce(topic, _PARTITIONS - 1)
    consume(scenario.primary, group, topic, _EACH * (_PARTITIONS - 1))
    here = committed(scenario.primary, group, topic)
    scenario.replica.copy()
    scenario.sync_groups()
    there = committed(scenario.backup, group, scenario.remote(topic))
    assert there.keys() == here.keys()
    assert there.get(_PARTITIONS - 1, (0, ""))[0] == 0


def test_one_way_replication_with_offset_syncs(scenario: Scenario) -> None:
    """Of the first topic, then of a second one; nothing is created on the primary."""
    group, topics = scenario.group("one-way"), [scenario.topic("one"), scenario.topic("two")]
    for topic in topics:
        scenario.produce(topic)
        consume(scenario.primary, group, topic, _EACH * _PARTITIONS)
        scenario.replica.copy()
        scenario.sync_groups()
        scenario.assert_at_the_end(group, topic, _EACH)
    names = AdminClient(scenario.primary).list_topics(timeout=_TIMEOUT_S).topics
    assert not [name for name in names if name.startswith("backup.")]


def test_no_checkpoints_if_no_records_are_mirrored(scenario: Scenario) -> None:
    """A position in what is not copied yet has no counterpart, and gets it with the records."""
    copied, waiting, group = scenario.topic("one"), scenario.topic("no"), scenario.group("checkpoints")
    scenario.produce(copied)
    scenario.replica.copy()
    scenario.produce(waiting)
    for topic in (copied, waiting):
        consume(scenario.primary, group, topic, _EACH * _PARTITIONS)
    scenario.sync_groups()
    scenario.assert_at_the_end(group, copied, _EACH)
    assert not any(
        offset for offset, _ in committed(scenario.backup, group, scenario.remote(waiting)).values()
    )
    scenario.replica.copy()
    scenario.sync_groups()
    scenario.assert_at_the_end(group, waiting, _EACH)


def test_restart_replication(scenario: Scenario) -> None:
    """A run ends, another one goes on: nothing comes twice, and groups move on."""
    topic, group = scenario.topic("one"), scenario.group("restart")
    for rounds in (1, 2):
        scenario.produce(topic)
        consume(scenario.primary, group, topic, _EACH * _PARTITIONS)
        scenario.replica.copy()
        scenario.sync_groups()
        scenario.assert_at_the_end(group, topic, rounds * _EACH)


def test_offset_translation_behind_the_replication_flow(scenario: Scenario) -> None:
    """A group far behind is translated exactly, forwards, and backwards where that is asked for."""
    topic, group = scenario.topic("one"), scenario.group("behind")
    for _ in range(10):
        scenario.produce(topic)
    scenario.replica.copy()
    read = sorted(scenario.replica.target_records(scenario.remote(topic), 0))
    theirs = sorted(scenario.replica.source_records(topic, 0))
    for share, allowed in ((0.9, {}), (0.1, {"rewind": True, "follow_rewinds": True})):
        at = int(len(read) * share)
        commit(scenario.primary, group, topic, {0: theirs[at]})
        scenario.sync_groups(**allowed)
        position = offset_of(scenario.backup, group, scenario.remote(topic))
        assert position is not None
        assert unread(read, position) == at


def test_topic_configs_are_synced(scenario: Scenario) -> None:
    """What the source sets is set on the copy; what it no longer sets goes back to the target's default."""
    topic = scenario.topic("config", **{"retention.bytes": "1000000"})
    remote = scenario.remote(topic)
    scenario.replica.copy()
    assert topic_config(scenario.backup, remote)["retention.bytes"] == "1000000"
    alter_config(scenario.backup, remote, {"retention.bytes": "2000000"})
    alter_config(scenario.primary, topic, {"retention.bytes": "3000000"})
    scenario.replica.copy()

    def synced() -> bool:
        return topic_config(scenario.backup, remote)["retention.bytes"] == "3000000"

    wait_until(synced, _TIMEOUT_S, "the configuration is synced")


def test_replication_from_latest(scenario: Scenario) -> None:
    """What was there before stays there; what comes later is copied."""
    scenario.replica.configure(topics={"naming": "prefix", "start": "latest"})
    topic = scenario.topic("latest")
    scenario.produce(topic)
    scenario.replica.copy()
    scenario.assert_copied(topic, [0] * _PARTITIONS)
    scenario.produce(topic)
    scenario.replica.copy()
    scenario.assert_copied(topic, [_EACH] * _PARTITIONS)
