"""``onceover adopt``: take over a MirrorMaker 2 flow without a lost or repeated record. Plan, then apply."""

from __future__ import annotations

import argparse
from typing import Final

from onceover.cli import numbers
from onceover.cli.output import CommandResult, Subparsers, plan_result
from onceover.cli.seed import announcer
from onceover.config.load import load_flow
from onceover.engine.seamsearch import DEFAULT_LIMIT
from onceover.wiring.seeding import Adoption, apply_adoption, plan_adoption

_EXAMPLES: Final = """examples:
  onceover adopt plan  flights-dr                         where MirrorMaker stands, and how that is proven
  onceover adopt apply flights-dr                         fence it, and go on from there
  onceover adopt apply flights-dr --mm2-source primary    where MirrorMaker calls the source cluster so
  onceover adopt apply flights-dr --decided offsets.csv   with offsets for what cannot be proven

MirrorMaker has to be stopped. The target's topics stay as they are, and so do their consumers' positions.
Names are those of dedicated mode unless told otherwise. docs/adopting-mirrormaker.md is the runbook.

Exit code 0: done. 3: something is refused, see the plan; the rest is done. 5: run again.
"""
_ACTIONS: Final = (
    ("plan", "compare both sides and say where each partition goes on; change nothing"),
    ("apply", "fence MirrorMaker and write the flow's progress"),
)


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "adopt",
        help="take over a flow from MirrorMaker 2",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="plan|apply")
    for name, text in _ACTIONS:
        action = actions.add_parser(name, help=text, epilog=_EXAMPLES, formatter_class=parser.formatter_class)
        action.add_argument("flow", metavar="FLOW", help="name or path")
        _add_options(action)
        action.set_defaults(func=plan if name == "plan" else apply)


def _add_options(action: argparse.ArgumentParser) -> None:
    action.add_argument("--topic", metavar="REGEX", help="only these source topics (anchored)")
    action.add_argument("--mm2-source", metavar="ALIAS", help="MirrorMaker's alias of the source cluster")
    action.add_argument("--mm2-target", metavar="ALIAS", help="MirrorMaker's alias of the target cluster")
    action.add_argument("--offsets-topic", metavar="TOPIC", help="Connect's offsets topic on the target")
    action.add_argument(
        "--configs-topic", metavar="TOPIC", help="Connect's configuration topic on the target"
    )
    action.add_argument("--connect-group", metavar="GROUP", help="group of Connect's workers on the target")
    action.add_argument(
        "--workers-stay",
        action="store_true",
        help="the connector was stopped in a Connect cluster whose workers go on",
    )
    action.add_argument("--decided", metavar="FILE", help="offsets for partitions that cannot be proven")
    action.add_argument(
        "--window",
        type=numbers.whole("number of records", 1, 2**31 - 1),
        default=DEFAULT_LIMIT,
        metavar="RECORDS",
        help=f"records of a partition to compare at most (default {DEFAULT_LIMIT})",
    )
    action.add_argument("--json", action="store_true", help="print one JSON document")


def _wish(args: argparse.Namespace) -> Adoption:
    return Adoption(
        source=args.mm2_source,
        target=args.mm2_target,
        offsets_topic=args.offsets_topic,
        configs_topic=args.configs_topic,
        group=args.connect_group,
        workers_stay=args.workers_stay,
        decided=args.decided,
        window=args.window,
        topics=args.topic,
    )


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    planned = plan_adoption(load_flow(args.flow), _wish(args))
    return plan_result(planned)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it."""
    adopted = apply_adoption(load_flow(args.flow), _wish(args), announcer(as_json=args.json))
    return CommandResult(adopted.document(), adopted.describe(), adopted.exit_code)
