"""Chaos: everything that may die, pause or come twice does, at random moments, while adversaries produce.

``ONCEOVER_CHAOS_SEED`` repeats a run (the seed is printed), ``ONCEOVER_CHAOS_ROUNDS`` makes it longer.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from onceover.embed.kafka import KafkaCluster
from onceover.engine.requests import request_stop
from onceover.errors import OnceoverError
from onceover.kafka import calls
from onceover.model import TopicPartition
from onceover.wiring.flows import open_clusters
from tests.support.adversary import Traffic
from tests.support.clusters import ClusterFactory
from tests.support.feeds import PARTITIONS
from tests.support.flowcase import FENCED, KILLED, TIMEOUT_S, FlowCase, assert_one_generation_after_the_other
from tests.support.flows import FlowProcess
from tests.support.repeats import count_repeats_in_any_order
from tests.support.wait import wait_until

# About 30 s each on two cores: five minutes in all.
ROUNDS = int(os.environ.get("ONCEOVER_CHAOS_ROUNDS", "8"))
SEED = int(os.environ.get("ONCEOVER_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
ACTIONS_PER_ROUND = 5
# Traffic leaves its transactions open when its connection breaks; they time out after 60 s.
_SOURCE_SETTLES_S = 120.0
_TEMPORARY = 5

pytestmark = [pytest.mark.soak, pytest.mark.timeout(ROUNDS * 300)]


class Chaos:
    """The flow's processes and both brokers, and what may happen to them."""

    def __init__(self, case: FlowCase, source: KafkaCluster, target: KafkaCluster, seed: int) -> None:
        self.case = case
        self.rng = random.Random(seed)
        self.source, self.target = source, target
        self.processes: list[FlowProcess] = []
        self.told: list[str] = []

    def start(self) -> FlowProcess:
        """Start one more process of the flow."""
        process = self.case.process(forever=True, seconds=600)
        self.processes.append(process)
        return process

    def act(self) -> None:
        """Do one thing, then see that somebody copies."""
        actions: list[Callable[[], None]] = [
            self.kill_flow,
            self.pause_flow,
            self.pause_flow_while_another_starts,
            self.two_launches,
            self.kill_source,
            self.kill_target,
        ]
        action = self.rng.choice(actions)
        self.told.append(action.__name__)
        self.let_it_run(0.2, 4.0)
        action()
        if not any(process.child.alive for process in self.processes):
            self.start()

    def let_it_run(self, least_s: float, most_s: float) -> None:
        """Let a random time pass: the moment is what chaos is about."""
        threading.Event().wait(self.rng.uniform(least_s, most_s))

    def kill_flow(self) -> None:
        for process in self.processes:
            process.kill()

    def pause_flow(self) -> None:
        for process in self.processes:
            process.child.pause()
        # Sometimes longer than a lane's transaction lives (15 s).
        self.let_it_run(*self.rng.choice([(0.05, 1.0), (0.05, 3.0), (15.5, 17.0)]))
        for process in self.processes:
            process.child.resume()

    def pause_flow_while_another_starts(self) -> None:
        old = list(self.processes)
        for process in old:
            process.child.pause()
        self.start()
        self.let_it_run(0.5, 6.0)
        for process in old:
            process.child.resume()

    def two_launches(self) -> None:
        self.start()
        self.start()

    def kill_source(self) -> None:
        self._kill(self.source)

    def kill_target(self) -> None:
        self._kill(self.target)

    def _kill(self, cluster: KafkaCluster) -> None:
        [node] = cluster.nodes
        node.kill()
        self.let_it_run(0.1, 3.0)
        node.start()

    def settle(self) -> None:
        """End every process, then let a last, undisturbed run copy what is there."""
        wait_until(lambda: nothing_open(self.case), _SOURCE_SETTLES_S, "the source's transactions end")
        deadline_s = time.monotonic() + TIMEOUT_S
        while any(process.child.alive for process in self.processes) and time.monotonic() < deadline_s:
            self.ask_to_stop()
        for process in self.processes:
            assert not process.child.alive, f"does not end:\n{process.child.tail(60)}"
            code = process.wait(TIMEOUT_S)
            assert code in (0, FENCED, _TEMPORARY, KILLED), process.child.tail(60)
        self.processes.clear()
        self.case.flow().copy()

    def assert_complete(self) -> None:
        """Fail unless the target holds what the flow's delivery promises."""
        case = self.case
        if case.flow().watch.run.delivery == "exactly_once":
            case.assert_complete()
            return
        repeats = count_repeats_in_any_order(case.source, case.target, [case.topic])
        self.told.append(f"{repeats} repeats so far")

    def ask_to_stop(self) -> None:
        """Ask whichever run is the newest now; one that is still starting becomes the newest later."""
        _, target = open_clusters(self.case.flow().watch.flow)
        with target, suppress(OnceoverError):
            request_stop(target, self.case.name, wait_s=2.0)
        self.let_it_run(0.2, 0.3)

    def close(self) -> None:
        """Leave nothing running."""
        for process in self.processes:
            process.kill()


def nothing_open(case: FlowCase) -> bool:
    """Tell whether readers of the source see everything."""
    source, _ = open_clusters(case.flow().watch.flow)
    partitions = [TopicPartition(case.topic, number) for number in range(PARTITIONS)]
    try:
        with source:
            stable = source.list_offsets(partitions, calls.LATEST)
            return stable == source.list_offsets(partitions, calls.LATEST, calls.READ_UNCOMMITTED)
    except OnceoverError:
        return False


@pytest.fixture
def clusters(start_cluster: ClusterFactory) -> tuple[KafkaCluster, KafkaCluster]:
    return start_cluster("source"), start_cluster("target")


@pytest.fixture(params=["exactly_once", "at_least_once"])
def chaos(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    unique_name: str,
    clusters: tuple[KafkaCluster, KafkaCluster],
) -> Iterator[Chaos]:
    source, target = clusters
    case = FlowCase(tmp_path, unique_name, source, target, delivery=request.param)
    chaos = Chaos(case, source, target, SEED)
    yield chaos
    chaos.close()
    case.close()


def test_delivery_is_kept_whatever_dies(chaos: Chaos, capsys: pytest.CaptureFixture[str]) -> None:
    """After every round the map is gapless and in order, and both sides are equal by the judge.

    Equal is each record once, and exactly those that progress stands for; at least once: each at least once.
    """
    case = chaos.case
    for number in range(ROUNDS):
        with capsys.disabled():
            sys.stdout.write(f"\nchaos seed {SEED}, round {number + 1} of {ROUNDS} ")
            sys.stdout.flush()
        chaos.told.clear()
        topics = {case.topic: PARTITIONS}
        with Traffic(case.source["bootstrap.servers"], topics, seed=SEED % 10_000 + number):
            chaos.start()
            for _ in range(ACTIONS_PER_ROUND):
                chaos.act()
        try:
            chaos.settle()
            chaos.assert_complete()
            assert_one_generation_after_the_other(case)
        except AssertionError as error:
            raise AssertionError(
                f"seed {SEED}, round {number + 1}: {', '.join(chaos.told)}: {error}"
            ) from error
