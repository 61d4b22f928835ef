"""``onceover status``: where every flow stands, from the live clusters."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from onceover.cli.terminal.output import CommandResult
from onceover.cli.terminal.statustext import describe, headline
from onceover.config.flow.load import load_flow
from onceover.operate.statusshape import worst
from onceover.wiring.status import read_all, read_one


def run(args: argparse.Namespace) -> CommandResult:
    """Read the status of the flows asked for.

    Raises:
        UsageError: the flow that was named is not in order; among all flows, that is said in its entry.
    """
    if args.flow:
        flows = [read_one(load_flow(args.flow), patience_s=args.patience)]
    else:
        flows = read_all(patience_s=args.patience)
    return CommandResult({"flows": flows}, text(flows), worst(flow["exit"] for flow in flows))


def text(flows: Sequence[Mapping[str, Any]]) -> str:
    """Return the flows for people: first who needs somebody, then each by itself."""
    if not flows:
        return "no flow files found"
    head = [headline(flows)] if len(flows) > 1 else []
    return "\n\n".join([*head, *map(describe, flows)])
