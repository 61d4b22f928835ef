"""``onceover clusters``: two Kafka clusters and Kafka Connect on this machine, Airflow, records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onceover.cli.terminal import streams
from onceover.cli.terminal.output import CommandResult
from onceover.config.home import onceover_home
from onceover.shown import lined
from onceover_lab.demo import machine
from onceover_lab.demo.machine import MachineStatus


def up(args: argparse.Namespace) -> CommandResult:
    """Start what is missing.

    Raises:
        OnceoverError: a part did not start; the text names it and its log.
    """
    home = onceover_home()
    notes: list[str] = []
    with explained_interrupt(home):
        found = machine.up(home, airflow=args.airflow, feed=args.feed, say=_say, note=notes.append)
    lines = [*describe(found).split("\n"), *(f"note: {note}" for note in notes), "", *_hints(found)]
    return CommandResult({**found.document(), "notes": notes}, lined(lines))


def down(args: argparse.Namespace) -> CommandResult:
    """Stop everything; harmless when nothing runs."""
    home = onceover_home()
    with explained_interrupt(home):
        ran = machine.down(home, _say)
    stopped = [name for name, did in ran.items() if did]
    text = f"stopped: {', '.join(stopped)}; the data are kept in {home}" if stopped else "nothing was running"
    return CommandResult({"stopped": stopped, **machine.status(home).document()}, text)


def status(args: argparse.Namespace) -> CommandResult:
    """Show what runs."""
    found = machine.status(onceover_home())
    return CommandResult(found.document(), describe(found))


@contextmanager
def explained_interrupt(home: Path) -> Iterator[None]:
    """Say after Ctrl-C what of ``home`` goes on running, and how that is ended."""
    try:
        yield
    except KeyboardInterrupt:
        streams.complain(
            lined(
                [
                    "interrupted; what runs by now goes on running:",
                    *describe(machine.status(home)).split("\n"),
                    f"go on with the same command, or stop it: {_down()}",
                ]
            )
        )
        raise


def describe(found: MachineStatus) -> str:
    """Return what runs as text, a line for each part."""
    lines = [
        f"{name:8} {_state(c['alive'], c['frozen'], str(c['bootstrap']))}"
        for name, c in sorted(found.clusters.items())
    ]
    connect, airflow, feed = found.connect, found.airflow, found.feed
    worker = _state(connect["alive"], connect["frozen"], connect["url"]) if connect else "down"
    lines.append(f"{'connect':8} {worker}")
    if airflow is None or not (airflow["alive"] or airflow["missing"]):
        lines.append(f"{'airflow':8} down")
    else:
        health = "healthy" if airflow["healthy"] else "not healthy"
        if airflow["missing"]:
            health = f"not healthy, killed: {', '.join(airflow['missing'])}"
        lines.append(f"{'airflow':8} {health}, {airflow['url']}")
        lines.append(f"{'':8} user {airflow['username']}, password in {airflow['password_file']}")
    lines.append(f"{'feed':8} {feed.describe() if feed else 'not started'}")
    return lined(lines)


def _state(alive: bool, frozen: bool, address: str) -> str:
    if not alive:
        return "down"
    return f"frozen (kill -CONT wakes it), {address}" if frozen else f"up, {address}"


def _hints(found: MachineStatus) -> list[str]:
    lines = []
    if found.feed is None or found.feed.state != "feeding":
        lines.append(f"records:  {_feed()} lets the demo's flights flow into topics flights.* of east")
    lines.append("copy:     onceover replicate flights-dr")
    lines.append(f"stop:     {_down()}")
    return lines


def _down() -> str:
    return "make down" if _in_project() else "onceover clusters down"


def _feed() -> str:
    return "make feed" if _in_project() else "onceover clusters up --feed"


def _in_project() -> bool:
    return Path.cwd() == Path(machine.__file__).parents[3]


def _say(text: str) -> None:
    """Tell a person who waits; nothing that a program reads."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")
