"""The order of DESIGN 5's steps, taken down from leader and lane between fakes.

What a real broker shows only once in a thousand runs is fixed here: which read comes before which
request, and which of them waits for the LSO.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from onceover.engine import lane as lane_module
from onceover.engine import leader as leader_module
from onceover.engine import names
from onceover.engine.copyloop import CopySettings, LaneIdentity, Until
from onceover.engine.enrolment import Enrolment
from onceover.engine.lane import LaneTask
from onceover.engine.layout import Layout
from onceover.engine.leader import FlowIdentity, Leader
from onceover.errors import Fenced, MustReset, Retriable
from onceover.kafka.calls import CommittedOffset, InitResult, OffsetToCommit
from onceover.kafka.ports import Acknowledged, Outgoing
from onceover.model import TopicPartition
from onceover.wire.progress import ProgressMeta
from onceover.wire.records import decode
from tests.unit.engine.test_layout import LAYOUT

FLOW = "f"
ME = LaneIdentity(FLOW, LAYOUT.generation, LAYOUT.run, 0, 1, (1, 1))
OTHER = replace(LAYOUT, generation=8, run="b" * 16)


class World:
    """What is in the state topic, what was asked in which order, and what goes wrong."""

    def __init__(self, layout: Layout | None = None) -> None:
        self.values: dict[str, Any] = {} if layout is None else {names.LAYOUT: layout.to_json()}
        self.log: list[str] = []
        self.wrong: dict[str, list[Exception | None]] = {}
        self.not_yet = 0

    def note(self, what: str) -> None:
        self.log.append(what)
        if self.wrong.get(what):
            problem = self.wrong[what].pop(0)
            if problem is not None:
                raise problem


class FakeState:
    """StateLog, by what is read and whether it waits."""

    def __init__(self, world: World, partition: int) -> None:
        self._world, self._name = world, "layout" if partition == names.STATE_LEADER else "requests"
        self.values: dict[str, Any] = {}

    def catch_up(self, *, wait: bool = True) -> dict[str, Any]:
        self._world.note(f"read {self._name}{' and wait' if wait else ''}")
        self.values = dict(self._world.values)
        return self.values

    def poll(self) -> bool:
        self.values = dict(self._world.values)
        return True

    def close(self) -> None:
        pass


class FakeProducer:
    """TransactionalProducer, by transactional.id."""

    in_transaction = False

    def __init__(self, world: World, transactional_id: str) -> None:
        self._world, self._id = world, transactional_id.rsplit(".", 1)[1]
        self._records: dict[str, Any] = {}

    def init(self) -> bool:
        self._world.note(f"init {self._id}")
        if self._world.not_yet:
            self._world.not_yet -= 1
            return False
        return True

    def send(self, batches: Sequence[Outgoing]) -> None:
        for batch in batches:
            for record in decode(batch.header, memoryview(batch.batch)):
                assert record.key is not None and record.value is not None
                self._records[record.key.decode()] = json.loads(record.value)
        self._world.note(f"send {', '.join(self._records)}")

    def drain(self, keep: int = 0) -> list[Acknowledged]:
        return []

    def add_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit]) -> None:
        self._world.note("offsets")

    def commit(self) -> None:
        ready = [v["ready"] for k, v in self._records.items() if k == names.LAYOUT]
        self._world.note(f"commit{' ready' if ready == [True] else ' unready' if ready else ''}")
        self._world.values.update(self._records)
        self._records = {}

    def close(self) -> None:
        self._world.note(f"drop {self._id}")


class FakeCluster:
    """Fencing and reading progress."""

    alias = "west"

    def __init__(self, world: World) -> None:
        self._world = world
        self.config = None

    def cluster_id(self) -> str:
        return "S" if self.alias == "east" else "T"

    def retry(self, attempt: Any, _deadline: object = None) -> Any:
        for _ in range(20):
            try:
                return attempt()
            except Retriable:
                continue
        raise AssertionError("retried for ever")

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> InitResult:
        self._world.note(f"fence {transactional_id.rsplit('.', 1)[1]}")
        return InitResult(0, 1, 1)

    def committed(self, group: str, partitions: object) -> dict[TopicPartition, CommittedOffset]:
        self._world.note("fetch progress")
        return {}

    def close(self) -> None:
        pass


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    for module in (lane_module, leader_module):
        monkeypatch.setattr(module, "StateLog", lambda _c, _t, partition, *_: FakeState(world, partition))
        monkeypatch.setattr(module, "TransactionalProducer", lambda _c, tid, **_: FakeProducer(world, tid))
    monkeypatch.setattr(leader_module, "_RECOVERY_PAUSE_S", (0.0, 0.0))
    monkeypatch.setattr("onceover.kafka.backoff.time.sleep", lambda _: None)
    return world


def leader(world: World, lanes: int = 2) -> Leader:
    """Return a leader between source S and target T."""
    source, target = FakeCluster(world), FakeCluster(world)
    source.alias = "east"
    return Leader(FlowIdentity(FLOW, lanes, "0" * 64), source, target)  # type: ignore[arg-type]


def told(world: World) -> list[str]:
    """Return what was asked, without the dropping of producers."""
    return [entry for entry in world.log if not entry.startswith("drop")]


# ---- the leader


def test_start_is_init_read_unready_fence_ready_in_this_order(world: World) -> None:
    """Steps 1 and 2: fencing before unready is committed would let an old lane commit after it."""
    world.values = {names.LAYOUT: replace(LAYOUT, lanes=3).to_json()}
    layout = leader(world).start()
    assert told(world) == [
        "init leader",
        "read layout and wait",
        "send layout",
        "commit unready",
        "fence 0",
        "fence 1",
        "fence 2",
        "send layout",
        "commit ready",
        "read layout and wait",
    ]
    assert (layout.generation, layout.lanes, layout.fence_up_to, layout.ready) == (8, 2, 3, True)
    assert layout.run != LAYOUT.run


def test_bound_over_an_unready_generation_is_fenced(world: World) -> None:
    """Model Mj, through the whole start."""
    world.values = {names.LAYOUT: replace(LAYOUT, lanes=1, fence_up_to=4, ready=False).to_json()}
    layout = leader(world, lanes=1).start()
    assert [entry for entry in world.log if entry.startswith("fence")] == [f"fence {n}" for n in range(4)]
    assert layout.fence_up_to == 4


@pytest.mark.parametrize("lost", ["commit unready", "commit ready"])
@pytest.mark.parametrize("landed", [False, True], ids=["not landed", "landed"])
def test_a_generation_whose_commit_is_unknown_is_never_resumed(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: str, landed: bool
) -> None:
    """Model M7: begin again at 1, with a new generation and a new run."""
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

    made._target.init_producer_id = overtake  # type: ignore[method-assign, assignment]
    with pytest.raises(Fenced):
        made.start()
    assert world.log.count("init leader") == 1


def test_a_confirmed_run_reads_before_and_after_it_asks_for_its_id_again(world: World) -> None:
    """Model Mk: without the second read it would enrol over a newer generation."""
    made = leader(world)
    made.start()
    world.log.clear()
    world.wrong["send positions"] = [MustReset("fenced")]
    made.note("positions", {})
    assert told(world) == [
        "send positions",
        "read layout and wait",
        "init leader",
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
    """Model Md: only a plan from live state may write start offsets again."""
    made = leader(world)
    made.start()
    world.log.clear()
    enrolment = Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 0}, 1)
    new = {TopicPartition("t", 0): OffsetToCommit(0, -1, "")}
    made.enrol([enrolment], new)
    assert told(world) == ["send topic/t", "offsets", "commit"]
    world.log.clear()
    world.wrong["commit"] = [MustReset("the answer is lost")]
    with pytest.raises(Retriable, match="planned again"):
        made.enrol([enrolment], new)
    assert told(world).count("offsets") == 1


def test_seize_leaves_the_flow_not_ready(world: World) -> None:
    """Model Mg: nobody may copy between an operator's position and the next start."""
    made = leader(world)
    made.seize()
    assert "commit ready" not in world.log and world.log.index("commit unready") < world.log.index("fence 0")


# ---- the lane


def lane(world: World, monkeypatch: pytest.MonkeyPatch) -> LaneTask:
    """Return a lane's task; its session ends when it has read the progress."""

    class NoFetcher:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def close(self) -> None:
            pass

    class NoLag(NoFetcher):
        pass

    def progress(_target: object, _flow: object, _owned: object) -> dict[TopicPartition, CommittedOffset]:
        world.note("fetch progress")
        return {}

    def gather(*_: object) -> tuple[dict[str, object], dict[str, object]]:
        raise EndOfTest

    monkeypatch.setattr(lane_module, "Fetcher", NoFetcher)
    monkeypatch.setattr(lane_module, "LagReporter", NoLag)
    monkeypatch.setattr(lane_module, "read_progress", progress)
    monkeypatch.setattr(lane_module, "gather", gather)
    cluster = FakeCluster(world)
    settings = CopySettings(1.0, 1, None)
    return LaneTask(ME, cluster, cluster, lambda: settings, 1 << 24, 5.0)  # type: ignore[arg-type]


class EndOfTest(Exception):
    """The steps that are looked at have been taken."""


def run(task: LaneTask) -> None:
    """Run the lane until its steps are taken."""
    with pytest.raises(EndOfTest):
        list(task.run(Until(float("inf"))))


def test_lane_reads_owns_reads_again_and_only_then_fetches_progress(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 4 and 5; the second read waits for the LSO (model: M1, M3)."""
    world.values = {names.LAYOUT: LAYOUT.to_json()}
    run(lane(world, monkeypatch))
    assert told(world) == [
        "read layout",
        "init 0",
        "read layout and wait",
        "read requests and wait",
        "fetch progress",
    ]


def test_lane_reads_the_layout_before_every_attempt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after CONCURRENT_TRANSACTIONS: a loser must not disturb the winner."""
    world.values, world.not_yet = {names.LAYOUT: LAYOUT.to_json()}, 2
    run(lane(world, monkeypatch))
    assert told(world)[:6] == ["read layout", "init 0"] * 3


@pytest.mark.parametrize("seen", [None, OTHER, replace(LAYOUT, run="b" * 16), replace(LAYOUT, ready=False)])
def test_lane_of_another_generation_never_asks_for_its_id(
    world: World, monkeypatch: pytest.MonkeyPatch, seen: Layout | None
) -> None:
    """Nothing is disturbed."""
    world.values = {} if seen is None else {names.LAYOUT: seen.to_json()}
    with pytest.raises(Fenced):
        list(lane(world, monkeypatch).run(Until(float("inf"))))
    assert not any(entry.startswith("init") for entry in world.log)


@pytest.mark.parametrize("after", [1, 2])
def test_lane_fenced_while_it_asks_for_its_id_stops(
    world: World, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Between two attempts, or between the last attempt and the second read."""
    world.values, world.not_yet = {names.LAYOUT: LAYOUT.to_json()}, 2 - after
    init, left = FakeProducer.init, [1]

    def overtaken(producer: FakeProducer) -> bool:
        left[0] -= 1
        if left[0] == 0:
            world.values[names.LAYOUT] = OTHER.to_json()
        return init(producer)

    monkeypatch.setattr(FakeProducer, "init", overtaken)
    with pytest.raises(Fenced):
        list(lane(world, monkeypatch).run(Until(float("inf"))))
    assert world.log.count("init 0") == 1 and "fetch progress" not in world.log


def test_lane_begins_at_the_first_read_after_any_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is dropped, nothing of the old attempt is believed."""
    world.values = {names.LAYOUT: LAYOUT.to_json()}
    world.wrong["fetch progress"] = [MustReset("lost"), MustReset("lost")]
    run(lane(world, monkeypatch))
    once = ["read layout", "init 0", "read layout and wait", "read requests and wait", "fetch progress"]
    assert told(world) == once * 3
    assert world.log.count("drop 0") == 3


@pytest.mark.parametrize(
    ("generation", "instance", "stops"),
    [(7, (1, 2), True), (7, (2, 0), True), (7, (1, 1), False), (7, (1, 0), False), (6, (9, 9), False)],
    ids=["attempt", "batch", "own", "lower", "older generation"],
)
def test_higher_instances_of_the_same_generation_win(
    world: World, monkeypatch: pytest.MonkeyPatch, generation: int, instance: tuple[int, int], stops: bool
) -> None:
    """Compared within the generation only (model: Mi)."""
    world.values = {names.LAYOUT: LAYOUT.to_json()}
    task = lane(world, monkeypatch)
    meta = ProgressMeta("s", "t", 0, 0, generation, instance).encode()
    monkeypatch.setattr(
        lane_module, "read_progress", lambda *_: {TopicPartition("t", 0): CommittedOffset(0, 5, 0, meta)}
    )
    if stops:
        assert list(task.run(Until(float("inf")))) == []
    else:
        run(task)


def test_ended_run_ends_its_lanes_quietly(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A straggler of a run that is over copies nothing more."""
    world.values = {names.LAYOUT: LAYOUT.as_ended(5).to_json()}
    assert list(lane(world, monkeypatch).run(Until(float("inf")))) == []
    assert "init 0" not in world.log
