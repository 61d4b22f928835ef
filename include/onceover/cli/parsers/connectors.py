"""``onceover connectors``: source offsets of Kafka Connect, to topics of their own and back (KIP-618)."""

from __future__ import annotations

import argparse
from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_actions, add_command, end

# As `connectors.settings` has it, which takes its libraries along.
MODES: Final = ("hard", "soft")
_EXAMPLES: Final = """examples:
  onceover connectors list      flights                        what it runs, and where offsets are
  onceover connectors acls      flights --connector orders     who needs which right
  onceover connectors plan      flights --connector orders     what would be done, and why; changes nothing
  onceover connectors apply     flights --connector orders     show the plan, do it, watch the connector go on
  onceover connectors verify    flights --all                  prove again that nothing was lost
  onceover connectors rollback  flights --connector orders     undo, before it was resumed; --apply does it
  onceover connectors downgrade flights --connector orders     back to the shared topic; likewise
  onceover connectors downgrade flights --all --mode soft      before exactly-once is switched off

CONNECT is a file's stem in include/connect, or a path; docs/connectors.md explains it, every step, and what
to do when one fails. An interrupted command is simply run again, at any machine: what it did is written down
on the workers' Kafka cluster; journals and manifests are in ONCEOVER_HOME/connect/<name>. Never put
`offsets.storage.topic` into a connector's configuration by hand.

Exit code 0: done. 1: a check failed. 2: nothing was changed, see the message. 3: somebody has to decide, or
it cannot be proven. 4: another run for the same connector took over. 5: workers or brokers are away: run
again.
"""
_ACTIONS: Final = (
    ("list", "say which connectors the live cluster runs; change nothing"),
    ("acls", "say which principal needs which right on what; change nothing"),
    ("plan", "say what moving offsets to topics of their own would do; change nothing"),
    ("apply", "move them: stop, fence, snapshot, copy, verify, configure, resume, watch"),
    ("verify", "prove that migrated connectors' offsets are complete and in use; change nothing"),
    ("rollback", "undo a migration that did not get to its end; a plan, --apply does it"),
    ("downgrade", "move offsets back to the shared topic; a plan, --apply does it"),
)
# A migration and a way back are separate decisions: without --apply these two only show a plan.
_ON_DEMAND: Final = ("rollback", "downgrade")
_WATCHED: Final = ("apply", "downgrade")


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(
        subparsers,
        "connectors",
        "move Kafka Connect's source offsets to topics of their own, and back",
        _EXAMPLES,
    )
    actions = add_actions(parser, *(name for name, _ in _ACTIONS))
    for name, text in _ACTIONS:
        action = add_command(actions, name, text, _EXAMPLES)
        _add_arguments(action, name)
        end(action, Work("connectors", "list_" if name == "list" else name))


def _add_arguments(parser: argparse.ArgumentParser, action: str) -> None:
    parser.add_argument("connect", metavar="CONNECT", help="name or path of a Connect file")
    if action != "list":
        which = parser.add_mutually_exclusive_group(required=action != "acls")
        which.add_argument(
            "--connector",
            action="extend",
            nargs="+",
            default=[],
            metavar="NAME",
            help="which; several are done in this order",
        )
        if action != "rollback":
            which.add_argument(
                "--all", action="store_true", help="every one that it applies to, one after the other"
            )
    if action in ("acls", "plan", "apply"):
        parser.add_argument(
            "--topic", type=numbers.topic, help="topic for the offsets (default: <shared topic>-<connector>)"
        )
    if action in _WATCHED:
        parser.add_argument(
            "--watch",
            type=numbers.duration("--watch"),
            metavar="DURATION",
            help="how long to watch each connector at most, such as 2m",
        )
    if action in _ON_DEMAND:
        parser.add_argument("--apply", action="store_true", help="do what the plan says")
    if action == "downgrade":
        parser.add_argument(
            "--mode",
            choices=MODES,
            default=MODES[0],
            help="hard: back to the shared topic (default); soft: before exactly-once is switched off",
        )
