"""``onceover drill``: what a failover would cost now, and what stands in its way."""

from __future__ import annotations

import argparse

from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow
from onceover.wiring.drills import dry_run


def plan(args: argparse.Namespace) -> CommandResult:
    """Look at everything; change nothing."""
    found = dry_run(load_flow(args.flow))
    return CommandResult(found.document(), found.describe(), found.exit_code)
