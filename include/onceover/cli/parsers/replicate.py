"""``onceover replicate``: copy a flow in the foreground, through spark-submit."""

from __future__ import annotations

from typing import Final

from onceover.cli.parser import Subparsers, Work, add_command, add_flow, end
from onceover.spark.launch.again import RESTARTS

CAUGHT_UP: Final = "caught-up"
_EXAMPLES: Final = """examples:
  onceover replicate flights-dr                        copy what is there now, then end
  onceover replicate flights-dr --until forever        copy until Ctrl-C or `onceover stop`
  onceover replicate flights-dr --until 10m --json
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "replicate", "copy a flow, exactly once", _EXAMPLES)
    add_flow(parser)
    parser.add_argument(
        "--until",
        default=CAUGHT_UP,
        metavar="caught-up|forever|DURATION",
        help="when to end (default: caught-up, with what was on the source at the start)",
    )
    parser.add_argument(
        "--restarts",
        type=int,
        choices=range(RESTARTS + 1),
        default=RESTARTS,
        metavar=f"0..{RESTARTS}",
        help="how often in a row a copy whose processes were killed is started again at once "
        "(default: %(default)s; never where --until is a duration)",
    )
    parser.add_argument("--master", help="Spark master instead of the flow file's")
    end(parser, Work("replicate"))
