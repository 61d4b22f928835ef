"""``onceover partition``: what to do with a stopped partition. Plan first, then ``--apply``."""

from __future__ import annotations

import argparse
from typing import Any, Final

from onceover.cli import numbers
from onceover.cli.output import CommandResult, Subparsers
from onceover.config.load import load_flow
from onceover.engine import commands
from onceover.engine.repair import RESEED, RESUME, SKIP, Repair
from onceover.engine.repairapply import Repaired
from onceover.errors import UsageError
from onceover.model import TopicPartition
from onceover.wiring import repairs
from onceover.wiring.repairs import RepairWish

_EXAMPLES: Final = """examples:
  onceover partition resume  flights-dr flights.jfk:3 --apply  look again, the cause is gone
  onceover partition resume  flights-dr --apply                look again at every stopped partition
  onceover partition skip-to flights-dr flights.jfk:3 8812     plan: go on at source offset 8812
  onceover partition skip-to flights-dr flights.jfk:3 8812 --apply
  onceover partition reseed  flights-dr flights.jfk:3 --apply  copy it again from its start

every one prints its plan first and changes nothing without --apply; onceover status names the stopped
partitions and the command for each. skip-to and reseed act as a start: a running copy of the flow is
fenced and has to be started again. reseed creates a target topic that is gone, or adds its partitions
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "partition",
        help="resume, skip or reseed a stopped partition",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="resume|skip-to|reseed")
    for name, text in (
        (RESUME, "look at stopped partitions again"),
        (SKIP, "go on at a source offset"),
        (RESEED, "enrol its topic anew and copy the partition from its start"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("flow", metavar="FLOW", help="name or path")
        action.add_argument(
            "partition",
            nargs="?" if name == RESUME else None,
            metavar="TOPIC:PARTITION",
            help="source topic and partition"
            + (" (default: all that are stopped)" if name == RESUME else ""),
        )
        if name == SKIP:
            action.add_argument(
                "offset", type=numbers.offset, metavar="OFFSET", help="next source offset to copy"
            )
        action.add_argument(
            "--apply", action="store_true", help="do it (without: only say what would be done)"
        )
        action.add_argument("--json", action="store_true", help="print one JSON document")
        action.set_defaults(func=run)


def run(args: argparse.Namespace) -> CommandResult:
    """Plan, and do it where that is asked for."""
    wish = RepairWish(
        args.action,
        None if args.partition is None else parse_partition(args.partition),
        args.offset if args.action == SKIP else None,
    )
    flow = load_flow(args.flow)
    if not args.apply:
        planned = repairs.plan_repair(flow, wish)
        return CommandResult(planned.document(), f"{planned.describe()}{_hint(planned)}", planned.exit_code)
    return _applied(repairs.apply_repair(flow, wish, lambda _: None))


def _hint(planned: Repair) -> str:
    if planned.refused or not planned.changes:
        return ""
    return "\nnothing was changed; add --apply to do it"


def _applied(done: Repaired) -> CommandResult:
    plan, text = done.plan, done.plan.describe()
    document: dict[str, Any] = plan.document()
    if not plan.refused and plan.changes:
        document["applied"] = True
        document["generation"] = done.generation
        text += "\ndone"
        if plan.is_start:
            text += f"; start the flow again: {commands.replicate(plan.flow)}"
    return CommandResult(document, text, plan.exit_code)


def parse_partition(text: str) -> TopicPartition:
    """Read ``TOPIC:PARTITION``.

    Raises:
        UsageError: not of that form.
    """
    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise UsageError(
            f"{numbers.short(text)} names no partition",
            expected="TOPIC:PARTITION, for example flights.jfk:3",
        )
    return TopicPartition(topic, numbers.partition(number))
