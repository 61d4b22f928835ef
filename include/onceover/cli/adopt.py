"""``onceover adopt``: take over a MirrorMaker 2 flow without a lost or repeated record. Plan, then apply."""

from __future__ import annotations

import argparse

from onceover.cli.output import CommandResult, plan_result
from onceover.cli.seed import announcer, counter
from onceover.config.load import load_flow
from onceover.wiring.seeding import Adoption, apply_adoption, plan_adoption


def _request(args: argparse.Namespace) -> Adoption:
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
    planned = plan_adoption(load_flow(args.flow), _request(args))
    return plan_result(planned)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it."""
    announce = announcer(as_json=args.json)
    with counter(args) as counted:
        adopted = apply_adoption(load_flow(args.flow), _request(args), announce, counted=counted)
    return CommandResult(adopted.document(), adopted.describe(), adopted.exit_code)
