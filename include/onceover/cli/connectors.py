"""``onceover connectors``: source offsets of Kafka Connect, to topics of their own and back (KIP-618)."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onceover.cli.output import CommandResult, say
from onceover.config.connectfile import ConnectFile, load_connect
from onceover.connectors.acltable import table
from onceover.connectors.model import MigrationPlan, Report
from onceover.connectors.record.commands import connector_words
from onceover.connectors.settings import ConnectorRequest, DowngradeMode
from onceover.shown import lined, visible
from onceover.wiring import connectors as runs


def list_(args: argparse.Namespace) -> CommandResult:
    """Say what the live cluster runs."""
    listing = runs.list_connectors(load_connect(args.connect))
    return CommandResult(listing.document(), listing.describe())


def acls(args: argparse.Namespace) -> CommandResult:
    """Say who needs which right."""
    file = load_connect(args.connect)
    grants = runs.acl_table(file, args.connector, args.topic)
    document = {"connect": file.connect, "grants": [grant.document() for grant in grants]}
    return CommandResult(document, lined(table(grants)))


def plan(args: argparse.Namespace) -> CommandResult:
    """Say what would be done."""
    file = load_connect(args.connect)
    return _planned(args, runs.plan_connectors(file, _request(args, file)), "apply")


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it."""
    file = load_connect(args.connect)
    request = _request(args, file)
    with _explained_interrupt():
        return _done(runs.apply_connectors(file, request, _announce(args), _tell(args)))


def verify(args: argparse.Namespace) -> CommandResult:
    """Look whether migrated connectors are as they should be."""
    file = load_connect(args.connect)
    return _done(runs.verify_connectors(file, _request(args, file, runs.All.MIGRATED)))


def rollback(args: argparse.Namespace) -> CommandResult:
    """Say what undoing would do, or do it."""
    file = load_connect(args.connect)
    request = _request(args, file)
    if not args.apply:
        return _planned(args, runs.plan_rollback(file, request), "rollback", "--apply")
    with _explained_interrupt():
        return _done(runs.rollback_connectors(file, request, _announce(args), _tell(args)))


def downgrade(args: argparse.Namespace) -> CommandResult:
    """Say what going back would do, or do it."""
    file, mode = load_connect(args.connect), DowngradeMode(args.mode)
    # Soft concerns what the shared topic holds, hard what is in topics of connectors' own.
    meant = runs.All.RETURNING if mode is DowngradeMode.HARD else runs.All.SOURCES
    request = _request(args, file, meant)
    if not args.apply:
        return _planned(args, runs.plan_downgrade(file, request, mode), "downgrade", f"--mode {mode} --apply")
    with _explained_interrupt():
        return _done(runs.downgrade_connectors(file, request, mode, _announce(args), _tell(args)))


def _planned(args: argparse.Namespace, planned: MigrationPlan, action: str, *flags: str) -> CommandResult:
    text = planned.describe()
    if planned.changes:
        topic = getattr(args, "topic", None)
        which = connector_words(args.connector) if args.connector else ["--all"]
        words = [args.connect, *which, *(["--topic", topic] if topic else [])]
        command = " ".join(["onceover connectors", action, shlex.join(words), *flags])
        text += f"\nnothing was changed; `{command}` does it"
    return CommandResult(planned.document(), text, planned.exit_code)


def _done(report: Report) -> CommandResult:
    return CommandResult(report.document(), report.describe(), report.exit_code)


@contextmanager
def _explained_interrupt() -> Iterator[None]:
    """Say after Ctrl-C what may be left half-done, and that it is safe to go on."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(
            "a connector may be stopped now: the same command goes on from there, and "
            "`onceover connectors rollback` undoes what was not resumed\n"
        )
        raise


def _announce(args: argparse.Namespace) -> Callable[[MigrationPlan], None]:
    def show(planned: MigrationPlan) -> None:
        # With --json the one document comes at the end; people see the plan before anything is done.
        say(planned.describe(), aside=args.json)

    return show


def _tell(args: argparse.Namespace) -> Callable[[str], None]:
    # Minutes pass, in a job's log as well: what is read by programs stays on stdout by itself.
    aside = args.json or not sys.stdout.isatty()

    def tell(line: str) -> None:
        say(f"  {visible(line)}", aside=aside)

    return tell


def _request(
    args: argparse.Namespace, file: ConnectFile, meant: runs.All = runs.All.SOURCES
) -> ConnectorRequest:
    """Return what is asked for; ``meant``: by --all."""
    topic, watch_s = getattr(args, "topic", None), getattr(args, "watch", None)
    return ConnectorRequest(runs.pick_connectors(file, args.connector, meant), topic, watch_s)
