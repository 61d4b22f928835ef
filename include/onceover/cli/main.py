"""The command line: parse, call one use case, print, exit code. Nothing else."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from onceover.cli.codes import CommandCode
from onceover.cli.parser import COMMANDS, Answered, Work
from onceover.cli.parsing import parse
from onceover.cli.terminal import streams
from onceover.cli.terminal.colours import painted
from onceover.cli.terminal.output import CommandResult, envelope, interrupted, worded
from onceover.cli.terminal.typed import FlowAtPath, as_typed, typed_program
from onceover.config.faults import message_lines
from onceover.errors import NeedsOperator, OnceoverError, is_of_a_path, unexpected, unusable_path
from onceover.exitstatus import UNREAD
from onceover.logs import configure, is_verbose
from onceover.private import privately
from onceover.shown import lined, screen

log = logging.getLogger(__name__)


class _Unread(OnceoverError):
    """Nobody reads stdout any more, as in ``| head -1``, before the command was done."""

    exit_code = UNREAD


@privately()
def main(argv: Sequence[str] | None = None, *, loaded: Callable[[], object] = lambda: None) -> int:
    """Run one command; return its exit code.

    Args:
        argv: what was typed behind the program's name; by default what was typed to start this process.
        loaded: is called once everything is loaded and the work begins.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    command = " ".join(arguments[:1])
    flow = None
    try:
        configure()
        args = parse(arguments)
        command = _command_name(args)
        # Not only where it was written in full.
        as_json = bool(getattr(args, "json", as_json))
        flow = getattr(args, "flow", None)
        work = _function(args)
        loaded()
        with worded(_wording(flow)):
            result = work(args)
        exit_code, text = result.exit_code, _shown(command, result, flow, as_json=as_json)
    except Answered as answered:
        exit_code, text = 0, answered.text
    except KeyboardInterrupt as error:
        return _failed(command, _ours(error), flow, as_json=as_json)
    except Exception as error:
        if is_verbose():
            log.exception("the command failed")
        return _failed(command, _ours(error), flow, as_json=as_json)
    # A full disk is no violation, which an audit would have found.
    return exit_code if streams.write(text) else exit_code or NeedsOperator.exit_code


def _ours(error: BaseException) -> OnceoverError:
    if isinstance(error, OnceoverError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return interrupted()
    if isinstance(error, BrokenPipeError):
        return _Unread("stdout was closed before the command was done", code=CommandCode.UNREAD)
    if is_of_a_path(error):
        return unusable_path(error)
    return unexpected(error, resolve="run it again with ONCEOVER_LOG=DEBUG for the traceback")


def _function(args: argparse.Namespace) -> Callable[[argparse.Namespace], CommandResult]:
    named: Work = args.work
    return named.load()


def _command_name(args: argparse.Namespace) -> str:
    action = getattr(args, "action", None)
    return f"{args.command} {action}" if action else str(args.command)


def _shown(command: str, result: CommandResult, flow: object, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(envelope(command, result.exit_code, _typed(result.document, _wording(flow))))
    return painted(screen(_wording(flow)(result.text)), sys.stdout)


def _wording(typed: object) -> Callable[[str], str]:
    """Return what puts the commands in a text as they can be typed, of the flow that was named so."""
    program = typed_program(sys.argv[0], os.environ.get("PATH"))
    return partial(as_typed, commands=COMMANDS, program=program, flow=_at_path(typed))


def _at_path(typed: object) -> FlowAtPath | None:
    """Return the flow whose file was named by a path; None for one that is found by its name, too."""
    if not isinstance(typed, str) or typed == Path(typed).stem or not os.path.isfile(typed):
        return None
    from onceover.config.flow.load import is_found
    from onceover.config.flow.namesakes import name_said

    path = Path(typed).absolute()
    name = name_said(path)
    return None if is_found(name, path) else FlowAtPath(name, typed)


def _typed(value: Any, wording: Callable[[str], str]) -> Any:
    """Return a document whose advice names commands as they can be typed, like the text."""
    if isinstance(value, Mapping):
        return {
            key: wording(each) if key == "resolve" and isinstance(each, str) else _typed(each, wording)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_typed(each, wording) for each in value]
    return value


def _failed(command: str, error: OnceoverError, typed: object, *, as_json: bool) -> int:
    wording = _wording(typed)
    if as_json:
        streams.write(
            json.dumps(
                envelope(
                    command,
                    error.exit_code,
                    _typed({"error": error.as_dict(f"onceover {command}".strip())}, wording),
                )
            )
        )
    streams.complain(painted(wording(_explained(error)), sys.stderr))
    return error.exit_code


def _explained(error: OnceoverError) -> str:
    # What was seen may be a log's end, too; elsewhere a line more is somebody's name.
    message = message_lines(error.code, error.message)
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
