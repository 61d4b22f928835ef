"""``onceover audit``: compare both sides of a flow, record by record, through spark-submit."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onceover.audit.codes import AuditCode
from onceover.audit.report.runs import is_served
from onceover.cli.sparkjob import JobEnd, job_end, running_job
from onceover.cli.terminal.display import Display, ProgressRate
from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow, run_dir
from onceover.config.home import onceover_home
from onceover.errors import OnceoverError, UsageError
from onceover.process.children import ChildProcess
from onceover.replacing import is_replaceable
from onceover.shown import lined
from onceover.spark.auditing.auditprogress import AuditProgress, last_told
from onceover.spark.launch.runfiles import own_report
from onceover.spark.launch.submit import AuditOptions, SparkJob, audit_job

_POLL_S: Final = 0.1


def run(args: argparse.Namespace) -> CommandResult:
    """Run the audit as a child process.

    Raises:
        OnceoverError: what the driver reported.
    """
    if args.full and args.since != "watermark":
        raise UsageError("--full and --since exclude each other", seen=f"--since {args.since}")
    _check_report(args.report, show_payload=args.show_payload)
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
        # Under a run's own name: what a run that was killed leaves is removed with its report.
        progress=own_report(logs / "audit.progress") if show else None,
    )
    progress = _Progress(flow.flow, options.progress)
    end = _execute(audit_job(flow, options, master=args.master).with_own_files(), progress)
    # A page that could not be written takes nothing from the answer; any other error was there before one.
    document = end.document if end.error is not None and end.error.code in {*AuditCode} else end.result()
    return CommandResult(document, _text(document, end.error), document["exit"])


def _text(document: Mapping[str, Any], refused: OnceoverError | None) -> str:
    """Return the answer for people: where it went wrong first, and what to do.

    Args:
        refused: why a page was not written.
    """
    # Only here: the plots of the report take longer to load than most commands take to run.
    from onceover.audit.report.jsonreport import summary
    from onceover.audit.report.nextsteps import first_wrong

    first = first_wrong(document)
    lines = [f"{document['verdict']}: {summary(document)}"]
    lines += [] if first is None else [f"  first   {first}"]
    lines += [f"  do      {step}" for step in document["next_steps"]]
    if document["report"] is not None:
        lines.append(f"  report  {document['report']}")
    lines += [] if refused is None else [f"  error   {refused.message}: {refused.resolve}"]
    return lined(lines)


def _check_report(path: Path | None, *, show_payload: bool) -> None:
    """Refuse now what the report cannot, or may not, be written to when all has been compared."""
    if path is None:
        return
    if show_payload and is_served(path, onceover_home()):
        raise UsageError(
            "with --show-payload the report cannot be written there: contents of records would be shown to "
            "everybody who is logged in to Airflow",
            code=AuditCode.REPORT,
            where=str(path),
            expected="a path outside of the folders of audits in ONCEOVER_HOME",
            resolve="give another path with --report",
        )
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    if not is_replaceable(path) or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            "the report cannot be written there",
            code=AuditCode.REPORT,
            where=str(path),
            expected="a file, or nothing yet, in a directory that this user may write",
            resolve="give another path with --report",
        )


class _Progress:
    """Shows on a terminal what the driver is doing.

    Args:
        flow: its name.
        path: where the driver says it; None shows nothing.
    """

    def __init__(self, flow: str, path: Path | None) -> None:
        self._flow = flow
        self._path = path
        self._display = Display()
        self._pace = ProgressRate()

    def show(self) -> None:
        """Show what is new."""
        if self._path is not None:
            self._display.show(f"{self._flow}: {self._words(last_told(self._path))}")

    def _words(self, told: AuditProgress | None) -> str:
        if told is None:
            return "starting Spark"
        if told.done is None or told.total is None:
            return told.doing
        return f"{told.doing}: {self._pace.words(told.done, told.total, 'ranges')}"

    def end(self) -> None:
        """Leave an empty line, and no file."""
        self._display.clear()
        if self._path is not None:
            for left in (self._path, self._path.with_suffix(".new")):
                left.unlink(missing_ok=True)


def _execute(job: SparkJob, progress: _Progress) -> JobEnd:
    # Ends like Ctrl-C: the job leaves nothing undone on the clusters, and its processes have to go.
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with running_job(job, "audit") as child:
            _show_until_end(child, progress)
    finally:
        signal.signal(signal.SIGTERM, previous)
    return job_end(job, child)


def _show_until_end(child: ChildProcess, progress: _Progress) -> None:
    try:
        while child.alive:
            progress.show()
            time.sleep(_POLL_S)
    finally:
        progress.end()
