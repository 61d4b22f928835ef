"""``onceover connectors``: source offsets of Kafka Connect, to topics of their own and back (KIP-618)."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from onceover.cli.output import CommandResult, Subparsers, say
from onceover.config.connectfile import ConnectFile, load_connect
from onceover.config.faults import Invalid
from onceover.config.units import parse_duration_ms
from onceover.connectors.acltable import table
from onceover.connectors.commands import connector_words
from onceover.connectors.model import MigrationPlan, Report
from onceover.connectors.settings import DowngradeMode, Wish
from onceover.errors import UsageError
from onceover.shown import lined, visible
from onceover.wiring import connectors as runs

_EXAMPLES: Final = """examples:
  onceover connectors list      flights                        what it runs, and where offsets are
  onceover connectors acls      flights --connector orders     who needs which right
  onceover connectors plan      flights --connector orders     what would be done, and why; changes nothing
  onceover connectors apply     flights --connector orders     show the plan, do it, watch the connector go on
  onceover connectors verify    flights --all                  prove again that nothing was lost
  onceover connectors rollback  flights --connector orders     undo, before it was resumed; --apply does it
  onceover connectors downgrade flights --connector orders     back to the shared topic; likewise
  onceover connectors downgrade flights --all --mode soft      before exactly-once is switched off

CONNECT is a file's stem in include/connect, or a path; docs/connectors.md explains it, every step, and what
to do when one fails. An interrupted command is simply run again, at any machine: what it did is written down
on the workers' Kafka cluster; journals and manifests are in ONCEOVER_HOME/connect/<name>. Never put
`offsets.storage.topic` into a connector's configuration by hand.

Exit code 0: done. 1: a check failed. 2: nothing was changed, see the message. 3: somebody has to decide, or
it cannot be proven. 4: another run for the same connector took over. 5: workers or brokers are away: run
again.
"""
_ACTIONS: Final = (
    ("list", "say which connectors the live cluster runs; change nothing"),
    ("acls", "say which principal needs which right on what; change nothing"),
    ("plan", "say what moving offsets to topics of their own would do; change nothing"),
    ("apply", "move them: stop, fence, snapshot, copy, verify, configure, resume, watch"),
    ("verify", "prove that migrated connectors' offsets are complete and in use; change nothing"),
    ("rollback", "undo a migration that did not get to its end; a plan, --apply does it"),
    ("downgrade", "move offsets back to the shared topic; a plan, --apply does it"),
)
# A migration and a way back are separate decisions: without --apply these two only show a plan.
_ON_DEMAND: Final = ("rollback", "downgrade")
_WATCHED: Final = ("apply", "downgrade")


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "connectors",
        help="move Kafka Connect's source offsets to topics of their own, and back",
        epilog=_EXAMPLES,
        formatter_class=raw,
    )
    names = "|".join(name for name, _ in _ACTIONS)
    actions = parser.add_subparsers(dest="action", required=True, metavar=names)
    functions = {
        "list": list_,
        "acls": acls,
        "plan": plan,
        "apply": apply,
        "verify": verify,
        "rollback": rollback,
        "downgrade": downgrade,
    }
    for name, text in _ACTIONS:
        action = actions.add_parser(name, help=text, epilog=_EXAMPLES, formatter_class=raw)
        _add_arguments(action, name)
        action.set_defaults(func=functions[name])


def _add_arguments(parser: argparse.ArgumentParser, action: str) -> None:
    parser.add_argument("connect", metavar="CONNECT", help="name or path of a Connect file")
    if action != "list":
        which = parser.add_mutually_exclusive_group(required=action != "acls")
        which.add_argument(
            "--connector",
            action="extend",
            nargs="+",
            default=[],
            metavar="NAME",
            help="which; several are done in this order",
        )
        if action != "rollback":
            which.add_argument(
                "--all", action="store_true", help="every one that it applies to, one after the other"
            )
    if action in ("acls", "plan", "apply"):
        parser.add_argument("--topic", help="topic for the offsets (default: <shared topic>-<connector>)")
    if action in _WATCHED:
        parser.add_argument(
            "--watch", metavar="DURATION", help="how long to watch each connector at most, such as 2m"
        )
    if action in _ON_DEMAND:
        parser.add_argument("--apply", action="store_true", help="do what the plan says")
    if action == "downgrade":
        parser.add_argument(
            "--mode",
            choices=[str(mode) for mode in DowngradeMode],
            default=str(DowngradeMode.HARD),
            help="hard: back to the shared topic (default); soft: before exactly-once is switched off",
        )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


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
    return _planned(args, runs.plan_connectors(file, _wish(args, file)), "apply")


def apply(args: argparse.Namespace) -> CommandResult:
    """Show the plan, do it."""
    file = load_connect(args.connect)
    wish = _wish(args, file)
    with _explained_interrupt():
        return _done(runs.apply_connectors(file, wish, _announce(args), _tell(args)))


def verify(args: argparse.Namespace) -> CommandResult:
    """Look whether migrated connectors are as they should be."""
    file = load_connect(args.connect)
    return _done(runs.verify_connectors(file, _wish(args, file, runs.All.MIGRATED)))


def rollback(args: argparse.Namespace) -> CommandResult:
    """Say what undoing would do, or do it."""
    file = load_connect(args.connect)
    wish = _wish(args, file)
    if not args.apply:
        return _planned(args, runs.plan_rollback(file, wish), "rollback", "--apply")
    with _explained_interrupt():
        return _done(runs.rollback_connectors(file, wish, _announce(args), _tell(args)))


def downgrade(args: argparse.Namespace) -> CommandResult:
    """Say what going back would do, or do it."""
    file, mode = load_connect(args.connect), DowngradeMode(args.mode)
    # Soft concerns what the shared topic holds, hard what is in topics of connectors' own.
    meant = runs.All.RETURNING if mode is DowngradeMode.HARD else runs.All.SOURCES
    wish = _wish(args, file, meant)
    if not args.apply:
        return _planned(args, runs.plan_downgrade(file, wish, mode), "downgrade", f"--mode {mode} --apply")
    with _explained_interrupt():
        return _done(runs.downgrade_connectors(file, wish, mode, _announce(args), _tell(args)))


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


def _wish(args: argparse.Namespace, file: ConnectFile, meant: runs.All = runs.All.SOURCES) -> Wish:
    """Return what is asked for; ``meant``: by --all."""
    topic, watch_s = getattr(args, "topic", None), _seconds(getattr(args, "watch", None))
    return Wish(runs.pick_connectors(file, args.connector, meant), topic, watch_s)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value_ms = parse_duration_ms(text)
    except Invalid as error:
        raise UsageError(
            f"--watch {text} is not understood", expected="a duration such as 30s, 2m"
        ) from error
    if value_ms <= 0:
        raise UsageError(f"--watch {text} is no time at all", expected="more than 0")
    return value_ms / 1000
