"""``onceover bench``: Onceover beside MirrorMaker 2 on two real clusters."""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import time

from onceover.cli.terminal.output import CommandResult
from onceover_lab.bench.findings.report import render_ratios, render_workload
from onceover_lab.bench.workloads import keep_systems, select_workloads


def bench(args: argparse.Namespace) -> CommandResult:
    """Run the benchmark; exit code 1 when a run did not copy everything.

    Raises:
        UsageError: an unknown workload or a number out of range; nothing was started.
        Retriable: the clusters could not be started.
    """
    chosen = select_workloads(args.workload, full=args.full, scale=args.scale)
    workloads = keep_systems(chosen, args.system)
    # Only here: the clients and the codec take longer to import than most commands take to run.
    from onceover_lab.bench.session import play_and_publish

    # Ends like Ctrl-C: clusters, systems and files have to go then, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    say = functools.partial(_say, time.monotonic())
    results, document = play_and_publish(
        workloads, rounds=args.rounds, scale=args.scale, out_dir=args.out, say=say
    )
    failed = sum(len(result.failed) for result in results)
    say(f"{failed} runs failed; the results are in {args.out}")
    tables = [render_ratios(results), *(render_workload(result) for result in results)]
    return CommandResult(document, "\n".join(tables), 1 if failed else 0)


def _say(started_s: float, text: str) -> None:
    print(f"[{time.monotonic() - started_s:6.1f} s] {text}", file=sys.stderr, flush=True)
