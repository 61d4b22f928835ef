"""Commands that a person copies into a shell as they stand. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from onceover.connectors.model import PAUSED, STOPPED
from onceover.connectors.offsets.configtopic import STARTED

_WORDS: Final = {STARTED: "resume", PAUSED: "pause", STOPPED: "stop"}


def connector_words(names: Sequence[str]) -> list[str]:
    """Return the words that name connectors; one that begins with a hyphen is not taken for an option."""
    if not any(name.startswith("-") for name in names):
        return ["--connector", *names]
    return [f"--connector={name}" for name in names]


def rollback_command(connect: str, connector: str) -> str:
    """Return the command that takes back an interrupted run."""
    words = ["onceover", "connectors", "rollback", connect, *connector_words([connector]), "--apply"]
    return shlex.join(words)


def plan_command(move: str, connect: str, connector: str) -> str:
    """Return the command that shows what a move of a connector's offsets would do, and changes nothing.

    Args:
        move: ``plan``, of a migration, or ``downgrade``.
    """
    return shlex.join(["onceover", "connectors", move, connect, *connector_words([connector])])


def asking_command(url: str, connector: str, state: str) -> str:
    """Return the command that asks a worker for a state, in the word of the configuration topic."""
    return _curl("PUT", url, connector, f"/{_WORDS[state]}")


def deleting_command(url: str, connector: str) -> str:
    """Return the command that deletes a connector; its offsets stay."""
    return _curl("DELETE", url, connector)


def _curl(method: str, url: str, connector: str, about: str = "") -> str:
    return shlex.join(["curl", "-X", method, f"{url}/connectors/{quote(connector, safe='')}{about}"])
