"""``onceover drill``: what a failover would cost now, and rehearsing one."""

from __future__ import annotations

import argparse
from functools import partial

from onceover.cli.parsers.drill import REHEARSAL
from onceover.cli.planned import applied, planned
from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow
from onceover.planning.operation import wait
from onceover.private import privately
from onceover.wiring.drills import (
    RehearsalWish,
    abort_drill,
    drill_history,
    dry_run,
    rehearsal,
    report_page,
)
from onceover.wiring.flows import opened


def plan(args: argparse.Namespace) -> CommandResult:
    """Look at everything; change nothing."""
    flow = load_flow(args.flow)
    if args.mode == REHEARSAL:
        with opened(flow, partial(rehearsal, wish=_wish(args), pause=wait)) as operation:
            return planned(operation, "`onceover drill run` rehearses it")
    found = dry_run(flow)
    return CommandResult(found.document(), found.describe(), found.exit_code)


def run(args: argparse.Namespace) -> CommandResult:
    """Show the plan, rehearse, tell."""
    flow = load_flow(args.flow)
    with privately(), opened(flow, partial(rehearsal, wish=_wish(args), pause=wait)) as operation:
        told = applied(operation, as_json=args.json)
    report = str(report_page(flow, str(told.document["drill"])))
    return CommandResult(
        {**told.document, "report": report}, f"{told.text}\nreport: {report}", told.exit_code
    )


def status(args: argparse.Namespace) -> CommandResult:
    """Tell of the drills until now."""
    found = drill_history(load_flow(args.flow), wait)
    return CommandResult(found.document(), found.describe(), 0)


def abort(args: argparse.Namespace) -> CommandResult:
    """End the drill that runs, or take away what is left of one."""
    with privately():
        found = abort_drill(load_flow(args.flow), wait)
    return CommandResult(found.document(), found.describe(), 0)


def _wish(args: argparse.Namespace) -> RehearsalWish:
    return RehearsalWish(tuple(args.topics), tuple(args.group), args.sample, args.canaries)
