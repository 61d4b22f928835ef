"""What a command returns: one document for ``--json``, one text for people."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
