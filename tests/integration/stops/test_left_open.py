"""What a transaction has left open in a partition although it is over is ended as it was meant to end.

Brokers do that where a partition has no leader in the moment of the end (``kafka.produce.leftopen``). Here
it is made by hand, which takes no broker away: records under the lane's own producer id that no coordinator
knows of.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from onceover.errors import Retriable
from onceover.kafka import calls
from onceover.kafka.calls import OffsetToCommit
from onceover.model import TopicPartition, lane_of
from onceover.positions.translate import Translator
from onceover.state import names
from onceover.state.steps import Step
from onceover.wire.offsetlookup import Translated
from onceover.wiring.flows import open_clusters
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flows import FlowProcess
from tests.support.flows.groups import commit, committed
from tests.support.flows.merging import merge
from tests.support.flows.replica import Replica, delete_topics
from tests.support.flows.scene import Capture, Scene
from tests.support.flows.waysout import commands, follow
from tests.support.raw.rawkafka import BrokerRefused, RawConnection, RawRecord, build_batch
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0
_VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture
def unverified(target_cluster: SharedCluster) -> Iterator[None]:
    """A target that does not ask the coordinator whether a partition is part of a transaction."""
    admin = AdminClient(target_cluster.admin_client)

    brokers = list(admin.list_topics(timeout=_TIMEOUT_S).brokers)

    def shown(broker: int) -> str | None:
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        entry = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)[_VERIFICATION]
        return None if entry.value is None else str(entry.value)

    def verify(value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(_VERIFICATION, value or "", incremental_operation=operation)
        for broker in brokers:
            resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)
        wanted = [value or "true"] * len(brokers)
        wait_until(lambda: [shown(broker) for broker in brokers] == wanted, _TIMEOUT_S, "brokers know")

    verify("false")
    yield
    verify(None)


@pytest.fixture
def scene(replica: Replica, unverified: None) -> Scene:
    replica.configure(lanes=1)
    return Scene(replica)


class Lane:
    """The lane's own producer id, or another one of the flow, in hands that know no transaction."""

    def __init__(self, replica: Replica, transactional_id: str = "") -> None:
        self._connection = RawConnection(replica.target.bootstrap)
        self._id = transactional_id or names.lane_id(replica.name, 0)
        self._state = self._connection.init_producer(self._id)

    def leave_open(self, topic: str, records: Sequence[RawRecord], partition: int = 0) -> int:
        """Write records that stay open; return the offset of the first one."""

        def written() -> tuple[int] | None:
            try:
                return (self._connection.produce(topic, partition, batch, self._id),)
            except BrokerRefused:
                # The configuration takes a moment until it is known.
                return None

        batch = build_batch(records, producer=self._state, transactional=True)
        (first,) = wait_until(written, _TIMEOUT_S, "the target takes an open transaction")
        self._state = self._state._replace(sequence=self._state.sequence + len(records))
        return first

    def leave_pending(self, replica: Replica, topic: str) -> None:
        """Write progress that stays pending."""
        offsets = {TopicPartition(topic, 0): OffsetToCommit(1, -1, "")}
        group = names.progress_group(replica.name)
        _, target = open_clusters(replica.flow.watch.flow)
        with target:
            connection = target.retry(lambda: target.coordinator(group, calls.GROUP))
            identity = self._state.producer_id, self._state.epoch

            def written() -> bool:
                codes = calls.txn_offset_commit(connection, self._id, identity, group, offsets, version=3)
                return set(codes.values()) == {0}

            wait_until(written, _TIMEOUT_S, "the target takes pending progress")

    def end(self, topic: str, *, commit: bool) -> None:
        """End whatever is open with a transaction that holds nothing."""
        self._connection.add_partitions(self._id, self._state, topic, [0])
        self._connection.end_transaction(self._id, self._state, commit=commit)
        self.close()

    def close(self) -> None:
        self._connection.close()


def tell_committed(replica: Replica, topic: str, records: int) -> None:
    """Move the flow's progress over so many records more, as the transaction that was left open did."""
    group = names.progress_group(replica.name)
    offset, beside = committed(replica.target_client, group, topic)[0]
    old = json.loads(beside)
    # Behind the marker of the transaction before.
    new = {**old, "at": offset + records, "target_end": old["target_end"] + 1 + records}
    commit(
        replica.target_client,
        group,
        topic,
        {0: offset + records},
        metadata=json.dumps(new, separators=(",", ":")),
    )


def write_both(scene: Scene, lane: Lane, count: int) -> None:
    """Write records to the source, and leave their copy open on the target."""
    records = scene.replica.source.records(count)
    scene.replica.source.plain(scene.topic, 0, records)
    lane.leave_open(scene.topic, records)


def test_what_was_aborted_is_not_copied_twice(scene: Scene, capsys: Capture) -> None:
    """The next commit of the lane would make both copies visible."""
    lane = Lane(scene.replica)
    write_both(scene, lane, 5)
    lane.close()
    scene.expect_copied(5)
    scene.expect_clear(capsys)
    scene.replica.assert_same()


def test_what_was_told_committed_is_not_lost(scene: Scene, tmp_path: Path, capsys: Capture) -> None:
    """Readers see it without another record; an abort of the lane's next transaction drops nothing."""
    lane = Lane(scene.replica)
    write_both(scene, lane, 5)
    tell_committed(scene.replica, scene.topic, 5)
    lane.close()
    scene.feed_other()
    with FlowProcess(scene.replica.flow.path, tmp_path / "log", kill_at=Step.LANE_DECIDE.name) as killed:
        assert killed.wait(_TIMEOUT_S) == -signal.SIGKILL, killed.child.tail()
    scene.expect_copied(3)
    scene.replica.assert_same()
    late = Lane(scene.replica)
    late.leave_open(scene.topic, scene.replica.target.records(3))
    late.end(scene.topic, commit=False)
    scene.feed(4)
    scene.expect_copied(8)
    scene.expect_clear(capsys)
    scene.replica.assert_same()


def test_what_is_left_open_in_the_flows_own_topic_keeps_nobody_from_reading_it(
    scene: Scene, capsys: Capture
) -> None:
    """Stops and notes: a lane reads them to their end before it copies."""
    lane = Lane(scene.replica)
    note = RawRecord(b"note", b"{}")
    lane.leave_open(names.state_topic(scene.replica.name), [note], names.STATE_OTHERS)
    lane.close()
    scene.feed(4)
    scene.expect_copied(8)
    scene.expect_clear(capsys)


@pytest.mark.parametrize(
    "partition", [pytest.param(names.STATE_LEADER, marks=pytest.mark.soak), names.STATE_OTHERS]
)
def test_what_a_leader_left_open_keeps_nobody_from_starting(
    scene: Scene, capsys: Capture, partition: int
) -> None:
    """Nobody can have read it, so it is aborted, whatever its writer was told."""
    leader = Lane(scene.replica, names.leader_id(scene.replica.name))
    record = RawRecord(names.LAYOUT.encode(), b"{}")
    leader.leave_open(names.state_topic(scene.replica.name), [record], partition)
    leader.close()
    scene.feed(4)
    scene.expect_copied(8)
    scene.expect_clear(capsys)


def test_what_a_merge_left_open_keeps_nobody_from_reading_the_map(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing behind it is read until the next merge, which would wait for it like everybody, ends it."""
    monkeypatch.setattr("onceover.positions.reader._SETTLE_S", 3.0)
    replica, tp = scene.replica, TopicPartition(scene.topic, 0)
    merger = Lane(replica, names.map_id(replica.name))
    map_topic, partition = names.map_topic(replica.name), lane_of(tp, names.MAP_PARTITIONS)
    merger.leave_open(map_topic, [RawRecord(b"merged", b"")], partition)
    merger.close()
    scene.feed(4)
    scene.expect_copied(8)
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        with Translator(target, replica.name, None) as held_up, pytest.raises(Retriable, match="is open"):
            held_up.to_target(tp, 12)
        merge(replica.flow.path)
        with Translator(target, replica.name, None) as translator:
            # Behind the marker of the first transaction.
            assert translator.to_target(tp, 12) == Translated(13)


def test_progress_that_is_left_pending_is_not_waited_for_without_end(
    scene: Scene, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the data that was left open beside it: neither counts, and it is copied again."""
    monkeypatch.setattr("onceover.copy.sessionstart._PENDING_S", 0.3)
    with scene.replica.flow.running() as (lead, layout):
        lane = Lane(scene.replica)
        write_both(scene, lane, 5)
        lane.leave_pending(scene.replica, scene.topic)
        lane.close()
        assert scene.replica.flow.finish(lead, layout).records == 5
    scene.expect_clear(capsys)
    scene.replica.assert_same()


def test_what_nobody_can_part_is_left_to_a_person(scene: Scene, capsys: Capture) -> None:
    """Committed and aborted records in one open transaction: a marker would lose some, or double others."""
    replica, lane = scene.replica, Lane(scene.replica)
    write_both(scene, lane, 5)
    tell_committed(replica, scene.topic, 5)
    write_both(scene, lane, 2)
    scene.feed_other()
    scene.expect_copied(3)
    scene.expect_stop(capsys, "TARGET_UNDECIDED", "from offset 11", "before 16")
    # As Kafka's tool does it, which takes it from nobody's hands.
    lane.close()
    last = Lane(replica)
    last.end(scene.topic, commit=False)
    copy_again(scene, capsys, 17)


def test_what_was_dropped_is_noticed(scene: Scene, capsys: Capture) -> None:
    """Aborted before anybody could look: the record before the end that the progress knows is not visible."""
    lane = Lane(scene.replica)
    write_both(scene, lane, 5)
    tell_committed(scene.replica, scene.topic, 5)
    lane.leave_open(scene.topic, scene.replica.target.records(3))
    lane.end(scene.topic, commit=False)
    scene.feed_other()
    scene.expect_copied(3)
    scene.expect_stop(capsys, "TARGET_DROPPED", "before target offset 16")
    copy_again(scene, capsys, 15)


def copy_again(scene: Scene, capsys: Capture, records: int) -> None:
    """Follow the stop's own words: what is left of the copy is deleted, and it is made anew."""
    replica = scene.replica
    (way,) = commands(replica.stop_of(scene.topic)["resolve"])
    delete_topics(replica.target_client, [scene.topic])
    follow(capsys, way)
    scene.expect_copied(records)
    scene.expect_clear(capsys)
    replica.assert_same()
