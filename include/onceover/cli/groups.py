"""``onceover groups``: where consumer groups go on on the other side, and putting them there."""

from __future__ import annotations

import argparse
from typing import Final

from onceover.cli.output import CommandResult, Subparsers, plan_result, say
from onceover.cli.signals import asked_to_end
from onceover.config.faults import Invalid
from onceover.config.load import load_flow
from onceover.config.units import parse_duration_ms
from onceover.engine.groupplan import GroupPlan
from onceover.engine.groups import Allowed, Direction
from onceover.errors import UsageError
from onceover.shown import visible
from onceover.wiring.groups import GroupWish, apply_groups, follow_groups, plan_groups

_EXAMPLES: Final = """examples:
  onceover groups plan   flights-dr                        every group and partition, and why; changes nothing
  onceover groups apply  flights-dr --group 'billing-.*'   show the plan, write it
  onceover groups follow flights-dr --interval 10s         again and again, until Ctrl-C
  onceover groups apply  flights-dr --direction failback   back: from the target's offsets to the source

A group is never moved backwards (unless --allow-rewind), past the end, below the start, or while it has
members on the receiving side. What the offset map does not cover is not guessed. docs/groups.md has the rest.

Exit code 0: in place, or nothing more can be done now. 3: somebody has to decide, see the plan. 5: something
could not be read: run again.
"""
_ACTIONS: Final = (
    ("plan", "say where every group would go on; change nothing"),
    ("apply", "commit the translated offsets on the other side, once"),
    ("follow", "do so again and again"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "groups", help="move consumer groups to the other side", epilog=_EXAMPLES, formatter_class=raw
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="plan|apply|follow")
    functions = {"plan": plan, "apply": apply, "follow": follow}
    for name, text in _ACTIONS:
        action = actions.add_parser(name, help=text, epilog=_EXAMPLES, formatter_class=raw)
        _add_arguments(action)
        if name == "follow":
            action.add_argument("--interval", default="10s", help="from look to look (default: 10s)")
        action.set_defaults(func=functions[name])


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", metavar="FLOW", help="name or path")
    parser.add_argument(
        "--direction",
        choices=[str(direction) for direction in Direction],
        default=str(Direction.FAILOVER),
        help="failover: source to target (default); failback: target to source",
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="REGEX",
        help="only groups whose whole name matches, among those of the flow file; may be repeated",
    )
    for flag, text in (
        ("--allow-rewind", "also move groups backwards: records are read again"),
        ("--follow-rewinds", "also backwards where the group was moved backwards on the giving side"),
        ("--follow-deletions", "delete what was written for groups that are gone on the giving side"),
        ("--take-over", "also move groups forward for which somebody else has committed since"),
    ):
        parser.add_argument(flag, action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    planned = plan_groups(load_flow(args.flow), _wish(args))
    return plan_result(planned)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, write it."""

    def show(planned: GroupPlan) -> None:
        say(planned.describe(), aside=args.json)
        if planned.watched:
            say("looking twice at what somebody else has committed ...", aside=args.json)

    with asked_to_end() as asked:
        applied = apply_groups(load_flow(args.flow), _wish(args), show, asked.wait)
    return CommandResult(applied.document(), applied.describe(), applied.exit_code)


def follow(args: argparse.Namespace) -> CommandResult:
    """Plan and write until a signal comes."""
    interval_s = _interval_s(args.interval)
    flow, wish = load_flow(args.flow), _wish(args)
    with asked_to_end() as asked:
        followed = follow_groups(
            flow, wish, interval_s, asked.wait, lambda line: say(visible(line), aside=args.json)
        )
    document = {"flow": flow.flow, "direction": str(wish.direction), **followed.document()}
    return CommandResult(document, followed.describe(), followed.exit_code)


def _wish(args: argparse.Namespace) -> GroupWish:
    allowed = Allowed(
        rewind=args.allow_rewind,
        follow_rewinds=args.follow_rewinds,
        follow_deletions=args.follow_deletions,
        take_over=args.take_over,
    )
    return GroupWish(Direction(args.direction), tuple(args.group), allowed)


def _interval_s(text: str) -> float:
    try:
        interval_ms = parse_duration_ms(text)
    except (Invalid, ValueError) as error:
        raise UsageError(
            f"--interval {text} is not understood", expected="a duration such as 500ms, 10s, 1m"
        ) from error
    if interval_ms <= 0:
        raise UsageError(f"--interval {text} is no time at all", expected="more than 0")
    return interval_ms / 1000
