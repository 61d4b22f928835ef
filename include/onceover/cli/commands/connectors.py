"""``onceover connectors``: source offsets of Kafka Connect, to topics of their own and back (KIP-618)."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from onceover.cli.planned import applied, planned
from onceover.cli.terminal.output import CommandResult
from onceover.config.connect.connectfile import ConnectFile, load_connect
from onceover.connectors.acltable import table
from onceover.connectors.moving.migration import ConnectorOperation
from onceover.connectors.moving.selection import MEANT, ConnectorSelection
from onceover.connectors.record.commands import connector_words
from onceover.connectors.settings import ConnectorMove, ConnectorRequest
from onceover.shown import lined
from onceover.wiring import connectors as runs

# By the value of ``--mode``.
DOWNGRADES: Final = {"hard": ConnectorMove.DOWNGRADE, "soft": ConnectorMove.DOWNGRADE_SOFT}


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
    return _planned(args, ConnectorMove.MIGRATE, "apply")


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it."""
    return _applied(args, ConnectorMove.MIGRATE)


def verify(args: argparse.Namespace) -> CommandResult:
    """Look whether migrated connectors are as they should be."""
    file = load_connect(args.connect)
    report = runs.verify_connectors(file, _request(args, file, ConnectorSelection.MIGRATED))
    return CommandResult(report.document(), report.describe(), report.exit_code)


def rollback(args: argparse.Namespace) -> CommandResult:
    """Say what undoing would do, or do it."""
    move = ConnectorMove.ROLLBACK
    return _applied(args, move) if args.apply else _planned(args, move, "rollback", "--apply")


def downgrade(args: argparse.Namespace) -> CommandResult:
    """Say what going back would do, or do it."""
    move = DOWNGRADES[args.mode]
    if args.apply:
        return _applied(args, move)
    return _planned(args, move, "downgrade", f"--mode {args.mode} --apply")


def _planned(args: argparse.Namespace, move: ConnectorMove, action: str, *flags: str) -> CommandResult:
    topic = getattr(args, "topic", None)
    which = connector_words(args.connector) if args.connector else ["--all"]
    words = [args.connect, *which, *(["--topic", topic] if topic else [])]
    command = " ".join(["onceover connectors", action, shlex.join(words), *flags])
    with _operation(args, move) as operation:
        return planned(operation, f"`{command}` does it")


def _applied(args: argparse.Namespace, move: ConnectorMove) -> CommandResult:
    with _explained_interrupt(), _operation(args, move) as operation:
        return applied(operation, as_json=args.json)


def _operation(args: argparse.Namespace, move: ConnectorMove) -> AbstractContextManager[ConnectorOperation]:
    file = load_connect(args.connect)
    return runs.connector_operation(file, move, _request(args, file, MEANT[move]))


@contextmanager
def _explained_interrupt() -> Iterator[None]:
    """Say after Ctrl-C what may be left half-done, and that it is safe to go on."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(
            "a connector may be stopped now: the same command goes on from there, and "
            "`connectors rollback` undoes what was not resumed\n"
        )
        raise


def _request(args: argparse.Namespace, file: ConnectFile, meant: ConnectorSelection) -> ConnectorRequest:
    """Return what is asked for; ``meant``: by --all."""
    topic, watch_s = getattr(args, "topic", None), getattr(args, "watch", None)
    return ConnectorRequest(runs.pick_connectors(file, args.connector, meant), topic, watch_s)
