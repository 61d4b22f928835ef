"""Copies end, however many clusters, and whatever each flow file calls them: their ids decide, not names."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.state.records.enrolment import Enrolment
from onceover.state.records.ownership import Claim, FlowId, Rival
from onceover.topics.codes import TopicCode
from onceover.topics.hops import Hop, changed_upstream, origin, read_upstream
from onceover.topics.namingpolicy import IDENTITY, PREFIX, NamingPolicy, goes_round
from onceover.topics.otherflows import OtherFlow, loops, rivals_here, ways_to, writers
from onceover.topics.plan import TopicPlan, View, plan_topics
from onceover.topics.scope import Rules
from tests.unit.topics.topicworld import source_id, target_id, topic


@dataclass
class Copier:
    """One flow of a mesh.

    Args:
        source: number of its source; ``target`` likewise.
        naming: its names, by what its own file calls the two.
    """

    name: str
    source: int
    target: int
    naming: NamingPolicy
    enrolled: dict[str, Enrolment] = field(default_factory=dict)
    state: dict[str, object] = field(default_factory=dict)

    def seen(self) -> OtherFlow:
        """Return what its state shows to others."""
        clusters = str(self.source), str(self.target)
        return OtherFlow(
            self.name, clusters, tuple(self.enrolled.values()), upstream=read_upstream(self.state)
        )


class Mesh:
    """Clusters that hold topics, each with the clusters on which its records have been.

    Args:
        size: number of clusters.
        open: whether flows read each other's states; ``strict`` when they always have.
    """

    def __init__(self, size: int, flows: list[Copier]) -> None:
        self.open = self.strict = True
        self.clusters = [{f"t{number}": {number}} for number in range(size)]
        self.flows = flows
        self.now_ms = 0

    def discover(self, flow: Copier) -> TopicPlan:
        """Let a flow look round, and do what it plans."""
        self.now_ms += 1
        here, there = self.clusters[flow.source], self.clusters[flow.target]
        neighbours = [f.seen() for f in self.flows if f.target == flow.source and self.open]
        beside = [f.seen() for f in self.flows if f.target == flow.target and f is not flow]
        ids = str(flow.source), str(flow.target)
        ways = ways_to(neighbours, ids[0])
        view = View(
            flow=flow.name,
            rules=Rules((".*",), (), flow.naming),
            source={name: topic(name, 1, source_id(name)) for name in here},
            target={name: topic(name, 1, target_id(name)) for name in there},
            enrolled=flow.enrolled,
            elsewhere=writers(beside),
            loops=loops(neighbours, flow.naming, *ids, ways),
            upstream=ways,
            overrides={name: {} for name in here},
        )
        plan = plan_topics(view)
        for turned in plan.turn:
            flow.enrolled[turned.target] = turned
        for name in plan.enrol:
            copy = flow.naming.target_name(name)
            assert flow.target not in here[name] or not self.strict, f"{name} goes back"
            there[copy] = {*here[name], flow.target}
            flow.enrolled[copy] = Enrolment(name, copy, source_id(name), target_id(copy), {0: 0}, self.now_ms)
        copied = {e.source: e.target for e in flow.enrolled.values() if e.active}
        for key, value in changed_upstream(flow.state, ways, copied, whole=True).items():
            if value is None:
                flow.state.pop(key)
            else:
                flow.state[key] = value
        return plan


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    """Some clusters and flows between any of them, under aliases that need not agree."""
    size = draw(st.integers(2, 4))
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda p: p[0] != p[1])
    aliases = st.lists(st.sampled_from("abcd"), min_size=2, max_size=2, unique=True)
    flows = [
        Copier(f"f{n}", *pair, NamingPolicy(draw(st.sampled_from((IDENTITY, PREFIX))), *draw(aliases)))
        for n, pair in enumerate(draw(st.lists(pairs, min_size=2, max_size=6)))
    ]
    return Mesh(size, flows)


@given(meshes(), st.data())
def test_no_copy_is_brought_to_a_cluster_on_which_its_records_have_been(
    mesh: Mesh, data: st.DataObject
) -> None:
    """And soon there is nothing left to take in, whoever looks when."""
    for number in data.draw(st.lists(st.integers(0, len(mesh.flows) - 1), max_size=12)):
        mesh.discover(mesh.flows[number])
    for _ in mesh.clusters:
        for flow in mesh.flows:
            mesh.discover(flow)
    assert [mesh.discover(flow).enrol for flow in mesh.flows] == [()] * len(mesh.flows)


@given(meshes(), st.integers(1, 4))
def test_what_went_round_before_flows_looked_ends(mesh: Mesh, rounds: int) -> None:
    """As under releases that went by names, which told nothing to the next one either."""
    mesh.open = mesh.strict = False
    for flow in mesh.flows * rounds:
        mesh.discover(flow)
    mesh.open = True
    for flow in mesh.flows * (len(mesh.clusters) + 2):
        mesh.discover(flow)
    assert [mesh.discover(flow).enrol for flow in mesh.flows] == [()] * len(mesh.flows)


def ring(*policies: str) -> Mesh:
    """Return clusters a, b, c, ... in a ring, called alike by all, with so many flows."""
    names = "abcdef"[: len(policies)]
    flows = [
        Copier(f"f{n}", n, (n + 1) % len(names), NamingPolicy(policy, names[n], names[(n + 1) % len(names)]))
        for n, policy in enumerate(policies)
    ]
    return Mesh(len(policies), flows)


@pytest.mark.parametrize(
    "policies",
    [
        (PREFIX, IDENTITY, PREFIX, IDENTITY),
        (IDENTITY, PREFIX, IDENTITY, PREFIX),
        (PREFIX, IDENTITY, IDENTITY),
    ],
)
def test_rings_that_change_names_on_the_way_end(policies: tuple[str, ...]) -> None:
    """Though no name tells: identity looks at the first part, and prefix at its target's alias, which the
    others never add. Each topic is on each cluster once."""
    mesh = ring(*policies)
    plans = [mesh.discover(flow) for _ in range(2 * len(policies)) for flow in mesh.flows]
    assert [len(cluster) for cluster in mesh.clusters] == [len(policies)] * len(policies)
    assert {r.code for p in plans[-len(policies) :] for r in p.refused} >= {TopicCode.CAME_FROM_TARGET}


def pair(back: NamingPolicy) -> Mesh:
    """Return a flow from east to west, and one back with names of its own."""
    return Mesh(2, [Copier("there", 0, 1, NamingPolicy(PREFIX, "east", "west")), Copier("back", 1, 0, back)])


def test_files_that_call_the_clusters_differently_are_named_with_what_to_write() -> None:
    """The alias that the other flow uses; with it the name says the same."""
    mesh = pair(NamingPolicy(PREFIX, "w1", "e1"))
    there, back = mesh.flows
    mesh.discover(there)
    plan = mesh.discover(back)
    assert plan.enrol == ("t1",)
    (refusal,) = plan.refused
    assert (refusal.object, refusal.code) == ("east.t0", TopicCode.CAME_FROM_TARGET)
    assert "Flow there calls that cluster east, this flow calls it e1" in refusal.message
    assert "write east as target.alias of flow back" in refusal.resolve
    assert all(way in refusal.resolve for way in ("topics.exclude of flow back", "__onceover.there.state"))
    back.naming = NamingPolicy(PREFIX, "w1", "east")
    corrected = mesh.discover(back)
    assert (corrected.enrol, corrected.refused) == ((), ())


@pytest.mark.parametrize(
    "back",
    [
        NamingPolicy(PREFIX, "east", "west"),
        NamingPolicy(PREFIX, "w1", "east2"),
        NamingPolicy(IDENTITY, "w1", "e1"),
    ],
    ids=["swapped", "another", "identity"],
)
def test_an_alias_is_recommended_only_where_it_helps(back: NamingPolicy) -> None:
    """A flow cannot call both sides alike."""
    mesh = pair(back)
    mesh.discover(mesh.flows[0])
    (refusal,) = mesh.discover(mesh.flows[1]).refused
    assert ("target.alias" in refusal.resolve) is (back.source_alias != "east")


def test_nothing_is_said_of_aliases_where_they_agree() -> None:
    """The name was kept on the way, so it does not tell."""
    mesh = Mesh(
        2,
        [
            Copier("there", 0, 1, NamingPolicy(IDENTITY, "a", "b")),
            Copier("back", 1, 0, NamingPolicy(PREFIX, "b", "a")),
        ],
    )
    mesh.discover(mesh.flows[0])
    (refusal,) = mesh.discover(mesh.flows[1]).refused
    assert refusal.code == TopicCode.CAME_FROM_TARGET
    assert "alias" not in refusal.message + refusal.resolve


def test_a_topic_that_was_taken_in_unseen_is_left_whoever_had_it_first() -> None:
    """No other flow can end it; those that copy on from there are told by their own."""
    mesh = pair(NamingPolicy(PREFIX, "w1", "e1"))
    there, back = mesh.flows
    mesh.discover(there)
    early = Enrolment("east.t0", "w1.east.t0", source_id("east.t0"), target_id("w1.east.t0"), {0: 0}, 0)
    back.enrolled["w1.east.t0"] = early
    plan = mesh.discover(back)
    assert [(e.source, e.active) for e in plan.turn] == [("east.t0", False)]
    assert [r.code for r in plan.refused] == [TopicCode.CAME_FROM_TARGET]


@pytest.mark.parametrize(
    ("back", "again"), [(("w1", "e1"), ["east.w1", "w1.east"]), (("east", "west"), ["east"] * 2)]
)
def test_flows_that_cannot_read_each_other_end_by_names_that_repeat(
    back: tuple[str, str], again: list[str]
) -> None:
    """After a few topics. A name that says the same thing three times is anybody's."""
    mesh = pair(NamingPolicy(PREFIX, *back))
    mesh.open = mesh.strict = False
    for _ in range(9):
        plans = [mesh.discover(flow) for flow in mesh.flows]
    assert [plan.enrol for plan in plans] == [(), ()]
    assert max(len(cluster) for cluster in mesh.clusters) <= 8
    refused = [r for plan in plans for r in plan.refused]
    assert {r.code for r in refused} == {TopicCode.NAME_REPEATS}
    assert {r.message.split("with ")[1].split(" again")[0] for r in refused} == set(again)


@pytest.mark.parametrize("name", ["t", "east.east.t", "w1.east.w1.east.t", "a.a.a.a.t", "east.east.x.east.t"])
def test_names_that_somebody_may_have_given_are_taken(name: str) -> None:
    """Under ``identity`` any name is."""
    assert goes_round(NamingPolicy(PREFIX, "east", "west"), name) is None
    assert goes_round(NamingPolicy(IDENTITY, "east", "west"), f"{name}.{name}.{name}.{name}") is None


def test_flows_that_bring_or_claim_records_of_the_target_are_rivals() -> None:
    """A claim is read before the enrolment: the copy's topic is there before that is."""
    hop = Hop("far", "WEST", "x", 1)
    flow = OtherFlow("back", ("NORTH", "EAST"), (), (Claim("x", "north.x", 1),), {"north.x": (hop,)})
    naming = NamingPolicy(PREFIX, "east", "west")
    assert rivals_here([flow], naming, "EAST", "WEST", "north.x") == [
        Rival(FlowId("back", "EAST"), enrolled=False)
    ]
    assert rivals_here([flow], naming, "EAST", "SOUTH", "north.x") == []
    assert rivals_here([flow], naming, "OTHER", "WEST", "north.x") == []
    assert rivals_here([flow], naming, "EAST", "WEST", "other") == []


def test_origin_is_the_nearest_place_on_the_cluster() -> None:
    """With what the flow that read there calls its copy."""
    way = Hop("c", "C", "b.t", 1), Hop("b", "B", "t", 1), Hop("a", "A", "t", 1)
    found = origin(way, "c.b.t", "B")
    assert found is not None
    assert (found.way, found.copy, found.alias) == (way[:2], "b.t", "b")
    kept = origin(way, "c.b.t", "A")
    assert kept is not None and (kept.first.flow, kept.alias) == ("a", None)
    assert origin(way, "c.b.t", "D") is None
