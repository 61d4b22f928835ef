"""Which flows copy this one's copies back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from onceover.errors import NotNow, Retriable
from onceover.state import names
from onceover.state.records.enrolment import Enrolment, LeftAt
from onceover.state.records.ownership import Claim, FlowId, Rival
from onceover.topics.hops import Hop, ReturnOrigin
from onceover.topics.namingpolicy import IDENTITY, PREFIX, NamingPolicy
from onceover.topics.otherflows import (
    OtherFlow,
    OtherFlows,
    former_loops,
    loops,
    rivals_here,
    rivals_there,
    ways_to,
    writers,
)
from onceover.topics.plan import Loop, OtherWriter
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.topics.topicworld import leave, source_id, target_id, topic


def back(source: str = "t", target: str = "t") -> OtherFlow:
    """Return a flow from west to east that copies ``source`` to ``target``."""
    enrolment = Enrolment(source, target, source_id(source), target_id(target), {0: 0}, 7)
    return OtherFlow("back", ("WEST", "EAST"), (enrolment,))


def found(flow: OtherFlow, policy: str = IDENTITY) -> dict[str, Loop]:
    """Return the loops that a flow from east to west sees."""
    return loops([flow], NamingPolicy(policy, "east", "west"), "EAST", "WEST", ways_to([flow], "EAST"))


def test_opposite_flow_with_the_same_names_is_a_loop() -> None:
    """Named with its enrolment's time, by which two at once settle who gives way."""
    assert found(back()) == {"t": Loop("back", 7)}


def test_opposite_flow_whose_clusters_are_not_known_counts_as_one() -> None:
    """Written by another version: better left out than round for ever."""
    assert found(replace(back(), clusters=(None, None))) == {"t": Loop("back", 7)}


@pytest.mark.parametrize(
    "near_miss",
    [
        replace(back(), clusters=("NORTH", "EAST")),
        replace(back(), clusters=("WEST", "NORTH")),
        replace(back(), enrolments=(leave(back().enrolments[0]),)),
    ],
    ids=["from another cluster", "to another cluster", "has left it"],
)
def test_near_misses_are_no_loops(near_miss: OtherFlow) -> None:
    """Each of them leaves the topic alone, or ends somewhere else; under another name as well."""
    assert found(near_miss) == found(near_miss, PREFIX) == {}


def test_opposite_flow_that_has_left_the_topic_was_one_until_then() -> None:
    """Only the opposite, only under the same names, and only where it tells when."""
    gone = replace(back(), enrolments=(back().enrolments[0].leaving(LeftAt(3, 30)),))

    def former(flow: OtherFlow, policy: str = IDENTITY) -> dict[str, Loop]:
        return former_loops([flow], NamingPolicy(policy, "east", "west"), "EAST", "WEST")

    assert former(gone) == {"t": Loop("back", 30)}
    older = replace(gone, enrolments=(replace(gone.enrolments[0], left=None),))
    for near_miss in (back(), older, replace(gone, clusters=("NORTH", "EAST"))):
        assert former(near_miss) == {}
    assert former(gone, PREFIX) == {}


@pytest.mark.parametrize(("policy", "topic"), [(IDENTITY, "west.t"), (PREFIX, "t")])
def test_what_comes_from_the_target_is_not_brought_there_under_another_name(policy: str, topic: str) -> None:
    """It would come back from there once more, under one more name, for all that is known here."""
    way = (Hop("back", "WEST", "t", 7),)
    assert found(back("t", topic), policy) == {topic: Loop("back", 7, origin=ReturnOrigin(way, topic))}


def test_a_prefixed_name_may_close_a_circle_too() -> None:
    """Our copy of t is east.t, and another flow copies that back to t."""
    assert found(back("east.t", "t"), PREFIX) == {"t": Loop("back", 7)}


def test_writer_of_a_target_topic_is_known_also_when_it_has_left_it() -> None:
    """It may return, and its progress stands for what is in the topic."""
    assert writers([replace(back(), enrolments=(leave(back().enrolments[0]),))]) == {
        "t": OtherWriter("back", 7, active=False)
    }


def test_of_two_writers_of_a_topic_the_one_that_writes_now_is_named() -> None:
    """Then the earlier one, by which the later one gives way."""
    first, second = replace(back(), name="first"), replace(back(), name="second")
    left = replace(back(), enrolments=(replace(leave(back().enrolments[0]), at_ms=1),))
    later = replace(second, enrolments=(replace(back().enrolments[0], at_ms=9),))
    for flows in ([left, later, first], [first, later, left]):
        assert writers(flows) == {"t": OtherWriter("first", 7)}


def test_rivals_are_those_that_have_or_claim_the_same_target() -> None:
    """Also those whose topic has left the filter: it may return."""
    has = replace(back(), name="has", enrolments=(leave(back().enrolments[0]),))
    claims = OtherFlow("claims", ("NORTH", "EAST"), (), (Claim("x", "t", 1), Claim("y", "u", 1)))
    assert sorted(rivals_there([has, claims], "t")) == [
        Rival(FlowId("claims", "EAST"), enrolled=False),
        Rival(FlowId("has", "EAST"), enrolled=True),
    ]
    assert rivals_there([has, claims], "v") == []


def test_rivals_are_those_that_copy_or_claim_the_way_back() -> None:
    """Under whatever name; not those between other clusters."""
    naming = NamingPolicy(IDENTITY, "east", "west")
    claiming = OtherFlow("claims", ("WEST", "EAST"), (), (Claim("t", "t", 1), Claim("t", "u", 1)))
    foreign = replace(claiming, clusters=("NORTH", "EAST"))
    assert rivals_here([back(), claiming, foreign], naming, "EAST", "WEST", "t") == [
        Rival(FlowId("back", "EAST"), enrolled=True),
        Rival(FlowId("claims", "EAST"), enrolled=False),
    ]
    for other in (naming, NamingPolicy(PREFIX, "east", "west")):
        assert rivals_here([claiming], other, "EAST", "WEST", "u") == [
            Rival(FlowId("claims", "EAST"), enrolled=False)
        ]
        assert rivals_here([claiming], other, "EAST", "WEST", "v") == []
        assert rivals_here([foreign], other, "EAST", "WEST", "t") == []


class FakeState:
    """The state of a flow, as ``StateLog`` reads it."""

    values: ClassVar[dict[str, dict[str, Any]]] = {}
    reads: ClassVar[list[str]] = []
    young: ClassVar[list[str]] = []

    def __init__(self, _: object, topic: str, __: int, **_kept: object) -> None:
        self._topic = topic

    def catch_up(self, *, wait: bool) -> dict[str, Any]:
        self.reads.append(self._topic)
        if self._topic in self.young:
            self.young.remove(self._topic)
            raise NotNow("it has no leader yet")
        if self._topic not in self.values:
            raise Retriable("its broker is away")
        return self.values[self._topic]

    def close(self) -> None:
        """Nothing is open."""


def where_states_end(*ended: str, leaderless: Sequence[str] = ()) -> FakeCluster:
    """Return a cluster with topics of which some nobody leads, and the others end at 5."""
    made = FakeCluster("west")
    made.tries = 3
    for name in ended:
        made.add_topic(name, source_id(name), (5, 5))
    for name in leaderless:
        made.add_topic(name, source_id(name), (5, 5), leaders={0: -1, 1: -1})
    return made


@pytest.fixture(autouse=True)
def nothing_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every state read alone, as if something were in the way of reading them together."""
    monkeypatch.setattr("onceover.topics.otherflows.catch_up_together", lambda *_: set())


def test_states_are_read_again_only_where_something_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or where it is not known; one that cannot be read holds up no other."""
    monkeypatch.setattr("onceover.topics.otherflows.StateLog", FakeState)
    monkeypatch.setattr(FakeState, "reads", [])
    one, two, sick = (names.state_topic(flow) for flow in ("one", "two", "sick"))
    enrolled = {"topic/t": back().enrolments[0].to_json()}
    monkeypatch.setattr(FakeState, "values", {one: enrolled, two: {}})
    cluster = where_states_end(one, two, leaderless=[sick])
    topics = {name: topic(name, 2, source_id(name)) for name in (one, two, "orders")}
    others = OtherFlows(cluster, without="mine")
    assert [flow.name for flow in others.read(topics)] == ["one", "two"]
    cluster.all_topics[two].logs[0].end = 6
    assert writers(others.read(topics)) == {"t": OtherWriter("one", 7)}
    assert FakeState.reads == [one, two, two]
    topics[sick] = topic(sick, 2, source_id(sick))
    assert [flow.name for flow in others.read(topics)] == ["one", "two"]
    assert list(others.unreadable) == ["sick"]
    assert FakeState.reads[3:] == [one, two, sick]
    others.close()


@pytest.mark.parametrize("young", [True, False])
def test_a_state_that_was_deleted_meanwhile_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, young: bool
) -> None:
    """There is no such flow any more: it is not unreadable, and nobody waits for it."""
    monkeypatch.setattr("onceover.topics.otherflows.StateLog", FakeState)
    monkeypatch.setattr(FakeState, "reads", [])
    gone, two = names.state_topic("gone"), names.state_topic("two")
    monkeypatch.setattr(FakeState, "values", {two: {}})
    monkeypatch.setattr(FakeState, "young", [gone] * 100 if young else [])
    others = OtherFlows(where_states_end(leaderless=[two]), without="mine")
    found = others.read({name: topic(name, 2, source_id(name)) for name in (gone, two)})
    assert [flow.name for flow in found] == ["two"]
    assert others.unreadable == {}
    assert FakeState.reads == [gone, two]
    others.close()


@pytest.mark.parametrize("layout", [None, [], 7, "north"])
def test_a_layout_that_is_none_is_that_flows_trouble(monkeypatch: pytest.MonkeyPatch, layout: object) -> None:
    """Whoever wrote it: unreadable like one of another version."""
    monkeypatch.setattr("onceover.topics.otherflows.StateLog", FakeState)
    odd, two = names.state_topic("odd"), names.state_topic("two")
    monkeypatch.setattr(FakeState, "values", {odd: {names.LAYOUT: layout}, two: {}})
    others = OtherFlows(where_states_end(leaderless=[odd, two]), without="mine")
    found = others.read({name: topic(name, 2, source_id(name)) for name in (odd, two)})
    assert [flow.name for flow in found] == ["two"]
    assert [error.code for error in others.unreadable.values()] == ["STATE_UNREADABLE"]
    others.close()


def test_a_state_that_was_created_a_moment_ago_is_waited_for_and_no_broker_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flow that was started together with this one; one whose broker is away holds up no other."""
    monkeypatch.setattr("onceover.topics.otherflows.StateLog", FakeState)
    monkeypatch.setattr(FakeState, "reads", [])
    young, sick = names.state_topic("young"), names.state_topic("sick")
    monkeypatch.setattr(FakeState, "values", {young: {}})
    monkeypatch.setattr(FakeState, "young", [young])
    others = OtherFlows(where_states_end(leaderless=[young, sick]), without="mine")
    found = others.read({name: topic(name, 2, source_id(name)) for name in (young, sick)})
    assert [flow.name for flow in found] == ["young"] and list(others.unreadable) == ["sick"]
    assert FakeState.reads == [young, young, sick]
    others.close()
