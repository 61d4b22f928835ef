"""``onceover demo``: the whole story on this machine, with a kill -9 in the middle and proof at the end."""

from __future__ import annotations

from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_command, end
from onceover_lab.demo.flights import FLIGHTS

_FEED_S: Final = 40.0
# Fewer records leave nothing to copy after the kill, and some topics without a record.
MIN_RECORDS: Final = 10_000
_EXAMPLES: Final = """examples:
  onceover demo                    336,776 flights, about three minutes
  onceover demo --records 50000    a smaller run
  onceover demo --keep             leave clusters and Airflow running; `make down` stops them

Exit code 0: every flight arrived once, in order, unchanged. 1: it did not. 5: a part did not start."""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(
        subparsers, "demo", "copy real data between two real clusters, kill the copy, compare", _EXAMPLES
    )
    parser.add_argument(
        "--records",
        type=numbers.whole("number of records", MIN_RECORDS, FLIGHTS),
        default=FLIGHTS,
        metavar="N",
        help=f"flights to feed (default: {FLIGHTS})",
    )
    parser.add_argument(
        "--seconds",
        type=numbers.seconds("time to feed", 1, 3600),
        default=_FEED_S,
        metavar="SECONDS",
        help=f"feed them over so long (default: {_FEED_S:g})",
    )
    parser.add_argument("--keep", action="store_true", help="leave clusters and Airflow running")
    end(parser, Work("demo", "demo"))
