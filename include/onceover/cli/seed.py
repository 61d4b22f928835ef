"""``onceover seed``: write a flow's progress from somewhere else. Plan first, then apply."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from onceover.cli.display import Counter
from onceover.cli.output import CommandResult, plan_result, say
from onceover.config.load import load_flow
from onceover.seeding.plan import Choice, SeedPlan
from onceover.wiring.seeding import apply_seed, plan_seed


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    choice, topics = Choice(args.replace, args.missing), args.topic
    planned = plan_seed(load_flow(args.flow), args.origin, choice, topics)
    return plan_result(planned)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it."""
    show = announcer(as_json=args.json)
    choice, topics = Choice(args.replace, args.missing), args.topic
    with counter(args) as counted:
        seeded = apply_seed(load_flow(args.flow), args.origin, choice, show, topics, counted=counted)
    return CommandResult(seeded.document(), seeded.describe(), seeded.exit_code)


def counter(args: argparse.Namespace) -> Counter:
    """Return what shows how many positions are written."""
    return Counter("positions", wanted=not args.json)


def announcer(*, as_json: bool) -> Callable[[SeedPlan], None]:
    """Return what shows plans: on stdout, or on stderr where stdout is for the one document."""

    def show(planned: SeedPlan) -> None:
        say(planned.describe(), aside=as_json)

    return show
