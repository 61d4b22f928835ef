"""Following the way out of a message word for word: its commands are taken from its own text.

A command that is renamed, misspelt or left incomplete in a message fails here and not at night.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pytest

from onceover.cli import main as command_line

Capture = pytest.CaptureFixture[str]

_QUOTED = re.compile(r"`([^`]+)`")
_PLACEHOLDER = re.compile(r"\b(OFFSET|FLOW|TOPIC|PARTITION|REGEX|FILE|NEW)\b|\.\.\.|<|>")
APPLY = "--apply"
# What changes nothing unless it is told to, by the words in front of it.
_PLANS = ("partition resume", "partition skip-to", "partition reseed")
_REPLICATE = "replicate"


@dataclass(frozen=True)
class Command:
    """One command of a message, as a person copies it."""

    text: str

    @property
    def arguments(self) -> list[str]:
        """What the shell makes of it, without the program's name."""
        return shlex.split(self.text)[1:]

    @property
    def is_start(self) -> bool:
        """True for the one command that tests do not run with Spark."""
        return self.arguments[0] == _REPLICATE

    @property
    def plans(self) -> bool:
        """True where the command has to be given once more with ``--apply``."""
        return self.text.removeprefix("onceover ").startswith(_PLANS)

    def run(self, capsys: Capture, *more: str, codes: Collection[int] = (0,)) -> dict[str, Any]:
        """Run it as it is written; return its document. It has to end with one of ``codes``."""
        capsys.readouterr()
        code = command_line.main([*self.arguments, *more, "--json"])
        out, err = capsys.readouterr()
        assert code in codes, f"`{self.text}` ends with {code}: {err or out}"
        document: dict[str, Any] = json.loads(out)
        return document


def commands(resolve: str) -> list[Command]:
    """Return the commands of a message in their order; each has to be complete."""
    quoted = [text for text in _QUOTED.findall(resolve) if text.split()[0] == "onceover"]
    for text in quoted:
        assert not _PLACEHOLDER.search(text), f"not complete: {text}"
    found = [Command(text) for text in quoted]
    if any(command.plans for command in found):
        assert f"`{APPLY}` does it" in resolve, f"nothing says that it is only a plan: {resolve}"
    return found


def follow(capsys: Capture, command: Command) -> None:
    """Do what a message says: see the plan, then have it done."""
    planned = command.run(capsys)
    if command.plans:
        assert "applied" not in planned, "it was done unasked"
        done = command.run(capsys, APPLY)
        assert done["applied"] is True
        assert done["changes"] == planned["changes"]
