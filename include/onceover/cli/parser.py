"""What the parsers of all commands are made of.

Invariant: nothing here, and nothing in ``parsers``, loads what only the work needs. A parser names its work,
and the module that does it is loaded when the command line was found to be in order.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from onceover.cli.terminal.output import CommandResult
from onceover.cli.terminal.typed import NAME, as_typed
from onceover.errors import UsageError

# In the order of the help. Each is a module of `parsers`, and one beside it that does the work.
COMMANDS: Final = (
    "flow",
    "topics",
    "replicate",
    "stop",
    "status",
    "metrics",
    "partition",
    "groups",
    "seed",
    "adopt",
    "translate",
    "receipts",
    "audit",
    "drill",
    "connectors",
    "clusters",
    "demo",
    "bench",
)
_PACKAGE: Final = "onceover.cli"


class Answered(Exception):
    """Asked for help or the version, the parser has the answer; nothing else is to be done."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Version(argparse.Action):
    """``--version``: what is installed is looked up only when it is asked for."""

    def __call__(self, *_: object) -> None:
        """Raise ``Answered``."""
        from onceover.release import NOT_INSTALLED, own_version

        found = own_version()
        raise Answered(f"{NAME}, {NOT_INSTALLED}" if found is None else f"{NAME} {found}")


class Parser(argparse.ArgumentParser):
    """Turns a fault of the command line into an error like any other, with ``--json`` too."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong as ``UsageError``."""
        raise UsageError(message, resolve=f"see `{self.prog} --help`")

    def format_help(self) -> str:
        """Return the help with its examples as they can be typed."""
        return as_typed(super().format_help(), COMMANDS)

    def print_help(self, file: object = None) -> NoReturn:
        """Raise the help as ``Answered``: it is written like any result."""
        raise Answered(self.format_help().rstrip())

    def actions(self) -> list[argparse.Action]:
        """Return everything that may be typed behind it, in the order of its help."""
        return list(self._actions)

    def options(self) -> list[str]:
        """Return every option, as it is typed."""
        return [name for action in self.actions() for name in action.option_strings]

    def below(self) -> Mapping[str, Parser]:
        """Return the parsers of the words that may follow, by word; none where the command ends."""
        for action in self.actions():
            if isinstance(action, argparse._SubParsersAction):
                return cast("Mapping[str, Parser]", action.choices)
        return {}


if TYPE_CHECKING:
    # argparse keeps the class private, and generic only in its stubs.
    Subparsers = argparse._SubParsersAction[Parser]
else:
    Subparsers = Any


@dataclass(frozen=True)
class Work:
    """What does the work of a command, by name.

    Args:
        module: of this package.
        function: takes what was parsed and returns a ``CommandResult``.
    """

    module: str
    function: str = "run"

    def load(self) -> Callable[[argparse.Namespace], CommandResult]:
        """Load the module with all that it needs, and return the function."""
        found = getattr(importlib.import_module(f"{_PACKAGE}.commands.{self.module}"), self.function)
        return cast("Callable[[argparse.Namespace], CommandResult]", found)


def add_command(parent: Subparsers, name: str, text: str, examples: str) -> Parser:
    """Return the parser of a word that may follow, with its line in the help and its examples."""
    return parent.add_parser(
        name, help=text, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_actions(parser: Parser, *names: str) -> Subparsers:
    """Return where the parsers of a command's actions go; one of them has to be typed."""
    return parser.add_subparsers(dest="action", required=True, metavar="|".join(names))


def add_flow(parser: argparse.ArgumentParser) -> None:
    """Let a flow be named first."""
    parser.add_argument("flow", metavar="FLOW", help="name or path")


def end(parser: argparse.ArgumentParser, work: Work) -> None:
    """Add what every command ends with: ``--json``, and what does its work."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(work=work)


def register(subparsers: Subparsers, command: str) -> None:
    """Add a command's parser."""
    importlib.import_module(f"{_PACKAGE}.parsers.{command}").register(subparsers)
