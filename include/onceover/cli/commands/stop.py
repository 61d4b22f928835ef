"""``onceover stop``: end a running flow; its open transactions are finished."""

from __future__ import annotations

import argparse

from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow
from onceover.stops.requests import request_stop
from onceover.wiring.flows import open_clusters


def run(args: argparse.Namespace) -> CommandResult:
    """Ask the flow to stop and wait for it."""
    flow = load_flow(args.flow)
    source, target = open_clusters(flow)
    with source, target:
        result = request_stop(target, flow.flow, wait_s=args.wait)
    text = f"{flow.flow} has stopped" if result["was_running"] else f"{flow.flow} was not running"
    return CommandResult({"flow": flow.flow, **result}, text)
