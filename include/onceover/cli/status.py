"""``onceover status``: where every flow stands, from the live clusters."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceover.cli import numbers
from onceover.cli.output import CommandResult, Subparsers
from onceover.cli.statustext import describe, headline
from onceover.config.load import load_flow
from onceover.engine.statusshape import worst
from onceover.wiring.status import PATIENCE_S, read_all, read_one

_EXAMPLES: Final = f"""examples:
  onceover status                     all flows of the flows directory
  onceover status flights-dr --json   one flow, for a machine
  onceover status --patience 20       over a slow line

All flows are asked at the same time. A cluster that does not answer is given up on after {PATIENCE_S:.0f} s
(--patience): the rest is shown, with the error, and what it alone knows is null, never 0.

exit code: the first of these that applies to a flow
  1  its last audit found records that are not as they should be
  3  it waits for a person: something is stopped, its driver is gone or failed, it cannot be read
  2  its file, or one of its clients, is not in order
  5  a cluster does not answer
  0  none of these; with a lag, too, while it is being copied or was not asked to be
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "status",
        help="what is copied, what is missing, what waits for a person",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("flow", nargs="?", metavar="FLOW", help="name or path (default: all flows)")
    parser.add_argument(
        "--patience",
        type=numbers.seconds("patience", 0.1, 3600),
        default=PATIENCE_S,
        metavar="SECONDS",
        help=f"how long a cluster may leave us without an answer (default: {PATIENCE_S:.0f})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(func=run)


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
