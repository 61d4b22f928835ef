"""``onceover bench``: Onceover beside MirrorMaker 2 on two real clusters."""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceover.bench.report import render_ratios, render_workload
from onceover.bench.workloads import DEFAULT, EXTRA, System, keep_systems, select_workloads
from onceover.cli.output import CommandResult
from onceover.errors import UsageError

if TYPE_CHECKING:
    # argparse keeps the class private, and generic only in its stubs.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_ROUNDS: Final = 3
_OUT_DIR: Final = Path("docs/benchmark")


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
    # Only here: the clients and the codec take longer to import than most commands take to run.
    from onceover.bench.session import play_and_publish

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
