"""What is created and enrolled, from two pictures of live clusters."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from onceover.engine.discovery import Plan, View, plan_topics
from onceover.engine.enrolment import Enrolment, owned, read_enrolments
from onceover.errors import NeedsOperator
from onceover.kafka.cluster import PartitionInfo, TopicInfo
from onceover.model import TopicPartition, lane_of

SOURCE_ID, TARGET_ID, OTHER_ID = UUID(int=1), UUID(int=2), UUID(int=3)


def topic(partitions: int, topic_id: UUID = SOURCE_ID, name: str = "t") -> TopicInfo:
    """Return a topic as metadata shows it."""
    return TopicInfo(name, topic_id, {n: PartitionInfo(1, 0) for n in range(partitions)}, False)


def view(target: TopicInfo | None = None, enrolled: Enrolment | None = None, partitions: int = 2) -> View:
    """Return one source topic and what is known of it on the target."""
    return View(
        flow="f",
        source={"t": topic(partitions)},
        overrides={"t": {"retention.ms": "-1"}},
        target={} if target is None else {"t": target},
        target_ends={} if target is None else {TopicPartition("t", n): 0 for n in target.partitions},
        enrolled={} if enrolled is None else {"t": enrolled},
        elsewhere={},
    )


ENROLLED = Enrolment("t", "t", SOURCE_ID, TARGET_ID, {0: 5, 1: 6}, 1)


def codes(plan: Plan) -> list[str]:
    """Return why topics are left out."""
    return [refusal.code for refusal in plan.refused]


def test_new_topic_is_created_with_its_configuration_and_enrolled() -> None:
    """Configuration before the first record, or retention eats old ones (FACTS 2)."""
    plan = plan_topics(view())
    assert [(s.name, s.partitions, s.config) for s in plan.create] == [("t", 2, {"retention.ms": "-1"})]
    assert plan.enrol == ["t"] and not plan.refused
    without = plan_topics(replace(view(), sync_configs=False))
    assert [s.config for s in without.create] == [{}]


def test_empty_target_topic_is_enrolled_as_it_is() -> None:
    """Created by somebody beforehand."""
    plan = plan_topics(view(topic(2, TARGET_ID)))
    assert (plan.create, plan.enrol, plan.refused) == ([], ["t"], [])


def test_target_topic_with_records_is_refused() -> None:
    """What they are is not known; one offset is enough."""
    full = replace(
        view(topic(2, TARGET_ID)), target_ends={TopicPartition("t", 0): 0, TopicPartition("t", 1): 1}
    )
    plan = plan_topics(full)
    assert codes(plan) == ["TARGET_NOT_EMPTY"] and not plan.enrol and not plan.create


@pytest.mark.parametrize("count", [1, 3])
def test_target_topic_with_another_partition_count_is_refused(count: int) -> None:
    """Partition numbers are kept, so both sides have the same."""
    plan = plan_topics(view(topic(count, TARGET_ID)))
    assert codes(plan) == ["PARTITION_COUNT"] and not plan.enrol


def test_target_topic_of_another_flow_is_refused_and_named() -> None:
    """Two flows would mix their records (G5)."""
    plan = plan_topics(replace(view(), elsewhere={"t": "other"}))
    assert codes(plan) == ["ENROLLED_ELSEWHERE"] and not plan.create
    assert "other" in plan.refused[0].message


def test_enrolled_topic_needs_nothing() -> None:
    """Also when its target holds records, which are ours."""
    full = replace(
        view(topic(2, TARGET_ID), ENROLLED), target_ends={TopicPartition("t", n): 9 for n in range(2)}
    )
    assert plan_topics(full) == Plan()


def test_grown_topic_is_grown_and_enrolled_again() -> None:
    """Once the target has grown, enrolling is what is left."""
    plan = plan_topics(view(topic(2, TARGET_ID), ENROLLED, partitions=3))
    assert (plan.grow, plan.enrol) == ({"t": 3}, ["t"])
    plan = plan_topics(view(topic(3, TARGET_ID), ENROLLED, partitions=3))
    assert (plan.grow, plan.enrol) == ({}, ["t"])


@pytest.mark.parametrize(
    "changed",
    [
        view(None, ENROLLED, partitions=3),
        view(topic(2, OTHER_ID), ENROLLED, partitions=3),
        replace(view(topic(2, TARGET_ID), ENROLLED), source={"t": topic(3, OTHER_ID)}),
        view(topic(2, TARGET_ID), ENROLLED, partitions=1),
    ],
    ids=["target gone", "target recreated", "source recreated", "source shrunk"],
)
def test_recreated_deleted_and_shrunk_topics_are_left_to_the_lanes(changed: View) -> None:
    """They stop the partitions; enrolling again would give them a new start."""
    assert plan_topics(changed) == Plan()


def test_enrolment_round_trip_and_version() -> None:
    """Partition numbers are text in JSON and numbers again afterwards."""
    assert Enrolment.from_json(ENROLLED.to_json()) == ENROLLED
    assert read_enrolments({"topic/t": ENROLLED.to_json(), "layout": {}}) == {"t": ENROLLED}
    with pytest.raises(NeedsOperator, match="another version"):
        Enrolment.from_json({**ENROLLED.to_json(), "v": 2})


@pytest.mark.parametrize("lanes", [1, 2, 3, 7])
def test_every_partition_is_owned_by_exactly_one_lane(lanes: int) -> None:
    """Two ids that copy one partition would move its progress back."""
    enrolments = [
        replace(ENROLLED, source=f"t{n}", target=f"t{n}", start=dict.fromkeys(range(5), 0)) for n in range(9)
    ]
    shares = [owned(enrolments, lane, lanes) for lane in range(lanes)]
    everything = [tp for share in shares for tp in share]
    assert len(everything) == len(set(everything)) == 45
    assert all(lane_of(tp, lanes) == lane for lane, share in enumerate(shares) for tp in share)


def test_lane_of_is_the_same_everywhere() -> None:
    """crc32("flights") = 2969110823: a number that no salted hash gives."""
    assert [lane_of(TopicPartition("flights", p), 4) for p in range(5)] == [
        (lane_of(TopicPartition("flights", 0), 4) + p) % 4 for p in range(5)
    ]
    assert lane_of(TopicPartition("a", 0), 1 << 40) == 0xE8B7BE43
