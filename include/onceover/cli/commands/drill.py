"""``onceover drill``: what a failover would cost now, rehearsing one, and a planned switchover."""

from __future__ import annotations

import argparse
from functools import partial

from onceover.cli.approving import asked_person
from onceover.cli.parsers.drill import CANARIES, DRY_RUN, REHEARSAL, SAMPLE, SWITCHOVERS
from onceover.cli.planned import applied, planned
from onceover.cli.terminal.output import CommandResult, say
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.errors import UsageError
from onceover.planning.commands import command
from onceover.planning.operation import wait
from onceover.private import privately
from onceover.wiring.failovers.drills import (
    RehearsalOptions,
    drill_history,
    dry_run,
    rehearsal,
    report_page,
)
from onceover.wiring.failovers.orphans import OrphanOptions, orphan_export
from onceover.wiring.failovers.switchovers import SwitchoverOptions, abort_drill, confirm_step, switchover
from onceover.wiring.flows import opened


def plan(args: argparse.Namespace) -> CommandResult:
    """Look at everything; change nothing."""
    _check_options(args)
    flow = load_flow(args.flow)
    if args.mode == REHEARSAL:
        with opened(flow, partial(rehearsal, options=_rehearsal(args), pause=wait)) as rehearsing:
            return planned(rehearsing, f"{_run(args)} rehearses it")
    if args.mode in SWITCHOVERS:
        with opened(flow, partial(switchover, options=_switch(args), pause=wait)) as switching:
            return planned(switching, f"{_run(args)} does it")
    found = dry_run(flow)
    return CommandResult(found.document(), found.describe(), found.exit_code)


def run(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it, tell."""
    _check_options(args)
    flow = load_flow(args.flow)
    if args.mode in SWITCHOVERS:
        with privately(), opened(flow, partial(switchover, options=_switch(args), pause=wait)) as switching:
            plan = switching.plan()
            say(plan.describe(), aside=args.json)
            approval = asked_person(flow.flow, "the switchover", plan.items, approved=args.approve)
            return _told(flow, applied(switching, as_json=args.json, approval=approval))
    with privately(), opened(flow, partial(rehearsal, options=_rehearsal(args), pause=wait)) as rehearsing:
        return _told(flow, applied(rehearsing, as_json=args.json))


def plan_orphans(args: argparse.Namespace) -> CommandResult:
    """Say what the old source holds alone; change nothing."""
    with opened(load_flow(args.flow), partial(orphan_export, options=_orphans(args), pause=wait)) as export:
        return planned(export)


def apply_orphans(args: argparse.Namespace) -> CommandResult:
    """Show the plan, ask, export, and delete behind that where it was asked for."""
    flow = load_flow(args.flow)
    with privately(), opened(flow, partial(orphan_export, options=_orphans(args), pause=wait)) as export:
        plan = export.plan()
        say(plan.describe(), aside=args.json)
        # Nobody is asked about nothing.
        approval = asked_person(
            flow.flow, "the export", plan.items, approved=args.approve or not plan.changes
        )
        return applied(export, as_json=args.json, counting="orphans", approval=approval)


def confirm(args: argparse.Namespace) -> CommandResult:
    """Tell the drill that waits that a step was done by hand."""
    with privately():
        said = confirm_step(load_flow(args.flow), args.step, wait)
    return CommandResult(said, f"told drill {said['drill']}: {args.step} is done", 0)


def _told(flow: Flow, told: CommandResult) -> CommandResult:
    report = str(report_page(flow, str(told.document["drill"])))
    return CommandResult(
        {**told.document, "report": report}, f"{told.text}\nreport: {report}", told.exit_code
    )


def _run(args: argparse.Namespace) -> str:
    """Return the command that does what was planned: with fewer words it would do something else."""
    words = ["drill", "run", str(args.flow)]
    if args.mode in SWITCHOVERS:
        words += ["--mode", str(args.mode)]
    for option, given in (("--topics", args.topics), ("--group", args.group)):
        words += [word for each in given for word in (option, each)]
    words += ["--take-over"] if args.take_over else []
    words += ["--whatever-is-lost"] if args.whatever_is_lost else []
    for option, number, usual in (("--sample", args.sample, SAMPLE), ("--canaries", args.canaries, CANARIES)):
        words += [option, str(number)] if number != usual else []
    return command(*words)


def _check_options(args: argparse.Namespace) -> None:
    """Refuse options that mean nothing here: who gives one expects something.

    Raises:
        UsageError: one is given.
    """
    given = {
        "--group": bool(args.group),
        "--sample": args.sample != SAMPLE,
        "--canaries": args.canaries != CANARIES,
        "--topics": bool(args.topics) and args.mode == DRY_RUN,
    }
    if args.mode == REHEARSAL:
        given = {"--approve": getattr(args, "approve", False)}
    if args.mode in (REHEARSAL, DRY_RUN):
        given |= {"--take-over": args.take_over, "--whatever-is-lost": args.whatever_is_lost}
    for option in [name for name, is_given in given.items() if is_given]:
        raise UsageError(
            f"{option} means nothing with --mode {args.mode}", resolve="leave it out, or name another mode"
        )


def status(args: argparse.Namespace) -> CommandResult:
    """Tell of the drills until now."""
    found = drill_history(load_flow(args.flow), wait)
    return CommandResult(found.document(), found.describe(), 0)


def abort(args: argparse.Namespace) -> CommandResult:
    """End the drill that runs, or take away what is left of one."""
    with privately():
        found = abort_drill(load_flow(args.flow), wait, if_dead=args.if_dead)
    return CommandResult(found.document(), found.describe(), 0)


def _switch(args: argparse.Namespace) -> SwitchoverOptions:
    return SwitchoverOptions(args.mode, tuple(args.topics), args.take_over, args.whatever_is_lost)


def _orphans(args: argparse.Namespace) -> OrphanOptions:
    return OrphanOptions(tuple(args.topics), args.rebuild, tuple(args.forget_group))


def _rehearsal(args: argparse.Namespace) -> RehearsalOptions:
    return RehearsalOptions(tuple(args.topics), tuple(args.group), args.sample, args.canaries)
