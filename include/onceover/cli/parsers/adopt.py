"""``onceover adopt``: take over a MirrorMaker 2 flow without a lost or repeated record. Plan, then apply."""

from __future__ import annotations

import argparse
from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_actions, add_command, add_flow, end

# As `seeding.seamsearch` has it, which takes its libraries along.
WINDOW: Final = 200_000
_ALIAS: Final = numbers.name("alias of MirrorMaker's")
_EXAMPLES: Final = """examples:
  onceover adopt plan  flights-dr                         where MirrorMaker stands, and how that is proven
  onceover adopt apply flights-dr                         fence it, and go on from there
  onceover adopt apply flights-dr --mm2-source primary    where MirrorMaker calls the source cluster so
  onceover adopt apply flights-dr --decided offsets.csv   with offsets for what cannot be proven

MirrorMaker has to be stopped. The target's topics stay as they are, and so do their consumers' positions.
Names are those of dedicated mode unless told otherwise. docs/adopting-mirrormaker.md is the runbook.

Exit code 0: done. 3: something is refused, see the plan; the rest is done. 5: run again.
"""
_ACTIONS: Final = (
    ("plan", "compare both sides and say where each partition goes on; change nothing"),
    ("apply", "fence MirrorMaker and write the flow's progress"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "adopt", "take over a flow from MirrorMaker 2", _EXAMPLES)
    actions = add_actions(parser, *(name for name, _ in _ACTIONS))
    for name, text in _ACTIONS:
        action = add_command(actions, name, text, _EXAMPLES)
        add_flow(action)
        _add_options(action)
        end(action, Work("adopt", name))


def _add_options(action: argparse.ArgumentParser) -> None:
    action.add_argument("--topic", metavar="REGEX", help="only these source topics (anchored)")
    action.add_argument(
        "--mm2-source", type=_ALIAS, metavar="ALIAS", help="MirrorMaker's alias of the source cluster"
    )
    action.add_argument(
        "--mm2-target", type=_ALIAS, metavar="ALIAS", help="MirrorMaker's alias of the target cluster"
    )
    action.add_argument(
        "--offsets-topic", type=numbers.topic, metavar="TOPIC", help="Connect's offsets topic on the target"
    )
    action.add_argument(
        "--configs-topic",
        type=numbers.topic,
        metavar="TOPIC",
        help="Connect's configuration topic on the target",
    )
    action.add_argument("--connect-group", metavar="GROUP", help="group of Connect's workers on the target")
    action.add_argument(
        "--workers-stay",
        action="store_true",
        help="the connector was stopped in a Connect cluster whose workers go on",
    )
    action.add_argument("--decided", metavar="FILE", help="offsets for partitions that cannot be proven")
    action.add_argument(
        "--window",
        type=numbers.whole("number of records", 1, 2**31 - 1),
        default=WINDOW,
        metavar="RECORDS",
        help=f"records of a partition to compare at most (default {WINDOW})",
    )
