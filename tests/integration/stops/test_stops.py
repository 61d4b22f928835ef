"""Whatever would silently skip or repeat data stops that partition and asks (G5).

Every cause is made for real. Each time: code, expected and seen are in `status`, the other topic of the flow
goes on, and the command that the stop names resolves it.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from onceover.errors import NeedsOperator, UsageError
from onceover.state import names
from onceover.state.read import read_layout
from onceover.stops.aside import WaitPolicy
from onceover.wiring.flows import open_clusters
from onceover_lab.embed.kafka import KafkaCluster, start_all
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.replica import Replica, alter_config, delete_topics
from tests.support.flows.scene import Capture, Scene
from tests.support.flows.waysout import commands, follow
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0
# `status` opens both clusters anew each time.
_POLL_S = 0.2


@pytest.fixture
def scene(replica: Replica) -> Scene:
    return Scene(replica)


def values(replica: Replica, topic: str, partition: int = 0) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return the values on the source and on the target, in order."""
    return (
        [seen.value for seen in replica.source_records(topic, partition).values()],
        [seen.value for seen in replica.target_records(topic, partition).values()],
    )


def test_records_deleted_before_they_were_copied(scene: Scene, capsys: Capture) -> None:
    """DeleteRecords, or retention, moved the log's start past our position: the loss has to be accepted."""
    scene.feed(10)
    admin = AdminClient(scene.replica.source_client)
    admin.delete_records([KafkaPartition(scene.topic, 0, 15)])[KafkaPartition(scene.topic, 0)].result(
        _TIMEOUT_S
    )
    scene.expect_copied(10)
    scene.expect_stop(capsys, "SOURCE_TRUNCATED", "offset 10", "15")
    assert scene.resolve(capsys, "skip-to", 15) == 5
    scene.expect_copied(5)
    scene.expect_clear(capsys)
    source, target = values(scene.replica, scene.topic)
    assert target[10:] == source


def test_a_deleted_source_topic_stops_a_running_lane(scene: Scene, capsys: Capture) -> None:
    """Seen while copying; the other topic goes on within the same run."""
    with scene.replica.running() as live:
        delete_topics(scene.replica.source_client, [scene.topic])
        wait_until(
            lambda: scene.replica.stop_of(scene.topic), _TIMEOUT_S, "the partition stops", poll_s=_POLL_S
        )
        scene.feed_other()
        wait_until(
            lambda: scene.replica.partition_status(scene.other)["lag_offsets"] == 0,
            _TIMEOUT_S,
            "the other goes on",
            poll_s=_POLL_S,
        )
        assert scene.replica.flow.status()["lag_offsets"] is None, "what a deleted topic held is not known"
    assert live.records == 3
    scene.expect_stop(capsys, "SOURCE_MISSING", "no such topic")
    scene.replica.source.create_topic(scene.topic)
    scene.replica.source.plain(scene.topic, 0, scene.replica.source.records(4))
    scene.expect_copied(0)
    scene.expect_stop(capsys, "SOURCE_RECREATED", "topic id")
    scene.resolve(capsys, "reseed")
    scene.expect_copied(4)
    scene.expect_clear(capsys)


@pytest.mark.soak
@pytest.mark.parametrize("records", [4, 30], ids=["fewer", "more"])
def test_a_recreated_source_topic_is_not_taken_for_the_old_one(
    scene: Scene, capsys: Capture, records: int
) -> None:
    """With more records than before, a fetch by name would silently go on in the middle of the new log."""
    delete_topics(scene.replica.source_client, [scene.topic])
    scene.replica.source.create_topic(scene.topic)
    scene.replica.source.plain(scene.topic, 0, scene.replica.source.records(records))
    scene.feed_other()
    scene.expect_copied(3)
    scene.expect_stop(capsys, "SOURCE_RECREATED", "topic id")
    scene.resolve(capsys, "reseed")
    scene.expect_copied(records)
    scene.expect_clear(capsys)
    source, target = values(scene.replica, scene.topic)
    assert target[10:] == source


def test_reseeding_one_partition_says_nothing_about_the_others(replica: Replica, capsys: Capture) -> None:
    """Each partition of a recreated topic is decided by itself; none goes on from its old position.

    One that is gone stops as well; a reseed takes it out of the flow.
    """
    scene = Scene(replica, partitions=3)
    delete_topics(replica.source_client, [scene.topic])
    replica.source.create_topic(scene.topic, 2)
    for partition in (0, 1):
        replica.source.plain(scene.topic, partition, replica.source.records(30))
    scene.expect_copied(0)
    for partition in range(3):
        scene.expect_stop(capsys, "SOURCE_RECREATED", partition=partition)
    flow = str(replica.flow.path)
    code, plan = replica.command(capsys, "partition", "reseed", flow, f"{scene.topic}:2", "--apply")
    assert (code, plan["changes"][0]["to"]) == (0, "taken out of the flow")
    left = [p["partition"] for p in replica.flow.status()["partitions"] if p["topic"] == scene.topic]
    assert left == [0, 1]
    scene.resolve(capsys, "reseed")
    scene.expect_copied(30)
    scene.expect_stop(capsys, "SOURCE_RECREATED", "topic id", partition=1)
    scene.resolve(capsys, "reseed", partition=1)
    scene.expect_copied(30)
    scene.expect_clear(capsys)
    for partition in (0, 1):
        source, target = values(replica, scene.topic, partition)
        assert target[10:] == source


def test_a_deleted_target_topic_stops_a_running_lane(scene: Scene, capsys: Capture) -> None:
    """With it went the copied records and their progress; a reseed brings everything back, once."""
    with scene.replica.running():
        delete_topics(scene.replica.target_client, [scene.topic])
        scene.feed(5)
        wait_until(
            lambda: scene.replica.stop_of(scene.topic), _TIMEOUT_S, "the partition stops", poll_s=_POLL_S
        )
        wait_until(
            lambda: scene.replica.partition_status(scene.other)["lag_offsets"] == 0, 30, "others go on"
        )
    scene.expect_stop(capsys, "TARGET_MISSING", "no such topic")
    scene.replica.target_topic(scene.topic)
    scene.expect_copied(0)
    scene.expect_stop(capsys, "TARGET_RECREATED", "topic id")
    scene.resolve(capsys, "reseed")
    scene.expect_copied(15)
    scene.expect_clear(capsys)
    scene.replica.assert_same(scene.topic)


@pytest.mark.soak
def test_a_lost_progress_group_is_not_guessed(scene: Scene, capsys: Capture) -> None:
    """Enrolled, but without progress: neither the start nor the end of the log is where it was."""
    admin = AdminClient(scene.replica.target_client)
    group = names.progress_group(scene.replica.name)
    admin.delete_consumer_groups([group])[group].result(_TIMEOUT_S)
    scene.feed(2)
    scene.expect_copied(0)
    for topic in (scene.topic, scene.other):
        stop = scene.replica.stop_of(topic)
        assert stop["code"] == "PROGRESS_MISSING"
        assert group in stop["expected"]
    plan, apply, second_best = commands(scene.replica.stop_of(scene.topic)["resolve"])
    assert [change["to"] for change in plan.run(capsys)["changes"][:2]] == [10, 10]
    # The group on the source may be a moment behind; what it would repeat is in its plan.
    assert second_best.arguments[:2] == ["seed", "apply"]
    apply.run(capsys)
    scene.expect_copied(4)
    scene.expect_clear(capsys)
    scene.replica.assert_same()


@pytest.mark.soak
def test_resume_looks_again_within_the_same_run(replica: Replica, capsys: Capture) -> None:
    """What the operator repaired is noticed without a restart, when asked, and not before."""
    topic = replica.topic("trouble")
    replica.target_topic(topic, config={"max.message.bytes": "100000"})
    flow = str(replica.flow.path)
    with replica.running() as live:
        replica.source.plain(topic, 0, replica.source.records(2))
        code, plan = replica.command(capsys, "partition", "resume", flow, f"{topic}:0", "--apply")
        assert (code, plan["refused"][0]["code"]) == (3, "NOT_STOPPED")
        replica.source.batch_of_size(topic, 0, 200_000)
        wait_until(lambda: replica.stop_of(topic), _TIMEOUT_S, "the record is refused", poll_s=_POLL_S)
        alter_config(replica.target_client, topic, {"max.message.bytes": "1000000"})
        code, plan = replica.command(capsys, "partition", "resume", flow, f"{topic}:0", "--apply")
        assert (code, plan["applied"], plan["generation"]) == (0, True, None)
        wait_until(lambda: not replica.stop_of(topic), _TIMEOUT_S, "the partition goes on", poll_s=_POLL_S)
        wait_until(
            lambda: replica.partition_status(topic)["lag_offsets"] == 0, _TIMEOUT_S, "copied", poll_s=_POLL_S
        )
    assert live.records == 3
    replica.assert_same()


def test_two_flows_never_write_one_target_topic(
    scene: Scene,
    tmp_path: Path,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    capsys: Capture,
) -> None:
    """The second is refused; it copies what is its own, and `status` says why not the rest."""
    first = scene.replica
    name = f"{first.name[:-1]}x"
    with Replica(tmp_path, name, first.source_client, first.target_client) as second:
        own = second.topic("own")
        second.source.plain(own, 0, second.source.records(2))
        second.configure(topics={"include": [f"{name}[.].*", f"{first.name}[.].*"]})
        assert second.copy().records == 2
        code, document = second.command(capsys, "status", str(second.flow.path))
    refused = {p["topic"]: p for p in document["flows"][0]["partitions"] if p["state"] == "not_enrolled"}
    assert code == 3
    assert set(refused) == {scene.topic, scene.other}
    assert {p["stop"]["code"] for p in refused.values()} == {"ENROLLED_ELSEWHERE"}
    assert all(first.name in p["stop"]["message"] for p in refused.values())
    first.assert_same()


def test_a_target_topic_with_records_is_refused(replica: Replica, capsys: Capture) -> None:
    """What they are is not known, so nothing is written behind them; the other topics are copied."""
    topic, other = replica.topic("trouble"), replica.topic("other")
    replica.target_topic(topic)
    replica.target.plain(topic, 0, replica.target.records(3))
    for name in (topic, other):
        replica.source.plain(name, 0, replica.source.records(2))
    assert replica.copy().records == 2
    code, document = replica.command(capsys, "status", str(replica.flow.path))
    refused = [p for p in document["flows"][0]["partitions"] if p["stop"]]
    assert code == 3
    assert [(p["topic"], p["stop"]["code"]) for p in refused] == [(topic, "TARGET_NOT_EMPTY")]
    assert len(replica.target_records(topic)) == 3
    replica.assert_same(other)


@pytest.mark.soak
def test_another_cluster_behind_the_same_flow_is_refused(
    scene: Scene, start_cluster: ClusterFactory, tmp_path: Path
) -> None:
    """A bootstrap address that now leads elsewhere: exit code 3, and nothing was touched."""
    replica = scene.replica
    foreign = start_cluster("foreign")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    group = names.progress_group(replica.name)
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target, Replica(elsewhere, replica.name, foreign.client, replica.target_client) as moved:
        progress, layout = target.committed(group, None), read_layout(target, replica.name)
        with pytest.raises(NeedsOperator, match="not the one this flow copies") as caught:
            moved.copy()
        assert caught.value.exit_code == 3
        assert (caught.value.expected, caught.value.seen) == (
            f"cluster id {source.cluster_id()}",
            f"cluster id {foreign.cluster_id}",
        )
        assert target.committed(group, None) == progress
        assert read_layout(target, replica.name) == layout
    scene.feed_other()
    scene.expect_copied(3)


def test_a_cluster_is_not_copied_onto_itself(
    tmp_path: Path, unique_name: str, target_cluster: SharedCluster
) -> None:
    """Two addresses of one cluster: refused before anything is created there."""
    _, _, port = target_cluster.bootstrap.rpartition(":")
    alias = {"bootstrap.servers": f"127.1:{port}"}
    with Replica(tmp_path, unique_name, alias, target_cluster.client) as replica:
        with pytest.raises(UsageError, match="the same cluster"):
            replica.copy()
        topics = AdminClient(target_cluster.client).list_topics(timeout=_TIMEOUT_S).topics
    assert names.state_topic(unique_name) not in topics


@pytest.fixture
def lonely(
    start_cluster: ClusterFactory, tmp_path: Path, unique_name: str
) -> Iterator[tuple[Replica, KafkaCluster, KafkaCluster]]:
    """A flow between two clusters whose brokers may be harmed."""
    source, target = start_all([lambda: start_cluster("source"), lambda: start_cluster("target")])
    with Replica(tmp_path, unique_name, source.client, target.client) as replica:
        yield replica, source, target


def lose_log(cluster: KafkaCluster, topic: str) -> None:
    """Take a partition's only replica away, as a broken disk would; it comes back empty, same topic id."""
    node = cluster.nodes[0]
    node.stop()
    shutil.rmtree(node.data / f"{topic}-0")
    node.start()


@pytest.mark.soak
def test_logs_that_lost_records_are_noticed(
    lonely: tuple[Replica, KafkaCluster, KafkaCluster], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SOURCE_DIVERGED, also when the source has grown past our position again; TARGET_SHORTENED."""
    # How long an end that seems too low is looked at again: leaders do not move here.
    monkeypatch.setattr("onceover.stops.aside.UNKNOWN", WaitPolicy(0.5, 0.2, 0.2))
    replica, source, target = lonely
    scene = Scene(replica)
    lose_log(source, scene.topic)
    replica.source.reconnect(scene.topic)
    replica.source.plain(scene.topic, 0, replica.source.records(25))
    scene.feed_other()
    scene.expect_copied(3)
    scene.expect_stop(capsys, "SOURCE_DIVERGED", "offset 10", "offset 0")
    scene.resolve(capsys, "skip-to", 0)
    scene.expect_copied(25)
    scene.expect_clear(capsys)
    lose_log(target, scene.topic)
    replica.target.reconnect(scene.topic)
    scene.feed_other()
    scene.expect_copied(3)
    scene.expect_stop(capsys, "TARGET_SHORTENED", "log end 0")
    scene.resolve(capsys, "reseed")
    scene.expect_copied(25)
    scene.expect_clear(capsys)
    replica.assert_same()
    a_damaged_batch_is_left_out(scene, source, capsys)
    a_log_that_its_broker_cannot_read(scene, source, capsys)


def a_damaged_batch_is_left_out(scene: Scene, source: KafkaCluster, capsys: Capture) -> None:
    """SOURCE_DAMAGED: what comes before it is copied, what comes behind it as soon as it is skipped."""
    writer, topic = scene.replica.source, scene.topic
    writer.plain(topic, 0, writer.records(2))
    at = writer.plain(topic, 0, writer.records(5))
    writer.plain(topic, 0, writer.records(3))
    damage_batch(source, topic, at)
    writer.reconnect(topic)
    scene.expect_copied(2)
    scene.expect_stop(capsys, "SOURCE_DAMAGED", "CRC")
    assert scene.resolve(capsys, "skip-to", at + 5) == 5
    scene.expect_copied(3)
    scene.expect_clear(capsys)


def a_log_that_its_broker_cannot_read(scene: Scene, source: KafkaCluster, capsys: Capture) -> None:
    """SOURCE_UNREADABLE: Fetch is answered with an error that stays; the other topic goes on meanwhile."""
    writer, topic = scene.replica.source, scene.topic
    writer.plain(topic, 0, writer.records(2))
    at = writer.plain(topic, 0, writer.records(3))
    scene.feed_other()
    size = resize_batch(source, topic, at, 0)
    scene.expect_copied(2 + 3)
    scene.expect_stop(capsys, "SOURCE_UNREADABLE", "error 2")
    resize_batch(source, topic, at, size)
    (way,) = commands(scene.replica.stop_of(topic)["resolve"])
    follow(capsys, way)
    scene.expect_copied(3)
    scene.expect_clear(capsys)


def damage_batch(cluster: KafkaCluster, topic: str, at: int) -> None:
    """Flip a bit in the last byte of the batch at an offset, as a dying disk would."""
    node = cluster.nodes[0]
    node.stop()
    path = segment(cluster, topic)
    log, place = bytearray(path.read_bytes()), place_of(path, at)
    log[place + 11 + struct.unpack_from(">i", log, place + 8)[0]] ^= 1
    path.write_bytes(log)
    node.start()


def resize_batch(cluster: KafkaCluster, topic: str, at: int, size: int) -> int:
    """Change what the header of the batch at an offset says of its size, under the running broker."""
    path = segment(cluster, topic)
    with path.open("r+b") as log:
        log.seek(place_of(path, at) + 8)
        (old,) = struct.unpack(">i", log.read(4))
        log.seek(-4, os.SEEK_CUR)
        log.write(struct.pack(">i", size))
    return int(old)


def segment(cluster: KafkaCluster, topic: str) -> Path:
    """Return the only segment of partition 0."""
    (path,) = (cluster.nodes[0].data / f"{topic}-0").glob("*.log")
    return path


def place_of(path: Path, at: int) -> int:
    """Return where the batch at an offset begins in a segment."""
    log, place = path.read_bytes(), 0
    while struct.unpack_from(">q", log, place)[0] != at:
        place += 12 + struct.unpack_from(">i", log, place + 8)[0]
    return place
