"""``onceover stop``: end a running flow; its open transactions are finished."""

from __future__ import annotations

from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_command, add_flow, end

_EXAMPLES: Final = """examples:
  onceover stop flights-dr
  onceover stop flights-dr --wait 60

exits with 4 when another start has taken over meanwhile and goes on: stop again to end that one, too
a start that has not led the flow yet, in its first seconds, is nothing to stop: end it where it was started
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "stop", "end a running flow gracefully", _EXAMPLES)
    add_flow(parser)
    parser.add_argument(
        "--wait",
        type=numbers.seconds("time to wait", 0, 86400),
        default=30.0,
        metavar="SECONDS",
        help="how long to wait (default: 30)",
    )
    end(parser, Work("stop"))
