"""A partition of the offset map that cannot be read, or not to its end, holds up its own groups only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from onceover.groups.decide import Direction
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.each import Each
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.positions import index as mapindex
from onceover.positions import reader as mapreader
from onceover.state import names
from onceover.wire.offsetmap import MapKey, encode_map_key
from onceover.wiring.groups import GroupRequest
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.operations import apply_groups
from tests.support.flows.replica import Replica
from tests.support.worlds.mapparts import hanging, mapped

DONE, TEMPORARY = 0, 5
_TIMEOUT_S = 30.0
_RECORDS = 10
Left = dict[str, str]


@pytest.fixture(autouse=True)
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for people, only sooner; and files of the test's own."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    monkeypatch.setattr(mapindex, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(mapreader, "_SETTLE_S", 1.0)


def copied(replica: Replica) -> str:
    """Copy a topic of two partitions, whose map records are in different partitions of the map."""
    topic = replica.topic(partitions=2)
    for partition in range(2):
        replica.source.plain(topic, partition, replica.source.records(_RECORDS))
    replica.copy()
    return topic


def apply(replica: Replica, group: str, direction: Direction) -> tuple[int, Left]:
    """Put one group in place; return the exit code, and the codes of what was left alone by object."""
    request = GroupRequest(direction=direction, patterns=[group])
    applied = apply_groups(replica.flow.watch.flow, request)
    return applied.exit_code, {r.object: r.code for r in [*applied.plan.refused, *applied.refused]}


def translated(replica: Replica, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """Translate one offset by command; return the exit code, and the answer or the error."""
    code, document = replica.command(capsys, "translate", str(replica.flow.path), *arguments)
    return code, document["answers"][0].get("translated") if code == DONE else document["error"]["message"]


def test_a_transaction_that_hangs_in_the_map_holds_up_the_way_back_of_its_own_groups_only(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers at the end of the copy: that no record follows is told by the end of the map only."""
    topic, group = copied(replica), f"{replica.name}-reader"
    ends = {number: max(replica.target_records(topic, number)) + 2 for number in range(2)}
    commit(replica.target_client, group, topic, ends)
    with hanging(replica, mapped(topic, 1)):
        assert apply(replica, group, Direction.FAILBACK) == (TEMPORARY, {f"{group} {topic}:1": "UNREADABLE"})
        assert offset_of(replica.source_client, group, topic, 0) == _RECORDS
        assert offset_of(replica.source_client, group, topic, 1) is None
        back = (str(ends[0]), "--to", "source")
        assert translated(replica, capsys, f"{topic}:0", *back) == (DONE, _RECORDS)
        code, told = translated(replica, capsys, f"{topic}:1", *back)
        assert code == TEMPORARY and "a transaction is open" in told
    assert apply(replica, group, Direction.FAILBACK) == (DONE, {})
    assert offset_of(replica.source_client, group, topic, 1) == _RECORDS


def test_records_of_the_map_that_nobody_can_read_stop_only_what_they_speak_of(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody's own record in each partition; one of a later release about one source partition."""
    topic, group = copied(replica), f"{replica.name}-reader"
    spoken_of = TopicPartition(topic, 1)
    later = b"\x02" + encode_map_key(MapKey(spoken_of, spoken_of, 5))[1:] + b"more"
    writer = Producer(replica.target_client)
    for partition in range(names.MAP_PARTITIONS):
        writer.produce(names.map_topic(replica.name), b"garbage", b"x", partition=partition)
    writer.produce(names.map_topic(replica.name), b"unknown", later, partition=mapped(topic, 1))
    assert writer.flush(_TIMEOUT_S) == 0
    commit(replica.source_client, group, topic, {0: 8, 1: 8})
    _, left = apply(replica, group, Direction.FAILOVER)
    assert left == {f"{group} {topic}:1": "NOT_COVERED"}
    assert offset_of(replica.target_client, group, topic, 0) == 8
    assert offset_of(replica.target_client, group, topic, 1) is None
    for number, known in (("0", 8), ("1", None)):
        assert translated(replica, capsys, f"{topic}:{number}", "8") == (DONE, known)
    assert translated(replica, capsys, f"{topic}:1", "4") == (DONE, 4)
    assert translated(replica, capsys, f"{topic}:1", str(_RECORDS + 1), "--to", "source") == (DONE, None)
    replica.source.plain(topic, 1, replica.source.records(_RECORDS))
    replica.copy()
    commit(replica.source_client, group, topic, {1: _RECORDS + 2})
    assert apply(replica, group, Direction.FAILOVER) == (DONE, {})


def without_leader(patch: pytest.MonkeyPatch, gone: Sequence[TopicPartition]) -> None:
    """Let the target say that nobody leads these partitions."""
    each_topic = LiveCluster.each_topic

    def told(cluster: LiveCluster, wanted: Sequence[str] | None = None) -> Each[str, TopicInfo]:
        each = each_topic(cluster, wanted)
        for topic, partition in gone:
            info = each.found.get(topic)
            if info is not None and cluster.alias == "west":
                led = {**info.partitions, partition: PartitionInfo(-1, 0)}
                each.found[topic] = replace(info, partitions=led)
        return each

    patch.setattr(LiveCluster, "each_topic", told)


def test_a_partition_of_the_map_that_nobody_leads_holds_up_its_own_groups_only(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """One broker of several is away, which led it alone."""
    topic, group = copied(replica), f"{replica.name}-reader"
    commit(replica.source_client, group, topic, {0: 4, 1: 4})
    with pytest.MonkeyPatch.context() as patch:
        without_leader(patch, [TopicPartition(names.map_topic(replica.name), mapped(topic, 1))])
        assert apply(replica, group, Direction.FAILOVER) == (TEMPORARY, {f"{group} {topic}:1": "UNREADABLE"})
        assert offset_of(replica.target_client, group, topic, 0) == 4
        assert translated(replica, capsys, f"{topic}:0", "4") == (DONE, 4)
        code, told = translated(replica, capsys, f"{topic}:1", "4")
        assert code == TEMPORARY and "has no leader" in told
    assert apply(replica, group, Direction.FAILOVER) == (DONE, {})
    assert offset_of(replica.target_client, group, topic, 1) == 4


@pytest.mark.soak
def test_a_partition_of_the_target_that_nobody_leads_holds_up_its_own_groups_only(replica: Replica) -> None:
    """Whichever is asked about first: it is not known, and not "not covered"."""
    topic, group = copied(replica), f"{replica.name}-reader"
    ends = {number: max(replica.target_records(topic, number)) + 2 for number in range(2)}
    commit(replica.target_client, group, topic, ends)
    for number in range(2):
        with pytest.MonkeyPatch.context() as patch:
            without_leader(patch, [TopicPartition(topic, number)])
            patch.setattr("onceover.positions.translate._PATIENCE_S", 0.5)
            left = {f"{group} {topic}:{number}": "UNREADABLE"}
            assert apply(replica, group, Direction.FAILBACK) == (TEMPORARY, left)
