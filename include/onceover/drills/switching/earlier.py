"""A switchover that was done under an approval before: who tries it again is told of that one.

Pure. An approval is good for one switchover, however often it is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.outcome import PASSED
from onceover.errors import NeedsOperator
from onceover.planning.plan import Refusal
from onceover.shown import lined


@dataclass(frozen=True)
class EarlierSwitchover:
    """What it came to, as the journal has it; its report has the rest.

    Args:
        flow: its name.
        drill: its id; ``verdict`` and ``rto_s`` likewise.
        began_ms: when it began.
    """

    flow: str
    drill: str
    verdict: str
    rto_s: float | None
    began_ms: int

    @property
    def exit_code(self) -> int:
        """0 for PASS; 3 where it was done, and is none all the same."""
        return 0 if self.verdict == PASSED else NeedsOperator.exit_code

    @property
    def waiting(self) -> Sequence[Refusal]:
        """Nothing: all of it was done."""
        return []

    @property
    def counts(self) -> Mapping[str, Any]:
        """Names, ids and counts, as they were told then."""
        return {"flow": self.flow, "drill": self.drill, "verdict": self.verdict, "rto_s": self.rto_s}

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {**self.counts, "began_ms": self.began_ms, "done_before": True}

    def describe(self) -> str:
        """Return it as text."""
        done = f"switchover {self.drill} was done under this very approval: {self.verdict}"
        return lined([f"{done}; nothing was done now"])


def done_under(chain: Sequence[JournalEntry], flow: str, approval: str) -> EarlierSwitchover | None:
    """Return the switchover that was done to its end under an approval; None where there is none."""
    begun = {
        entry.drill: entry for entry in chain if entry.what == chains.BEGUN and approval_of(entry) == approval
    }
    for entry in chain:
        if entry.what == chains.ENDED and entry.drill in begun and entry.said.get("done") is True:
            rto_s = entry.said.get("rto_s")
            return EarlierSwitchover(
                flow,
                entry.drill,
                str(entry.said.get("result")),
                rto_s if isinstance(rto_s, int | float) else None,
                begun[entry.drill].at_ms,
            )
    return None


def approval_of(entry: JournalEntry) -> object:
    """Return the id of the approval under which a switchover was begun; None where there is none."""
    said = entry.said.get("approval")
    return said.get("id") if isinstance(said, Mapping) else None
