"""What a repair says before it is done: to whom a resume speaks."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from onceover.clock import now_ms
from onceover.errors import UsageError
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from onceover.operate import repair
from onceover.operate.repair import RESEED, RESUME, SKIP, RepairRequest
from onceover.operate.reseed import TopicMaking, plan_reseed
from onceover.state import names
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment, Promoted
from onceover.state.records.layout import Layout
from onceover.state.records.progress import first_progress
from onceover.state.records.runstate import SILENT_AFTER_MS
from onceover.stops.record import Stop
from onceover.topics.namingpolicy import IDENTITY, NamingPolicy
from onceover.topics.scope import Rules
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.state.records.test_layout import LAYOUT

FLOW = "flights"
TP = TopicPartition("orders", 0)
STOP = Stop("RECORD_REFUSED", "refused", "", "", "", 5, at_ms=7, generation=3)
ENROLMENT = Enrolment("orders", "orders", UUID(int=1), UUID(int=2), {0: 0}, 0)


def state_of(layout: Layout, beat_ms: int | None, stop: Stop | None = STOP) -> FlowState:
    beat = {} if beat_ms is None else {names.HEARTBEAT: {"run": layout.run, "at_ms": beat_ms, "pid": 1}}
    stops = {} if stop is None else {names.stop_key(*TP): stop.to_json()}
    leader = {names.LAYOUT: layout.to_json(), names.enrolment_key("orders"): ENROLMENT.to_json()}
    return FlowState(leader, {**beat, **stops})


def planned(monkeypatch: pytest.MonkeyPatch, state: FlowState) -> repair.Repair:
    monkeypatch.setattr(repair, "read_flow_state", lambda *_: state)
    return repair.plan_resume(FLOW, FakeCluster())


RUNNING = LAYOUT.as_ready(LAYOUT.delivery)
SEIZED = Layout.from_json({**LAYOUT.to_json(), "ready": False, "seized": True})


@pytest.mark.parametrize(
    ("layout", "silent_ms", "heard"),
    [
        (RUNNING, 0, True),
        (RUNNING, SILENT_AFTER_MS + 1000, False),
        (RUNNING.as_ended(1), 0, False),
        (SEIZED, 0, False),
    ],
    ids=["running", "killed", "ended", "fenced by a repair"],
)
def test_a_resume_says_whether_anybody_hears_it(
    monkeypatch: pytest.MonkeyPatch, layout: Layout, silent_ms: int, heard: bool
) -> None:
    """Nobody looks again in a flow that does not run; that it is done at the next start is said."""
    plan = planned(monkeypatch, state_of(layout, now_ms() - silent_ms))
    assert plan.changes[0].to == ("checked anew" if heard else "checked anew when the flow is started")
    assert plan.again == {TP: STOP}


@pytest.mark.parametrize(
    "request_",
    [
        RepairRequest(RESUME),
        RepairRequest(RESUME, TopicPartition("a", 0)),
        RepairRequest(RESEED, TopicPartition("a", 0)),
        RepairRequest(SKIP, TopicPartition("a", 0), 0),
    ],
)
def test_what_can_be_meant_is_asked(request_: RepairRequest) -> None:
    request_.check()


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (RepairRequest("repair"), "there is no action 'repair'"),
        (RepairRequest(SKIP, None, 3), "skip-to needs a partition"),
        (RepairRequest(RESEED, TopicPartition("a", 0), 3), "reseed takes no offset"),
        (RepairRequest(SKIP, TopicPartition("a", 0)), "skip-to needs an offset"),
        (RepairRequest(SKIP, TopicPartition("a", 0), -1), "skip-to needs an offset"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_a_cluster_is_asked(request_: RepairRequest, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        request_.check()


@pytest.mark.parametrize("promoted", [None, Promoted(5, "d1", {0: 9}, {0: 9})], ids=["copied", "promoted"])
def test_placing_a_partition_of_a_promoted_topic_says_that_it_takes_it_back(
    monkeypatch: pytest.MonkeyPatch, promoted: Promoted | None
) -> None:
    """Clients write to its copy: an old runbook may name the command, and nothing else would say so."""
    enrolment = replace(ENROLMENT, active=promoted is None, promoted=promoted)
    layout = Layout.from_json({**LAYOUT.to_json(), "source_cluster_id": "east", "target_cluster_id": "west"})
    leader = {names.LAYOUT: layout.to_json(), names.enrolment_key("orders"): enrolment.to_json()}
    monkeypatch.setattr(repair, "read_flow_state", lambda *_: FlowState(leader, {}))
    east, west = FakeCluster("east", cluster_id="east"), FakeCluster("west", cluster_id="west")
    east.add_topic("orders", UUID(int=1), [9])
    west.add_topic("orders", UUID(int=2), [9])
    making = TopicMaking(Rules((".*",), (), NamingPolicy(IDENTITY, "east", "west")))
    for plan in (repair.plan_skip(FLOW, east, west, TP, 9), plan_reseed(FLOW, east, west, TP, making)):
        told = [change.reason for change in plan.changes if change.what == "promotion"]
        assert len(told) == (promoted is not None)
        assert all("d1 has given it to clients" in reason for reason in told)


OTHER = Enrolment("other", "other", UUID(int=3), UUID(int=4), {0: 0}, 0)
OTHER_TP = TopicPartition("other", 0)
GARBAGE = names.stop_key(*OTHER_TP), "no stop"


def clusters(monkeypatch: pytest.MonkeyPatch, state: FlowState) -> tuple[FakeCluster, FakeCluster]:
    """Return both sides of a flow with two topics, whose state is this."""
    layout = Layout.from_json({**RUNNING.to_json(), "source_cluster_id": "east", "target_cluster_id": "west"})
    leader = {**state.leader, names.LAYOUT: layout.to_json(), names.enrolment_key("other"): OTHER.to_json()}
    monkeypatch.setattr(repair, "read_flow_state", lambda *_: FlowState(leader, state.others))
    east, west = FakeCluster("east", cluster_id="east"), FakeCluster("west", cluster_id="west")
    for number, name in enumerate(("orders", "other")):
        east.add_topic(name, UUID(int=1 + 2 * number), [9])
        west.add_topic(name, UUID(int=2 + 2 * number), [9])
    return east, west


def with_other(key: str, value: object) -> FlowState:
    state = state_of(RUNNING, now_ms())
    return FlowState(state.leader, {**state.others, key: value})


def test_a_stop_that_nobody_can_read_closes_no_way_out_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else has written to the state: `status` tells of it; the rest of the flow goes on."""
    east, west = clusters(monkeypatch, with_other(*GARBAGE))
    making = TopicMaking(Rules((".*",), (), NamingPolicy(IDENTITY, "east", "west")))
    assert repair.plan_resume(FLOW, west, [TP]).again == {TP: STOP}
    whole = repair.plan_resume(FLOW, west)
    assert whole.again == {TP: STOP}
    # Who asks for all means that one, too.
    assert [(each.object, each.code) for each in whole.refused] == [("other:0", "STATE_UNREADABLE")]
    for plan in (repair.plan_skip(FLOW, east, west, TP, 9), plan_reseed(FLOW, east, west, TP, making)):
        assert (plan.refused, plan.standing[str(TP)].state) == (
            (),
            f"{STOP.code}, source topic {UUID(int=1)}",
        )


def test_and_of_its_own_partition_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can be asked to look at a stop that has no name; skipping is as good as ever."""
    east, west = clusters(monkeypatch, with_other(*GARBAGE))
    (refusal,) = repair.plan_resume(FLOW, west, [OTHER_TP]).refused
    assert (refusal.object, refusal.code) == ("other:0", "STATE_UNREADABLE")
    assert "stop/other/0" in refusal.message and "`onceover replicate flights`" in refusal.resolve
    plan = repair.plan_skip(FLOW, east, west, OTHER_TP, 9)
    assert plan.refused == () and "cannot be read" in plan.changes[0].reason


def test_a_sign_of_life_that_nobody_can_read_keeps_nobody_from_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, west = clusters(monkeypatch, with_other(names.HEARTBEAT, "no beat"))
    plan = repair.plan_resume(FLOW, west)
    assert plan.again == {TP: STOP}
    assert plan.changes[0].to == "checked anew, if the flow runs"


def test_what_a_stop_names_behind_an_open_transaction_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that has lost records is compared by its high watermark; so is what an operator answers."""
    east, west = clusters(monkeypatch, state_of(RUNNING, now_ms()))
    log = east.log_of(TP)
    assert log is not None
    log.start, log.end, log.pending = 0, 950, {7: 900}
    assert repair.plan_skip(FLOW, east, west, TP, 950).refused == ()
    (refusal,) = repair.plan_skip(FLOW, east, west, TP, 951).refused
    assert (refusal.code, refusal.resolve) == ("OUT_OF_RANGE", "choose an offset from 0 to 950")


def test_nothing_is_counted_from_an_offset_of_a_topic_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 were copied of the one that was deleted: of the 500 in the new one all are skipped."""
    east, west = clusters(monkeypatch, state_of(RUNNING, now_ms()))
    east.all_topics.pop("orders")
    east.add_topic("orders", UUID(int=9), [500])
    log = east.log_of(TP)
    assert log is not None
    log.start = 0
    told = CommittedOffset(0, 1000, -1, first_progress(ENROLMENT, 1000, 1).metadata)
    monkeypatch.setattr(west, "committed", lambda *_: {TP: told})
    change = repair.plan_skip(FLOW, east, west, TP, 500).changes[0]
    assert (change.risk, change.records) == ("skip", 500)
    change = repair.plan_skip(FLOW, east, west, TP, 0).changes[0]
    assert (change.risk, change.records) == ("none", 0)
