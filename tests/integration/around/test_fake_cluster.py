"""The fake of ``kafka.ports`` and real brokers, asked the same: what units rely on is true of both.

Each test runs against the fake and against a broker, with the same assertions; of both request sets of
transactions where one is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import uuid4

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.errors import Fenced, MustReset, NotNow, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.admin.topicfacts import may_not_read
from onceover.kafka.admin.topics import Admin, TopicSpec
from onceover.kafka.calls import CommittedOffset, OffsetToCommit
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.groups.members import check_may_commit
from onceover.kafka.groups.offsets import fetch_committed
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.logs.between import read_topic
from onceover.kafka.ports import Cluster, Features, Outgoing
from onceover.kafka.produce.notes import RecordWriter
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.model import TopicPartition
from onceover.txn.classify import Api
from onceover.wire.batches.batch import parse_header
from tests.support.brokers.clusters import SharedCluster
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.raw.rawkafka import RawRecord, build_batch
from tests.support.session.wait import wait_until

_WITHIN_S = 30.0
_TIMEOUT_MS = 15_000
_PRODUCE = 0
OLDER, NEWER = Features(0), Features(2)


@dataclass
class Side:
    """A cluster, a topic of two partitions on it, and a name that nobody else has."""

    cluster: Cluster
    name: str
    opened: list[TransactionalProducer] = field(default_factory=list)

    def tp(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.name, partition)

    def end(self, isolation: int = calls.READ_COMMITTED) -> int:
        return self.cluster.retry(
            lambda: self.cluster.list_offsets([self.tp()], calls.LATEST, isolation)[self.tp()]
        )

    def producer(self) -> TransactionalProducer:
        """Return a producer that owns its id."""
        made = TransactionalProducer(self.cluster, self.name, timeout_ms=_TIMEOUT_MS)
        self.opened.append(made)
        wait_until(lambda: self.cluster.retry(made.init), _WITHIN_S, "the id is ours")
        return made

    def values(self) -> list[bytes | None]:
        """Return what a reader of committed records reads of the topic."""
        return [record.value for _, record in read_topic(self.cluster, self.name)]

    def eventually(self, seen: Callable[[], bool], what: str) -> None:
        """Wait for what brokers do behind their answer: markers come after a commit was acknowledged."""
        wait_until(seen, _WITHIN_S, what)


@pytest.fixture(params=["fake", "brokers"])
def side(request: pytest.FixtureRequest, target_cluster: SharedCluster, unique_name: str) -> Iterator[Side]:
    """Give the fake, and then brokers."""
    if request.param == "fake":
        fake = FakeCluster("west")
        fake.tries = 100
        fake.add_topic(unique_name, uuid4(), ends=(0, 0), leaders={0: 1, 1: 2})
        yield Side(fake, unique_name)
        return
    with LiveCluster(ClientConfig("west", target_cluster.admin_client)) as cluster:
        Admin(cluster).create_topics([TopicSpec(unique_name, 2)])
        made = Side(cluster, unique_name)
        wait_until(lambda: leads(made), _WITHIN_S, "both partitions are led")
        yield made
        for producer in made.opened:
            producer.close()


@pytest.fixture(params=[OLDER, NEWER], ids=["v3", "v5"])
def both_sets(request: pytest.FixtureRequest, side: Side, monkeypatch: pytest.MonkeyPatch) -> Side:
    """Give it with each set of requests."""
    if isinstance(side.cluster, FakeCluster):
        side.cluster.feature = request.param
    monkeypatch.setattr("onceover.kafka.cluster.Features", lambda *_: request.param)
    return side


def leads(side: Side) -> bool:
    return not side.cluster.each_offset([side.tp(0), side.tp(1)], calls.LATEST).failed


def batch(tp: TopicPartition, *values: bytes, timestamp_ms: int = 1000) -> Outgoing:
    records = [RawRecord(b"k", value, timestamp_ms=timestamp_ms + n) for n, value in enumerate(values)]
    data = bytearray(build_batch(records))
    return Outgoing(tp, parse_header(data), data)


# ---- topics


def test_topics_are_found_by_name_and_all_together(side: Side) -> None:
    found = side.cluster.topics([side.name, f"{side.name}-not"])
    assert list(found) == [side.name]
    info = found[side.name]
    assert (info.name, sorted(info.partitions), info.is_internal) == (side.name, [0, 1], False)
    assert all(each.leader >= 0 for each in info.partitions.values())
    assert side.cluster.topics()[side.name].topic_id == info.topic_id
    assert side.cluster.each_topic([f"{side.name}-not"]).found == {}
    assert side.cluster.hidden_topics([side.name, f"{side.name}-not"]) == {}


def test_without_an_authorizer_all_may_be_read(side: Side) -> None:
    """What is there, and what is not."""
    assert side.cluster.retry(lambda: may_not_read(side.cluster, [side.name, f"{side.name}-none"])) == set()


def test_the_same_brokers_answer_by_another_connection(side: Side) -> None:
    """And by the frames that value methods are made of."""
    channel = side.cluster.control()
    by_frame = calls.metadata(channel, [side.name])
    assert by_frame.cluster_id == side.cluster.cluster_id()
    assert [topic.topic_id for topic in by_frame.topics] == [
        side.cluster.topics([side.name])[side.name].topic_id
    ]
    with side.cluster.another() as other, side.cluster.hasty(_WITHIN_S) as hasty:
        assert other.cluster_id() == hasty.cluster_id() == side.cluster.cluster_id()
        assert side.name in other.topics([side.name]) and hasty.patience.left_s <= _WITHIN_S
    assert side.name in side.cluster.topics([side.name])


def test_topics_are_made_grown_and_configured(side: Side) -> None:
    """What is there is left as it is, and what is not asked for has the default."""
    admin, name = Admin(side.cluster), f"{side.name}-made"
    spec = TopicSpec(name, 2, 1, {"retention.ms": "1234"})
    assert admin.try_create([spec], validate_only=True) == {}
    assert name not in side.cluster.topics()
    admin.create_topics([spec])
    admin.create_topics([replace(spec, partitions=9)])
    assert {n: e.code for n, e in admin.try_create([spec]).items()} == {name: "TOPIC_EXISTS"}
    side.eventually(lambda: len(partitions_of(side, name)) == 2, "it is there")
    admin.grow_topic(name, 3)
    admin.grow_topic(name, 3)
    side.eventually(lambda: len(partitions_of(side, name)) == 3, "it has grown")
    assert admin.topic_configs([name]).overrides == {name: {"retention.ms": "1234"}}
    changes = {name: {"retention.ms": None, "cleanup.policy": "compact"}}
    assert admin.alter_configs(changes) == {}
    kept = {name: {"cleanup.policy": "compact"}}
    side.eventually(lambda: admin.topic_configs([name]).overrides == kept, "it is configured")
    absent = f"{side.name}-not"
    assert set(admin.alter_configs({absent: {"retention.ms": "1"}})) == {absent}
    assert {"retention.ms", "max.message.bytes"} <= admin.topic_configs([name]).keys


def partitions_of(side: Side, name: str) -> set[int]:
    found = side.cluster.topics([name]).get(name)
    return set() if found is None else set(found.partitions)


# ---- logs


def test_an_empty_log_begins_and_ends_at_0(side: Side) -> None:
    for at, expected in ((calls.EARLIEST, 0), (calls.LATEST, 0), (1000, -1)):
        assert side.cluster.list_offsets([side.tp()], at) == {side.tp(): expected}
    assert side.values() == []


def test_what_is_not_there_has_no_leader(side: Side) -> None:
    """A partition beyond the last one, and one of a topic that does not exist; others are answered."""
    absent = [side.tp(7), TopicPartition(f"{side.name}-not", 0)]
    each = side.cluster.each_offset([side.tp(), *absent], calls.LATEST)
    assert (each.found, set(each.failed)) == ({side.tp(): 0}, set(absent))
    assert {(type(e), e.code) for e in each.failed.values()} == {(Retriable, "NO_LEADER")}
    with pytest.raises(Retriable, match="has no leader on west"):
        side.cluster.list_offsets(absent, calls.LATEST)


def test_records_without_a_transaction_are_seen_at_once(side: Side) -> None:
    writer = RecordWriter(side.cluster, side.tp())
    writer.write([(b"a", b"1"), (b"b", None)])
    writer.close()
    assert (side.end(), side.end(calls.READ_UNCOMMITTED), side.values()) == (2, 2, [b"1", None])


def test_open_records_are_behind_the_last_stable_offset_until_they_are_committed(both_sets: Side) -> None:
    """Then a marker is behind them, which takes an offset."""
    side, made = both_sets, both_sets.producer()
    made.send([batch(side.tp(), b"1", b"2")])
    made.send([batch(side.tp(), b"3")])
    assert [each.base_offset for each in made.drain()] == [0, 2]
    assert (side.end(), side.end(calls.READ_UNCOMMITTED), side.values()) == (0, 3, [])
    ids = {side.tp(): {made.producer_id}, side.tp(1): {made.producer_id}}
    assert side.cluster.each_open(ids).found == {side.tp(): (0, made.producer_id), side.tp(1): (-1, -1)}
    assert side.cluster.each_open({side.tp(): {made.producer_id + 999}}).found == {side.tp(): (-1, -1)}
    open_ids = {side.tp(): {made.producer_id}}
    made.commit()
    side.eventually(lambda: side.end() == 4, "the marker is there")
    assert (side.end(calls.READ_UNCOMMITTED), side.values()) == (4, [b"1", b"2", b"3"])
    assert side.cluster.each_open(open_ids).found == {side.tp(): (-1, -1)}


def test_offsets_are_found_by_time(side: Side) -> None:
    writer = side.producer()
    writer.send([batch(side.tp(), b"1", b"2", timestamp_ms=5000)])
    writer.commit()
    side.eventually(lambda: side.end() == 3, "the marker is there")
    found = [side.cluster.list_offsets([side.tp()], at)[side.tp()] for at in (1, 5000, 5001)]
    assert found == [0, 0, 1]


def test_aborted_records_take_offsets_and_are_not_read(both_sets: Side) -> None:
    side, made = both_sets, both_sets.producer()
    made.send([batch(side.tp(), b"lost")])
    made.drain()
    made.abort()
    side.eventually(lambda: side.end() == 2, "the marker is there")
    wait_until(made.init, _WITHIN_S, "the id is ours")
    made.send([batch(side.tp(), b"kept")])
    assert [each.base_offset for each in made.drain()] == [2]
    made.commit()
    side.eventually(lambda: side.end() == 4, "the marker is there")
    assert side.values() == [b"kept"]


def test_leader_epochs_end_where_the_log_does(side: Side) -> None:
    """The newest one; of one that is to come nothing is known."""
    writer = RecordWriter(side.cluster, side.tp())
    writer.write([(b"a", b"1")])
    writer.close()
    epoch = side.cluster.topics([side.name])[side.name].partitions[0].leader_epoch
    assert side.cluster.epoch_ends({side.tp(): epoch}) == {side.tp(): (epoch, 1)}
    assert side.cluster.each_epoch_end({side.tp(): epoch + 5}).found == {side.tp(): (-1, -1)}


def test_each_leader_is_asked_about_its_own(side: Side) -> None:
    tps = [side.tp(0), side.tp(1)]
    each = side.cluster.each_leader(
        [*tps, side.tp(7)],
        Api.LIST_OFFSETS,
        lambda channel, some: calls.list_offsets(channel, some, calls.LATEST, calls.READ_COMMITTED),
    )
    assert {tp: answer[:2] for tp, answer in each.found.items()} == dict.fromkeys(tps, (0, 0))
    assert set(each.failed) == {side.tp(7)}


# ---- producers


def test_an_id_keeps_its_producer_id_and_each_holder_has_a_newer_epoch(side: Side) -> None:
    """Without a transactional.id every one is another."""
    cluster, found = side.cluster, list[calls.InitResult]()

    def owned() -> bool:
        result = cluster.init_producer_id(side.name, _TIMEOUT_MS)
        found.extend([result] if result.error_code == 0 else [])
        return result.error_code == 0

    for _ in range(2):
        wait_until(owned, _WITHIN_S, "the id is ours")
    assert found[0].producer_id == found[1].producer_id
    assert found[0].producer_epoch < found[1].producer_epoch
    fresh = [cluster.retry(cluster.fresh_producer_id) for _ in range(2)]
    assert len({found[0].producer_id, *(each.producer_id for each in fresh)}) == 3
    assert {each.producer_epoch for each in fresh} == {0}


def test_an_older_holder_commits_nothing_any_more(both_sets: Side) -> None:
    """What it has left open is aborted."""
    side, older = both_sets, both_sets.producer()
    older.send([batch(side.tp(), b"lost")])
    older.drain()
    newer = side.producer()
    with pytest.raises((Fenced, MustReset)) as refused:
        older.commit()
    assert type(refused.value) is MustReset
    side.eventually(lambda: side.end() == 2, "the marker is there")
    newer.send([batch(side.tp(), b"kept")])
    newer.commit()
    side.eventually(lambda: side.end() == 4, "the marker is there")
    assert side.values() == [b"kept"]


def test_an_older_holder_appends_nothing_either(both_sets: Side) -> None:
    side, older = both_sets, both_sets.producer()
    side.producer()
    with pytest.raises(MustReset):
        older.send([batch(side.tp(), b"lost")])
    assert side.end(calls.READ_UNCOMMITTED) == 0


# ---- groups


def test_positions_are_committed_with_the_transaction(both_sets: Side) -> None:
    """Before, who names a partition is told that it is pending, and who wants what was before gets that.

    Who asks for all partitions is not told of one that has never been committed.
    """
    side, made, group = both_sets, both_sets.producer(), f"{both_sets.name}-g"
    cluster, tp = side.cluster, side.tp()
    made.send([batch(tp, b"1")])
    made.add_offsets(group, {tp: OffsetToCommit(5, 3, "beside")})
    with pytest.raises(NotNow) as pending:
        cluster.committed(group, [tp])
    assert pending.value.code == "PENDING_OFFSETS"
    assert cluster.committed(group, None) == {}
    assert cluster.committed(group, [tp], stable=False) == {}
    made.commit()
    at = {tp: CommittedOffset(0, 5, 3, "beside")}
    side.eventually(lambda: quietly(cluster, group, tp) == at, "the position is there")
    assert cluster.committed(group, None) == at
    assert cluster.each_committed(group, [tp, side.tp(1)]).found == at
    assert cluster.retry(lambda: cluster.committed(f"{side.name}-other", [tp])) == {}
    made.add_offsets(group, {tp: OffsetToCommit(6, 3, "")})
    with pytest.raises(NotNow):
        cluster.committed(group, None)
    assert cluster.committed(group, None, stable=False) == at


def quietly(cluster: Cluster, group: str, tp: TopicPartition) -> dict[TopicPartition, CommittedOffset]:
    try:
        return cluster.committed(group, [tp])
    except OnceoverError:
        return {}


def test_positions_of_an_aborted_transaction_are_gone(both_sets: Side) -> None:
    side, made, group = both_sets, both_sets.producer(), f"{both_sets.name}-g"
    made.add_offsets(group, {side.tp(): OffsetToCommit(5, 3, "")})
    made.abort()
    side.eventually(lambda: not pending_of(side, group), "nothing is pending")
    assert side.cluster.committed(group, None) == {}


def pending_of(side: Side, group: str) -> bool:
    try:
        side.cluster.committed(group, [side.tp()])
    except Retriable:
        return True
    return False


def test_groups_without_members_are_listed_moved_and_cleared(side: Side) -> None:
    admin, cluster, group, tp = GroupAdmin(side.cluster), side.cluster, f"{side.name}-g", side.tp()
    absent = TopicPartition(f"{side.name}-not", 0)
    assert admin.each_commit({group: {tp: OffsetToCommit(7, -1, "")}}) == {}
    at = CommittedOffset(0, 7, -1, "")
    assert cluster.retry(lambda: cluster.committed(group, [tp])) == {tp: at}
    assert admin.groups().groups[group].type == "classic"
    found = fetch_committed(cluster, {group: [tp]}, _WITHIN_S, _WITHIN_S).whole()
    assert found[group].committed == {tp: at} and not found[group].pending
    for each in (group, f"{group}-not"):
        cluster.retry(partial(check_may_commit, cluster, each))
    assert set(admin.each_commit({group: {absent: OffsetToCommit(7, -1, "")}})) == {group}
    admin.delete_offsets(group, [tp])
    assert cluster.retry(lambda: cluster.committed(group, [tp])) == {}


def test_a_coordinator_is_one_of_the_brokers(side: Side) -> None:
    cluster, nodes = side.cluster, {b.node_id for b in calls.metadata(side.cluster.control(), []).brokers}
    node = cluster.retry(lambda: cluster.coordinator_node(side.name, calls.GROUP))
    assert node in nodes
    assert cluster.coordinator_nodes([side.name], calls.GROUP).found == {side.name: node}
    assert calls.find_coordinators(cluster.control(), [side.name], calls.GROUP) == {side.name: (0, node)}
    cluster.forget_coordinator(side.name, calls.GROUP)
    assert cluster.coordinator(side.name, calls.GROUP).usable


def test_a_broker_hangs_up_on_a_version_that_it_does_not_speak(side: Side) -> None:
    """What it speaks it tells itself."""
    channel = side.cluster.open()
    newest = calls.api_versions(channel).newest[_PRODUCE]
    number = channel.next_correlation_id()
    channel.send_frame([struct.pack(">ihhi", 8, _PRODUCE, newest + 1, number)], number, bytes)
    with pytest.raises(ConnectionLost):
        channel.receive()


# ---- trying again


def test_only_what_may_pass_is_tried_again(side: Side) -> None:
    left = [NotNow("a"), Retriable("b")]

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    assert side.cluster.retry(attempt) == "done"
    left += [Retriable("b")]
    with pytest.raises(Retriable):
        side.cluster.retry(attempt, only=NotNow)
