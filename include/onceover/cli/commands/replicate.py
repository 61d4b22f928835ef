"""``onceover replicate``: copy a flow in the foreground, through spark-submit."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

from onceover.cli.parsers.replicate import CAUGHT_UP
from onceover.cli.sparkjob import JobEnd, job_end, running_job, stopped_early
from onceover.cli.terminal.display import Display, ProgressRate
from onceover.cli.terminal.goal import Goal
from onceover.cli.terminal.output import CommandResult
from onceover.cli.terminal.signals import ending_signals
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow, say_clash
from onceover.errors import Retriable
from onceover.planning.background import in_background
from onceover.process.children import ChildProcess
from onceover.shown import lined
from onceover.spark.launch.again import Restarts
from onceover.spark.launch.driverprocess import ask_to_end
from onceover.spark.launch.submit import SparkJob, replicate_job

log = logging.getLogger(__name__)

_PROGRESS_S: Final = 5.0
# The driver needs up to 10 s to end gracefully, and the JVM a few more to leave.
_STOP_WAIT_S: Final = 20.0


def run(args: argparse.Namespace) -> CommandResult:
    """Run the flow as a child process; show progress; pass signals on as a graceful stop.

    Raises:
        OnceoverError: what the driver reported.
    """
    flow = load_flow(args.flow)
    say_clash(flow)
    job = replicate_job(flow, until=args.until, master=args.master)
    progress = _Progress(flow, show=not args.json, ends=args.until == CAUGHT_UP)
    document = _execute(flow, job, progress, Restarts(args.until, args.restarts))
    return CommandResult(document, describe(document), document["exit"])


def describe(document: Mapping[str, Any]) -> str:
    """Return the end of a run as text: what was copied, what waits for somebody, what deserves a look."""
    lines = [
        f"{document['flow']}: {document['records']} records in {document['transactions']} transactions, "
        f"{document['seconds']:.1f} s, generation {document['generation']}"
    ]
    if document["restarts"]:
        lines.append(f"  since its last start: it was killed and started again {document['restarts']} times")
    for stop in document["stopped"]:
        name = stop["topic"] if stop["partition"] is None else f"{stop['topic']}:{stop['partition']}"
        lines += [f"  {name} is stopped: {stop['message']}", f"    do: {stop['resolve']}"]
    for warning in document["warnings"]:
        lines += [f"  warning: {warning['object']}: {warning['message']}", f"    do: {warning['resolve']}"]
    return lined(lines)


def _execute(flow: Flow, job: SparkJob, progress: _Progress, restarts: Restarts) -> dict[str, Any]:
    with ending_signals() as stopping:

        def pause(end: JobEnd, pause_s: float) -> None:
            if stopping.wait(pause_s):
                raise stopped_early(end.error) from end.error
            log.warning("%s; %s", end.error, restarts.words)

        end = restarts.to_its_end(lambda: _once(flow, job.with_own_files(), progress, stopping), pause)
        return end.result() | {"restarts": restarts.made}


def _once(flow: Flow, job: SparkJob, progress: _Progress, stopping: threading.Event) -> JobEnd:
    with running_job(job, f"replicate {flow.flow}") as child:
        _attend(child, job, stopping, progress)
    return job_end(job, child, stopped=stopping.is_set())


def _attend(child: ChildProcess, job: SparkJob, stopping: threading.Event, progress: _Progress) -> None:
    while child.alive and not stopping.wait(0.1):
        progress.tick()
    progress.end()
    # A signal to the JVM would take Spark away underneath the driver.
    if child.alive and not ask_to_end(child.pid, job.application):
        child.send_signal(signal.SIGTERM)
    # Whoever does not end by then is killed, with the job's scratch: somebody waits for it.
    with suppress(Retriable):
        child.wait(_STOP_WAIT_S)


class _Progress:
    """One line on a terminal about where the flow stands; looking never holds up what is shown about.

    Args:
        flow: which one.
        show: False shows nothing.
        ends: whether it ends once that is copied which was on the source at the start.
    """

    def __init__(self, flow: Flow, *, show: bool, ends: bool) -> None:
        self._flow = flow
        self._display = Display(wanted=show)
        self._goal = Goal() if ends else None
        self._pace = ProgressRate()
        self._next_s = time.monotonic() + _PROGRESS_S
        self._looking: Future[dict[str, Any]] | None = None

    def tick(self) -> None:
        """Look again when it is time, and show what was seen meanwhile."""
        if not self._display.wanted:
            return
        if self._looking is None and time.monotonic() >= self._next_s:
            self._looking = in_background(partial(_status_of, self._flow))
        if self._looking is not None and self._looking.done():
            looked, self._looking = self._looking, None
            self._next_s = time.monotonic() + _PROGRESS_S
            # A client that is not in order: the driver says so, this is only the display.
            if looked.exception() is None:
                self._display.show(self._line(looked.result()))

    def _line(self, status: Mapping[str, Any]) -> str:
        from onceover.cli.terminal.statustext import progress_line

        line = progress_line(status)
        counted = self._goal.seen(status) if self._goal else None
        return f"{line}; {self._pace.words(*counted, 'offsets')}" if counted else line

    def end(self) -> None:
        """Leave the line as it is."""
        self._display.keep()


def _status_of(flow: Flow) -> dict[str, Any]:
    # Not at the top: loading it takes longer than all that is done before the job is started, and nothing is
    # shown in its first seconds.
    from onceover.wiring.status import read_status

    return read_status(flow)
