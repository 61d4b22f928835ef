"""docs/protocol.md, sentence by sentence, on real brokers: lost ids, instances, enrolment, positions by hand.

A frozen worker is a lane in a thread that stands still before a named step: it has read, or sent,
everything before that step and wakes up later, in a world that has moved on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Producer

from onceover.copy.loop import Until
from onceover.errors import Fenced, MustReset, NeedsOperator, Retriable
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.ports import Cluster
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.lead import leader as leading
from onceover.lead.leader import Leader
from onceover.lead.leftalone import leave_alone
from onceover.model import TopicPartition
from onceover.operate.repair import RepairRequest
from onceover.state import names
from onceover.state.committed import read_progress
from onceover.state.fencing import LANE_TIMEOUT_MS, LEADER_TIMEOUT_MS, fence
from onceover.state.log import StateLog
from onceover.state.records.enrolment import Enrolment, read_enrolments
from onceover.state.steps import Step
from onceover.wire.batches.visibility import Visible
from onceover.wiring.flows import identity, open_clusters
from onceover.wiring.runs import supervisor
from onceover.wiring.watch import FlowWatch
from tests.support.flows.feeds import PARTITIONS, held
from tests.support.flows.flowcase import (
    TIMEOUT_S,
    FlowCase,
    Inits,
    LaneThread,
    busy_lane,
    owned_by,
)
from tests.support.flows.flows import InlineFlow
from tests.support.flows.operations import apply_repair
from tests.support.session.wait import wait_until

CONCURRENT_TRANSACTIONS = 51
TAKEN_OVER = "another start of this flow has taken over"


@pytest.fixture
def inits(monkeypatch: pytest.MonkeyPatch) -> Inits:
    return Inits(monkeypatch)


# ---- the leader's id


def test_a_confirmed_run_that_lost_its_leader_id_goes_on_while_the_layout_is_its_own(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead starter fenced leader and lanes, but never wrote a layout: nobody else would run."""
    monkeypatch.setattr(leading, "_RECOVERY_PAUSE_S", (0.05, 0.1))
    flow = case.flow()
    source, target = open_clusters(flow.watch.flow)
    with source, target, flow.running() as (lead, layout):
        lane = LaneThread(flow, layout, busy_lane(case))
        lane.start()
        wait_until(lambda: lane.reached[Step.COMMITTED], TIMEOUT_S, "the lane copies")
        for number in range(layout.lanes):
            fence(target, names.lane_id(case.name, number))
        fence(target, names.leader_id(case.name))
        late = case.adversary.create_topic(f"{case.topic}-late", 1)
        case.adversary.plain(late, 0, case.adversary.records(7))
        # The claim of the new topic, which may be written twice, finds out and takes the id back.
        lead.discover()
        case.feed()
        wait_until(lambda: lane.reached[Step.LANE_INIT] >= 2, TIMEOUT_S, "the lane takes over again")
        lane.stop()
        assert lane.finish() is None
        flow.finish(lead, layout, token=2)
        again = case.layout()
        assert again is not None and (again.generation, again.run) == (layout.generation, layout.run)
    case.assert_complete()
    assert len(held(case.target, late, 1)[0]) == 7


def test_a_run_that_lost_its_leader_id_to_a_newer_layout_is_fenced(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same refusal, but the layout names another: stop, and leave its id alone."""
    monkeypatch.setattr(leading, "_RECOVERY_PAUSE_S", (0.05, 0.1))
    flow = case.flow()
    with flow.running() as (lead, _), case.flow().running() as (newer, layout):
        with pytest.raises(Fenced, match=TAKEN_OVER):
            lead.leader.note("positions", {"v": 1})
        # Its id is still good: the older one has not asked for it again.
        newer.leader.note("positions", {"v": 1, "at_ms": 1})
        assert newer.leader.layout == layout


def test_a_schedules_run_leaves_one_that_lives_alone(case: FlowCase) -> None:
    """Its driver looks in the moment before it would take over; an earlier try of its own is no other one."""
    flow = case.flow()
    source, target = open_clusters(flow.watch.flow)
    with source, target:
        # Nothing of the flow is there yet.
        leave_alone(target, case.name, "nightly 2")
        with flow.running() as (lead, layout):
            with pytest.raises(NeedsOperator, match="is copied by a run on") as caught:
                leave_alone(target, case.name, "nightly 2")
            assert caught.value.code == "LEFT_ALONE"
            flow.finish(lead, layout)
        leave_alone(target, case.name, "nightly 2")
        mine = FlowWatch(flow.path)
        again = supervisor(mine, source, target, begun_by="nightly 2")
        try:
            again.start()
            leave_alone(target, case.name, "nightly 2")
            with pytest.raises(NeedsOperator):
                leave_alone(target, case.name, "nightly 3")
        finally:
            again.close()


def test_an_older_lane_never_asks_for_the_id_of_a_newer_generation(case: FlowCase, inits: Inits) -> None:
    """The layout is read before every InitProducerId, so a loser does not abort the winner's work."""
    flow = case.flow()
    lane = busy_lane(case)
    with flow.running() as (_, layout):
        old = LaneThread(flow, layout, lane, freeze_at=Step.COMMIT)
        old.start()
        old.wait_frozen()
    with case.flow().running() as (lead, newer):
        winner = LaneThread(case.flow(), newer, lane, freeze_at=Step.COMMIT)
        winner.start()
        winner.wait_frozen()
        asked = inits.by(old.name)
        assert isinstance(old.finish(), Fenced)
        assert inits.by(old.name) == asked == 1
        winner.let_go()
        wait_until(lambda: winner.reached[Step.COMMITTED], TIMEOUT_S, "the winner's transaction is whole")
        winner.stop()
        assert winner.finish() is None
        assert inits.by(winner.name) == 1
        case.flow().finish(lead, newer, token=2)
    case.assert_complete()


def test_an_idle_lane_of_an_older_generation_stops_by_itself(case: FlowCase) -> None:
    """It has nothing to commit, so no refusal would tell it: it looks at the layout."""
    flow, lane = case.flow(), busy_lane(case)
    with flow.running() as (_, layout):
        idle = LaneThread(flow, layout, lane)
        idle.start()
        wait_until(lambda: caught_up(case, owned_by(case, lane, 2)), TIMEOUT_S, "there is nothing to do")
        with case.flow().running():
            wait_until(lambda: not idle.is_alive(), 10.0, "it notices")
    assert isinstance(idle.finish(), Fenced)
    case.converge()


def test_pending_progress_is_never_read(case: FlowCase) -> None:
    """Between EndTxn and its markers the unstable read gives the position before: wait instead."""
    flow, lane = case.flow(), busy_lane(case)
    tp = TopicPartition(case.topic, min(owned_by(case, lane, 2)))
    with flow.running() as (lead, layout):
        pending = LaneThread(flow, layout, lane, freeze_at=Step.COMMIT)
        pending.start()
        pending.wait_frozen()
        _, target = open_clusters(flow.watch.flow)
        with target:
            # EndTxn says OK before the marker is in the log.
            lead.leader.catch_up()
            enrolled = {tp: read_enrolments(lead.leader.state.values)[case.topic]}
            with pytest.raises(Retriable, match="error 88"):
                read_progress(target, case.name, enrolled)
            pending.let_go()
            found = wait_until(lambda: settled(target, case, enrolled), TIMEOUT_S, "it is decided")
            assert found[tp].offset > 0
        pending.stop()
        assert pending.finish() is None
        flow.finish(lead, layout, token=2)
    case.assert_complete()


def settled(
    target: Cluster, case: FlowCase, enrolled: dict[TopicPartition, Enrolment]
) -> dict[TopicPartition, CommittedOffset] | None:
    """Return the progress once no transaction has it pending."""
    try:
        return read_progress(target, case.name, enrolled).whole()
    except Retriable:
        return None


# ---- instances


@pytest.mark.parametrize(
    "freeze_at",
    [
        pytest.param(Step.LANE_INIT, marks=pytest.mark.soak),
        pytest.param(Step.LANE_RESUME, marks=pytest.mark.soak),
        pytest.param(Step.CLAIM_BEGIN, marks=pytest.mark.soak),
        Step.COMMIT,
    ],
)
def test_the_higher_instance_of_a_lane_wins_and_the_lower_one_ends_quietly(
    case: FlowCase, inits: Inits, freeze_at: Step
) -> None:
    """Wherever the lower one stood still; without ping-pong."""
    flow, lane = case.flow(), busy_lane(case)
    with flow.running() as (lead, layout):
        low = LaneThread(flow, layout, lane, token=1, freeze_at=freeze_at)
        low.start()
        low.wait_frozen()
        high = LaneThread(flow, layout, lane, token=2)
        high.start()
        wait_until(lambda: high.reached[Step.COMMITTED], TIMEOUT_S, "the higher one copies")
        low.let_go()
        assert low.finish() is None
        assert not low.receipts
        case.feed()
        wanted = {tp for tp in owned_by(case, lane, layout.lanes)}
        wait_until(lambda: caught_up(case, wanted), TIMEOUT_S, "the higher one copies what came later")
        high.stop()
        assert high.finish() is None
        assert inits.by(low.name, 0) <= 2
        # Each request of the lower one, also one that is told to wait (51), may end a session of the higher.
        assert inits.by(high.name, 0) <= 1 + inits.by(low.name)
        case.flow().finish(lead, layout, token=3)
    case.assert_complete()


def caught_up(case: FlowCase, partitions: set[int]) -> bool:
    """Tell whether progress has come to the source's end."""
    source, _ = open_clusters(case.flow().watch.flow)
    with source:
        ends = source.list_offsets([TopicPartition(case.topic, n) for n in partitions], calls.LATEST)
    positions = case.agreed_positions()
    return all(positions.get(tp.partition, -1) >= end for tp, end in ends.items())


# ---- enrolment


def test_start_offsets_are_never_written_a_second_time(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENROL_WITHOUT_PROGRESS_ONLY: its commit's answer is lost, a lane moves on; a new plan moves nothing."""
    monkeypatch.setattr(leading, "_RECOVERY_PAUSE_S", (0.05, 0.1))
    flow = case.flow()
    with flow.running() as (lead, layout):
        late = case.adversary.create_topic(f"{case.topic}-late", 2)
        for partition in range(2):
            case.adversary.plain(late, partition, case.adversary.records(20))
        commit, recover = TransactionalProducer.commit, Leader._recover
        lanes_done: list[int] = []
        commits: list[int] = []

        def lost_answer(producer: TransactionalProducer) -> None:
            commit(producer)
            commits.append(1)
            # The first one is the claim's, and may be written twice.
            if len(commits) == 2:
                monkeypatch.setattr(TransactionalProducer, "commit", commit)
                raise MustReset("the answer to EndTxn is lost")

        def lanes_go_on(leader: Leader) -> None:
            recover(leader)
            threads = [LaneThread(flow, layout, lane, seconds=5) for lane in range(layout.lanes)]
            for thread in threads:
                thread.start()
            wait_until(lambda: len(held(case.target, late, 2)[0]) == 20, TIMEOUT_S, "a lane moves on")
            for thread in threads:
                thread.stop()
                assert thread.finish() is None
            lanes_done.append(1)

        monkeypatch.setattr(TransactionalProducer, "commit", lost_answer)
        monkeypatch.setattr(Leader, "_recover", lanes_go_on)
        with pytest.raises(Retriable, match="planned again"):
            lead.discover()
        assert lanes_done
        lead.discover()
        flow.finish(lead, layout, token=2)
    case.assert_complete()
    assert [len(records) for records in held(case.target, late, 2).values()] == [20, 20]


def test_an_own_enrolment_that_is_not_readable_yet_is_not_planned_again(case: FlowCase) -> None:
    """Discovery reads the state to its end first: what was polled last may be older."""
    flow = case.flow()
    with flow.running() as (lead, layout):
        state = lead.leader.state
        stale = {key: value for key, value in state.values.items() if not key.startswith("topic/")}
        flow.lanes(layout, Until(time.monotonic() + 1.0))
        state.values, state._offset = stale, 0
        plan = lead.discover()
        assert (plan.enrol, plan.steps, plan.refused) == ((), (), ())
        flow.finish(lead, layout, token=2)
    case.assert_complete()


# ---- refusals


def test_state_of_a_newer_version_is_refused_with_exit_code_3(case: FlowCase) -> None:
    """Going on would overwrite what this version does not understand."""
    case.flow().copy()
    producer = Producer(case.target)
    producer.produce(
        names.state_topic(case.name), key=names.LAYOUT, value=b'{"v": 2, "generation": 9}', partition=0
    )
    assert producer.flush(30) == 0
    with pytest.raises(NeedsOperator, match="another version of Onceover") as refusal:
        case.flow().copy()
    assert refusal.value.code == "STATE_VERSION" and refusal.value.exit_code == 3


def test_another_source_cluster_is_refused(case: FlowCase) -> None:
    """The flow file points the other way round: nothing is fenced, nothing is written."""
    case.flow().copy()
    before = case.layout()
    source, target = open_clusters(case.flow().watch.flow)
    with source, target:
        swapped = Leader(identity(case.flow().watch.flow), target, target)
        try:
            with pytest.raises(NeedsOperator, match="source cluster is not the one"):
                swapped.start()
        finally:
            swapped.close()
    assert case.layout() == before


# ---- positions written by an operator


@pytest.mark.parametrize("operation", ["skip-to", pytest.param("reseed", marks=pytest.mark.soak)])
def test_a_position_written_beside_a_live_run_stands(case: FlowCase, operation: str) -> None:
    """It acts as a start: the live run is fenced in the middle of a transaction and overwrites nothing."""
    flow, lane = case.flow(), busy_lane(case)
    tp = TopicPartition(case.topic, min(owned_by(case, lane, 2)))
    with flow.running() as (_, layout):
        live = LaneThread(flow, layout, lane, freeze_at=Step.DATA_ACKED)
        live.start()
        live.wait_frozen()
        source, target = open_clusters(flow.watch.flow)
        with source, target:
            end = source.list_offsets([tp], calls.LATEST)[tp]
        request = RepairRequest(operation, tp, end if operation == "skip-to" else None)
        generation = apply_repair(flow.watch.flow, request).generation
        assert generation == layout.generation + 1
        assert isinstance(live.finish(), Fenced)
        assert live.reached[Step.COMMITTED] == 0
    expected = end if operation == "skip-to" else 0
    assert case.agreed_positions()[tp.partition] == expected
    stray = LaneThread(flow, layout, lane)
    stray.start()
    assert isinstance(stray.finish(), Fenced)
    case.flow().copy()
    seen = {number: len(records) for number, records in held(case.target, case.topic).items()}
    whole = {number: len(records) for number, records in held(case.source, case.topic).items()}
    assert seen == {**whole, tp.partition: 0 if operation == "skip-to" else whole[tp.partition]}


def test_leader_timeouts_are_shorter_than_lane_timeouts() -> None:
    """A dead leader's open transaction must not hold up a reader of the layout longer than a dead lane's."""
    assert LEADER_TIMEOUT_MS <= LANE_TIMEOUT_MS


def end_of_state(case: FlowCase) -> int:
    """Return where the layout's log ends."""
    tp = TopicPartition(names.state_topic(case.name), names.STATE_LEADER)
    _, target = open_clusters(case.flow().watch.flow)
    with target:
        return target.list_offsets([tp], calls.LATEST, calls.READ_UNCOMMITTED)[tp]


def stay_behind(monkeypatch: pytest.MonkeyPatch, case: FlowCase, end: int, answers: int) -> None:
    """Let a broker answer this process that led the state up to an offset, until it hears of the next one."""
    state = TopicPartition(names.state_topic(case.name), names.STATE_LEADER)
    left, offsets, step, read = [answers], LiveCluster.list_offsets, StateLog._step, StateLog._read

    def told(cluster: LiveCluster, asked: Any, *how: Any) -> dict[TopicPartition, int]:
        found = dict(offsets(cluster, asked, *how))
        if state in found and left[0] > 0:
            left[0] -= 1
            found[state] = min(found[state], end)
        return found

    def shown(log: StateLog, batches: Iterable[Visible]) -> None:
        is_stale = log._tp == state and left[0] > 0
        read(log, [each for each in batches if not is_stale or each.header.base_offset < end])

    def asked(log: StateLog, held_ms: int, wait_s: float) -> None:
        if log._tp == state and left[0] > 0 and log._offset >= end:
            left[0] -= 1
        else:
            step(log, held_ms, wait_s)

    monkeypatch.setattr(LiveCluster, "list_offsets", told)
    monkeypatch.setattr(StateLog, "_read", shown)
    monkeypatch.setattr(StateLog, "_step", asked)


def test_a_start_that_is_told_the_layout_of_before_fences_what_runs(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the number of the generation that runs, and fence one of its lanes."""
    case.flow(lanes=1)
    case.kill(Step.COMMITTED, 1)
    end = end_of_state(case)
    case.flow(lanes=PARTITIONS)
    with case.process(forever=True):
        wait_until(lambda: case.owners() == {2}, TIMEOUT_S, "the newer generation has its partitions")
        flow = case.flow(lanes=1)
        stay_behind(monkeypatch, case, end, 8)
        with flow.running() as (_, layout):
            assert (layout.generation, layout.fence_up_to) == (3, PARTITIONS)
    case.flow().copy()
    case.assert_complete()


def test_a_lane_that_is_told_the_layout_of_before_copies_nothing_beside_a_newer_generation(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was frozen tells what it knew as the leader of the state, until it hears of the next one.

    Of a newer generation with fewer lanes nobody fences the ids that only the older one has.
    """
    case.flow(lanes=PARTITIONS)
    case.kill(Step.COMMITTED, 1)
    older = case.layout()
    end = end_of_state(case)
    assert older is not None and older.lanes == PARTITIONS
    flow = case.flow(lanes=1)
    with case.process(forever=True):
        wait_until(lambda: case.owners() == {2}, TIMEOUT_S, "the newer generation has its partitions")
        stay_behind(monkeypatch, case, end, 8)
        old = LaneThread(flow, older, PARTITIONS - 1)
        old.start()
        wait_until(lambda: not old.is_alive() or 1 in case.owners(), TIMEOUT_S, "it goes on, or does not")
        case.feed()
        wait_until(lambda: lag(flow) == 0, TIMEOUT_S, "all is copied")
        old.stop()
        problem = old.finish()
    case.flow().copy()
    case.assert_complete()
    assert isinstance(problem, Fenced)


def lag(flow: InlineFlow) -> int:
    """Return how many offsets a flow has still to copy."""
    return sum(partition["lag_offsets"] for partition in flow.status()["partitions"])
