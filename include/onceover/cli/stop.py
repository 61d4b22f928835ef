"""``onceover stop``: end a running flow; its open transactions are finished."""

from __future__ import annotations

import argparse
from typing import Final

from onceover.cli import numbers
from onceover.cli.output import CommandResult, Subparsers
from onceover.config.load import load_flow
from onceover.engine.requests import request_stop
from onceover.wiring.flows import open_clusters

_EXAMPLES: Final = """examples:
  onceover stop flights-dr
  onceover stop flights-dr --wait 60

exits with 4 when another start has taken over meanwhile and goes on: stop again to end that one, too
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "stop",
        help="end a running flow gracefully",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("flow", metavar="FLOW", help="name or path")
    parser.add_argument(
        "--wait",
        type=numbers.seconds("time to wait", 0, 86400),
        default=30.0,
        metavar="SECONDS",
        help="how long to wait (default: 30)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> CommandResult:
    """Ask the flow to stop and wait for it."""
    flow = load_flow(args.flow)
    source, target = open_clusters(flow)
    with source, target:
        result = request_stop(target, flow.flow, wait_s=args.wait)
    text = f"{flow.flow} has stopped" if result["was_running"] else f"{flow.flow} was not running"
    return CommandResult({"flow": flow.flow, **result}, text)
