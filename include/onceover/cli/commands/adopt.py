"""``onceover adopt``: take over a MirrorMaker 2 flow without a lost or repeated record. Plan, then apply."""

from __future__ import annotations

import argparse
from functools import partial

from onceover.cli.planned import applied, planned
from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow
from onceover.wiring.failovers.seeding import AdoptionOptions, adopter
from onceover.wiring.flows import opened


def _request(args: argparse.Namespace) -> AdoptionOptions:
    return AdoptionOptions(
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
    with opened(load_flow(args.flow), partial(adopter, request=_request(args))) as adoption:
        return planned(adoption)


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it."""
    with opened(load_flow(args.flow), partial(adopter, request=_request(args))) as adoption:
        return applied(adoption, as_json=args.json, counting="positions")
