"""``onceover replicate``: copy a flow in the foreground, through spark-submit."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import psutil

from onceover.cli.output import CommandResult, Subparsers, overwritten
from onceover.cli.signals import asked_to_end
from onceover.cli.sparkjob import job_result, start_job
from onceover.cli.statustext import progress_line
from onceover.config.flowfile import Flow
from onceover.config.load import load_flow, run_dir
from onceover.embed.processes import ChildProcess
from onceover.engine.background import in_background
from onceover.shown import lined
from onceover.spark.submit import SparkJob, replicate_job
from onceover.wiring.status import read_status

_EXAMPLES: Final = """examples:
  onceover replicate flights-dr                        copy what is there now, then end
  onceover replicate flights-dr --until forever        copy until Ctrl-C or `onceover stop`
  onceover replicate flights-dr --until 10m --json
"""
_PROGRESS_S: Final = 5.0
# The driver needs up to 10 s to end gracefully, and the JVM a few more to leave.
_STOP_WAIT_S: Final = 20.0


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "replicate",
        help="copy a flow, exactly once",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("flow", metavar="FLOW", help="name or path")
    parser.add_argument(
        "--until",
        default="caught-up",
        metavar="caught-up|forever|DURATION",
        help="when to end (default: caught-up, with what was on the source at the start)",
    )
    parser.add_argument("--master", help="Spark master instead of the flow file's")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> CommandResult:
    """Run the flow as a child process; show progress; pass signals on as a graceful stop.

    Raises:
        OnceoverError: what the driver reported.
    """
    flow = load_flow(args.flow)
    job = replicate_job(flow, until=args.until, master=args.master)
    show = sys.stderr.isatty() and not args.json
    document = _execute(flow, job, show=show)
    return CommandResult(document, describe(document), document["exit"])


def describe(document: Mapping[str, Any]) -> str:
    """Return the end of a run as text: what was copied, what waits for somebody, what deserves a look."""
    lines = [
        f"{document['flow']}: {document['records']} records in {document['transactions']} transactions, "
        f"{document['seconds']:.1f} s, generation {document['generation']}"
    ]
    for stop in document["stopped"]:
        name = stop["topic"] if stop["partition"] is None else f"{stop['topic']}:{stop['partition']}"
        lines += [f"  {name} is stopped: {stop['message']}", f"    do: {stop['resolve']}"]
    for warning in document["warnings"]:
        lines += [f"  warning: {warning['object']}: {warning['message']}", f"    do: {warning['resolve']}"]
    return lined(lines)


def _execute(flow: Flow, job: SparkJob, *, show: bool) -> dict[str, Any]:
    log_path = job.report.parent / "driver.log"
    own = job.with_own_report()
    child = start_job(own, f"replicate {flow.flow}", log_path)
    try:
        with asked_to_end() as stopping:
            _attend(child, flow, stopping, show=show)
    finally:
        child.stop()
    return job_result(own, job.report, child, log_path, stopped=stopping.is_set())


def _attend(child: ChildProcess, flow: Flow, stopping: threading.Event, *, show: bool) -> None:
    progress = _Progress(flow, show=show)
    while child.alive and not stopping.wait(0.1):
        progress.tick()
    progress.end()
    if child.alive:
        _signal_driver(child, flow)
        child.wait(_STOP_WAIT_S)


def _signal_driver(child: ChildProcess, flow: Flow) -> None:
    """Ask the Python driver to end: a signal to the JVM would take Spark away underneath it."""
    try:
        note = json.loads((run_dir(flow) / "driver.json").read_text())
        family = {p.pid for p in psutil.Process(child.pid).children(recursive=True)}
    except (OSError, ValueError, psutil.Error):
        family, note = set(), {"pid": None}
    if note["pid"] in family:
        os.kill(note["pid"], signal.SIGTERM)
    else:
        child.send_signal(signal.SIGTERM)  # it has not begun to copy


class _Progress:
    """One line on a terminal about where the flow stands; looking never holds up what is shown about.

    Args:
        flow: which one.
        show: False shows nothing.
    """

    def __init__(self, flow: Flow, *, show: bool) -> None:
        self._flow = flow
        self._show = show
        self._next_s = time.monotonic() + _PROGRESS_S
        self._looking: Future[dict[str, Any]] | None = None
        self._shown = ""

    def tick(self) -> None:
        """Look again when it is time, and show what was seen meanwhile."""
        if not self._show:
            return
        if self._looking is None and time.monotonic() >= self._next_s:
            self._looking = in_background(lambda: read_status(self._flow))
        if self._looking is not None and self._looking.done():
            looked, self._looking = self._looking, None
            self._next_s = time.monotonic() + _PROGRESS_S
            # A client that is not in order: the driver says so, this is only the display.
            if looked.exception() is None:
                self._write(progress_line(looked.result()))

    def end(self) -> None:
        """Leave the line as it is."""
        if self._shown:
            self._put("\n")

    def _write(self, line: str) -> None:
        self._put(overwritten(line, self._shown))
        self._shown = line

    def _put(self, text: str) -> None:
        # The terminal may be closed: the copy ends in order all the same.
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()
