"""``onceover audit``: compare both sides of a flow, record by record, through spark-submit."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from onceover.cli import numbers
from onceover.cli.output import CommandResult, Subparsers, overwritten
from onceover.cli.sparkjob import job_result, start_job
from onceover.config.load import load_flow, run_dir
from onceover.errors import UsageError
from onceover.spark.auditprogress import progress_line
from onceover.spark.submit import AuditOptions, SparkJob, audit_job

_EXAMPLES: Final = """examples:
  onceover audit flights-dr                              what has come since the last audit
  onceover audit flights-dr --full                       everything that both sides still hold
  onceover audit flights-dr --topics 'flights[.]delays.*' --since 2026-01-31T12:00:00Z
  onceover audit flights-dr --full --sample 20 --report audit.html

ends with 0 PASS, 1 FAIL, 3 UNVERIFIABLE: something could not be compared, and it is said what and why
"""
_POLL_S: Final = 0.1


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "audit",
        help="prove that both sides hold the same records",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("flow", metavar="FLOW", help="name or path")
    parser.add_argument(
        "--topics",
        action="append",
        default=[],
        metavar="REGEX",
        help="only these source topics (anchored); may be repeated",
    )
    parser.add_argument(
        "--since",
        default="watermark",
        metavar="watermark|start|TIME",
        help="where to begin (default: where the last audit ended)",
    )
    parser.add_argument("--full", action="store_true", help="the same as --since start")
    parser.add_argument(
        "--sample",
        type=numbers.whole("number of ranges", 1, 2**31 - 1),
        metavar="N",
        help="read N ranges only, the newest among them",
    )
    parser.add_argument("--show-payload", action="store_true", help="show keys and values of what is wrong")
    parser.add_argument("--report", type=Path, metavar="PATH", help="where to write the HTML report")
    parser.add_argument("--master", help="Spark master instead of the flow file's")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> CommandResult:
    """Run the audit as a child process.

    Raises:
        OnceoverError: what the driver reported.
    """
    # Only here: the plots of the report take longer to load than most commands take to run.
    from onceover.audit.jsonreport import summary

    if args.full and args.since != "watermark":
        raise UsageError("--full and --since exclude each other", seen=f"--since {args.since}")
    flow = load_flow(args.flow)
    logs = run_dir(flow) / "log"
    # Quiet in a pipe and for machines.
    show = sys.stderr.isatty() and not args.json
    options = AuditOptions(
        topics=tuple(args.topics),
        since="start" if args.full else args.since,
        sample=args.sample,
        show_payload=args.show_payload,
        html=args.report,
        progress=logs / f"audit-{os.getpid()}.progress" if show else None,
    )
    display = _Display(flow.flow, options.progress)
    document = _execute(audit_job(flow, options, master=args.master), logs / "audit.log", display)
    text = f"{document['verdict']}: {summary(document)}\n  report  {document['report']}"
    return CommandResult(document, text, document["exit"])


class _Display:
    """Shows on a terminal what the driver is doing: one line, which goes at the end.

    Args:
        flow: its name.
        progress: where the driver says it; None shows nothing.
    """

    def __init__(self, flow: str, progress: Path | None) -> None:
        self._flow = flow
        self._progress = progress
        self._shown = ""

    def show(self) -> None:
        """Show what is new."""
        if self._progress is None:
            return
        line = f"{self._flow}: {progress_line(self._progress) or 'starting Spark'}"
        if line != self._shown:
            self._write(line)

    def end(self) -> None:
        """Leave an empty line, and no file."""
        if self._progress is not None:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()
            for left in (self._progress, self._progress.with_suffix(".new")):
                left.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        sys.stderr.write(overwritten(line, self._shown))
        sys.stderr.flush()
        self._shown = line


def _execute(job: SparkJob, log_path: Path, display: _Display) -> dict[str, Any]:
    own = job.with_own_report()
    child = start_job(own, "audit", log_path)
    # Ends like Ctrl-C: the job leaves nothing undone on the clusters, and its processes have to go.
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while child.alive:
            display.show()
            time.sleep(_POLL_S)
    finally:
        signal.signal(signal.SIGTERM, previous)
        child.stop()
        display.end()
    return job_result(own, job.report, child, log_path)
