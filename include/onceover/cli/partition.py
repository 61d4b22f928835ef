"""``onceover partition``: what to do with a stopped partition. Plan first, then ``--apply``."""

from __future__ import annotations

import argparse
from typing import Any

from onceover.cli.output import CommandResult
from onceover.config.load import load_flow
from onceover.operate.repair import SKIP, Repair
from onceover.operate.repairapply import Repaired
from onceover.planning import commands
from onceover.wiring import repairs
from onceover.wiring.repairs import RepairRequest


def run(args: argparse.Namespace) -> CommandResult:
    """Plan, and do it where that is asked for."""
    request = RepairRequest(
        args.action,
        args.partition,
        args.offset if args.action == SKIP else None,
    )
    flow = load_flow(args.flow)
    if not args.apply:
        planned = repairs.plan_repair(flow, request)
        return CommandResult(planned.document(), f"{planned.describe()}{_hint(planned)}", planned.exit_code)
    return _applied(repairs.apply_repair(flow, request, lambda _: None))


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
