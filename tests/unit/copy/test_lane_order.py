"""The order of the protocol's steps (docs/protocol.md), taken down from a lane between fakes.

What a real broker shows only once in a thousand runs is fixed here: which read comes before which
request, and which of them waits for the LSO.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceover.copy import lane as lane_module
from onceover.copy.lane import LaneTask
from onceover.copy.loop import CopySettings, Until
from onceover.copy.review import Reviewed
from onceover.errors import Fenced, MustReset
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.model import TopicPartition
from onceover.resume import told as told_module
from onceover.state import names
from onceover.state.records.layout import Layout
from onceover.wire.progress import ProgressMeta
from tests.unit.copy.protocol import (
    ME,
    OTHER,
    FakeProducer,
    FakeState,
    World,
    cluster_in,
    faked_world,
    told,
)
from tests.unit.state.records.test_layout import LAYOUT

Progress = Each[TopicPartition, CommittedOffset]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return faked_world(monkeypatch)


def lane(world: World, monkeypatch: pytest.MonkeyPatch) -> LaneTask:
    """Return a lane's task; its session ends when it has read progress and stops."""

    class NoFetcher:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def close(self) -> None:
            pass

    class NoLag(NoFetcher):
        pass

    class EndingReview:
        def __init__(self, *_: object) -> None:
            pass

        def begin(self, *_: object) -> None:
            raise EndOfTest

    def progress(_target: object, _flow: object, _owned: object) -> Progress:
        world.note("fetch progress")
        return Each()

    monkeypatch.setattr(lane_module, "Fetcher", NoFetcher)
    monkeypatch.setattr(lane_module, "LagReporter", NoLag)
    monkeypatch.setattr(told_module, "read_progress", progress)
    monkeypatch.setattr(lane_module, "Reviewer", EndingReview)
    source, target = cluster_in(world, "east"), cluster_in(world)
    settings = CopySettings(1.0, 1, None)
    return LaneTask(ME, source, target, lambda: settings, lambda: 1 << 24, 5.0)


class EndOfTest(Exception):
    """The steps that are looked at have been taken."""


def run(task: LaneTask) -> None:
    """Run the lane until its steps are taken."""
    with pytest.raises(EndOfTest):
        list(task.run(Until(float("inf"))))


def test_lane_reads_owns_reads_again_and_only_then_fetches_progress(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 4 and 5; the second read waits for the LSO (`SECOND_LOOK`)."""
    world.values = {names.LAYOUT: LAYOUT.to_json()}
    run(lane(world, monkeypatch))
    assert told(world) == [
        "read requests and wait",
        "read layout",
        "init 0",
        "mark layout",
        "read layout and wait",
        "read requests and wait",
        "fetch progress",
        "read requests and wait",
    ]


def test_lane_that_is_told_the_layout_of_before_stops_behind_its_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LANE_READS_UP_TO_A_MARK`: nobody of a generation with fewer lanes fences this id a second time."""
    world.values, world.told = {names.LAYOUT: OTHER.to_json()}, {names.LAYOUT: LAYOUT.to_json()}
    with pytest.raises(Fenced):
        run(lane(world, monkeypatch))
    assert told(world)[-3:] == ["init 0", "mark layout", "read layout and wait"]


def test_lane_that_is_told_a_layout_before_its_own_looks_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started once its own could be read: nobody has taken over, and the run goes on."""
    world.values = {names.LAYOUT: LAYOUT.to_json()}
    world.told = {names.LAYOUT: replace(LAYOUT, generation=LAYOUT.generation - 1, run="c" * 16).to_json()}
    read = FakeState.catch_up

    def until_it_hears(state: FakeState, *, wait: bool = True) -> dict[str, object]:
        found = read(state, wait=wait)
        if world.log.count("read layout") == 2:
            world.told = None
        return found

    monkeypatch.setattr(FakeState, "catch_up", until_it_hears)
    run(lane(world, monkeypatch))
    asked = [entry for entry in told(world) if "requests" not in entry]
    assert asked[:4] == ["read layout", "read layout", "read layout", "init 0"]


def test_lane_that_begins_behind_a_stop_takes_nothing_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark begins another batch before it hears of the end, and is killed in it."""
    world.values = {names.LAYOUT: LAYOUT.to_json(), names.REQUEST_STOP: {"run": LAYOUT.run}}
    assert list(lane(world, monkeypatch).run(Until(float("inf")))) == []
    assert told(world) == ["read requests and wait"]


def test_lane_reads_the_layout_before_every_attempt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after CONCURRENT_TRANSACTIONS: a loser must not disturb the winner."""
    world.values, world.not_yet = {names.LAYOUT: LAYOUT.to_json()}, 2
    run(lane(world, monkeypatch))
    asked = [entry for entry in told(world) if "requests" not in entry]
    assert asked[:6] == ["read layout", "init 0"] * 3


def test_lane_hears_a_stop_while_an_older_transaction_is_being_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may never be: a broker does not try a marker again that did not fit."""
    world.values, world.not_yet = {names.LAYOUT: LAYOUT.to_json()}, 1_000_000
    init = FakeProducer.init

    def refused(producer: FakeProducer) -> bool:
        if world.log.count("init 0") == 2:
            world.values[names.REQUEST_STOP] = {"run": LAYOUT.run}
        return init(producer)

    monkeypatch.setattr(FakeProducer, "init", refused)
    assert list(lane(world, monkeypatch).run(Until(float("inf")))) == []
    assert world.log.count("init 0") == 3 and "fetch progress" not in world.log


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
    once = [
        "read requests and wait",
        "read layout",
        "init 0",
        "mark layout",
        "read layout and wait",
        "read requests and wait",
        "fetch progress",
    ]
    assert told(world) == [*once * 3, "read requests and wait"]
    assert world.log.count("drop 0") == 3


def test_bandwidth_that_was_used_is_not_forgotten_by_a_reset(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer may be worth minutes of a very low limit."""
    seen = []

    class Loop:
        def __init__(self, **given: object) -> None:
            seen.append(given["throttle"])

        def claim(self) -> None:
            if len(seen) > 1:
                raise EndOfTest
            raise MustReset("lost")

    world.values = {names.LAYOUT: LAYOUT.to_json()}
    task = lane(world, monkeypatch)

    class EmptyReview:
        def __init__(self, *_: object) -> None:
            pass

        def begin(self, *_: object) -> Reviewed:
            return Reviewed()

    monkeypatch.setattr(lane_module, "Reviewer", EmptyReview)
    monkeypatch.setattr(lane_module, "resting_progress", lambda *_: {})
    monkeypatch.setattr(lane_module, "CopyLoop", Loop)
    run(task)
    assert len(seen) == 2 and seen[0] is seen[1]


@pytest.mark.parametrize(
    ("generation", "instance", "stops"),
    [(7, (1, 2), True), (7, (2, 0), True), (7, (1, 1), False), (7, (1, 0), False), (6, (9, 9), False)],
    ids=["attempt", "batch", "own", "lower", "older generation"],
)
def test_higher_instances_of_the_same_generation_win(
    world: World, monkeypatch: pytest.MonkeyPatch, generation: int, instance: tuple[int, int], stops: bool
) -> None:
    """Compared within the generation only (``INSTANCES_WITHIN_A_GENERATION``)."""
    world.values = {names.LAYOUT: LAYOUT.to_json()}
    task = lane(world, monkeypatch)
    meta = ProgressMeta("s", "t", 0, 0, generation, instance).encode()
    monkeypatch.setattr(
        told_module,
        "read_progress",
        lambda *_: Each({TopicPartition("t", 0): CommittedOffset(0, 5, 0, meta)}),
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
