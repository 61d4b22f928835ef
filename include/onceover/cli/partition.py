"""``onceover partition``: what to do with a stopped partition. Plan first, then ``--apply``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

from onceover.cli.output import CommandResult, Subparsers
from onceover.config.flowfile import Flow
from onceover.config.load import load_flow
from onceover.engine import repair
from onceover.errors import UsageError
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition
from onceover.wiring.flows import identity, open_clusters

_EXAMPLES: Final = """examples:
  onceover partition resume  flights-dr flights.jfk:3          look again, the cause is gone
  onceover partition skip-to flights-dr flights.jfk:3 8812     plan: go on at source offset 8812
  onceover partition skip-to flights-dr flights.jfk:3 8812 --apply
  onceover partition reseed  flights-dr flights.jfk:3 --apply  copy it again from its start

skip-to and reseed act as a start: a running copy of the flow is fenced and has to be started again
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
    for name, function, text in (
        ("resume", resume, "look at a stopped partition again"),
        ("skip-to", skip_to, "go on at a source offset"),
        ("reseed", reseed, "enrol its topic anew and copy the partition from its start"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("flow", metavar="FLOW", help="name or path")
        action.add_argument("partition", metavar="TOPIC:PARTITION", help="source topic and partition")
        if name == "skip-to":
            action.add_argument("offset", type=int, metavar="OFFSET", help="next source offset to copy")
        action.add_argument(
            "--apply", action="store_true", help="do it (without: only say what would be done)"
        )
        action.add_argument("--json", action="store_true", help="print one JSON document")
        action.set_defaults(func=function)


def resume(args: argparse.Namespace) -> CommandResult:
    """Ask the running flow to look again."""
    return _with_flow(args, lambda flow, s, t, tp: repair.plan_resume(flow.flow, t, tp))


def skip_to(args: argparse.Namespace) -> CommandResult:
    """Set the next source offset of a partition."""
    if args.offset < 0:
        raise UsageError(f"offset {args.offset} is negative", expected="the next source offset to copy")
    return _with_flow(args, lambda flow, s, t, tp: repair.plan_skip(flow.flow, s, t, tp, args.offset))


def reseed(args: argparse.Namespace) -> CommandResult:
    """Copy a partition again from its start."""
    return _with_flow(args, lambda flow, s, t, tp: repair.plan_reseed(flow.flow, s, t, tp))


Planner = Callable[[Flow, Cluster, Cluster, TopicPartition], repair.Repair]


def _with_flow(args: argparse.Namespace, plan: Planner) -> CommandResult:
    tp = parse_partition(args.partition)
    flow = load_flow(args.flow)
    source, target = open_clusters(flow)
    with source, target:
        planned = plan(flow, source, target, tp)
        document: dict[str, Any] = planned.document()
        if args.apply and not planned.refused:
            document["applied"] = True
            document["generation"] = repair.apply(identity(flow), source, target, planned)
    text = planned.describe()
    if not planned.refused:
        text += "\ndone" if document.get("applied") else "\nnothing was changed; add --apply to do it"
    return CommandResult(document, text, 3 if planned.refused else 0)


def parse_partition(text: str) -> TopicPartition:
    """Read ``TOPIC:PARTITION``.

    Raises:
        UsageError: not of that form.
    """
    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise UsageError(
            f"{text!r} names no partition",
            expected="TOPIC:PARTITION, for example flights.jfk:3",
        )
    return TopicPartition(topic, int(number))
