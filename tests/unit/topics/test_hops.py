"""Where a topic's records come from, over clusters that a flow cannot see, and rings that are found so."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import NeedsOperator
from onceover.model import TopicPartition
from onceover.state.records.enrolment import Enrolment
from onceover.topics.hops import Hop, Way, changed_upstream, extended, read_upstream, ring, upstream_json
from onceover.topics.namingpolicy import IDENTITY, NamingPolicy
from onceover.topics.otherflows import OtherFlow, loops, ways_to
from onceover.topics.plan import TopicPlan, View, plan_topics
from onceover.topics.scope import Rules
from tests.unit.topics.topicworld import source_id, target_id, topic

T = "t"


def hop(cluster: str, flow: str = "f", topic: str = T, at_ms: int = 1) -> Hop:
    """Return a flow that reads ``topic`` from ``cluster``."""
    return Hop(flow, cluster, topic, at_ms)


@dataclass
class Node:
    """A flow from cluster ``number`` to the next one, as its state shows it."""

    number: int
    enrolment: Enrolment | None = None
    state: dict[str, object] = field(default_factory=dict)


class Circle:
    """So many clusters, each with a flow to the next one; every flow sees its own two only."""

    def __init__(self, size: int, *, held: int = 0) -> None:
        self.nodes = [Node(number) for number in range(size)]
        self.held = held
        self.now_ms = 0

    def discover(self, number: int, *, blind: bool = False) -> TopicPlan:
        """Let a flow look round and do what it plans; ``blind`` to the state of the one before it."""
        self.now_ms += 1
        node, before, after = self.nodes[number], self.nodes[number - 1], (number + 1) % len(self.nodes)
        flows = [] if blind else [_seen(before, number)]
        ways = ways_to(flows, str(number))
        naming = NamingPolicy(IDENTITY, "east", "west")
        enrolled = {} if node.enrolment is None else {T: node.enrolment}
        view = View(
            flow=f"f{number}",
            rules=Rules((".*",), (), naming),
            source={T: topic(T, 1, source_id(T))},
            target={T: topic(T, 1, target_id(T))},
            enrolled=enrolled,
            loops=loops(flows, naming, str(number), str(after), ways),
            upstream=ways,
            unreadable={f"f{before.number}": "its partition has no leader"} if blind else {},
            target_ends={TopicPartition(T, 0): self.held},
            overrides={T: {}},
        )
        plan = plan_topics(view)
        for turned in plan.turn:
            node.enrolment = turned
        if plan.enrol:
            node.enrolment = Enrolment(T, T, source_id(T), target_id(T), {0: 0}, self.now_ms)
        copied = {T: T} if node.enrolment and node.enrolment.active else {}
        for key, value in changed_upstream(node.state, ways, copied, whole=not blind).items():
            if value is None:
                node.state.pop(key)
            else:
                node.state[key] = value
        return plan

    def enrol(self, number: int) -> None:
        """Let a flow take the topic in that sees nobody, as versions without claims could."""
        self.now_ms += 1
        if self.nodes[number].enrolment is None:
            self.nodes[number].enrolment = Enrolment(T, T, source_id(T), target_id(T), {0: 0}, self.now_ms)

    @property
    def active(self) -> list[int]:
        """The flows that copy."""
        return [n.number for n in self.nodes if n.enrolment is not None and n.enrolment.active]


def _seen(node: Node, target: int) -> OtherFlow:
    enrolments = () if node.enrolment is None else (node.enrolment,)
    upstream = read_upstream(node.state)
    return OtherFlow(f"f{node.number}", (str(node.number), str(target)), enrolments, upstream=upstream)


@given(st.integers(2, 5), st.data())
def test_rings_are_opened_by_exactly_one_flow_whoever_looks_when(size: int, data: st.DataObject) -> None:
    """Once each has looked a few times, all but one copy, and nothing changes any more."""
    circle = Circle(size)
    for number in data.draw(st.lists(st.integers(0, size - 1), max_size=12)):
        circle.discover(number)
    order = data.draw(st.permutations(range(size)))
    for number in order * (2 * size):
        circle.discover(number)
    assert len(circle.active) == size - 1
    before = [replace(node) for node in circle.nodes]
    plans = [circle.discover(number) for number in order]
    assert circle.nodes == before
    refused = {r.code for plan in plans for r in plan.refused}
    assert refused == {"TWO_WAY" if size == 2 else "RING"}


@given(st.integers(2, 5), st.data())
def test_ring_that_was_opened_stays_open_whoever_is_blind_for_a_moment(
    size: int, data: st.DataObject
) -> None:
    """Else everything since then would be sent round once more: brokers with states restart, too."""
    circle = Circle(size)
    for number in [*range(size)] * (3 * size):
        circle.discover(number)
    open_to = circle.active
    looks = st.tuples(st.integers(0, size - 1), st.booleans())
    for number, blind in data.draw(st.lists(looks, max_size=20)):
        circle.discover(number, blind=blind)
        assert circle.active == open_to


@given(st.integers(2, 5), st.data())
def test_flow_that_gave_way_stays_out_when_another_one_leaves(size: int, data: st.DataObject) -> None:
    """Else what has come round since then would go where it came from. Without any copies it comes back."""
    circle = Circle(size)
    for number in range(size):
        circle.enrol(number)
    for number in [*range(size)] * (3 * size):
        circle.discover(number)
    (out,) = set(range(size)) - set(circle.active)
    circle.held = data.draw(st.integers(0, 1))
    leaves = data.draw(st.sampled_from(circle.active))
    circle.nodes[leaves] = Node(leaves)
    refused = []
    for number in data.draw(st.permutations([n for n in range(size) if n != leaves])) * (2 * size):
        plan = circle.discover(number)
        if number == out:
            refused = [r.code for r in plan.refused]
    assert (out in circle.active) is not bool(circle.held)
    assert refused == (["GAVE_WAY"] if circle.held else [])


@given(st.integers(2, 5))
def test_flow_that_comes_when_all_others_are_there_never_takes_the_topic_in(size: int) -> None:
    """Nothing goes round for a moment."""
    circle = Circle(size)
    for number in range(size):
        circle.discover(number)
    assert circle.active == list(range(size - 1))


def test_chain_without_a_ring_is_left_alone() -> None:
    """The next one only gets to know where it comes from."""
    circle = Circle(4)
    for number in (0, 1, 2):
        assert circle.discover(number).refused == ()
    assert [h.cluster for h in read_upstream(circle.nodes[2].state)[T]] == ["1", "0"]


def test_way_round_a_ring_ends_where_it_began() -> None:
    """Also round one that does not lead through its beginning."""
    further = (hop("b"), hop("a"), hop("c"), hop("b"))
    assert extended(hop("c"), further, "a", T) == (hop("c"), hop("b"), hop("a"))
    assert extended(hop("c"), further, "x", T) == (hop("c"), hop("b"), hop("a"), hop("c"))
    assert len(extended(hop("0"), tuple(hop(str(n)) for n in range(1, 99)), "x", T)) == 32


def test_ring_is_the_way_back_to_the_target_topic() -> None:
    """On the target's cluster and under the target's name; another topic of it is none."""
    way = (hop("c"), hop("b"), hop("a"))
    assert ring(way, "b", T) == way[:2]
    assert ring(way, "d", T) == ring(way, "b", "u") == ()


def test_record_is_read_as_it_was_written() -> None:
    """With a cluster that is not known; only changes are written."""
    way: Way = (Hop("f", None, T, 3), hop("b"))
    state = {"upstream/t": upstream_json(way), "topic/t": 1}
    assert read_upstream(state) == {T: way}
    assert changed_upstream(state, {"s": way}, {"s": T}, whole=True) == {}
    assert changed_upstream(state, {"s": way}, {}, whole=True) == {"upstream/t": None}
    # Of a flow that cannot be read for a moment nothing is forgotten: a ring that was opened would close.
    assert changed_upstream(state, {}, {"s": T}, whole=False) == {}
    assert changed_upstream({}, {"s": way}, {"s": T, "own": "own"}, whole=True) == {
        "upstream/t": upstream_json(way)
    }


@pytest.mark.parametrize(
    "value", [1, {}, {"hops": [{"flow": "f"}]}, {"hops": [{**vars(hop("b")), "at_ms": "1"}]}]
)
def test_other_values_are_no_ways(value: object) -> None:
    """Whoever wrote them."""
    with pytest.raises(NeedsOperator, match="upstream"):
        read_upstream({"upstream/t": value})
