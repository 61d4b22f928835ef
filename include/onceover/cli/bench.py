"""``onceover bench``: Onceover beside MirrorMaker 2 on two real clusters."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceover.bench.copiers import Arena
from onceover.bench.machine import machine_facts
from onceover.bench.plot import check_can_draw
from onceover.bench.publish import publish
from onceover.bench.report import render_ratios, render_workload
from onceover.bench.results import WorkloadResult
from onceover.bench.runner import run_benchmark
from onceover.bench.workloads import DEFAULT, EXTRA, System, Workload, keep_systems, select_workloads
from onceover.cli.output import CommandResult
from onceover.embed.kafka import KafkaCluster, start_all
from onceover.errors import UsageError

if TYPE_CHECKING:
    # argparse keeps the class private, and generic only in its stubs.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_ROUNDS: Final = 3
_OUT_DIR: Final = Path("docs/benchmark")
# Enough for the index and request buffers of 1 MiB batches; the data itself lives in the page cache.
_HEAP_MB: Final = 1024


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser("bench", help="measure Onceover beside MirrorMaker 2")
    parser.add_argument("--full", action="store_true", help="also the slower, rarer kinds of data")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="runs of each system (default: 3)")
    parser.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one; may be repeated: " + ", ".join(w.name for w in (*DEFAULT, *EXTRA)),
    )
    parser.add_argument(
        "--system",
        action="append",
        default=[],
        choices=[system.value for system in System],
        help="only this system; may be repeated",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the data, for a quick look")
    parser.add_argument("--out", type=Path, default=_OUT_DIR, help="directory for JSON, table and plot")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(func=bench)


def bench(args: argparse.Namespace) -> CommandResult:
    """Run the benchmark; exit code 1 when a run did not copy everything.

    Raises:
        UsageError: an unknown workload or a number out of range; nothing was started.
        Retriable: the clusters could not be started.
    """
    if args.rounds < 1:
        raise UsageError("the number of rounds is out of range", expected="at least 1", seen=str(args.rounds))
    chosen = select_workloads(args.workload, full=args.full, scale=args.scale)
    workloads = keep_systems(chosen, args.system)
    check_can_draw()
    started = datetime.now(UTC)
    started_s = time.monotonic()
    say = functools.partial(_say, started_s)
    results, machine = _play(workloads, args.rounds, say)
    settings = {
        "rounds": args.rounds,
        "scale": args.scale,
        "started_at": started.strftime("%Y-%m-%d %H:%M UTC"),
        "minutes": round((time.monotonic() - started_s) / 60, 1),
    }
    document = publish(args.out, results, machine, settings)
    failed = sum(len(result.failed) for result in results)
    say(f"{failed} runs failed; results are in {args.out}")
    tables = [render_ratios(results), *(render_workload(result) for result in results)]
    return CommandResult(document, "\n".join(tables), 1 if failed else 0)


def _play(
    workloads: Sequence[Workload], rounds: int, say: Callable[[str], None]
) -> tuple[list[WorkloadResult], dict[str, Any]]:
    home = Path(os.environ.get("ONCEOVER_HOME", "var")).resolve()
    home.mkdir(parents=True, exist_ok=True)
    work_dir = Path(tempfile.mkdtemp(prefix="bench-", dir=home))
    failed = False
    try:
        with _two_clusters(work_dir, say) as (source, target):
            machine = machine_facts(source.version)
            arena = Arena(source.bootstrap, target.bootstrap, work_dir)
            results = run_benchmark(arena, workloads, rounds, say)
        failed = any(result.failed for result in results)
    finally:
        if failed:
            say(f"the logs of the runs are kept in {work_dir}")
        else:
            shutil.rmtree(work_dir)
    return results, machine


@contextmanager
def _two_clusters(work_dir: Path, say: Callable[[str], None]) -> Iterator[list[KafkaCluster]]:
    say("starting two clusters ...")
    clusters = start_all(
        [
            # The optimising compiler is on: a broker that is slow would be the bottleneck of everybody.
            functools.partial(KafkaCluster.start, work_dir, name, heap_mb=_HEAP_MB, quick_start=False)
            for name in ("source", "target")
        ]
    )
    try:
        yield clusters
    finally:
        for cluster in clusters:
            cluster.close(remove=True)


def _say(started_s: float, text: str) -> None:
    print(f"[{time.monotonic() - started_s:6.1f} s] {text}", file=sys.stderr, flush=True)
