"""``onceover seed``: write a flow's progress from somewhere else. Plan first, then apply."""

from __future__ import annotations

import argparse
from functools import partial

from onceover.cli.planned import applied, planned
from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow
from onceover.seeding.plan import Choice
from onceover.wiring.failovers.seeding import SeedingOptions, seeder
from onceover.wiring.flows import opened


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    with opened(load_flow(args.flow), partial(seeder, request=_request(args))) as seeding:
        return planned(seeding)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it."""
    with opened(load_flow(args.flow), partial(seeder, request=_request(args))) as seeding:
        return applied(seeding, as_json=args.json, counting="positions")


def _request(args: argparse.Namespace) -> SeedingOptions:
    return SeedingOptions(args.origin, Choice(args.replace, args.missing), args.topic)
