"""``onceover status``: where every flow stands, from the live clusters."""

from __future__ import annotations

from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_command, end

# As `wiring.status` has it, which takes its libraries along.
PATIENCE_S: Final = 5.0
_EXAMPLES: Final = f"""examples:
  onceover status                     all flows of the flows directory
  onceover status flights-dr --json   one flow, for a machine
  onceover status --patience 20       over a slow line
  onceover status flights-dr --topic flights.jfk     why a topic is copied, or is not
  onceover status flights-dr --topic flights.jfk:3   a partition of it, by its name on either side

Sixteen flows are asked at the same time. A cluster that does not answer is given up on after
{PATIENCE_S:.0f} s (--patience): the rest is shown, with the error, and what it alone knows is null, never 0.

exit code: the first of these that applies to a flow
  1  its last audit found records that are not as they should be
  3  it waits for a person: something is stopped, its driver is gone or failed, it cannot be read
  2  its file, or one of its clients, is not in order
  5  a cluster does not answer
  0  none of these; with a lag, too, while it is being copied or was not asked to be
with --topic it is about that name: 0 copied, or out as the flow file says; 3 it waits for a person;
5 nobody knows now; 2 there is no such topic or partition
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(
        subparsers, "status", "what is copied, what is missing, what waits for a person", _EXAMPLES
    )
    parser.add_argument("flow", nargs="?", metavar="FLOW", help="name or path (default: all flows)")
    parser.add_argument(
        "--patience",
        type=numbers.seconds("patience", 0.1, 3600),
        default=PATIENCE_S,
        metavar="SECONDS",
        help=f"how long a cluster may leave us without an answer (default: {PATIENCE_S:.0f})",
    )
    parser.add_argument(
        "--topic",
        type=numbers.topic_or_partition,
        metavar="TOPIC[:PARTITION]",
        help="say why this one is copied, or is not; by the name of the source or of the copy",
    )
    end(parser, Work("status"))
