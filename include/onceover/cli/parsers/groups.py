"""``onceover groups``: where consumer groups go on on the other side, and putting them there."""

from __future__ import annotations

import argparse
from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_actions, add_command, add_flow, end

# As `groups.decide` has it, which takes its libraries along.
DIRECTIONS: Final = ("failover", "failback")
_EXAMPLES: Final = """examples:
  onceover groups plan   flights-dr                        every group and partition, and why; changes nothing
  onceover groups apply  flights-dr --group 'billing-.*'   show the plan, write it
  onceover groups follow flights-dr --interval 10s         again and again, until Ctrl-C
  onceover groups apply  flights-dr --direction failback   back: from the target's offsets to the source

A group is never moved backwards (unless --allow-rewind), past the end, below the start, or while it has
members on the receiving side. What the offset map does not cover is not guessed. docs/groups.md has the rest.

Exit code 0: in place, or nothing more can be done now. 3: somebody has to decide, see the plan. 5: something
could not be read: run again. 130: ended before this look has written anything.
"""
_ACTIONS: Final = (
    ("plan", "say where every group would go on; change nothing"),
    ("apply", "commit the translated offsets on the other side, once"),
    ("follow", "do so again and again"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "groups", "move consumer groups to the other side", _EXAMPLES)
    actions = add_actions(parser, *(name for name, _ in _ACTIONS))
    for name, text in _ACTIONS:
        action = add_command(actions, name, text, _EXAMPLES)
        _add_arguments(action)
        if name == "follow":
            action.add_argument(
                "--interval",
                type=numbers.duration("--interval"),
                default=10.0,
                metavar="DURATION",
                help="from look to look (default: 10s)",
            )
        end(action, Work("groups", name))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_flow(parser)
    parser.add_argument(
        "--direction",
        choices=DIRECTIONS,
        default=DIRECTIONS[0],
        help="failover: source to target (default); failback: target to source",
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="REGEX",
        help="only groups whose whole name matches, among those of the flow file; may be repeated",
    )
    for flag, text in (
        ("--allow-rewind", "also move groups backwards: records are read again"),
        ("--follow-rewinds", "also backwards where the group was moved backwards on the giving side"),
        ("--follow-deletions", "delete what was written for groups that are gone on the giving side"),
        ("--take-over", "also move groups forward for which somebody else has committed since"),
    ):
        parser.add_argument(flag, action="store_true", help=text)
