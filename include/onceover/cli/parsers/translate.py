"""``onceover translate``: which offset on the other side a reader continues at, exactly."""

from __future__ import annotations

from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_command, add_flow, end

SIDES: Final = ("target", "source")
_EXAMPLES: Final = """examples:
  onceover translate flights-dr flights.jfk:3 8812                 where readers of the source go on
  onceover translate flights-dr flights.jfk:3 8800 8812 --to source  where readers of the target go back to
  onceover translate flights-dr flights.jfk:3 8812 --all           with a handler: each target partition

TOPIC:PARTITION is that of the side that the offset is from. "not covered" is an answer: the offset
map holds nothing about that offset, and nothing is guessed.
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(
        subparsers, "translate", "translate offsets between source and target, exactly", _EXAMPLES
    )
    add_flow(parser)
    parser.add_argument(
        "partition", type=numbers.topic_partition, metavar="TOPIC:PARTITION", help="what the offsets are of"
    )
    parser.add_argument(
        "offsets", type=numbers.offset, nargs="+", metavar="OFFSET", help="next offset to read"
    )
    parser.add_argument("--to", choices=SIDES, default=SIDES[0], help="side to translate to")
    parser.add_argument(
        "--all",
        action="store_true",
        help="each partition of the other side, not only that of the same number",
    )
    end(parser, Work("translate"))
