"""A group over more partitions than one record, or one request, holds is moved like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.config.home import HOME_VARIABLE
from onceover.groups.decide import Direction, Remembered
from onceover.groups.memory import GroupMemory
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.groups.admin import GroupAdmin
from onceover.model import TopicPartition
from onceover.wiring.flows import open_clusters
from onceover.wiring.groups import GroupRequest
from tests.support.flows.groups import commit_all, offset_of
from tests.support.flows.operations import apply_groups
from tests.support.flows.replica import Replica

DONE = 0
_PARTITIONS = 300
# Of what brokers take (offset.metadata.max.bytes): together more than the 1 MB of a batch.
_METADATA = "m" * 4000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and indexes of the test's own."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))


def test_what_is_remembered_of_thousands_of_partitions_holds_up_nobody(replica: Replica) -> None:
    """12,000 entries are more than the 1 MB that a broker takes in one record."""
    topic, large, small = replica.topic(), f"{replica.name}-large", f"{replica.name}-small"
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    known = frozenset(range(10**10, 10**10 + 2))
    entries = {TopicPartition("payments.transactions", n): Remembered(n, known, 2**40) for n in range(12_000)}
    flow = replica.flow.watch.flow
    source, target = open_clusters(flow)
    with source, target:
        memory = GroupMemory(target, replica.name)
        memory.prepare(1)
        assert memory.write(Direction.FAILOVER, {large: entries}) == {}
        memory.close()
    commit_all(replica.source_client, topic, {large: {0: 4}, small: {0: 5}})
    request = GroupRequest(patterns=[f"{replica.name}-.*"])
    assert apply_groups(flow, request).exit_code == DONE
    assert offset_of(replica.target_client, large, topic) == 4
    assert offset_of(replica.target_client, small, topic) == 5
    with source, target:
        memory = GroupMemory(target, replica.name)
        target.retry(memory.read)
        found = memory.of(Direction.FAILOVER, large)
        memory.close()
    assert found.pop(TopicPartition(topic, 0)).given == 4
    assert found == entries


@pytest.mark.soak
def test_more_offsets_than_a_coordinator_takes_at_once_are_committed_and_deleted(replica: Replica) -> None:
    topic, group = replica.topic(), f"{replica.name}-large"
    replica.target_topic(topic, _PARTITIONS)
    tps = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        admin = GroupAdmin(target)
        assert admin.each_commit({group: {tp: OffsetToCommit(0, -1, _METADATA) for tp in tps}}) == {}
        assert set(admin.committed(group)) == set(tps)
        admin.delete_offsets(group, tps)
        assert admin.committed(group) == {}
