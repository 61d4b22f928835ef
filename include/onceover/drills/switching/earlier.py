"""A switchover that was done under an approval before: who tries it again is told of that one.

Pure. An approval is good for one switchover, however often it is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceover.drills import chain as chains
from onceover.drills.chain import DrillResult, JournalEntry
from onceover.drills.course import StepState
from onceover.drills.switching.course import REVERSE
from onceover.errors import NeedsOperator
from onceover.planning import commands
from onceover.planning.plan import Refusal
from onceover.shown import lined


@dataclass(frozen=True)
class EarlierSwitchover:
    """What it came to, as the journal has it; its report has the rest.

    Args:
        flow: its name.
        drill: its id; ``verdict`` and ``rto_s`` likewise.
        began_ms: when it began.
        left: what has failed, or makes it FAIL although all was done.
    """

    flow: str
    drill: str
    verdict: str
    rto_s: float | None
    began_ms: int
    left: tuple[Refusal, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 for PASS; 3 where it was done, and is none all the same."""
        return 0 if self.verdict == DrillResult.PASS else NeedsOperator.exit_code

    @property
    def waiting(self) -> Sequence[Refusal]:
        """What has failed: trying it again does not do it."""
        return self.left

    @property
    def counts(self) -> Mapping[str, Any]:
        """Names, ids and counts, as they were told then."""
        return {"flow": self.flow, "drill": self.drill, "verdict": self.verdict, "rto_s": self.rto_s}

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {**self.counts, "began_ms": self.began_ms, "done_before": True}

    def describe(self) -> str:
        """Return it as text."""
        done = f"switchover {self.drill} was done under this approval, or behind it: {self.verdict}"
        left = [f"  left: {each.object}: {each.message}; {each.resolve}" for each in self.left]
        return lined([f"{done}; nothing was done now", *left])


def done_under(chain: Sequence[JournalEntry], flow: str, approval: str) -> EarlierSwitchover | None:
    """Return the switchover that was done to its end under an approval; None where there is none.

    Also where it was gone on with under another one: what was approved is done then.
    """
    begun: dict[str, JournalEntry] = {}
    for entry in chain:
        mine = chains.approval_of(entry) == approval or entry.said.get("goes_on") in begun
        if entry.what == chains.BEGUN and mine:
            begun[entry.drill] = entry
    for entry in chain:
        if entry.what == chains.ENDED and entry.drill in begun and entry.said.get("done") is True:
            rto_s = entry.said.get("rto_s")
            return EarlierSwitchover(
                flow,
                entry.drill,
                str(entry.said.get("result")),
                rto_s if isinstance(rto_s, int | float) else None,
                begun[entry.drill].at_ms,
                _left(chain, flow, begun[entry.drill], entry),
            )
    return None


def _left(
    chain: Sequence[JournalEntry], flow: str, begun: JournalEntry, ended: JournalEntry
) -> tuple[Refusal, ...]:
    """Return what stands in the way of PASS: steps that have failed, else what was found."""
    steps = {e.said.get("step"): e.said for e in chains.of_drill(chain, begun.drill) if e.what == chains.STEP}
    back, switchover = begun.said.get("reverse"), f"switchover {begun.drill}"
    look = f"{commands.command('drill', 'status', flow)} and its report say more"
    lead = f"{commands.lead_back(str(back), flow)} has flow {back} go on behind the promotion"
    failed = [
        Refusal(
            f"{switchover}, step {step}",
            str(said.get("code")),
            "it has failed, and everything else was done",
            lead if step == REVERSE and back is not None else look,
        )
        for step, said in steps.items()
        if said.get("state") == StepState.FAILED
    ]
    codes = ended.said.get("codes")
    found = [code for code in codes if isinstance(code, str)] if isinstance(codes, list) else []
    return tuple(failed) or tuple(Refusal(switchover, code, "all of it was done", look) for code in found)
