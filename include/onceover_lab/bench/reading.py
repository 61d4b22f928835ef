"""An audit beside plain consumers: both read both sides of one copy, which is made once."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from onceover.errors import Retriable
from onceover.process.children import ChildProcess
from onceover_lab.bench.copiers import Arena, Turn
from onceover_lab.bench.flowfile import flow_name, flow_yaml
from onceover_lab.bench.stats import Sample, value_at
from onceover_lab.bench.watching.proctree import ProcessTree
from onceover_lab.bench.workloads import Contender, System, Workload

_TIMEOUT_S: Final = 600.0
_CLI: Final = (sys.executable, "-m", "onceover.cli.main")
# The copy is no contender's; its flow needs a name all the same.
_COPY: Final = Contender("copy", System.ONCEOVER)


class _Read(NamedTuple):
    """When the reading of both sides began and ended, by the monotonic clock; records of one side."""

    records: int
    began_s: float
    ended_s: float


def make_copy(arena: Arena, workload: Workload) -> None:
    """Copy the workload's topic to the target with Onceover, as users do.

    Raises:
        Retriable: the copy failed.
    """
    path = _flow_path(arena, workload)
    path.write_text(flow_yaml(workload, _COPY, 0, arena.source_bootstrap, arena.target_bootstrap))
    arguments = [*_CLI, "replicate", str(path), "--json"]
    with closing(_Programs(arena, [arguments], path.with_suffix(".log"))) as programs:
        programs.wait()


def measure_reading(arena: Arena, turn: Turn) -> dict[str, float]:
    """Return the figures of one contender that reads both sides.

    Raises:
        Retriable: it failed, or did not see every record.
    """
    folder = arena.work_dir / turn.label
    folder.mkdir(parents=True)
    audits = turn.contender.system is System.AUDIT
    commands = _audit(arena, turn.workload) if audits else _consumers(arena, turn.workload)
    started_s = time.monotonic()
    with ExitStack() as stack:
        programs = stack.enter_context(closing(_Programs(arena, commands, folder / "reader.log")))
        trees = [stack.enter_context(closing(ProcessTree(child.pid))) for child in programs.children]
        outputs = programs.wait()
        ended_s = time.monotonic()
    read = _read_of_audit(outputs[0]) if audits else _read_of_consumers(outputs)
    if read.records != turn.workload.records:
        raise Retriable(
            "not every record was read",
            expected=f"{turn.workload.records} records",
            seen=f"{read.records} records",
        )
    cpu = [tree.cpu_samples() for tree in trees]
    memory = sum(tree.peak_memory_bytes() for tree in trees)
    return _figures(read, cpu, turn.workload, started_s, ended_s) | {"peak_memory_mb": memory / 1e6}


def _figures(
    read: _Read, cpu: Sequence[Sequence[Sample]], workload: Workload, started_s: float, ended_s: float
) -> dict[str, float]:
    seconds = max(read.ended_s - read.began_s, 1e-3)
    rate = read.records / seconds
    steady_cpu_s = sum(value_at(each, read.ended_s) - value_at(each, read.began_s) for each in cpu)
    return {
        "records_per_s": rate,
        "mb_per_s": rate * workload.record_bytes / 1e6,
        "cpu_s_per_million": steady_cpu_s / read.records * 1e6,
        "steady_s": seconds,
        "start_up_s": read.began_s - started_s,
        "whole_s": ended_s - started_s,
        "whole_cpu_s": sum(value_at(each, ended_s) for each in cpu),
    }


def _flow_path(arena: Arena, workload: Workload) -> Path:
    return arena.work_dir / f"{flow_name(workload, _COPY, 0)}.yaml"


def _audit(arena: Arena, workload: Workload) -> list[list[str]]:
    return [[*_CLI, "audit", str(_flow_path(arena, workload)), "--full", "--json"]]


def _consumers(arena: Arena, workload: Workload) -> list[list[str]]:
    return [
        [
            *(sys.executable, "-m", "onceover_lab.bench.clients.consume"),
            *("--bootstrap", bootstrap, "--topic", workload.topic, "--records", str(workload.records)),
        ]
        for bootstrap in (arena.source_bootstrap, arena.target_bootstrap)
    ]


def _read_of_audit(output: dict[str, Any]) -> _Read:
    if output["verdict"] != "PASS":
        raise Retriable("the audit did not pass", seen=str(output["verdict"]))
    # Its workers tell the time of day: a monotonic clock may be another one on another machine.
    shift_s = time.monotonic() - time.time()
    began_s, ended_s = (output["reading"][key] / 1000 + shift_s for key in ("began_ms", "ended_ms"))
    return _Read(int(output["records"]["target"]), began_s, ended_s)


def _read_of_consumers(outputs: Sequence[dict[str, Any]]) -> _Read:
    return _Read(
        min(each["records"] for each in outputs),
        min(each["began_s"] for each in outputs),
        max(each["ended_s"] for each in outputs),
    )


class _Programs:
    """Programs that run side by side, each with a log whose last line of JSON is what it says."""

    def __init__(self, arena: Arena, commands: Sequence[Sequence[str]], log_path: Path) -> None:
        environment = {**os.environ, "ONCEOVER_HOME": str(arena.work_dir)}
        self._logs = [log_path.with_suffix(f".{number}.log") for number, _ in enumerate(commands)]
        self.children = [
            ChildProcess.start(
                command,
                name=log.stem,
                log_path=log,
                env=environment,
                # Spark's processes have to be ended by their own parent when the benchmark is killed.
                death_signal=signal.SIGTERM,
            )
            for command, log in zip(commands, self._logs, strict=True)
        ]

    def wait(self) -> list[dict[str, Any]]:
        """Return what they say when all have ended.

        Raises:
            Retriable: one failed, or takes longer than ten minutes.
        """
        for child in self.children:
            if child.wait(_TIMEOUT_S) != 0:
                raise Retriable(f"{child.name} ended with {child.returncode}", seen=child.tail(3))
        return [json.loads(log.read_text().strip().splitlines()[-1]) for log in self._logs]

    def close(self) -> None:
        """End those that still run."""
        for child in self.children:
            child.stop()
