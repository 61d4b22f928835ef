"""``onceover bench``: Onceover beside MirrorMaker 2 on two real clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_command, end
from onceover_lab.bench.workloads import DEFAULT, EXTRA, System

_EXAMPLES: Final = """examples:
  onceover bench                              every usual kind of data, under twenty minutes
  onceover bench --workload start --rounds 1    a quick look at one of them
  onceover bench --full --out /tmp/bench      also the slower, rarer kinds; results into another directory

Exit code 0: measured. 1: a run did not copy everything. 5: the clusters could not be started.
"""
_ROUNDS: Final = 2
_OUT_DIR: Final = Path("docs/benchmark")


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "bench", "measure Onceover beside MirrorMaker 2", _EXAMPLES)
    parser.add_argument("--full", action="store_true", help="also the slower, rarer kinds of data")
    parser.add_argument(
        "--rounds",
        type=numbers.whole("number of rounds", 1, 1000),
        default=_ROUNDS,
        metavar="N",
        help=f"runs of each system (default: {_ROUNDS})",
    )
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
    end(parser, Work("bench", "bench"))
