"""No CPU second of a process tree is lost, and none is counted twice."""

from __future__ import annotations

import pytest

from onceover_lab.bench.watching.cpu import Part, ProcessCpu, ProcessId, cpu_by_process, part_of

ROOT = ProcessId(1, 0.0)
CHILD = ProcessId(2, 1.0)
GRANDCHILD = ProcessId(3, 2.0)


def tree_cpu_s(seen: dict[ProcessId, ProcessCpu]) -> float:
    return sum(cpu_by_process(seen).values())


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["/usr/lib/jvm/java-17/bin/java", "-cp", "pyspark/jars/a.jar"], Part.JVM),
        (["java"], Part.JVM),
        (["/venv/bin/python", "-m", "onceover.spark.daemon", "pyspark.worker"], Part.LANES),
        (["/venv/bin/python", "-m", "onceover.cli.main", "replicate"], Part.DRIVER),
        ([], Part.DRIVER),
    ],
)
def test_a_process_is_told_by_its_command(command: list[str], part: Part) -> None:
    assert part_of(command) is part


def test_living_processes_add_up() -> None:
    seen = {ROOT: ProcessCpu(0, 2.0, 0.0, alive=True), CHILD: ProcessCpu(1, 3.0, 0.0, alive=True)}
    assert tree_cpu_s(seen) == 5.0


def test_reaped_child_is_counted_once() -> None:
    """The child's last figure is in the parent's reaped time, together with its last moments."""
    seen = {ROOT: ProcessCpu(0, 2.0, 3.5, alive=True), CHILD: ProcessCpu(1, 3.0, 0.0, alive=False)}
    assert tree_cpu_s(seen) == 5.5


def test_child_that_lived_between_two_looks_is_counted() -> None:
    assert tree_cpu_s({ROOT: ProcessCpu(0, 2.0, 1.0, alive=True)}) == 3.0


def test_ended_child_that_nobody_reaped_keeps_its_last_figure() -> None:
    seen = {ROOT: ProcessCpu(0, 2.0, 0.0, alive=True), CHILD: ProcessCpu(1, 3.0, 0.0, alive=False)}
    assert tree_cpu_s(seen) == 5.0


def test_orphan_counts_after_its_parent_ended() -> None:
    seen = {
        ROOT: ProcessCpu(0, 2.0, 1.0, alive=True),
        CHILD: ProcessCpu(1, 1.0, 0.0, alive=False),
        GRANDCHILD: ProcessCpu(2, 7.0, 0.0, alive=True),
    }
    assert tree_cpu_s(seen) == 10.0


def test_reaped_branch_is_counted_once() -> None:
    """A child that had reaped its own child hands both times on to the root."""
    seen = {
        ROOT: ProcessCpu(0, 2.0, 10.0, alive=True),
        CHILD: ProcessCpu(1, 3.0, 7.0, alive=False),
        GRANDCHILD: ProcessCpu(2, 7.0, 0.0, alive=False),
    }
    assert tree_cpu_s(seen) == 12.0
