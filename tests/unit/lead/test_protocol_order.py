"""The order of the protocol's steps (docs/protocol.md), taken down from the leader between fakes.

What a real broker shows only once in a thousand runs is fixed here: which read comes before which
request, and which of them waits for the LSO.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from onceover.errors import Fenced, MustReset, NeedsOperator, Retriable
from onceover.kafka.calls import InitResult, OffsetToCommit
from onceover.lead.leader import FlowIdentity, Leader
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.layout import Layout
from onceover.state.records.runstate import run_of
from tests.unit.copy.protocol import FLOW, OTHER, FakeProducer, World, cluster_in, faked_world, told
from tests.unit.state.records.test_layout import LAYOUT


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return faked_world(monkeypatch)


def leader(world: World, lanes: int = 2) -> Leader:
    """Return a leader between source S and target T."""
    source, target = cluster_in(world, "east"), cluster_in(world)
    return Leader(FlowIdentity(FLOW, lanes, "0" * 64), source, target)


# ---- the leader


def test_start_is_init_read_unready_fence_ready_in_this_order(world: World) -> None:
    """Steps 1 and 2: fencing before unready is committed would let an old lane commit after it."""
    world.values = {names.LAYOUT: replace(LAYOUT, lanes=3).to_json()}
    layout = leader(world).start()
    assert told(world) == [
        "init leader",
        "mark layout",
        "read layout and wait",
        "fetch progress",
        "send layout",
        "commit unready",
        "fence 0",
        "fence 1",
        "fence 2",
        "fence map",
        "send layout",
        "commit ready",
        "read layout and wait",
    ]
    assert (layout.generation, layout.lanes, layout.fence_up_to, layout.ready) == (8, 2, 3, True)
    assert layout.run != LAYOUT.run


def test_a_layout_says_which_run_of_a_schedule_has_begun_it(world: World) -> None:
    """Read back, its next try knows it for its own."""
    source, target = cluster_in(world, "east"), cluster_in(world)
    flow = FlowIdentity(FLOW, 2, "0" * 64, begun_by="replicate_nightly scheduled__2")
    layout = Layout.from_json(Leader(flow, source, target).start().to_json())
    assert run_of(layout, None, layout.started_at_ms).begun_by == flow.begun_by
    assert leader(world).start().begun_by is None


def test_a_layout_says_where_its_generation_and_those_before_it_have_diverted_to(world: World) -> None:
    """A change by hand copies nothing, and forgets nothing."""
    flow = FlowIdentity(FLOW, 2, "0" * 64, letters="letters-2")
    world.values = {names.LAYOUT: replace(LAYOUT, letters={"letters": 7}).to_json()}
    clusters = cluster_in(world, "east"), cluster_in(world)
    assert Leader(flow, *clusters).seize().letters == {"letters": 7}
    assert Leader(flow, *clusters).start().letters == {"letters": 7, "letters-2": 9}


def test_until_it_is_ready_a_layout_says_how_whoever_may_still_copy_does(world: World) -> None:
    """The file may have another mode by now: who is fenced is the run before, or that of an unready one."""
    once_more, once = (FlowIdentity(FLOW, 2, "0" * 64, mode) for mode in ("at_least_once", "exactly_once"))
    clusters = cluster_in(world, "east"), cluster_in(world)
    world.values = {names.LAYOUT: replace(LAYOUT, delivery="at_least_once").to_json()}
    for _ in range(2):
        assert Leader(once, *clusters).seize().delivery == "at_least_once"
    world.wrong["fence 0"] = [NeedsOperator("not granted")]
    with pytest.raises(NeedsOperator):
        Leader(once, *clusters).start()
    assert Layout.from_json(world.values[names.LAYOUT]).delivery == "at_least_once"
    assert Leader(once, *clusters).start().delivery == "exactly_once"
    assert Leader(once_more, *clusters).seize().delivery == "exactly_once"


def test_bound_over_an_unready_generation_is_fenced(world: World) -> None:
    """FENCE_WHAT_AN_UNREADY_START_LEFT, through the whole start."""
    world.values = {names.LAYOUT: replace(LAYOUT, lanes=1, fence_up_to=4, ready=False).to_json()}
    layout = leader(world, lanes=1).start()
    fenced = [entry for entry in world.log if entry.startswith("fence")]
    assert fenced == [*(f"fence {n}" for n in range(4)), "fence map"]
    assert layout.fence_up_to == 4


@pytest.mark.parametrize("lost", ["commit unready", "commit ready"])
@pytest.mark.parametrize("landed", [False, True], ids=["not landed", "landed"])
def test_a_generation_whose_commit_is_unknown_is_never_resumed(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: str, landed: bool
) -> None:
    """UNCONFIRMED_IS_NEVER_RESUMED: begin again at 1, with a new generation and a new run."""
    made = leader(world)
    commit = FakeProducer.commit
    left = [1]

    def unknown(producer: FakeProducer) -> None:
        records = dict(producer._records)
        is_it = left[0] and records.get(names.LAYOUT, {}).get("ready") == (lost == "commit ready")
        if not is_it:
            commit(producer)
            return
        left[0] = 0
        if landed:
            commit(producer)
        raise MustReset("the answer is lost")

    monkeypatch.setattr(FakeProducer, "commit", unknown)
    layout = made.start()
    runs = layout.run
    assert world.log.count("init leader") == 2
    assert layout.generation == (2 if landed or lost == "commit ready" else 1)
    assert world.values[names.LAYOUT]["run"] == runs and world.values[names.LAYOUT]["ready"]


def test_a_starter_overtaken_while_starting_is_fenced_and_leaves_the_id_alone(world: World) -> None:
    """Read the layout without InitProducerId; it belongs to another."""
    made = leader(world)
    world.wrong["commit ready"] = [MustReset("fenced")]
    world.wrong["fence 1"] = [None]

    def overtake(transactional_id: str, _timeout_ms: int) -> InitResult:
        world.values[names.LAYOUT] = OTHER.to_json()
        return InitResult(0, 1, 1)

    made._target.init_producer_id = overtake  # pyrefly: ignore[bad-assignment,method-assign]
    with pytest.raises(Fenced):
        made.start()
    assert world.log.count("init leader") == 1


def test_a_confirmed_run_reads_before_and_after_it_asks_for_its_id_again(world: World) -> None:
    """READ_AGAIN_BEFORE_ENROLLING: without the second read it would enrol over a newer generation."""
    made = leader(world)
    made.start()
    world.log.clear()
    world.wrong["send positions"] = [MustReset("fenced")]
    made.note("positions", {})
    assert told(world) == [
        "send positions",
        "read layout and wait",
        "init leader",
        "mark layout",
        "read layout and wait",
        "send positions",
        "commit",
    ]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_confirmed_run_whose_layout_is_gone_stops(
    world: World, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Before: without InitProducerId. After: without writing."""
    made = leader(world)
    made.start()
    world.log.clear()
    world.wrong["send positions"] = [MustReset("fenced")]
    if when == "before":
        world.values[names.LAYOUT] = OTHER.to_json()
    else:
        init = FakeProducer.init

        def overtaken(producer: FakeProducer) -> bool:
            world.values[names.LAYOUT] = OTHER.to_json()
            return init(producer)

        monkeypatch.setattr(FakeProducer, "init", overtaken)
    with pytest.raises(Fenced):
        made.note("positions", {})
    assert world.log.count("init leader") == (when == "after")
    assert world.log.count("send positions") == 1


def test_enrolment_is_one_transaction_and_is_not_repeated_by_itself(world: World) -> None:
    """ENROL_WITHOUT_PROGRESS_ONLY: only a plan from live state may write start offsets again."""
    made = leader(world)
    made.start()
    world.log.clear()
    enrolment = Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 0}, 1)
    new = {TopicPartition("t", 0): OffsetToCommit(0, -1, "")}
    made.enrol([enrolment], new)
    # The second transaction cannot begin before the markers of the first are written: readers wait for none.
    assert told(world) == ["send topic/t", "offsets", "commit", "offsets", "abort"]
    world.log.clear()
    world.wrong["commit"] = [MustReset("the answer is lost")]
    with pytest.raises(Retriable, match="planned again"):
        made.enrol([enrolment], new)
    assert told(world).count("offsets") == 1


def test_an_enrolment_that_is_done_is_not_undone_by_waiting_for_its_markers(world: World) -> None:
    """Whoever loses its id then has it given anew, which waits for them as well."""
    made = leader(world)
    made.start()
    world.log.clear()
    world.wrong["abort"] = [MustReset("the answer is lost")]
    made.enrol([Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 0}, 1)], {})
    assert told(world)[:4] == ["send topic/t", "commit", "offsets", "abort"]
    assert told(world).index("init leader") > 3


def test_seize_leaves_the_flow_not_ready(world: World) -> None:
    """SEED_AS_A_NEW_GENERATION: nobody may copy between an operator's position and the next start."""
    made = leader(world)
    made.seize()
    assert "commit ready" not in world.log and world.log.index("commit unready") < world.log.index("fence 0")


def test_whoever_seizes_a_flow_has_read_that_it_did(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is slow to show the layout makes nobody believe that another start has taken over."""
    made = leader(world)
    made.seize()
    monkeypatch.setattr(made.state, "poll", lambda: False)
    made.check()


def test_whoever_seizes_a_flow_plans_with_a_coordinator_that_has_read_its_log(world: World) -> None:
    """It takes a write, of which nothing is left; where it does not, the command is run again."""
    leader(world).seize()
    assert told(world)[-3:-1] == ["offsets", "abort"]
    world.wrong["offsets"] = [MustReset("not ready")]
    with pytest.raises(Retriable, match="not ready"):
        leader(world).seize()
