"""``onceover topics``: what a flow's topics, configuration and ACLs lack on the target, and doing it."""

from __future__ import annotations

import argparse

from onceover.cli.output import CommandResult, plan_result, say
from onceover.config.load import load_flow
from onceover.topics.sync import SyncPlan
from onceover.wiring.topics import apply_topics, plan_topics


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
