"""What is said in MirrorMaker 2's words: only what is exactly so."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from onceover.errors import Retriable
from onceover.groups.decide import Direction, OtherPosition, PartitionFacts, Remembered
from onceover.groups.plan import GroupFacts, GroupView
from onceover.mirrormaker.records import (
    HeartbeatUnderWay,
    checkpoints_topic,
    offset_sync,
    offset_syncs_topic,
    plan_checkpoints,
    replicated_heartbeats_topic,
)
from onceover.model import TopicPartition
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.topics.namingpolicy import NamingPolicy
from onceover.topics.scope import Rules, explain
from onceover.wire.mirroroutput import encode_checkpoint, encode_offset_sync
from onceover.wire.offsetlookup import NotCovered, Translated
from onceover.wire.offsetmap import MapRecord, Segment

SOURCE, TARGET = TopicPartition("a", 0), TopicPartition("east.a", 0)
OTHER = TopicPartition("a", 1)
ENROLMENT = Enrolment("a", "east.a", uuid.uuid4(), uuid.uuid4(), {0: 0}, 0)
TOPICS = {"east.a": ENROLMENT}


def facts(**changes: Any) -> PartitionFacts:
    """A group at 7 of 10 copied records, which are at 20 to 30 of the target."""
    known: dict[str, Any] = {
        "giving": SOURCE,
        "receiving": TARGET,
        "committed": 7,
        "metadata": "note",
        "giving_end": 10,
        "copied": 10,
        "translation": Translated(27),
        "start": 20,
        "end": 30,
    }
    return PartitionFacts(**{**known, **changes})


def checkpoints(*partitions: PartitionFacts, **group: Any) -> dict[bytes, bytes]:
    """Return the checkpoints of one group."""
    told = GroupFacts(name="g", type="classic", partitions=partitions, **group)
    return plan_checkpoints(GroupView("f", Direction.FAILOVER, "east", "west", (told,), (), 0))


@pytest.mark.parametrize(
    ("changes", "upstream", "downstream"),
    [
        ({}, 7, 27),
        # Ahead of the copy: where the copy is, on both sides.
        ({"committed": 12, "translation": Translated(30)}, 10, 30),
        ({"copied": None}, 7, 27),
        # Retention of the target has passed it: where a consumer finds something.
        ({"start": 28}, 7, 28),
        ({"end": 25}, 7, 25),
        # Put there for 24 from here, because the source begins at 7: it has read nothing since.
        ({"opposite": Remembered(24, frozenset({7}), 1, {7: OtherPosition(24, 3)}), "current": 24}, 7, 24),
    ],
)
def test_a_checkpoint_pairs_what_was_read_with_its_translation(
    changes: dict[str, Any], upstream: int, downstream: int
) -> None:
    key, value = encode_checkpoint("g", TARGET, upstream, downstream, "note")
    assert checkpoints(facts(**changes)) == {key: value}


@pytest.mark.parametrize(
    "changes",
    [
        {"translation": NotCovered(8, 10)},
        {"translation": None},
        {"committed": None},
        {"problem": ("RECREATED", "another topic bears its name")},
    ],
)
def test_what_is_not_covered_is_not_said(changes: dict[str, Any]) -> None:
    assert checkpoints(facts(**changes)) == {}


def test_a_group_that_cannot_be_read_is_left_out() -> None:
    """What is known of it may be half of it."""
    assert checkpoints(facts(), error=Retriable("its coordinator is away")) == {}


def record(start: int, end: int, target: int, *segments: Segment) -> MapRecord:
    return MapRecord(
        source=SOURCE,
        target=TARGET,
        source_start=start,
        source_end=end,
        target_start=target,
        segments=segments,
        bytes=0,
        generation=1,
        lane=0,
        batch=1,
        attempt=1,
        begin_ms=0,
        commit_ms=0,
    )


def test_an_offset_sync_names_the_last_record_not_the_marker_behind_it() -> None:
    """MirrorMaker takes a reader behind a sync to have read a record there."""
    copied = record(0, 12, 0, Segment(0, 0, 5), Segment(6, 5, 4))
    markers = record(12, 15, 9)
    assert offset_sync(SOURCE, [copied, markers]) == encode_offset_sync(SOURCE, 9, 8)


def test_without_a_record_there_is_no_offset_sync() -> None:
    assert offset_sync(SOURCE, []) is None
    assert offset_sync(SOURCE, [record(12, 15, 9)]) is None


def test_a_heartbeat_arrives_once_when_every_partition_is_copied_to_where_it_was() -> None:
    wave = HeartbeatUnderWay()
    assert not wave.reached({SOURCE: 10})
    wave.begin(1000, {SOURCE: 10, OTHER: 5}, TOPICS)
    assert wave.under_way
    for positions in ({SOURCE: 9, OTHER: 5}, {SOURCE: 10, OTHER: 4}, {SOURCE: 10, OTHER: None}):
        assert not wave.reached(positions)
    assert wave.reached({SOURCE: 10, OTHER: 7})
    assert wave.arrive() == 1000
    assert not wave.under_way
    assert not wave.reached({SOURCE: 10, OTHER: 7})
    assert wave.arrive() is None


def test_a_heartbeat_does_not_wait_for_a_partition_that_has_left_the_flow() -> None:
    wave = HeartbeatUnderWay()
    wave.begin(1000, {SOURCE: 10, OTHER: 5}, TOPICS)
    wave.keep_to({})
    assert wave.reached({SOURCE: 10})


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        (replace(ENROLMENT, start={0: 0, 1: 0}), False),
        (replace(ENROLMENT, source_id=uuid.uuid4()), False),
        (replace(ENROLMENT, changed={0: "skipped"}, placed={0: PlacedProgress(7, 3, 0)}), False),
    ],
)
def test_a_heartbeat_is_given_up_where_positions_are_others_than_those_it_waits_for(
    now: Enrolment, *, kept: bool
) -> None:
    """They are in another log, or were put back: the next one is not kept waiting."""
    wave = HeartbeatUnderWay()
    wave.begin(1000, {SOURCE: 10}, TOPICS)
    wave.keep_to({"east.a": now, "east.b": replace(ENROLMENT, target="east.b")})
    assert wave.under_way is kept


def test_the_topics_are_called_as_mirrormaker_calls_them_and_are_no_part_of_a_flow() -> None:
    """Under both policies; a chain's heartbeats are copied on, as MirrorMaker does."""
    topics = [checkpoints_topic("east"), offset_syncs_topic("east"), replicated_heartbeats_topic("east")]
    assert topics == ["east.checkpoints.internal", "mm2-offset-syncs.east.internal", "east.heartbeats"]
    for policy in ("prefix", "identity"):
        back = Rules((".*",), (), NamingPolicy(policy, "west", "east"))
        assert not any(explain(topic, back).inside for topic in [*topics, "heartbeats"])
    onward = Rules((".*",), (), NamingPolicy("prefix", "east", "west"))
    assert explain("north.heartbeats", onward).target_topic == "east.north.heartbeats"
    assert explain("north.heartbeats", onward).inside
