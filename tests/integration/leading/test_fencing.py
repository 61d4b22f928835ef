"""docs/protocol.md, sentence by sentence, on real brokers: duels, frozen workers, lost ids, lanes (G3).

A frozen worker is a lane in a thread that stands still before a named step: it has read, or sent,
everything before that step and wakes up later, in a world that has moved on.
"""

from __future__ import annotations

import pytest

from onceover.copy import lane as lanes
from onceover.errors import Fenced
from onceover.kafka import calls
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.fencing import LANE_TIMEOUT_MS
from onceover.state.steps import Step
from onceover.wiring.flows import open_clusters
from tests.support.flows.feeds import PARTITIONS
from tests.support.flows.flowcase import (
    FENCED,
    TIMEOUT_S,
    FlowCase,
    Inits,
    LaneThread,
    assert_one_generation_after_the_other,
    busy_lane,
    duel,
)
from tests.support.raw.adversary import Traffic
from tests.support.session.wait import wait_until

CONCURRENT_TRANSACTIONS = 51
TAKEN_OVER = "another start of this flow has taken over"


@pytest.fixture
def inits(monkeypatch: pytest.MonkeyPatch) -> Inits:
    return Inits(monkeypatch)


# ---- two launches


def test_of_two_launches_at_once_one_survives_and_the_other_harms_nothing(case: FlowCase) -> None:
    """Several rounds, both orders, closer and farther apart; the fenced one says so."""
    fenced = 0
    for pause_s in (0.0, 0.02, 0.1, 0.3):
        outcomes = duel(case.flow(), case.flow(), pause_s)
        assert None in outcomes, outcomes
        for outcome in filter(None, outcomes):
            assert isinstance(outcome, Fenced), outcome
            assert TAKEN_OVER in str(outcome)
            fenced += 1
        case.agreed()
        case.feed()
    assert fenced, "nobody was fenced: these were no duels"
    case.converge()


def test_two_processes_launched_at_once(case: FlowCase) -> None:
    """The same through exit codes: at least one 0, the other 0 or 4 with the reason."""
    with case.process() as first, case.process() as second:
        codes = {process.wait(TIMEOUT_S) for process in (first, second)}
        assert 0 in codes and codes <= {0, FENCED}, first.child.tail()
    case.converge()


# ---- a second start


def test_a_second_start_fences_the_first_which_stops_with_exit_code_4(case: FlowCase) -> None:
    """G3: after the newer generation's first commit there is none of the older one."""
    topics = {case.topic: PARTITIONS}
    with (
        case.process(forever=True) as old,
        Traffic(case.source["bootstrap.servers"], topics, seed=5) as traffic,
    ):
        wait_until(lambda: sum(case.agreed_positions().values()) > 0, TIMEOUT_S, "the old run copies")
        before = traffic.total
        wait_until(lambda: traffic.total > before + 50, TIMEOUT_S, "more is produced")
        new = case.flow().copy(seconds=2.0)
        assert old.wait(TIMEOUT_S) == FENCED
        assert TAKEN_OVER in old.child.tail(50)
    assert case.converge().generation == new.layout.generation + 1
    assert assert_one_generation_after_the_other(case) >= {1, 2}


# What a paused run had done before; what it does when it wakes must change nothing. One of each stage: it has
# writes as the leader, owns a lane, commits; in soak it has also announced itself, and sends.
PAUSES = [Step.ENROL_COMMIT, Step.COMMIT]
OTHER_PAUSES = [
    *(Step.LAYOUT_COMMIT, Step.FENCE_LANE, Step.READY_BEGIN),
    *(Step.LANE_INIT, Step.LANE_READ, Step.LANE_RESUME, Step.DATA_SENT, Step.PROGRESS_SENT),
]


@pytest.mark.parametrize(
    "step",
    [*PAUSES, *(pytest.param(step, marks=pytest.mark.soak) for step in OTHER_PAUSES)],
    ids=lambda step: step.name,
)
def test_a_paused_run_that_wakes_after_a_newer_one_stops_and_changes_nothing(
    case: FlowCase, step: Step
) -> None:
    """SIGSTOP, a whole newer run while more is produced, SIGCONT: exit 4, nothing repeated or moved back."""
    with case.process(pause_at=step.name) as old:
        old.wait_paused(TIMEOUT_S)
        case.feed()
        newer = case.flow().copy().layout
        before = case.agreed()
        old.child.resume()
        assert old.wait(TIMEOUT_S) == FENCED, old.child.tail()
        assert TAKEN_OVER in old.child.tail(50)
    assert case.agreed() == before
    assert case.owners() == {newer.generation}
    case.assert_complete()
    case.feed()
    case.converge()
    assert_one_generation_after_the_other(case)


@pytest.mark.parametrize(
    "step",
    [pytest.param(Step.LEADER_INIT, marks=pytest.mark.soak), Step.LEADER_READ],
    ids=lambda step: step.name,
)
def test_a_starter_that_wakes_before_it_announced_anything_is_simply_the_newer_one(
    case: FlowCase, step: Step
) -> None:
    """Its id may be gone, but no layout of its own was written: it begins again at step 1."""
    with case.process(pause_at=step.name) as late:
        late.wait_paused(TIMEOUT_S)
        first = case.flow().copy().layout
        case.feed()
        late.child.resume()
        assert late.wait(TIMEOUT_S) == 0, late.child.tail()
    now = case.layout()
    assert now is not None and now.generation == first.generation + 1 and now.run != first.run
    case.assert_complete()
    assert_one_generation_after_the_other(case)


@pytest.mark.parametrize(
    "change", [pytest.param((1, 2), marks=pytest.mark.soak), (2, 1)], ids=["1-to-2", "2-to-1"]
)
def test_lanes_change_while_a_frozen_worker_of_the_old_count_lives(
    case: FlowCase, change: tuple[int, int]
) -> None:
    """Its transactional.id is fenced although the new generation may not use it."""
    old_count, new_count = change
    flow = case.flow(lanes=old_count)
    lane = 0 if old_count == 1 else 1
    with flow.running() as (_, layout):
        old = LaneThread(flow, layout, lane, freeze_at=Step.COMMIT)
        old.start()
        old.wait_frozen()
    case.feed()
    case.flow(lanes=new_count).copy()
    before = case.agreed()
    assert isinstance(old.finish(), Fenced)
    assert old.reached[Step.COMMITTED] == 0
    assert case.agreed() == before
    case.assert_complete()


def test_bound_is_carried_over_a_generation_that_never_became_ready(case: FlowCase) -> None:
    """FENCE_WHAT_AN_UNREADY_START_LEFT: two lanes ran, a start with one died; the next fences both ids."""
    flow = case.flow(lanes=2)
    with flow.running() as (_, layout):
        old = LaneThread(flow, layout, 1, freeze_at=Step.COMMIT)
        old.start()
        old.wait_frozen()
    case.flow(lanes=1)
    case.kill(Step.FENCE_LANE, 1)
    died = case.layout()
    assert died is not None and not died.ready and died.fence_up_to == 2
    case.flow().copy()
    before = case.agreed()
    assert isinstance(old.finish(), Fenced)
    assert old.reached[Step.COMMITTED] == 0
    assert case.agreed() == before
    case.assert_complete()


def test_lanes_of_a_dead_starter_are_none(case: FlowCase) -> None:
    """A lane that believes in a generation which never became ready does not copy (ready check)."""
    case.kill(Step.READY_BEGIN, 1)
    layout = case.layout()
    assert layout is not None and not layout.ready
    stray = LaneThread(case.flow(), layout, 0)
    stray.start()
    assert isinstance(stray.finish(), Fenced)
    assert stray.reached[Step.LANE_INIT] == 0
    case.converge()


# ---- CONCURRENT_TRANSACTIONS, timeouts


def test_not_yet_does_not_count_as_fenced(case: FlowCase, inits: Inits) -> None:
    """FENCED_ON_OK_ONLY: the target ends the old transaction first and says 51; only OK bumps the epoch."""
    flow = case.flow()
    with flow.running() as (_, layout):
        old = LaneThread(flow, layout, busy_lane(case), freeze_at=Step.COMMIT)
        old.start()
        old.wait_frozen()
    inits.seen.clear()
    case.flow().copy()
    codes = inits.codes(names.lane_id(case.name, busy_lane(case)))
    assert codes[0] == CONCURRENT_TRANSACTIONS and 0 in codes, codes
    assert isinstance(old.finish(), Fenced)
    assert old.reached[Step.COMMITTED] == 0
    case.assert_complete()


def test_a_lane_whose_transaction_timed_out_begins_again_and_loses_nothing(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aborted by the target while the worker stood still: the same generation goes on, not fenced."""
    monkeypatch.setattr(lanes, "LANE_TIMEOUT_MS", 1_000)
    flow = case.flow()
    with flow.running() as (lead, layout):
        late = LaneThread(flow, layout, busy_lane(case), freeze_at=Step.COMMIT)
        late.start()
        late.wait_frozen()
        wait_until(lambda: nothing_open(case), TIMEOUT_S, "the target aborts what is too old")
        late.let_go()
        wait_until(lambda: late.reached[Step.COMMITTED], TIMEOUT_S, "it copies again")
        late.stop()
        assert late.finish() is None
        assert late.reached[Step.LANE_INIT] == 2
        case.agreed()
        flow.finish(lead, layout, token=2)
    case.assert_complete()


def nothing_open(case: FlowCase) -> bool:
    """Tell whether no transaction is open in any partition of the target topic."""
    _, target = open_clusters(case.flow().watch.flow)
    partitions = [TopicPartition(case.topic, number) for number in range(PARTITIONS)]
    with target:
        stable = target.list_offsets(partitions, calls.LATEST)
        return stable == target.list_offsets(partitions, calls.LATEST, calls.READ_UNCOMMITTED)


@pytest.mark.soak
def test_a_paused_process_outlives_its_transactions(case: FlowCase) -> None:
    """SIGSTOP for longer than the lanes' real timeout, nobody else starts: it goes on by itself."""
    with case.process(pause_at=Step.COMMIT.name, kill_count=2) as process:
        process.wait_paused(TIMEOUT_S)
        wait_until(lambda: nothing_open(case), 3 * LANE_TIMEOUT_MS / 1000, "the target aborts it")
        process.child.resume()
        assert process.wait(TIMEOUT_S) == 0, process.child.tail()
    case.assert_complete()
