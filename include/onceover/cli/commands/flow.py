"""``onceover flow check`` and ``onceover flow import``: look at flow files.

Only a sample, and ``--explain`` without a topic, read a cluster. What these need, and what a handler needs,
is loaded where it is used: it takes longer to load than the rest takes to run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onceover.cli.terminal.output import CommandResult
from onceover.config.clients.clusterspec import ClusterSpec
from onceover.config.clients.resolve import ClientConfig
from onceover.config.faults import BadConfig, Fault
from onceover.config.files import decoded, read_bytes
from onceover.config.flow.advice import advise
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import flows_dir, load_flow
from onceover.config.flow.sides import resolve_clients
from onceover.config.mirrormaker.mm2 import Mm2Import, import_mm2
from onceover.replacing import put_together
from onceover.shown import lined
from onceover.topics.scope import ScopeDecision, explain, explain_all
from onceover.topics.scopecheck import scope_remarks

VIOLATION = 1


def check(ref: str, topics: Sequence[str] = ()) -> dict[str, Any]:
    """Return what the flow file ``ref`` says, secrets as ``***``. Connects to nothing.

    A handler is imported and made as the workers do it, in a process of its own.

    Args:
        ref: name or path of the flow file.
        topics: source topics to explain: whether each is part of the flow, and why.

    Raises:
        UsageError: the file, a Connection, a client file or the handler is not in order.
    """
    flow = load_flow(ref)
    source, target = resolve_clients(flow)
    if flow.handler is not None:
        from onceover.wiring.apart import partitions_apart

        with partitions_apart(flow):
            pass
    return {
        "flow": flow.flow,
        "path": str(flow.path),
        "sha256": flow.sha256,
        "source": _side(flow.source, source),
        "target": _side(flow.target, target),
        "lanes": flow.lanes,
        "handler": flow.handler,
        "warnings": advise(flow, source, target),
        "topics": [explain_topic(topic, flow) for topic in topics],
    }


def explain_topic(topic: str, flow: Flow) -> dict[str, Any]:
    """Return whether ``topic`` is part of the flow, why, and how its copy is called."""
    from onceover.wiring.flows import rules

    return _explained(explain(topic, rules(flow)))


def explain_source(flow: Flow) -> tuple[list[dict[str, Any]], list[str]]:
    """Return every topic of the source with whether it is part of the flow; and what deserves a look.

    Raises:
        Retriable: the source is away.
    """
    from onceover.wiring.flows import open_clusters, rules

    which = rules(flow)
    source, target = open_clusters(flow)
    with source, target:
        topics = source.retry(source.topics)
    verdicts = explain_all(topics, which)
    remarks = scope_remarks(flow.flow, which, verdicts)
    return [_explained(each) for each in verdicts], [f"{each.object}: {each.message}" for each in remarks]


def _explained(verdict: ScopeDecision) -> dict[str, Any]:
    return {
        "topic": verdict.topic,
        "target_topic": verdict.target_topic,
        "in": verdict.inside,
        "reason": verdict.reason,
    }


def import_(path: str | Path, out_dir: str | Path, force: bool = False) -> dict[str, Any]:
    """Write the flow files that the MirrorMaker 2 file ``path`` amounts to into ``out_dir``.

    Nothing is written unless everything can be: an existing file is replaced only with ``force``.

    Raises:
        UsageError: ``path`` cannot be read or translated, or a file exists already.
    """
    origin, folder = Path(path), Path(out_dir)
    result = import_mm2(decoded(read_bytes(origin, "MirrorMaker 2 properties file"), origin), origin)
    files = {folder / f"{flow.name}.yaml": flow.text for flow in result.flows}
    folders = [file for file in files if file.is_dir()]
    if folders:
        raise BadConfig(Fault(str(file), "", "is a directory", "remove it, or use --out") for file in folders)
    existing = [file for file in files if file.exists()]
    if existing and not force:
        raise BadConfig(
            Fault(str(file), "", "exists already", "remove it, use --out, or replace it with --force")
            for file in existing
        )
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            # As the files in it: who runs the flows may be another user.
            folder.chmod(0o755)
        put_together(files, for_all=True)
    except OSError as error:
        fault = Fault(
            str(folder), "", f"cannot be written: {error.strerror}", "name another directory with --out"
        )
        raise BadConfig([fault]) from error
    return _import_document(origin, list(files), result)


def run_check(args: argparse.Namespace) -> CommandResult:
    """Say what is wrong with a flow file, or what it says."""
    document = check(args.flow, [topic for topic in args.explain if topic is not None])
    if None in args.explain:
        topics, remarks = explain_source(load_flow(args.flow))
        document["topics"] += topics
        document["warnings"] += remarks
    lines = [f"{document['flow']}: in order ({document['path']})"]
    for side in ("source", "target"):
        cluster = document[side]
        servers = cluster["client"]["bootstrap.servers"]
        lines.append(f"  {side}  {cluster['alias']} at {servers} (from {cluster['from']})")
    lines.append(f"  lanes   {document['lanes']}")
    if document["handler"]:
        lines.append(f"  handler {document['handler']}")
    lines += [f"  warning: {warning}" for warning in document["warnings"]]
    for topic in document["topics"]:
        fate = f"in, as {topic['target_topic']}" if topic["in"] else "out"
        lines.append(f"  topic {topic['topic']}: {fate} ({topic['reason']})")
    if args.sample is None:
        return CommandResult(document, lined(lines))
    from onceover.wiring.sampling import take_sample

    sampled = take_sample(load_flow(args.flow), args.sample, payload=sys.stdout.isatty())
    document["sample"] = sampled.document
    lines += sampled.lines
    failed = document["sample"]["failed"]
    return CommandResult(document, lined(lines), VIOLATION if failed else 0)


def run_import(args: argparse.Namespace) -> CommandResult:
    """Make flow files, and say what is left to do."""
    document = import_(args.file, args.out or flows_dir(), args.force)
    lines = [f"wrote {file}" for file in document["files"]]
    lines += [f"note: {note}" for note in document["notes"]]
    if document["no_counterpart"]:
        lines.append("without counterpart:")
    for entry in document["no_counterpart"]:
        lines.append(f"  {entry['key']} = {entry['value']}: {entry['reason']}")
    lines += [f"left to do: {task}" for task in document["left_to_do"]]
    return CommandResult(document, lined(lines))


def _side(spec: ClusterSpec, client: ClientConfig) -> dict[str, Any]:
    return {"alias": spec.alias, "from": spec.origin, "client": client.redacted()}


def _import_document(origin: Path, files: list[Path], result: Mm2Import) -> dict[str, Any]:
    return {
        "path": str(origin),
        "files": [str(file) for file in files],
        "flows": [flow.name for flow in result.flows],
        "no_counterpart": [entry._asdict() for entry in result.no_counterpart],
        "notes": list(result.notes),
        "left_to_do": [str(fault) for file in files for fault in _faults(file)],
    }


def _faults(file: Path) -> tuple[Fault, ...]:
    """Return what ``flow check`` would say about a file just written."""
    try:
        load_flow(file)
    except BadConfig as error:
        return error.faults
    return ()
