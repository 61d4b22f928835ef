"""``onceover demo``: the whole story on this machine, with a kill -9 in the middle and proof at the end."""

from __future__ import annotations

import argparse
import signal
import time
from contextlib import nullcontext
from types import TracebackType
from typing import Final, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from onceover.cli.terminal.output import CommandResult
from onceover.config.home import onceover_home
from onceover_lab.demo.report import DemoReport
from onceover_lab.demo.verdict import CopyFaultKind

# Plain output (a log file, a pipe): a line this often shows that it goes on.
_PLAIN_EVERY_S: Final = 5.0
_FOUND_COLUMNS: Final = (
    CopyFaultKind.DUPLICATED,
    CopyFaultKind.LOST,
    CopyFaultKind.ALTERED,
    CopyFaultKind.REORDERED,
)
_TABLE_WIDTH: Final = 110


def demo(args: argparse.Namespace) -> CommandResult:
    """Play the demo; exit code 1 when the comparison did not hold.

    Raises:
        UsageError: no Java, no data; nothing was started.
        OnceoverError: a step failed; the text names it and where the logs are.
    """
    # Spark's, Airflow's and Kafka's helpers load slowly, and `onceover --help` has no use for them.
    from onceover.cli.commands.clusters import explained_interrupt
    from onceover_lab.demo.machine import demo_home
    from onceover_lab.demo.run import run_demo

    # `kill` and `timeout` end it like Ctrl-C: everything is stopped first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A kept system lives where `make up` and `make down` look for it.
    home = onceover_home() if args.keep else demo_home(onceover_home())
    with explained_interrupt(home) if args.keep else nullcontext(), RichNarrator() as narrator:
        report = run_demo(home, narrator, records=args.records, seconds=args.seconds, keep=args.keep)
    return CommandResult(report.as_dict(), render(report, kept=args.keep), 0 if report.ok else 1)


class RichNarrator:
    """Shows a bar on a terminal, plain lines with seconds elsewhere; always on stderr."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._begun_s = time.monotonic()
        self._plain_due_s = 0.0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} fed, {task.fields[behind]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print one line with the seconds since the start."""
        self._console.print(f"[{time.monotonic() - self._begun_s:6.1f} s] {text}", markup=False)

    def progress(self, fed: int, expected: int, behind: int | None) -> None:
        """Move the bar, or print a line now and then."""
        lag = "copy not seen yet" if behind is None else f"copy {behind:,} behind"
        if self._console.is_terminal:
            if self._task is None:
                self._task = self._bar.add_task("flights", total=expected, behind=lag)
            self._bar.update(self._task, completed=fed, behind=lag)
        elif time.monotonic() >= self._plain_due_s:
            self._plain_due_s = time.monotonic() + _PLAIN_EVERY_S
            self.say(f"{fed:,} of {expected:,} fed, {lag}")


def render(report: DemoReport, *, kept: bool) -> str:
    """Return the final table and what it means, as text."""
    # Plain on a terminal, too: what is shown as a result has no commands for one in it.
    console = Console(width=_TABLE_WIDTH, highlight=False, force_terminal=False)
    with console.capture() as capture:
        console.print(_topics_table(report))
        console.print(_story(report, kept=kept), markup=False, soft_wrap=True)
    return capture.get().rstrip()


def _topics_table(report: DemoReport) -> Table:
    table = Table(
        title="What was fed into east, and what a reader of west sees", title_justify="left", box=SIMPLE_HEAD
    )
    table.add_column("topic", no_wrap=True)
    table.add_column("codec")
    columns = ("produced", "aborted", "copied", "duplicates", "losses", "altered", "reordered", "other")
    for name in columns:
        table.add_column(name, justify="right")
    for row in report.rows:
        shown = [row.found.get(kind, 0) for kind in _FOUND_COLUMNS]
        other = sum(row.found.values()) - sum(shown)
        numbers = (row.produced, row.aborted, row.copied, *shown, other)
        table.add_row(row.topic, row.codec, *(f"{number:,}" for number in numbers))
    totals = [
        report.produced,
        sum(row.aborted for row in report.rows),
        sum(row.copied for row in report.rows),
    ]
    totals += [report.verdict.count(kind) for kind in _FOUND_COLUMNS]
    totals.append(sum(report.verdict.count(kind) for kind in CopyFaultKind if kind not in _FOUND_COLUMNS))
    table.add_section()
    table.add_row("all", "", *(f"{number:,}" for number in totals))
    return table


def _outcome(report: DemoReport) -> str:
    if report.ok:
        return f"each of {report.produced:,} flights arrived once, in order, unchanged."
    if report.verdict.ok:
        return (
            f"{report.produced:,} flights were fed, but the comparison saw {report.verdict.source_records:,}."
        )
    return "the clusters differ."


def _story(report: DemoReport, *, kept: bool) -> str:
    kill = report.kill
    airflow = report.airflow
    lines = [
        f"{'PASS' if report.ok else 'FAIL'}: {_outcome(report)}",
        f"Killed (kill -9): Spark driver {kill.pid} and its JVM {kill.jvm_pid}, {kill.at_s:.0f} s into the "
        f"feed ({kill.at_fraction:.0%} fed).",
        f"Generation {kill.generation_before} before, {kill.generation_after} after; Airflow's task needed "
        f"{kill.tries} {'try' if kill.tries == 1 else 'tries'}.",
        f"A new driver after {kill.new_driver_after_s:.1f} s, copying again after "
        f"{kill.copying_after_s:.1f} s.",
        f"A failover was rehearsed meanwhile: {report.rehearsed.verdict}; clients would have waited "
        f"{report.rehearsed.rto_s or 0.0:.1f} s for us. Its report: {report.rehearsed.report}",
        f"{report.aborted_transactions} transactions were aborted on purpose: nothing of them may arrive.",
        f"The comparison took {report.compare_s:.1f} s, everything {report.total_s:.0f} s.",
    ]
    if not report.ok:
        lines.append(report.verdict.explain())
    login = f"user {airflow['username']}, password in {airflow['password_file']}"
    if kept:
        lines.append(f"Airflow: {airflow['url']} ({login})")
        lines.append("Clusters and Airflow keep running; stop them with: make down")
    else:
        lines.append(f"Airflow was at {airflow['url']} ({login}); `onceover demo --keep` leaves it running.")
    return "\n".join(lines)
