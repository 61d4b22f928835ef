"""``onceover seed``: write a flow's progress from somewhere else. Plan first, then apply."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from onceover.cli.output import CommandResult, Subparsers, plan_result, say
from onceover.config.load import load_flow
from onceover.engine.seed import EARLIEST, LATEST, REFUSE, Choice, SeedPlan
from onceover.engine.seedspec import FORMS
from onceover.wiring.seeding import apply_seed, plan_seed

_EXAMPLES: Final = """examples:
  onceover seed plan  flights-dr --from group:connect-mirror     where a consumer group on the source stands
  onceover seed apply flights-dr --from timestamp:2026-01-01T00:00:00Z
  onceover seed apply flights-dr --from map                      rebuild a lost progress group, exactly
  onceover seed apply flights-dr --from file:offsets.csv --topic 'flights[.]jfk' --replace

A file is CSV with the header topic,partition,offset, or a JSON list of objects with these fields.

apply acts as a start: a running copy of the flow is fenced and ends with exit code 4; start it again
afterwards. An interrupted apply is simply run again; what it did is in
ONCEOVER_HOME/<flow>/journal/seed.jsonl.

Exit code 0: done. 3: something is refused, see the plan; the rest is done. 5: run again.
"""
_ACTIONS: Final = (
    ("plan", "say what would be written, repeated and skipped; change nothing"),
    ("apply", "fence the flow and write its progress"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "seed",
        help="write a flow's progress from a group, a time, a file or the offset map",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="plan|apply")
    for name, text in _ACTIONS:
        action = actions.add_parser(
            name, help=text, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        action.add_argument("flow", metavar="FLOW", help="name or path")
        action.add_argument("--from", dest="origin", required=True, metavar="ORIGIN", help=FORMS)
        _add_choices(action)
        action.set_defaults(func=plan if name == "plan" else apply)


def _add_choices(action: argparse.ArgumentParser) -> None:
    action.add_argument("--topic", metavar="REGEX", help="only these source topics (anchored)")
    action.add_argument("--replace", action="store_true", help="write although there is progress already")
    action.add_argument(
        "--missing",
        choices=(REFUSE, EARLIEST, LATEST),
        default=REFUSE,
        help="where partitions begin that the origin leaves out of a topic (default: refuse)",
    )
    action.add_argument("--json", action="store_true", help="print one JSON document")


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    choice, topics = Choice(args.replace, args.missing), args.topic
    planned = plan_seed(load_flow(args.flow), args.origin, choice, topics)
    return plan_result(planned)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it."""
    show = announcer(as_json=args.json)
    choice, topics = Choice(args.replace, args.missing), args.topic
    seeded = apply_seed(load_flow(args.flow), args.origin, choice, show, topics)
    return CommandResult(seeded.document(), seeded.describe(), seeded.exit_code)


def announcer(*, as_json: bool) -> Callable[[SeedPlan], None]:
    """Return what shows plans: on stdout, or on stderr where stdout is for the one document."""

    def show(planned: SeedPlan) -> None:
        say(planned.describe(), aside=as_json)

    return show
