"""``onceover groups``: where consumer groups go on on the other side, and putting them there."""

from __future__ import annotations

import argparse
from functools import partial

from onceover.cli.planned import applied, planned
from onceover.cli.terminal.output import CommandResult, say
from onceover.cli.terminal.signals import ending_signals
from onceover.config.flow.load import load_flow
from onceover.groups.decide import Allowed, Direction
from onceover.groups.follow import GroupFollowing
from onceover.planning.operation import Caller
from onceover.shown import visible
from onceover.wiring.flows import opened
from onceover.wiring.groups import GroupRequest, group_sync


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    with opened(load_flow(args.flow), partial(group_sync, request=_request(args))) as sync:
        return planned(sync)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, write it."""
    flow, making = load_flow(args.flow), partial(group_sync, request=_request(args))
    with ending_signals() as asked, opened(flow, making) as sync:
        return applied(sync, as_json=args.json, counting="groups", pause=asked.wait)


def follow(args: argparse.Namespace) -> CommandResult:
    """Plan and write until a signal comes."""
    flow, request = load_flow(args.flow), _request(args)

    def tell(line: str) -> None:
        say(visible(line), aside=args.json)

    with ending_signals() as asked, opened(flow, partial(group_sync, request=request)) as sync:
        following = GroupFollowing(sync, args.interval, pause=asked.wait, watch=asked.wait)
        followed = following.apply(Caller(lambda _: None, tell))
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
