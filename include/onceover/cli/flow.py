"""``onceover flow check`` and ``onceover flow import``: look at flow files.

Only a sample, and ``--explain`` without a topic, read a cluster.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onceover.cli.output import CommandResult
from onceover.cli.sample import document as sample_document
from onceover.cli.sample import lines as sample_lines
from onceover.cli.sample import take_sample
from onceover.config.advice import advise
from onceover.config.clients import ClientConfig, resolve_clients
from onceover.config.faults import BadConfig, Fault
from onceover.config.flowfile import ClusterSpec, Flow
from onceover.config.load import flows_dir, load_flow
from onceover.config.mm2 import Mm2Import, import_mm2
from onceover.config.runsettings import RunSettings
from onceover.engine.scope import Verdict, explain
from onceover.engine.scopecheck import scope_remarks
from onceover.shown import lined
from onceover.wiring.flows import open_clusters, rules
from onceover.wiring.treatments import treatment_of

_EXAMPLES = """examples:
  onceover flow check flights-dr
  onceover flow import mm2.properties
"""
VIOLATION = 1
# What a person looks at; the whole topic is what the copy is for.
_MAX_SAMPLE = 10_000
_CHECK_EXAMPLES = """examples:
  onceover flow check flights-dr            the file include/flows/flights-dr.yaml
  onceover flow check ./orders.yaml --json  any file; the result as JSON
  onceover flow check flights-dr --explain flights.jfk    is this topic copied, and why
  onceover flow check flights-dr --explain      all topics of the source, and patterns that match none
  onceover flow check flights-dr --sample 100    what the handler does to 100 live records; reads only

Exit code 0: in order. 1: the handler fails on a record of the sample. 2: every fault in a line of its
own, with file, key and fix."""

_IMPORT_EXAMPLES = """examples:
  onceover flow import mm2.properties                 into the flows directory
  onceover flow import mm2.properties --out /tmp/new  into another one

Makes one flow file of each enabled A->B pair and lists every setting that has no counterpart.
Passwords are replaced by ${NAME}; the variables to set are listed."""


def check(ref: str, topics: Sequence[str] = ()) -> dict[str, Any]:
    """Return what the flow file ``ref`` says, secrets as ``***``. Connects to nothing.

    A handler is imported and made as the workers do it.

    Args:
        ref: name or path of the flow file.
        topics: source topics to explain: whether each is part of the flow, and why.

    Raises:
        UsageError: the file, a Connection, a client file or the handler is not in order.
    """
    flow = load_flow(ref)
    source, target = resolve_clients(flow)
    treatment_of(flow, RunSettings.of(flow))
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
    verdict = explain(topic, rules(flow))
    return _explained(verdict)


def explain_source(flow: Flow) -> tuple[list[dict[str, Any]], list[str]]:
    """Return every topic of the source with whether it is part of the flow; and what deserves a look.

    Raises:
        Retriable: the source is away.
    """
    which = rules(flow)
    source, target = open_clusters(flow)
    with source, target:
        topics = source.retry(source.topics)
    verdicts = [explain(name, which, is_internal=topics[name].is_internal) for name in sorted(topics)]
    remarks = scope_remarks(flow.flow, which, verdicts)
    return [_explained(each) for each in verdicts], [f"{each.object}: {each.message}" for each in remarks]


def _explained(verdict: Verdict) -> dict[str, Any]:
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
    result = import_mm2(_read(origin), origin)
    files = {folder / f"{flow.name}.yaml": flow.text for flow in result.flows}
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
        for file, text in files.items():
            _write(file, text)
    except OSError as error:
        fault = Fault(
            str(folder), "", f"cannot be written: {error.strerror}", "name another directory with --out"
        )
        raise BadConfig([fault]) from error
    return _import_document(origin, list(files), result)


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``flow check`` and ``flow import`` to the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    flow = subparsers.add_parser(
        "flow",
        help="check flow files, or make them from MirrorMaker 2",
        epilog=_EXAMPLES,
        formatter_class=raw,
    )
    commands = flow.add_subparsers(dest="action", metavar="check|import", required=True)
    checker = commands.add_parser(
        "check",
        help="say everything that is wrong with a flow file",
        epilog=_CHECK_EXAMPLES,
        formatter_class=raw,
    )
    checker.add_argument("flow", metavar="FLOW", help="stem of a file in the flows directory, or a path")
    checker.add_argument(
        "--explain",
        metavar="TOPIC",
        action="append",
        nargs="?",
        const=None,
        default=[],
        help="say whether this source topic is copied, and why (may be given several times); "
        "without TOPIC: of every topic of the source, which is read",
    )
    checker.add_argument(
        "--sample",
        metavar="N",
        type=_count,
        help="run the flow's handler over up to N live records of the source and show what it changes",
    )
    checker.add_argument("--json", action="store_true", help="print one JSON document")
    checker.set_defaults(func=_run_check)
    importer = commands.add_parser(
        "import",
        help="turn a MirrorMaker 2 properties file into flow files",
        epilog=_IMPORT_EXAMPLES,
        formatter_class=raw,
    )
    importer.add_argument("file", metavar="FILE", help="the properties file of connect-mirror-maker.sh")
    importer.add_argument("--out", metavar="DIR", help="where to write (default: the flows directory)")
    importer.add_argument("--force", action="store_true", help="replace files that exist")
    importer.add_argument("--json", action="store_true", help="print one JSON document")
    importer.set_defaults(func=_run_import)


def _run_check(args: argparse.Namespace) -> CommandResult:
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
    outcomes = take_sample(load_flow(args.flow), args.sample)
    document["sample"] = sample_document(outcomes)
    lines += sample_lines(outcomes, payload=sys.stdout.isatty())
    failed = document["sample"]["failed"]
    return CommandResult(document, lined(lines), VIOLATION if failed else 0)


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MAX_SAMPLE:
        raise argparse.ArgumentTypeError(f"expected 1 to {_MAX_SAMPLE}")
    return number


def _run_import(args: argparse.Namespace) -> CommandResult:
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


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        fault = Fault(
            str(path), "", f"cannot be read: {error.strerror}", "name a MirrorMaker 2 properties file"
        )
        raise BadConfig([fault]) from error
    except UnicodeDecodeError:
        raise BadConfig([Fault(str(path), "", "is not UTF-8 text", "save it as UTF-8")]) from None


def _write(file: Path, text: str) -> None:
    """Put ``text`` in place at once: a half-written flow file would be a wrong one."""
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem}-", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(file)
    finally:
        Path(temporary).unlink(missing_ok=True)
