"""What a shell asks at every Tab: the words that may follow, from parsers, files and clusters.

Invariant: it ends soon, whatever a disk or a cluster does; it says nothing but words; it changes nothing. Who
has not found the answer by then has none.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NoReturn

import argcomplete
from argcomplete.completers import FilesCompleter, SuppressCompleter

from onceover.cli.parser import Parser
from onceover.cli.parsing import build_parser
from onceover.errors import OnceoverError, UsageError

# For everything: longer, a person thinks that the shell hangs.
_DEADLINE_S: Final = 4.0
# A shell that sorts and shows more is slow, and nobody reads them.
_MOST: Final = 1000
# Anybody may name a group: one that a shell or a terminal would take for more than a name is left out. As
# patterns these names match themselves.
_PLAIN: Final = re.compile(r"[\w.-]+", re.ASCII)
_FILES: Final = FilesCompleter()
_FLOW_PATHS: Final = FilesCompleter(("yaml", "yml"))

Completer = Callable[..., Iterable[str]]


def complete() -> NoReturn:
    """Answer the shell that has asked, and end the process."""
    watchdog = threading.Timer(_DEADLINE_S, os._exit, (0,))
    watchdog.daemon = True
    try:
        watchdog.start()
        _be_quiet()
        parser = build_parser()
        attach(parser)
        argcomplete.autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())
    finally:
        # Also where something was raised: a shell in which somebody types is no place for a traceback.
        os._exit(0)


def _be_quiet() -> None:
    sys.dont_write_bytecode = True
    logging.disable()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)


def attach(parser: Parser) -> None:
    """Say for every argument of ``parser``, and of those below, what completes it."""
    for action in parser._actions:
        if (found := _completer(action)) is not None:
            action.completer = found  # pyrefly: ignore[missing-attribute]
    for below in parser.below().values():
        attach(below)


def _completer(action: argparse.Action) -> Completer | None:
    """Return what completes an argument, by its option, or by what it is called in the help."""
    named = [_OF_OPTION[name] for name in action.option_strings if name in _OF_OPTION]
    if action.metavar == "REGEX":
        named += [_PATTERNS[name] for name in action.option_strings]
    return named[0] if named else _OF_METAVAR.get(str(action.metavar))


def _flows(prefix: str, **asked: object) -> Iterable[str]:
    from onceover.config.files import FLOW_FILES
    from onceover.config.home import variables

    if os.sep in prefix or prefix.startswith("."):
        return _FLOW_PATHS(prefix, **asked)
    return [path.stem for path in FLOW_FILES.find(variables())]


def _connect_files(prefix: str, **asked: object) -> Iterable[str]:
    from onceover.config.files import CONNECT_FILES
    from onceover.config.home import variables

    if os.sep in prefix or prefix.startswith("."):
        return _FLOW_PATHS(prefix, **asked)
    return [path.stem for path in CONNECT_FILES.find(variables())]


def _topics(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    from onceover.cli import clusternames

    return _plain(prefix, clusternames.topics(_flow(parsed_args), target=_is_of_target(parsed_args)))


def _partitions(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    from onceover.cli import clusternames

    topic, colon, _number = prefix.rpartition(":")
    found = clusternames.topics(_flow(parsed_args), target=_is_of_target(parsed_args))
    if not colon:
        return [f"{name}:" for name in _plain(prefix, found)]
    return _plain(prefix, (f"{topic}:{number}" for number in found.get(topic, ())), re.compile(r"[\w.:-]+"))


def _groups(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    from onceover.cli import clusternames

    return _plain(prefix, clusternames.groups(_flow(parsed_args), target=parsed_args.direction == "failback"))


def _flow(parsed_args: argparse.Namespace) -> str:
    flow = getattr(parsed_args, "flow", None)
    if flow is None:
        raise UsageError("no flow is named yet")
    return str(flow)


def _is_of_target(parsed_args: argparse.Namespace) -> bool:
    """Tell whether ``translate`` asks for the way back."""
    return getattr(parsed_args, "to", None) == "source"


def _plain(prefix: str, names: Iterable[str], allowed: re.Pattern[str] = _PLAIN) -> list[str]:
    fitting = sorted(name for name in names if name.startswith(prefix) and allowed.fullmatch(name))
    return fitting[:_MOST]


def _unless_refused(completer: Completer) -> Completer:
    """Return a completer that has no words where a file or a cluster has none for us."""

    def words(**asked: object) -> Iterator[str]:
        with suppress(OnceoverError, OSError):
            yield from completer(**asked)

    return words


def _words(*words: str) -> Completer:
    return lambda **_: words


_OF_METAVAR: Final[Mapping[str, Completer]] = {
    "FLOW": _unless_refused(_flows),
    "CONNECT": _unless_refused(_connect_files),
    "TOPIC:PARTITION": _unless_refused(_partitions),
    "TOPIC[:PARTITION]": _unless_refused(_topics),
    "FILE": _FILES,
    "PATH": _FILES,
    "DIR": _FILES,
}
_OF_OPTION: Final[Mapping[str, Completer]] = {
    "--explain": _unless_refused(_topics),
    "--until": _words("caught-up", "forever"),
    "--since": _words("watermark", "start"),
    "--from": _words(
        "group:", "earliest", "latest", "timestamp:", "flow:", "promoted:", "file:", "map", "lag-group"
    ),
}
_PATTERNS: Final[Mapping[str, Completer]] = {
    "--topic": _unless_refused(_topics),
    "--topics": _unless_refused(_topics),
    "--group": _unless_refused(_groups),
    "--forget-group": _unless_refused(_groups),
}
