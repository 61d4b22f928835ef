"""``onceover partition``: what to do with a stopped partition. Plan first, then ``--apply``."""

from __future__ import annotations

import argparse
from functools import partial

from onceover.cli.planned import ADD_APPLY, applied, planned
from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow
from onceover.operate.repair import SKIP, RepairRequest
from onceover.wiring.flows import opened
from onceover.wiring.repairs import repairer


def run(args: argparse.Namespace) -> CommandResult:
    """Plan, and do it where that is asked for."""
    request = RepairRequest(
        args.action,
        args.partition,
        args.offset if args.action == SKIP else None,
    )
    with opened(load_flow(args.flow), partial(repairer, request=request)) as repair:
        return applied(repair, as_json=args.json) if args.apply else planned(repair, ADD_APPLY)
