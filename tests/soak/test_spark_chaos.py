"""Chaos with Spark in between: workers, drivers and JVMs are killed and frozen, runs are started twice.

``ONCEOVER_CHAOS_SEED`` repeats a run (the seed is printed), ``ONCEOVER_CHAOS_ROUNDS`` makes it longer.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.adversary import Adversary, Traffic
from tests.support.clusters import SharedCluster
from tests.support.flows import InlineFlow, assert_same, write_flow
from tests.support.replicate import START_S, Replicate, run_cli
from tests.support.wait import wait_until

ROUNDS = int(os.environ.get("ONCEOVER_CHAOS_ROUNDS", "6"))
SEED = int(os.environ.get("ONCEOVER_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
PARTITIONS = 4

pytestmark = [pytest.mark.soak, pytest.mark.timeout(ROUNDS * 600)]


class SparkChaos:
    """The flow's newest run, and what may happen to it."""

    def __init__(self, flow: Path, home: Path, seed: int) -> None:
        self.flow = flow
        self.home = home
        self.rng = random.Random(seed)
        self.run = Replicate(flow, home, "--until", "forever")
        self.run.copying()

    def act(self) -> None:
        """Do one thing."""
        action = self.rng.choice(
            [self.kill_worker, self.kill_driver, self.kill_jvm, self.freeze, self.start_twice, self.forget]
        )
        sys.stdout.write(f"{action.__name__}\n")
        action()

    def kill_worker(self) -> None:
        """Spark runs the lane's task again."""
        self.rng.choice(self.run.copying()).kill()

    def kill_driver(self) -> None:
        """The next start takes over."""
        os.kill(self.run.driver_note()["pid"], signal.SIGKILL)
        assert self.run.wait() == 5
        self.again()

    def kill_jvm(self) -> None:
        """The Python driver ends what the workers left open."""
        os.kill(self.run.driver_note()["jvm_pid"], signal.SIGKILL)
        assert self.run.wait() == 5
        self.again()

    def freeze(self) -> None:
        """A run stands still while a newer one copies; when it wakes up, it is fenced."""
        family = [p for p in psutil.Process(self.run.child.pid).children(recursive=True) if p.is_running()]
        for process in family:
            process.suspend()
        old = self.run
        try:
            self.again()
        finally:
            for process in family:
                process.resume()
        assert old.wait() in (4, 5), old.text()

    def start_twice(self) -> None:
        """The newer of two runs goes on, the older one ends as fenced."""
        old = self.run
        self.again()
        assert old.wait() == 4, old.text()

    def forget(self) -> None:
        """Checkpoints and receipts are hints."""
        for folder in ("checkpoint", "receipts"):
            shutil.rmtree(self.home / self.flow.stem / folder, ignore_errors=True)
        self.kill_driver()

    def again(self) -> None:
        """Start a newer run."""
        self.run = Replicate(self.flow, self.home, "--until", "forever")
        self.run.copying()


def test_spark_survives_chaos(
    source_cluster: SharedCluster, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> None:
    """After every round of accidents both sides are equal, record by record."""
    sys.stdout.write(f"ONCEOVER_CHAOS_SEED={SEED}\n")
    with Adversary(source_cluster.bootstrap) as adversary:
        adversary.create_topic(unique_name, PARTITIONS)
    flow = write_flow(
        tmp_path, f"f-{unique_name}", source_cluster.client, target_cluster.client, [unique_name]
    )
    chaos = SparkChaos(flow, tmp_path, SEED)
    for number in range(ROUNDS):
        with Traffic(source_cluster.bootstrap, {unique_name: PARTITIONS}, seed=SEED + number):
            chaos.act()

        def caught_up() -> bool:
            partitions = InlineFlow(flow).status()["partitions"]
            return bool(partitions) and all(p["lag_offsets"] == 0 for p in partitions)

        wait_until(caught_up, START_S, "the flow is caught up")
        assert_same(source_cluster.client, target_cluster.client, [unique_name])
    code, _ = run_cli(tmp_path, "stop", str(flow))
    assert code == 0
    assert chaos.run.wait() == 0
