"""Starts and stops the systems under test as ordinary processes, each with its own log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import psutil

from onceover.errors import Retriable, UsageError
from onceover.process.children import ChildProcess, tail
from onceover_lab.bench.distance import Distance
from onceover_lab.bench.flowfile import flow_name, flow_yaml
from onceover_lab.bench.mirror import mirror_properties, mirrored_topic
from onceover_lab.bench.workloads import Contender, System, Victim, Workload
from onceover_lab.embed.driver import kill_driver, read_driver
from onceover_lab.embed.mirrormaker import MirrorMaker
from onceover_lab.embed.ports import PortReservation

# `onceover stop` promises 10 s; the rest is the start of an interpreter on a busy machine.
_STOP_TIMEOUT_S: Final = 60
# What Kafka's own start script gives it.
_MIRROR_HEAP_MB: Final = 2048
_WORKER: Final = "pyspark.worker"
_CLI: Final = (sys.executable, "-m", "onceover.cli.main")


@dataclass(frozen=True)
class Far:
    """A cluster as somebody sees it from afar."""

    bootstrap: str
    distance: Distance


@dataclass(frozen=True)
class Arena:
    """Where the contenders meet: two clusters, and a directory for files and logs.

    ``source_far`` and ``target_far`` lead to the same clusters from afar, where a workload is about that.
    """

    source_bootstrap: str
    target_bootstrap: str
    work_dir: Path
    source_far: Far | None = None
    target_far: Far | None = None

    def ends(self, workload: Workload) -> tuple[str, str]:
        """Return where a contender finds source and target, as far away from now on as the workload says."""
        return (
            _end(self.source_bootstrap, self.source_far, workload.source_ms),
            _end(self.target_bootstrap, self.target_far, workload.target_ms),
        )


def _end(bootstrap: str, far: Far | None, round_trip_ms: int | None) -> str:
    if far is None or round_trip_ms is None:
        return bootstrap
    far.distance.round_trip_ms = round_trip_ms
    return far.bootstrap


@dataclass(frozen=True)
class Turn:
    """One contender's turn: what it copies, in which round."""

    workload: Workload
    contender: Contender
    round_number: int

    @property
    def target_topic(self) -> str:
        """The topic on the target that this contender writes to."""
        if self.contender.system is System.MIRRORMAKER:
            return mirrored_topic(self.workload.topic)
        return self.workload.topic

    @property
    def label(self) -> str:
        return f"{self.workload.name}-{self.round_number}-{self.contender.name}"


class Copier(Protocol):
    """A running system under test."""

    @property
    def pid(self) -> int:
        """Root of the process tree."""

    def check(self) -> None:
        """Raise Retriable when the system has ended before its time."""

    def stop(self) -> None:
        """End the system in its own graceful way, then by force. Safe to call again."""


def start_copier(arena: Arena, turn: Turn) -> Copier:
    """Start the turn's system and return at once or when it runs, as the system does."""
    run_dir = arena.work_dir / turn.label
    run_dir.mkdir(parents=True)
    match turn.contender.system:
        case System.MIRRORMAKER:
            return MirrorCopier(arena, turn, run_dir)
        case System.ONCEOVER:
            return OnceoverCopier(arena, turn, run_dir)
        case System.LIBRDKAFKA:
            return CeilingCopier(arena, turn, run_dir)
        case System.AUDIT | System.CONSUMERS:
            raise UsageError(f"{turn.contender.name} reads and copies nothing")


class OnceoverCopier:
    """``onceover replicate`` as a user starts it; the Spark processes are its descendants."""

    def __init__(self, arena: Arena, turn: Turn, run_dir: Path) -> None:
        run = turn.workload, turn.contender, turn.round_number
        self._flow_path = run_dir / f"{flow_name(*run)}.yaml"
        self._flow_path.write_text(flow_yaml(*run, *arena.ends(turn.workload)))
        self._env = {**os.environ, "ONCEOVER_HOME": str(run_dir)}
        self._home = run_dir
        self._child = self._start("forever", run_dir / "onceover.log")

    @property
    def pid(self) -> int:
        return self._child.pid

    def job_log(self) -> str:
        """Return what the Spark job has logged, of all runs so far."""
        logs = sorted((self._home / self._flow_path.stem).rglob("*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)

    def start_until_caught_up(self) -> ChildProcess:
        """Start the flow of this copier once more, when it is stopped, until it has caught up."""
        return self._start("caught-up", self._home / "caught-up.log")

    def kill(self, victim: Victim) -> None:
        """Send SIGKILL to the driver with its JVM, or to the busiest of Spark's Python workers.

        Raises:
            Retriable: there is none.
        """
        if victim is Victim.DRIVER:
            flow = self._flow_path.stem
            driver = read_driver(self._home, flow)
            if driver is None:
                raise Retriable("the flow has no driver to kill", where=flow)
            kill_driver(driver, flow)
            return
        workers = [each for each in psutil.Process(self.pid).children(recursive=True) if _is_worker(each)]
        if not workers:
            raise Retriable("the flow has no worker to kill", where=self._flow_path.stem)
        max(workers, key=_cpu_s).kill()

    def _start(self, until: str, log_path: Path) -> ChildProcess:
        return ChildProcess.start(
            [*_CLI, "replicate", str(self._flow_path), "--until", until, "--json"],
            name="onceover",
            log_path=log_path,
            env=self._env,
            # It has processes of its own to end when the benchmark is killed.
            death_signal=signal.SIGTERM,
        )

    def check(self) -> None:
        _check_running(self._child)

    def stop(self) -> None:
        if self._child.alive:
            asked = subprocess.run(
                [*_CLI, "stop", str(self._flow_path), "--json"],
                env=self._env,
                capture_output=True,
                text=True,
                check=False,
                timeout=_STOP_TIMEOUT_S,
            )
            if asked.returncode == 0:
                self._child.wait(_STOP_TIMEOUT_S)
        # Also the way out when the stop request itself failed: SIGTERM, then SIGKILL.
        self._child.stop()


class CeilingCopier:
    """librdkafka writing the same records straight into the target: what the target can take."""

    def __init__(self, arena: Arena, turn: Turn, run_dir: Path) -> None:
        workload = turn.workload
        argv = [
            sys.executable,
            "-m",
            "onceover_lab.bench.clients.feed",
            "--bootstrap",
            arena.target_bootstrap,
        ]
        argv += ["--topic", turn.target_topic, "--codec", workload.codec]
        argv += ["--record-bytes", str(workload.record_bytes), "--records", str(workload.records)]
        self._child = ChildProcess.start(argv, name="librdkafka", log_path=run_dir / "librdkafka.log")

    @property
    def pid(self) -> int:
        return self._child.pid

    def check(self) -> None:
        if self._child.returncode != 0:
            _check_running(self._child)

    def stop(self) -> None:
        self._child.stop()


class MirrorCopier:
    """MirrorMaker 2 in dedicated mode."""

    def __init__(self, arena: Arena, turn: Turn, run_dir: Path) -> None:
        # Held to the end: the kernel may otherwise give the port away before Jetty listens on it.
        self._port = PortReservation()
        self._start = partial(
            MirrorMaker.start,
            run_dir,
            *arena.ends(turn.workload),
            [turn.workload.topic],
            properties=mirror_properties(turn.workload, turn.contender, self._port.port),
            heap_mb=_MIRROR_HEAP_MB,
        )
        self._mirror = self._start()

    @property
    def pid(self) -> int:
        return self._mirror.pid

    def check(self) -> None:
        if not self._mirror.alive:
            raise Retriable("MirrorMaker 2 ended", seen=tail(self._mirror.log_path, 3))

    def kill(self, _victim: Victim) -> None:
        """Send SIGKILL to its only process, and start it again at once."""
        self._mirror.kill()
        self._mirror = self._start()

    def stop(self) -> None:
        self._mirror.stop()
        self._port.release()


def _check_running(child: ChildProcess) -> None:
    if not child.alive:
        raise Retriable(f"{child.name} ended with exit code {child.returncode}", seen=child.tail(3))


def _is_worker(process: psutil.Process) -> bool:
    """Tell whether it is forked from Spark's Python daemon, which bears the same command line."""
    try:
        parent = process.parent()
        return parent is not None and _WORKER in process.cmdline() and _WORKER in parent.cmdline()
    except psutil.NoSuchProcess:
        return False


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
