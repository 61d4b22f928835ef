"""Chaos: everything that may die, stand still, be cut off or come twice does, at random moments.

``ONCEOVER_CHAOS_SEED`` repeats a run (the seed is printed), ``ONCEOVER_CHAOS_ROUNDS`` makes it longer,
``ONCEOVER_CHAOS_OUT`` names a folder for histories and for what was done.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.nemeses import kill_copy, stop_and_start
from tests.chaos.rounds import Tally, judge, play, settle, write_tally
from tests.chaos.world import SHAPES, World
from tests.support.brokers.clusters import ClusterFactory

ROUNDS = int(os.environ.get("ONCEOVER_CHAOS_ROUNDS", "8"))
STARTS = 100
SEED = int(os.environ.get("ONCEOVER_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
OUT = Path(os.environ["ONCEOVER_CHAOS_OUT"]) if "ONCEOVER_CHAOS_OUT" in os.environ else None
WORLDS = [("exactly_once", shape) for shape in SHAPES] + [("at_least_once", "single")]

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(max(1800, ROUNDS * 300)),
]


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    start_cluster: ClusterFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    delivery, shape = request.param
    folder = OUT / f"{SEED}-{request.node.name}" if OUT else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("ONCEOVER_HOME", str(home))
    world = World(folder, home, start_cluster, SHAPES[shape], SEED, delivery)
    yield world
    world.close()


@pytest.fixture
def tally(request: pytest.FixtureRequest, world: World) -> Iterator[Tally]:
    """What was done; written down where a folder is named for it, whatever came of it."""
    tally = Tally()
    yield tally
    if OUT:
        write_tally(tally, request.node.name, OUT / f"{SEED}-{request.node.name}.json")


def tell(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\nchaos seed {SEED}, {text} ")
        sys.stdout.flush()


@pytest.mark.parametrize("world", WORLDS, indirect=True, ids="-".join)
def test_nothing_is_lost_doubled_or_mixed_up_whatever_happens(
    world: World, tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    """After every round both sides are judged with everything that the clients were told."""
    for number in range(ROUNDS):
        tell(f"{world.shape.name}, round {number + 1} of {ROUNDS}", capsys)
        play(world, tally)
        if world.hanging:
            break


@pytest.mark.parametrize("world", WORLDS[:1], indirect=True, ids="-".join)
def test_a_hundred_starts_and_ends(world: World, tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    """In order and with -9 in turn, in the middle of a start too, while clients send."""
    world.begin()
    for number in range(STARTS):
        if number % 10 == 0:
            tell(f"start {number + 1} of {STARTS}", capsys)
        world.start()
        world.let_it_run(0.3, 2.5)
        if number % 2:
            stop_and_start(world)
        kill_copy(world)
        tally.faults["start and end"] += 1
    settle(world)
    judge(world, tally)


@pytest.mark.parametrize("world", [("exactly_once", "three")], indirect=True, ids="-".join)
@pytest.mark.parametrize("bounced", ["brokers", "copiers"])
@pytest.mark.parametrize("way", ["clean", "hard"])
def test_kafkas_own_test_of_transactions(world: World, tally: Tally, bounced: str, way: str) -> None:
    """Numbers are copied while everything bounces in turn, in order or with -9: each is there exactly once.

    After Kafka's system test ``transactions_test.py``; the transactional message copier is a flow.
    """
    bounce = bounce_brokers if bounced == "brokers" else bounce_copiers
    world.begin()
    world.start()
    bounce(world, tally, way)
    settle(world)
    judge(world, tally)


def bounce_brokers(world: World, tally: Tally, way: str) -> None:
    """Every broker of both sides, one after the other."""
    for side in (world.source, world.target):
        for node in side.cluster.nodes:
            (node.stop if way == "clean" else node.kill)()
            node.start()
            tally.faults[f"broker bounced, {way}"] += 1
            if not world.alive():
                world.start()


def bounce_copiers(world: World, tally: Tally, way: str) -> None:
    """As often as Kafka's test does."""
    for _ in range(3):
        world.let_it_run(2.0, 5.0)
        (stop_and_start if way == "clean" else kill_copy)(world)
        tally.faults[f"copier bounced, {way}"] += 1
        if not world.alive():
            world.start()
