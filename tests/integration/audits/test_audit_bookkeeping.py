"""The flow's claims held against real logs: positions, offset map, receipts, groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from onceover.audit.checks.result import Area, Check
from onceover.audit.model import Side
from onceover.groups.decide import Direction, Remembered
from onceover.groups.memory import GroupMemory
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.groups.admin import GroupAdmin
from onceover.model import TopicPartition, lane_of
from onceover.positions.index import read_map
from onceover.state import names
from onceover.state.records.verdicts import START
from onceover.state.steps import Step
from onceover.wire.offsetmap import MapRecord, encode_map_key, encode_map_value
from onceover.wire.progress import ProgressMeta
from onceover.wiring.audit import AuditRequest, audit_bookkeeping
from onceover.wiring.flows import open_clusters
from onceover.wiring.groups import GroupRequest
from tests.support.flows.feeds import PARTITIONS, feed
from tests.support.flows.groups import commit, committed, offset_of
from tests.support.flows.killed import killed_command
from tests.support.flows.operations import apply_groups
from tests.support.flows.replica import Replica, delete_before, delete_topics
from tests.support.worlds.contentaudit import audit

_GROUP = "billing"
_TIMEOUT_S = 30.0


def checked(replica: Replica) -> list[Check]:
    """Audit the flow and return what came of its claims."""
    flow = replica.flow.watch.flow
    content = audit(flow, AuditRequest(since=START))
    source, target = open_clusters(flow)
    with source, target:
        return list(audit_bookkeeping(flow, source, target, content).checks)


def bad(checks: Iterable[Check]) -> list[Check]:
    """Return the checks that are not right."""
    return [check for check in checks if check.ok is not True]


def move_group(replica: Replica, topic: str) -> None:
    """Let a group read a part of every partition, and put it in place on the target."""
    offsets = {p: sorted(replica.source_records(topic, p))[p + 5] for p in range(PARTITIONS)}
    commit(replica.source_client, _GROUP, topic, offsets)
    apply_groups(replica.flow.watch.flow, GroupRequest(patterns=(_GROUP,)))
    assert offset_of(replica.target_client, _GROUP, topic) is not None


def skip_group(replica: Replica, topic: str) -> None:
    """Have a group remembered as put, by us, two records too far in partition 0."""
    given = committed(replica.source_client, _GROUP, topic)[0][0]
    records = replica.target_records(topic, 0)
    at = offset_of(replica.target_client, _GROUP, topic) or 0
    wrong = sorted(offset for offset in records if offset >= at)[2]
    commit(replica.target_client, _GROUP, topic, {0: wrong})
    source, target = open_clusters(replica.flow.watch.flow)
    memory = GroupMemory(target, replica.name)
    with source, target:
        entry = Remembered(given, frozenset({wrong}), 2**41)
        memory.write(Direction.FAILOVER, {_GROUP: {TopicPartition(topic, 0): entry}})
        memory.close()


def forget_last_record(replica: Replica, topic: str) -> None:
    """Set the progress of partition 1 back to before its last copied record."""
    group, tp = names.progress_group(replica.name), TopicPartition(topic, 1)
    last = max(replica.source_records(topic, 1))
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        admin = GroupAdmin(target)
        meta = ProgressMeta.decode(admin.committed(group)[tp].metadata)
        assert meta is not None
        # As our own code would write it: what others commit is told from it by the position inside.
        moved = {tp: OffsetToCommit(last, -1, replace(meta, position=last).encode())}
        assert admin.each_commit({group: moved}) == {}


def shift_map(replica: Replica, topic: str) -> None:
    """Overwrite a map record of partition 2 by one that is off by one on the target."""
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        records = [r for part in read_map(target, replica.name) for r in part if r.source.partition == 2]
    right: MapRecord = max(records, key=lambda record: record.records)
    shifted = tuple(segment._replace(target=segment.target + 1) for segment in right.segments)
    wrong = replace(right, target_start=right.target_start + 1, segments=shifted)
    producer = Producer(dict(replica.target_client))
    producer.produce(
        names.map_topic(replica.name),
        encode_map_value(wrong),
        encode_map_key(wrong),
        partition=lane_of(right.source, names.MAP_PARTITIONS),
    )
    assert producer.flush(_TIMEOUT_S) == 0


def test_claims_of_a_flow_that_copied_well_are_right(replica: Replica) -> None:
    """Every partition and every moved group is looked at, and nothing is found."""
    topic = replica.topic(partitions=PARTITIONS)
    feed(replica.source, topic)
    replica.copy()
    move_group(replica, topic)

    checks = checked(replica)

    assert bad(checks) == []
    made = Counter(check.area for check in checks)
    assert made == {
        Area.POSITIONS: PARTITIONS,
        Area.MAP: PARTITIONS,
        Area.RECEIPTS: 2 * PARTITIONS,
        Area.GROUPS: PARTITIONS,
    }


def test_a_group_whose_move_was_cut_off_stands_where_it_stood_before(replica: Replica) -> None:
    """Remembered, and not written: nobody claims that it is where it was to be put."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    commit(replica.source_client, _GROUP, topic, {0: 3})
    apply_groups(replica.flow.watch.flow, GroupRequest(patterns=[_GROUP]))
    commit(replica.source_client, _GROUP, topic, {0: 7})
    path = replica.flow.path
    arguments = ["groups", "apply", str(path), "--group", _GROUP]
    killed_command(Step.GROUP_COMMIT, 1, arguments, path.with_suffix(".log"))
    assert offset_of(replica.target_client, _GROUP, topic) == 3
    assert bad(checked(replica)) == []


def test_claims_that_are_wrong_are_found(replica: Replica) -> None:
    """A group two records too far, a position one record too low, a map that is off by one."""
    topic = replica.topic(partitions=PARTITIONS)
    feed(replica.source, topic)
    replica.copy()
    move_group(replica, topic)
    skip_group(replica, topic)
    forget_last_record(replica, topic)
    shift_map(replica, topic)

    found = bad(checked(replica))

    by_area = {area: [check for check in found if check.area is area] for area in Area}
    # The wrong map of partition 2 may speak against the group that stands there rightly.
    (group,) = (check for check in by_area[Area.GROUPS] if check.source.partition == 0)
    assert (group.group, group.repeated) == (_GROUP, 0)
    # In offsets: a marker of ours may lie in between.
    assert group.skipped >= 2
    (position,) = by_area[Area.POSITIONS]
    assert (position.source, position.ok) == (TopicPartition(topic, 1), False)
    assert {check.source for check in by_area[Area.MAP]} == {TopicPartition(topic, 2)}
    assert all(check.ok is False for check in by_area[Area.MAP])


@pytest.mark.parametrize("side", list(Side))
def test_what_is_deleted_while_an_audit_runs_makes_no_claim_wrong(replica: Replica, side: Side) -> None:
    """Records, as retention does every few minutes, and then the topic: no FAIL, and no end of the audit."""
    topic = replica.topic()
    for _ in range(4):
        replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    flow = replica.flow.watch.flow
    client = replica.source_client if side is Side.SOURCE else replica.target_client
    source, target = open_clusters(flow)
    with source, target:
        content = audit(flow, AuditRequest(since=START))
        delete_before(client, topic, 15)
        fewer = audit_bookkeeping(flow, source, target, content).checks
        delete_topics(client, [topic])
        none = audit_bookkeeping(flow, source, target, content).checks
    assert {check.ok for check in fewer} == {True}
    unread = {check.area for check in none if check.ok is None}
    assert (unread, [check for check in none if check.ok is False]) == ({Area.POSITIONS, Area.MAP}, [])
