"""What a command returns: one document for ``--json``, one text for people."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    # argparse keeps the class private, and generic only in its stubs.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subparsers = Any


@dataclass(frozen=True)
class CommandResult:
    """The outcome of a command. The caller adds the fields that every document has, and prints."""

    document: dict[str, Any]
    text: str
    exit_code: int = 0


class Planned(Protocol):
    """What every plan can do."""

    @property
    def exit_code(self) -> int:
        """What the command line returns for it."""

    def document(self) -> dict[str, Any]:
        """Return the plan's JSON."""

    def describe(self) -> str:
        """Return the plan as text."""


def plan_result(planned: Planned) -> CommandResult:
    """Return what ``plan`` prints: the plan, and how to have it done where there is something to do."""
    document, text = planned.document(), planned.describe()
    if document["changes"]:
        text += "\nnothing was changed; the same command with `apply` instead of `plan` does it"
    return CommandResult(document, text, planned.exit_code)
