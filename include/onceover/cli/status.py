"""``onceover status``: where every flow stands, from the live clusters."""

from __future__ import annotations

import argparse
from typing import Any, Final

from onceover.cli.output import CommandResult, Subparsers
from onceover.config.flowfile import Flow
from onceover.config.load import find_flow_files, load_flow
from onceover.config.runsettings import AT_LEAST_ONCE
from onceover.engine.status import flow_status
from onceover.engine.topicstatus import describe_topics
from onceover.engine.verified import describe_verified
from onceover.wiring.flows import open_clusters, rules

_EXAMPLES: Final = """examples:
  onceover status                     all flows of the flows directory
  onceover status flights-dr --json   one flow, for a machine

exit code 3 when a partition is stopped: the text says what to do
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "status",
        help="what is copied, what is missing, what is stopped",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("flow", nargs="?", metavar="FLOW", help="name or path (default: all flows)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> CommandResult:
    """Read the status of the flows asked for."""
    refs = [args.flow] if args.flow else find_flow_files()
    flows = [read_status(load_flow(ref)) for ref in refs]
    stopped = any(p["stop"] for f in flows for p in f["partitions"])
    text = "\n\n".join(map(describe, flows)) or "no flow files found"
    return CommandResult({"flows": flows}, text, 3 if stopped else 0)


def read_status(flow: Flow) -> dict[str, Any]:
    """Return the status of one flow; clusters are opened and closed here."""
    source, target = open_clusters(flow)
    with source, target:
        return flow_status(flow.flow, source, target, rules(flow))


def describe(status: dict[str, Any]) -> str:
    """Return a flow's status as a table for people."""
    generation = f", generation {status['generation']}" if status["generation"] else ""
    mode = f", {AT_LEAST_ONCE.replace('_', ' ')}" if status["delivery"] == AT_LEAST_ONCE else ""
    lines = [
        f"{status['flow']}: {status['state']}{generation}{mode}  "
        f"({status['source']['alias']} -> {status['target']['alias']}, lag {status['lag_offsets']} offsets, "
        f"oldest missing {status['oldest_missing_s']:.1f} s)"
    ]
    driver = status["driver"]
    if driver and status["state"] == "stopped" and not driver["alive"]:
        lines.append(f"  no sign of life from its driver for {driver['silent_ms'] / 1000:.0f} s")
    if status["generation"]:
        lines.append(f"  {describe_verified(status['verified'])}")
    if status["partitions"]:
        lines.append(
            f"  {'partition':40} {'lane':>4} {'state':12} {'position':>12} {'source LSO':>12} {'lag':>10}"
        )
    for p in status["partitions"]:
        name = p["topic"] if p["partition"] is None else f"{p['topic']}:{p['partition']}"
        lines.append(
            f"  {name:40} {_text(p['lane']):>4} {p['state']:12} {_text(p['position']):>12} "
            f"{_text(p['lso']):>12} {_text(p['lag_offsets']):>10}"
        )
        if p["open_offsets"]:
            lines.append(f"    {p['open_offsets']} offsets are behind an open source transaction")
        if p["stop"]:
            lines.append(f"    stopped: {p['stop']['message']}")
            lines.append(f"    do: {p['stop']['resolve']}")
    if summary := describe_topics(status["topics"], status["flow"]):
        lines.append(summary)
    lines += [f"  note: {n['object']}: {n['message']}; {n['resolve']}" for n in status["notes"]]
    return "\n".join(lines)


def _text(value: object) -> str:
    return "-" if value is None else str(value)
