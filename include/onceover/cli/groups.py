"""``onceover groups``: where consumer groups go on on the other side, and putting them there."""

from __future__ import annotations

import argparse

from onceover.cli.display import Counter
from onceover.cli.output import CommandResult, plan_result, say
from onceover.cli.signals import asked_to_end
from onceover.config.load import load_flow
from onceover.groups.decide import Allowed, Direction
from onceover.groups.plan import GroupPlan
from onceover.shown import visible
from onceover.wiring.groups import GroupRequest, apply_groups, follow_groups, plan_groups


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    planned = plan_groups(load_flow(args.flow), _request(args))
    return plan_result(planned)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, write it."""

    def show(planned: GroupPlan) -> None:
        say(planned.describe(), aside=args.json)
        if planned.watched:
            say("looking twice at what somebody else has committed ...", aside=args.json)

    with asked_to_end() as asked, Counter("groups", wanted=not args.json) as counted:
        applied = apply_groups(load_flow(args.flow), _request(args), show, asked.wait, counted)
    return CommandResult(applied.document(), applied.describe(), applied.exit_code)


def follow(args: argparse.Namespace) -> CommandResult:
    """Plan and write until a signal comes."""
    flow, request = load_flow(args.flow), _request(args)
    with asked_to_end() as asked:
        followed = follow_groups(
            flow, request, args.interval, asked.wait, lambda line: say(visible(line), aside=args.json)
        )
    document = {"flow": flow.flow, "direction": str(request.direction), **followed.document()}
    return CommandResult(document, followed.describe(), followed.exit_code)


def _request(args: argparse.Namespace) -> GroupRequest:
    allowed = Allowed(
        rewind=args.allow_rewind,
        follow_rewinds=args.follow_rewinds,
        follow_deletions=args.follow_deletions,
        take_over=args.take_over,
    )
    return GroupRequest(Direction(args.direction), tuple(args.group), allowed)
