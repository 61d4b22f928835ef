"""The command line: parse, call one use case, print, exit code. Nothing else."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, NoReturn

from onceover.cli.output import CommandResult, envelope, interrupted
from onceover.cli.typed import as_typed
from onceover.config.faults import BAD_CONFIG
from onceover.errors import Fatal, OnceoverError, UsageError, unexpected, unusable_path
from onceover.logs import configure, is_verbose
from onceover.private import privately
from onceover.shown import lined, screen

log = logging.getLogger(__name__)

_EPILOG: Final = """exit codes:
  0 done   1 a check found a violation   2 bad usage or config, nothing was changed
  3 needs an operator   4 fenced by a newer start   5 temporary failure: run again
  130 interrupted   141 nobody read the result

examples:
  onceover flow check flights-dr
  onceover replicate flights-dr --until caught-up
  onceover status
"""
# As a shell says of a process that SIGPIPE has ended.
UNREAD: Final = 141
# In the order of the help. Each is a module of this package, loaded only for its own command: all of them
# together take twice as long to load as most.
_COMMANDS: Final = (
    "flow",
    "topics",
    "replicate",
    "stop",
    "status",
    "partition",
    "groups",
    "seed",
    "adopt",
    "translate",
    "receipts",
    "audit",
    "connectors",
    "clusters",
    "demo",
    "bench",
)


class _Unread(OnceoverError):
    """Nobody reads stdout any more, as in ``| head -1``, before the command was done."""

    exit_code = UNREAD


class _Parser(argparse.ArgumentParser):
    """Turns a fault of the command line into an error like any other, with ``--json`` too."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, resolve=f"see `{self.prog} --help`")

    def format_help(self) -> str:
        """Return the help with its examples as they can be typed."""
        return as_typed(super().format_help(), _COMMANDS)


def load(command: str) -> list[ModuleType]:
    """Load the module of ``command`` and return it; that of every command where it is none."""
    names = [command] if command in _COMMANDS else _COMMANDS
    return [importlib.import_module(f"onceover.cli.{name}") for name in names]


def build_parser(command: str = "") -> argparse.ArgumentParser:
    """Return the parser with ``command`` registered; with every one where that is none."""
    parser = _Parser(
        prog="onceover",
        description="Exactly-once replication between Kafka clusters.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in load(command):
        module.register(subparsers)
    return parser


@privately()
def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. Only ``SystemExit`` leaves it, after ``--help``."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    command = " ".join(arguments[:1])
    try:
        configure()
        args = build_parser(command).parse_args(arguments)
        command = _command_name(args)
        # Not only where it was written in full.
        as_json = bool(getattr(args, "json", as_json))
        result: CommandResult = _function(args)(args)
        text = _shown(command, result, as_json=as_json)
    except KeyboardInterrupt as error:
        return _failed(command, _ours(error), as_json=as_json)
    except Exception as error:
        if is_verbose():
            log.exception("the command failed")
        return _failed(command, _ours(error), as_json=as_json)
    return result.exit_code if _write(text) else result.exit_code or Fatal.exit_code


def _ours(error: BaseException) -> OnceoverError:
    if isinstance(error, OnceoverError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return interrupted()
    if isinstance(error, BrokenPipeError):
        return _Unread("stdout was closed before the command was done", code="UNREAD")
    if isinstance(error, OSError) and error.filename is not None:
        return unusable_path(error)
    return unexpected(error, resolve="run it again with ONCEOVER_LOG=DEBUG for the traceback")


def _function(args: argparse.Namespace) -> Callable[[argparse.Namespace], CommandResult]:
    function: Callable[[argparse.Namespace], CommandResult] = args.func
    return function


def _command_name(args: argparse.Namespace) -> str:
    action = getattr(args, "action", None)
    return f"{args.command} {action}" if action else str(args.command)


def _shown(command: str, result: CommandResult, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(envelope(command, result.exit_code, _typed(result.document)))
    return screen(as_typed(result.text, _COMMANDS))


def _typed(value: Any) -> Any:
    """Return a document whose advice names commands as they can be typed, like the text."""
    if isinstance(value, Mapping):
        return {
            key: as_typed(each, _COMMANDS) if key == "resolve" and isinstance(each, str) else _typed(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_typed(each) for each in value]
    return value


def _failed(command: str, error: OnceoverError, *, as_json: bool) -> int:
    if as_json:
        _write(
            json.dumps(
                envelope(
                    command, error.exit_code, _typed({"error": error.as_dict(f"onceover {command}".strip())})
                )
            )
        )
    _complain(as_typed(_explained(error), _COMMANDS))
    return error.exit_code


def _complain(text: str) -> None:
    # The terminal may be closed.
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")


def _write(text: str) -> bool:
    """Write to stdout; return False where that is not possible. Nobody reading is no failure."""
    try:
        if text:
            print(text)
        # Here and not when Python ends, where its failure would be a traceback.
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            _complain(f"error: the result cannot be written to stdout: {error.strerror}")
            return False
    return True


def _explained(error: OnceoverError) -> str:
    # A configuration's faults are a line each, and what was seen may be a log's end; elsewhere a line more is
    # somebody's name.
    message = error.message.split("\n") if error.code == BAD_CONFIG else [error.message]
    lines = [f"error: {message[0]}", *message[1:]]
    for label, value in (
        ("where", error.where),
        ("expected", error.expected),
        ("seen", error.seen),
        ("do", error.resolve),
    ):
        if value:
            first, *more = value.expandtabs(4).split("\n") if label == "seen" else [value]
            lines += [f"  {label:9}{first}", *(f"{'':11}{line}" for line in more)]
    return lined(lines)


if __name__ == "__main__":
    sys.exit(main())
