"""Which partitions of a topic are seeded: of one that was given away all that it has by now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.lead.leader import FlowIdentity
from onceover.model import TopicPartition
from onceover.seeding import apply
from onceover.seeding.apply import Seeder, SeedingRequest
from onceover.seeding.origins import LogOrigin
from onceover.seeding.plan import LATEST, Choice
from onceover.state import names
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment, LeftAt
from onceover.topics.own import StateSettings
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.state.records.test_layout import LAYOUT
from tests.unit.topics.topicworld import FLOW, World, source_id, target_id

COPIED = Enrolment("t", "t", source_id("t"), target_id("t"), {0: 0}, 1)
GIVEN_AWAY = COPIED.as_promoted("d1", LeftAt(7, 70), {0: 5}, {0: 3})
LEFT = COPIED.left_to("back", LeftAt(7, 70))
AGAIN = replace(LAYOUT, generation=8)


def cluster(alias: str, topic_id: UUID, *ends: int) -> FakeCluster:
    made = FakeCluster(alias, cluster_id=alias)
    made.add_topic("t", topic_id, ends)
    return made


def seeder(
    source: FakeCluster, target: FakeCluster, monkeypatch: pytest.MonkeyPatch, old: Enrolment
) -> Seeder:
    """Return what places everything at its log's end, in a flow that has this one topic."""
    world = World({"t": 1}, {"t": 1}, enrolled={"t": old})
    state = FlowState({names.enrolment_key("t"): old.to_json()})
    view = replace(world.view(), source=source.topics(), target=target.topics(), target_ends={})
    monkeypatch.setattr(apply, "read_flow_state", lambda *_: state)
    monkeypatch.setattr(Seeder, "_view", lambda *_: view)
    request = SeedingRequest("seed", view.rules, True, StateSettings(1, 1), Choice(replace=True))
    origin = LogOrigin(LATEST)
    return Seeder(FlowIdentity(FLOW, 1, ""), request, origin, source, target, cast(Any, None))


@pytest.mark.parametrize("old", [GIVEN_AWAY, LEFT])
def test_a_topic_that_has_grown_while_it_was_given_away_is_taken_back_whole(
    monkeypatch: pytest.MonkeyPatch, old: Enrolment
) -> None:
    """Its copy holds what the added partition has come from: left to growth it would be a stranger's."""
    source = cluster("east", source_id("t"), 9, 4)
    target = cluster("west", target_id("t"), 5, 4)
    planned = seeder(source, target, monkeypatch, old).plan()
    assert {str(tp): at.offset for tp, at in planned.positions.items()} == {"t:0": 9, "t:1": 4}
    assert planned.refused == ()
    (seated,) = planned.topics
    record = apply._enrolment(seated, target.topics()["t"], planned, AGAIN)
    assert (record.active, dict(record.start)) == (True, {0: 9, 1: 4})
    assert {number: placed.offset for number, placed in record.placed.items()} == {0: 9, 1: 4}


def test_what_has_no_copy_yet_gets_one_as_of_any_topic_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = cluster("east", source_id("t"), 9, 4), cluster("west", target_id("t"), 5)
    planned = seeder(source, target, monkeypatch, GIVEN_AWAY).plan()
    assert set(planned.positions) == {TopicPartition("t", 0)}


def test_of_a_topic_that_is_copied_growth_is_the_flows_own(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = cluster("east", source_id("t"), 9, 4), cluster("west", target_id("t"), 5, 0)
    planned = seeder(source, target, monkeypatch, COPIED).plan()
    assert set(planned.positions) == {TopicPartition("t", 0)}
