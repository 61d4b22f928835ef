"""``onceover partition``: what to do with a stopped partition. Plan first, then ``--apply``."""

from __future__ import annotations

from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_actions, add_command, add_flow, end

_EXAMPLES: Final = """examples:
  onceover partition resume  flights-dr flights.jfk:3 --apply  look again, the cause is gone
  onceover partition resume  flights-dr --apply                look again at every stopped partition
  onceover partition skip-to flights-dr flights.jfk:3 8812     plan: go on at source offset 8812
  onceover partition skip-to flights-dr flights.jfk:3 8812 --apply
  onceover partition reseed  flights-dr flights.jfk:3 --apply  copy it again from its start

every one prints its plan first and changes nothing without --apply; onceover status names the stopped
partitions and the command for each. skip-to and reseed act as a start: a running copy of the flow is
fenced and has to be started again. reseed creates a target topic that is gone, or adds its partitions
"""
# As `operate.repair` has them, which takes its libraries along.
RESUME: Final = "resume"
SKIP: Final = "skip-to"
RESEED: Final = "reseed"
_ACTIONS: Final = (
    (RESUME, "look at stopped partitions again"),
    (SKIP, "go on at a source offset"),
    (RESEED, "enrol its topic anew and copy the partition from its start"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "partition", "resume, skip or reseed a stopped partition", _EXAMPLES)
    actions = add_actions(parser, *(name for name, _ in _ACTIONS))
    for name, text in _ACTIONS:
        action = add_command(actions, name, text, _EXAMPLES)
        add_flow(action)
        action.add_argument(
            "partition",
            type=numbers.topic_partition,
            nargs="?" if name == RESUME else None,
            metavar="TOPIC:PARTITION",
            help="source topic and partition"
            + (" (default: all that are stopped)" if name == RESUME else ""),
        )
        if name == SKIP:
            action.add_argument(
                "offset", type=numbers.offset, metavar="OFFSET", help="next source offset to copy"
            )
        action.add_argument(
            "--apply", action="store_true", help="do it (without: only say what would be done)"
        )
        end(action, Work("partition"))
