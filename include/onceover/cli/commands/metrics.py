"""``onceover metrics``: what Prometheus scrapes."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from onceover.cli.terminal.output import CommandResult, say
from onceover.cli.terminal.signals import ending_signals
from onceover.config import files as config_files
from onceover.config.flow.load import listed_flow_files, locate_flow
from onceover.config.home import variables
from onceover.errors import OnceoverError, UsageError
from onceover.metrics.serve import serving
from onceover.replacing import is_replaceable, put
from onceover.wiring.monitoring.exporter import Exporter, MonitorSettings, answering_version, look_once

log = logging.getLogger(__name__)

# How soon a flow file that was added is looked at.
_FILES_S = 5.0


def run(args: argparse.Namespace) -> CommandResult:
    """Serve until a signal comes, or look once.

    Raises:
        UsageError: no such flow, or the address is not to be had. A flow file that is not in order is no
            reason to end: its samples say so.
        OSError: the file cannot be written.
    """
    if args.output is not None and not args.once:
        raise UsageError("--output is for one look", where="--output", resolve="add --once")
    paths, settings = _paths(args.flow), MonitorSettings(args.interval, args.patience, args.partitions)
    if args.once:
        path = None if args.output is None else Path(args.output).absolute()
        if path is not None:
            _check_output(path)
        return _once(look_once(paths(), settings).decode(), path)
    exporter = Exporter(paths, settings)
    names_log = logging.getLogger(config_files.__name__)
    level = names_log.level
    try:
        with (
            ending_signals() as asked,
            _pushing(args.otlp, exporter, args.interval),
            serving(args.host, args.port, exporter.scrape) as port,
        ):
            exporter.refresh()
            say(f"metrics of the flows at http://{_shown(args.host)}:{port}/metrics", aside=args.json)
            # Each time it would be said again which names are none.
            names_log.setLevel(logging.ERROR)
            told = None
            while not asked.wait(_FILES_S):
                told = _refresh(exporter, told)
    finally:
        names_log.setLevel(level)
        exporter.close()
    return CommandResult({"host": args.host, "port": port}, "ended")


def _check_output(path: Path) -> None:
    """Refuse before anybody is asked what cannot be written; a folder that is not there would be nobody's."""
    path.parent.stat()
    if not is_replaceable(path):
        raise UsageError(
            "the metrics would replace what is there, and it is no file",
            where=str(path),
            expected="a file, or nothing yet",
            resolve="give another path with --output; without it they are printed",
        )


def _once(text: str, path: Path | None) -> CommandResult:
    if path is None:
        return CommandResult({"metrics": text}, text.rstrip("\n"))
    # Who collects such files is another user as a rule, and there is no secret in it.
    put(text, path, for_all=True)
    return CommandResult({"metrics": text, "output": str(path)}, f"written to {path}")


@contextmanager
def _pushing(url: str | None, exporter: Exporter, interval_s: float) -> Iterator[None]:
    """Send the metrics to a collector, where one is named, until the context ends.

    Raises:
        UsageError: that is no address of one.
    """
    if url is None:
        yield
        return
    # Only here: OpenTelemetry's libraries take longer to load than all the rest.
    from onceover.metrics.push import OtlpPush

    push = OtlpPush(url, answering_version(), exporter.scrape, interval_s)
    push.start()
    try:
        yield
    finally:
        push.stop()


def _refresh(exporter: Exporter, told: str | None) -> str | None:
    """Look for flow files anew; return why that is not possible, which is said once while it is so."""
    try:
        exporter.refresh()
    except OnceoverError as error:
        if str(error) != told:
            log.warning("no flow files are looked for: %s", error)
        return str(error)
    return None


def _paths(flows: Sequence[str]) -> Callable[[], list[Path]]:
    """Return what finds the files to look at: those that were named, or whichever are in the directory.

    Raises:
        UsageError: one that was named is not there, or named twice.
    """
    if not flows:
        return listed_flow_files
    environ = variables(None)
    named = [locate_flow(flow, environ) for flow in flows]
    for path in named:
        if not path.is_file():
            raise UsageError(f"there is no flow file {path}", resolve="name one that is there")
    if len(set(named)) < len(named):
        raise UsageError("a flow is named twice", seen=" ".join(flows), resolve="name each once")
    return lambda: named


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
