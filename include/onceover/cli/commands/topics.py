"""``onceover topics``: what a flow's topics, configuration and ACLs lack on the target, and doing it."""

from __future__ import annotations

import argparse

from onceover.cli.planned import applied, planned
from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow
from onceover.wiring.flows import opened
from onceover.wiring.topics import topic_sync


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    with opened(load_flow(args.flow), topic_sync) as sync:
        return planned(sync)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it, look again."""
    with opened(load_flow(args.flow), topic_sync) as sync:
        return applied(sync, as_json=args.json)
