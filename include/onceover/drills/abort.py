"""Ending a drill from outside: one that runs is asked to, of one that died everything is taken away."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.codes import DrillCode
from onceover.drills.journal import DrillJournal
from onceover.drills.remains import Remains, Removal
from onceover.errors import Retriable

# A step that waits for a broker goes on to its own deadline first.
_ENDS_S: Final = 240.0
_LOOK_S: Final = 1.0
_REMOVE_S: Final = 90.0


@dataclass(frozen=True)
class Aborted:
    """What was done.

    Args:
        drill: that was ended; None where none was running.
        was_alive: whether it was running until it was asked to end.
        removed: what was taken away by us.
    """

    drill: str | None
    was_alive: bool
    removed: Remains

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {"drill": self.drill, "was_alive": self.was_alive, "removed": self.removed.document()}

    def describe(self) -> str:
        """Return it as text."""
        if self.was_alive:
            return f"drill {self.drill} was asked to end, and has taken everything away"
        ended = f"drill {self.drill} had died" if self.drill else "no drill was running"
        return f"{ended}; {'nothing was left of it' if self.removed.nothing else 'what was left is removed'}"


def abort(journal: DrillJournal, removal: Removal, flow: str, pause: Callable[[float], bool]) -> Aborted:
    """End the drill that runs, or what is left of one.

    Raises:
        Retriable: it does not end in time, or a cluster is away.
    """
    other = chains.running(journal.read())
    if other is not None and journal.is_alive():
        journal.append(other.drill, chains.ABORT, {})
        _await_end(journal, other.drill, flow, pause)
        return Aborted(other.drill, was_alive=True, removed=Remains())
    if other is None and removal.find().nothing:
        return Aborted(None, was_alive=False, removed=Remains())
    # As a drill of its own: whoever begins one meanwhile would have its topics taken away.
    drill = f"abort-{secrets.token_hex(6)}"
    journal.begin(drill, {"mode": "abort"})
    with journal.heartbeat(drill):
        try:
            removed = removal.remove(Deadline(_REMOVE_S))
        finally:
            journal.append(drill, chains.ENDED, {"result": "removed"})
    return Aborted(None if other is None else other.drill, was_alive=False, removed=removed)


def _await_end(journal: DrillJournal, drill: str, flow: str, pause: Callable[[float], bool]) -> None:
    deadline = Deadline(_ENDS_S)
    while any(each.drill == drill for each in [chains.running(journal.read())] if each is not None):
        if deadline.passed or pause(_LOOK_S):
            raise Retriable(
                f"drill {drill} was asked to end, and has not yet",
                code=DrillCode.DRILL_RUNS,
                resolve=f"`onceover drill status {flow}` tells which step it waits in",
            )
