"""A run of hours takes no more at its end than at its beginning, whatever was restarted meanwhile.

``ONCEOVER_FLAT_MINUTES`` makes it longer; ``ONCEOVER_FLAT_OUT`` names a folder for the plot and its figures.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from onceover.state import names
from onceover_lab.embed.kafka import KafkaCluster
from tests.chaos.checker import Place
from tests.chaos.reading import committed
from tests.chaos.usage import Sample, Sampler, draw, growths
from tests.support.brokers.clusters import ClusterFactory
from tests.support.commands.replicate import START_S, Replicate, run_cli
from tests.support.flows.flows import InlineFlow, assert_same, write_flow
from tests.support.raw.adversary import Adversary, Traffic
from tests.support.session.wait import wait_until

MINUTES = float(os.environ.get("ONCEOVER_FLAT_MINUTES", "12"))
PARTITIONS = 4
# Two hours are about fifty restarts; a broker is away for some seconds each time.
_RESTART_S = 140.0
_AWAY_S = 3.0
_SAMPLE_S = 5.0
# Traffic's transactions that a restart leaves open hide what is behind them for so long.
_OPEN_MS = 10_000

pytestmark = [pytest.mark.soak, pytest.mark.timeout(MINUTES * 60 + 1200)]


def processes_of(run: Replicate) -> Mapping[str, Sequence[psutil.Process]]:
    """Return the processes of a run by what they are."""
    note = run.driver_note()
    with suppress(psutil.NoSuchProcess):
        jvm = psutil.Process(note["jvm_pid"])
        return {
            "driver": [psutil.Process(note["pid"])],
            "JVM": [jvm],
            "workers": [p for p in jvm.children(recursive=True) if p.pid != note["pid"]],
        }
    return {}


class Restarts:
    """Kills and starts brokers in turn, now and then, until it is over; notes when.

    Args:
        check: called after each of them.
    """

    def __init__(
        self, clusters: Sequence[KafkaCluster], age_s: Callable[[], float], check: Callable[[], None]
    ) -> None:
        self.events: list[tuple[float, str]] = []
        self._check = check
        self._clusters = itertools.cycle(clusters)
        self._age_s = age_s
        self._pause = threading.Event()

    def go_on_until(self, over_s: float) -> None:
        """Return when the run is ``over_s`` seconds old."""
        while (left_s := over_s - self._age_s()) > 0:
            self._pause.wait(min(_RESTART_S, left_s))
            if self._age_s() < over_s - _RESTART_S:
                cluster = next(self._clusters)
                self.events.append((self._age_s(), f"{cluster.name} killed"))
                [node] = cluster.nodes
                node.kill()
                self._pause.wait(_AWAY_S)
                node.start()
                self._check()


class Positions:
    """The progress that the target's coordinator tells, which may go back only while it still loads.

    Kafka 4.3.0 may open a coordinator before it has read its log (include/onceover/resume/told.py): it then
    tells what it has read so far, here positions of an hour before. The flow must not believe them, and
    they have to come back. What the coordinator has on disk is kept when they do not.

    Attributes:
        back: how often they were found behind an earlier look.
    """

    def __init__(self, flow: str, target: KafkaCluster, keep: Path) -> None:
        self._group, self._target, self._keep = names.progress_group(flow), target, keep
        self._highest: dict[Place, int] = {}
        self.back = 0

    def check(self) -> None:
        """Compare with all earlier looks.

        Raises:
            TimeoutError: a position stays behind an earlier one.
        """
        found = wait_until(self._told, START_S, "the coordinator answers")
        if self._behind(found):
            self.back += 1
            try:
                found = wait_until(self._told_all, START_S, "positions are as before")
            except TimeoutError:
                for node in self._target.nodes:
                    for log in node.data.glob("__consumer_offsets-*"):
                        shutil.copytree(log, self._keep / log.name, dirs_exist_ok=True)
                raise
        self._highest.update(found)

    def _behind(self, found: dict[Place, int]) -> bool:
        return any(found.get(place, -1) < at for place, at in self._highest.items())

    def _told_all(self) -> dict[Place, int]:
        found = self._told()
        return {} if self._behind(found) else found

    def _told(self) -> dict[Place, int]:
        with suppress(OSError):
            return committed(self._target.internal_bootstrap, self._group)
        return {}


def test_memory_descriptors_threads_and_connections_stay_flat(
    start_cluster: ClusterFactory, unique_name: str, tmp_path: Path
) -> None:
    """Tasks of ten seconds, brokers killed in turn, all kinds of batches; equal on both sides at the end."""
    source, target = start_cluster("source"), start_cluster("target")
    with Adversary(source.bootstrap) as adversary:
        adversary.create_topic(unique_name, PARTITIONS)
    # Kept where a folder is named: what went wrong after an hour is in its logs.
    home = Path(os.environ.get("ONCEOVER_FLAT_OUT", tmp_path)) / "home"
    home.mkdir(parents=True, exist_ok=True)
    flow = write_flow(home, f"f-{unique_name}", source.client, target.client, [unique_name])
    run = Replicate(flow, home, "--until", "forever")
    run.copying()
    topics = {unique_name: PARTITIONS}
    with Sampler(lambda: processes_of(run), _SAMPLE_S) as sampler:
        positions = Positions(flow.stem, target, home)
        restarts = Restarts((source, target), lambda: sampler.age_s, positions.check)
        with Traffic(source.bootstrap, topics, seed=1, pause_s=0.04, timeout_ms=_OPEN_MS) as traffic:
            restarts.go_on_until(MINUTES * 60)
        assert run.child.alive, run.text()[-2000:]

        def caught_up() -> bool:
            return all(entry["lag_offsets"] == 0 for entry in InlineFlow(flow).status()["partitions"])

        wait_until(caught_up, START_S, "the flow is caught up")
    code, _ = run_cli(home, "stop", str(flow))
    assert (code, run.wait()) == (0, 0)
    publish(sampler.samples, restarts.events, traffic.total, positions.back)
    assert_same(source.client, target.client, [unique_name])
    assert not [growth for growth in growths(sampler.samples) if growth.leaks]


def publish(samples: Sequence[Sample], events: Sequence[tuple[float, str]], records: int, back: int) -> None:
    """Print how every figure developed; draw it where a folder is named for it."""
    developed = growths(samples)
    for growth in developed:
        sys.stdout.write(
            f"{growth.kind:8} {growth.figure:12} usually {growth.usual:8.1f}, grown by {growth.grown:+7.2f}"
            f" (allowed {growth.allowed:.1f})\n"
        )
    if out := os.environ.get("ONCEOVER_FLAT_OUT"):
        title = (
            f"{records:,} records in {MINUTES:g} minutes; grey: a broker killed and started ({len(events)})"
        )
        draw(samples, events, Path(out) / "flat.svg", title)
        figures = {"minutes": MINUTES, "records": records, "restarts": len(events), "told_back": back}
        document = {**figures, "growth": [asdict(growth) for growth in developed]}
        (Path(out) / "flat.json").write_text(json.dumps(document, indent=1) + "\n")
