"""``onceover topics``: what a flow's topics, configuration and ACLs lack on the target, and doing it."""

from __future__ import annotations

import argparse
from typing import Final

from onceover.cli.output import CommandResult, Subparsers, plan_result, say
from onceover.config.load import load_flow
from onceover.engine.topicsync import SyncPlan
from onceover.wiring.topics import apply_topics, plan_topics

_EXAMPLES: Final = """examples:
  onceover topics plan  flights-dr           what would be done, and why; changes nothing
  onceover topics plan  flights-dr --json    the same as one JSON document
  onceover topics apply flights-dr           show the plan, do it, look again

A running flow does the same by itself, except for target topics that it did not create: those are taken
over by `apply` only. Both work for a flow that was never started, and beside one that runs. An interrupted
`apply` is simply run again; what it did is in ONCEOVER_HOME/<flow>/journal/topics.jsonl.

Exit code 0: in order, or done. 3: something is refused, see the plan. 5: a cluster is away, or the topics
change all the time: run again.
"""
_ACTIONS: Final = (
    ("plan", "say what would be done; change nothing"),
    ("apply", "create topics, add partitions, set configuration and ACLs"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "topics",
        help="compare a flow's topics with their copies, and bring these in line",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="plan|apply")
    for name, text in _ACTIONS:
        action = actions.add_parser(
            name, help=text, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        action.add_argument("flow", metavar="FLOW", help="name or path")
        action.add_argument("--json", action="store_true", help="print one JSON document")
        action.set_defaults(func=plan if name == "plan" else apply)


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    planned = plan_topics(load_flow(args.flow))
    return plan_result(planned)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it, look again."""

    def show(planned: SyncPlan) -> None:
        # With --json the one document comes at the end; people see the plan before anything is done.
        say(planned.describe(), aside=args.json)

    applied = apply_topics(load_flow(args.flow), show)
    return CommandResult(applied.document(), applied.describe(), applied.exit_code)
