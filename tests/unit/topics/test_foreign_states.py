"""What stands in another flow's state is that flow's trouble, whatever it is and whoever wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceover.state import names
from onceover.state.records.enrolment import Enrolment, GaveWay, LeftAt, PlacedProgress
from onceover.state.records.ownership import Claim, FlowId, decide
from onceover.topics import otherflows
from onceover.topics.hops import Hop, changed_upstream, upstream_json
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
from tests.support.raw.junk import damaged
from tests.support.session.examples import examples
from tests.unit.topics.test_otherflows import FakeState, where_states_end
from tests.unit.topics.topicworld import source_id, topic

ID: Final = UUID(int=1)
ENROLMENT: Final = Enrolment(
    "orders",
    "orders",
    ID,
    ID,
    {0: 0, 1: 5},
    1,
    active=True,
    since={0: 1},
    changed={0: "x"},
    former={1: (str(ID), str(ID))},
    placed={0: PlacedProgress(1, 2, 3)},
    gave_way=GaveWay(1, "x"),
    left=LeftAt(1, 2),
)
STATE: Final[dict[str, Any]] = {
    names.LAYOUT: {"source_cluster_id": "TARGET", "target_cluster_id": "SOURCE"},
    "topic/orders": ENROLMENT.to_json(),
    "topic/left": Enrolment("left", "left", ID, ID, {0: 0}, 1, active=False, left=LeftAt(1, 2)).to_json(),
    "claim/payments": Claim("payments", "payments", 1).to_json(),
    "upstream/orders": upstream_json((Hop("a", "TARGET", "orders", 1), Hop("b", None, "orders", 1))),
}
# Of a record that is written for a topic; longer ones than a target takes end its flow.
LARGEST_RECORD_BYTES: Final = 100_000


@pytest.fixture(autouse=True)
def states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have states read from ``FakeState``, each alone."""
    monkeypatch.setattr(otherflows, "StateLog", FakeState)
    monkeypatch.setattr(otherflows, "catch_up_together", lambda *_: set())


def read(state: Mapping[str, Any]) -> tuple[list[OtherFlow], OtherFlows]:
    """Return the flows that another flow reads: this one's state, and one that is in order."""
    odd, fine = names.state_topic("odd"), names.state_topic("fine")
    FakeState.values = {odd: state, fine: STATE}  # pyrefly: ignore[bad-assignment]
    others = OtherFlows(where_states_end(leaderless=[odd, fine]))
    return others.read({name: topic(name, 2, source_id(name)) for name in (odd, fine)}), others


def use(flows: list[OtherFlow]) -> None:
    """Ask all that a flow asks about others; what it writes down of them has an end."""
    for naming in (NamingPolicy(IDENTITY, "a", "b"), NamingPolicy(PREFIX, "a", "b")):
        ways = ways_to(flows, "SOURCE")
        writers(flows)
        loops(flows, naming, "SOURCE", "TARGET", ways)
        former_loops(flows, naming, "SOURCE", "TARGET")
        for name in ("orders", "payments", "left"):
            rivals = rivals_there(flows, name) + rivals_here(flows, naming, "SOURCE", "TARGET", name)
            decide(FlowId("odd", "TARGET"), rivals)
        copied = {name: name for name in ways}
        for value in changed_upstream({}, ways, copied, whole=True).values():
            assert len(json.dumps(value).encode()) < LARGEST_RECORD_BYTES


def test_a_state_that_is_in_order_is_read() -> None:
    """The near miss of everything below."""
    flows, others = read(STATE)
    use(flows)
    assert [flow.name for flow in flows] == ["odd", "fine"]
    assert flows[0].upstream["orders"][0].cluster == "TARGET"
    others.close()


@settings(
    max_examples=examples(75), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(damaged(STATE))
def test_one_odd_value_in_another_flows_state_ends_nothing_here(state: dict[str, Any]) -> None:
    """Every field of every record, every reader."""
    flows, others = read(state)
    use(flows)
    assert "fine" in [flow.name for flow in flows]
    assert {flow.name for flow in flows} | others.unreadable.keys() == {"odd", "fine"}
    assert all(error.code in ("STATE_UNREADABLE", "STATE_VERSION") for error in others.unreadable.values())
    others.close()


@pytest.mark.parametrize("field", ["source_cluster_id", "target_cluster_id"])
@pytest.mark.parametrize("value", [[], {}, 5, "", "c" * 250, "two words", "é"])
def test_a_cluster_id_that_cannot_be_one_is_said(field: str, value: object) -> None:
    """It was put where ids are compared, ordered and hashed, and ended every other flow."""
    flows, others = read({**STATE, names.LAYOUT: {**STATE[names.LAYOUT], field: value}})
    assert [flow.name for flow in flows] == ["fine"]
    assert others.unreadable["odd"].code == "STATE_UNREADABLE"
    others.close()


@pytest.mark.parametrize("field", ["flow", "cluster", "topic"])
def test_an_overlong_name_is_not_passed_on(field: str) -> None:
    """It would not fit into a record of the flow that passes it on."""
    hop = {"flow": "a", "cluster": "c", "topic": "orders", "at_ms": 1, field: "x" * 1_400_000}
    flows, others = read({**STATE, "upstream/orders": {"v": 1, "hops": [hop]}})
    assert [flow.name for flow in flows] == ["fine"] and "odd" in others.unreadable
    use(flows)
    others.close()


def test_a_record_under_another_topics_key_is_none() -> None:
    """Two keys that speak of one topic would be one of them, by chance."""
    for key, value in (("topic/other", STATE["topic/orders"]), ("claim/other", STATE["claim/payments"])):
        _, others = read({**STATE, key: value})
        assert key in str(others.unreadable["odd"])
        others.close()


@given(st.text("._-ab", min_size=1, max_size=4))
def test_the_state_of_a_flow_is_one_topic(name: str) -> None:
    """Who may write below a flow's prefix writes the state of one flow, not of as many as they like."""
    owner = names.state_owner(names.state_topic(name))
    assert owner == (None if "." in name else name)


@pytest.mark.parametrize("name", ["__onceover.state", "__onceover..state", "orders", "__onceover.a.offsets"])
def test_other_topics_are_nobodys_state(name: str) -> None:
    """Prefix and ending overlap in one of them."""
    assert names.state_owner(name) is None
