"""``onceover status``: where every flow stands, from the live clusters."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from onceover.cli.terminal.output import CommandResult
from onceover.cli.terminal.statustext import describe, headline
from onceover.config.files import FLOWS_VARIABLE
from onceover.config.flow.load import flows_dir, load_flow
from onceover.errors import UsageError
from onceover.exitstatus import worst
from onceover.wiring.status import read_all, read_one
from onceover.wiring.why import explain_topic


def run(args: argparse.Namespace) -> CommandResult:
    """Read the status of the flows asked for.

    Raises:
        UsageError: the flow that was named is not in order; among all flows, that is said in its entry. Or
            no flow is named beside a topic.
    """
    if args.topic is not None:
        return _why(args)
    if args.flow:
        flows = [read_one(load_flow(args.flow), patience_s=args.patience)]
    else:
        flows = read_all(patience_s=args.patience)
    return CommandResult({"flows": flows}, text(flows), worst(flow["exit"] for flow in flows))


def _why(args: argparse.Namespace) -> CommandResult:
    topic, partition = args.topic
    if args.flow is None:
        raise UsageError(
            "--topic wants a flow: a topic may be in one and out in another",
            resolve=f"onceover status FLOW --topic {topic}",
        )
    found = explain_topic(load_flow(args.flow), topic, partition, patience_s=args.patience)
    return CommandResult({"flow": args.flow, "why": found.document()}, found.describe(), found.exit_code)


def text(flows: Sequence[Mapping[str, Any]]) -> str:
    """Return the flows for people: first who needs somebody, then each by itself."""
    if not flows:
        fix = f"name one by its path, or set {FLOWS_VARIABLE} to their directory"
        return f"no flow files in {flows_dir()}; {fix}"
    head = [headline(flows)] if len(flows) > 1 else []
    return "\n\n".join([*head, *map(describe, flows)])
