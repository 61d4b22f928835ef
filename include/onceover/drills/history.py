"""The drills of a flow, as their journal tells of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceover.ages import age_text
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.course import StepState
from onceover.drills.modes import BY_HAND, PLANNED, PROMOTE, UNPLANNED
from onceover.errors import NeedsOperator
from onceover.planning import commands
from onceover.shown import lined

_SHOWN: Final = 10
# For how long one may be at a step before somebody should look. A rehearsal is over by then, whatever
# happens; an export takes what it takes.
_PATIENCE_S: Final = {PLANNED: 120.0, UNPLANNED: 120.0, "rehearsal": 3600.0}
_NAMED: Final = 3
# Drills that keep nobody off, and let nobody in.
_OTHERS: Final = ("rehearsal", "orphans")
# What lets writers in again has done so by then, or it waits for something, or its process is gone.
_LETS_IN_S: Final = 15.0
# Records that are dated 1970 are as old as that, and more than this nobody has measured.
_LONGEST_S: Final = 1e11


@dataclass(frozen=True)
class DrillHistory:
    """What is known.

    Args:
        flow: its name.
        chain: the journal.
        now_ms: the time, in ms since 1970.
        kept_off: source topics that writers are kept off, and should not be where no switchover goes on.
    """

    flow: str
    chain: Sequence[JournalEntry]
    now_ms: int
    kept_off: Collection[str] = ()

    @property
    def drills(self) -> list[dict[str, Any]]:
        """The drills, the newest first; those that only took something away, or did nothing, are none."""
        begun = [e for e in self.chain if e.what == chains.BEGUN and e.said.get("mode") != chains.ABORT_MODE]
        drills = [self._drill(entry) for entry in reversed(begun)]
        return [each for each in drills if each["result"] != chains.DrillResult.REFUSED]

    def _drill(self, begun: JournalEntry) -> dict[str, Any]:
        entries = chains.of_drill(self.chain, begun.drill)
        ended = next((e for e in entries if e.what == chains.ENDED), None)
        steps = [e for e in entries if e.what == chains.STEP]
        return {
            "drill": begun.drill,
            "mode": begun.said.get("mode"),
            "began_ms": begun.at_ms,
            "ended_ms": None if ended is None else ended.at_ms,
            "result": None if ended is None else ended.said.get("result"),
            "rto_s": _seconds(None if ended is None else ended.said.get("rto_s")),
            "rpo_offsets": _count(None if ended is None else ended.said.get("rpo_offsets")),
            "rpo_s": _seconds(None if ended is None else ended.said.get("rpo_s")),
            "step": steps[-1].said.get("step") if steps else None,
            "asked_to_end": chains.is_asked_to_end(entries, begun.drill),
        }

    @property
    def unended(self) -> NeedsOperator | None:
        """A switchover that has begun and not ended: somebody may have to say a word, or to go on with it.

        None where there is none, or it gets on.
        """
        newest = next(iter(self.drills), None)
        running = chains.running(self.chain)
        if newest is None or running is None or running.drill != newest["drill"]:
            return None
        steps = [e for e in chains.of_drill(self.chain, running.drill) if e.what == chains.STEP]
        step = str(steps[-1].said.get("step")) if steps else "its beginning"
        waits = newest["mode"] in (PLANNED, UNPLANNED) and step in BY_HAND
        still_s = (self.now_ms - (steps[-1].at_ms if steps else newest["began_ms"])) / 1000
        if not waits and still_s < _PATIENCE_S.get(newest["mode"], math.inf):
            return None
        word = commands.command("drill", "confirm", self.flow, step)
        tells = f"if it waits for a person, {word} (the DAG confirm_drill) tells it; " if waits else ""
        ends = f", or {commands.command('drill', 'abort', self.flow)} takes back what it has done"
        promoted = any(chains.is_at(entry, PROMOTE, StepState.DONE) for entry in steps)
        return NeedsOperator(
            f"drill {newest['drill']} ({newest['mode']}) has not ended; it has been at {step} for "
            f"{age_text(max(0.0, still_s))}",
            code=DrillCode.DRILL_RUNS,
            resolve=f"{tells}if its process is gone, run it again as it was started"
            f"{'' if promoted else ends}",
        )

    @property
    def standing(self) -> NeedsOperator | None:
        """Writers that are kept off though no switchover goes on: it is over, and did not let them in."""
        if not self.kept_off or self._gets_on:
            return None
        named = sorted(self.kept_off)
        return NeedsOperator(
            f"writers of {len(named)} topics are kept off, and no switchover goes on: "
            f"{', '.join(named[:_NAMED])}",
            code=DrillCode.STILL_FENCED,
            resolve=f"{commands.command('drill', 'abort', self.flow)} lets them in again",
        )

    @property
    def _gets_on(self) -> bool:
        """Whether something is about to let writers in, or to promote what they are kept off."""
        running = chains.running(self.chain)
        if running is None or not sees_to_writers(running):
            return False
        if running.said.get("mode") != chains.ABORT_MODE:
            return True
        # Each try is a drill of its own: what counts is the first one.
        since_ms = running.at_ms
        for entry in reversed(self.chain):
            if entry.what == chains.BEGUN:
                if entry.said.get("mode") != chains.ABORT_MODE:
                    break
                since_ms = entry.at_ms
        return (self.now_ms - since_ms) / 1000 < _LETS_IN_S

    @property
    def needs(self) -> list[NeedsOperator]:
        """What waits for somebody."""
        return [each for each in (self.unended, self.standing) if each is not None]

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        running = chains.running(self.chain)
        return {
            "flow": self.flow,
            "running": None if running is None else running.drill,
            "entries": len(self.chain),
            "hash": self.chain[-1].hash if self.chain else chains.BEGINNING,
            "drills": self.drills,
            "kept_off": sorted(self.kept_off),
        }

    def describe(self) -> str:
        """Return it as text."""
        if not self.drills:
            return (
                f"no drill of flow {self.flow} was ever run; `onceover drill run {self.flow}` rehearses one"
            )
        lines = [f"drills of flow {self.flow}, the newest first:"]
        for each in self.drills[:_SHOWN]:
            ago = age_text(max(0.0, (self.now_ms - each["began_ms"]) / 1000))
            result = each["result"] or f"not ended, at step {each['step']}"
            measured = [] if each["rto_s"] is None else [f"{each['rto_s']:.1f} s for clients"]
            lost = each["rpo_offsets"]
            measured += [] if lost is None else [f"{lost:,} offsets on the source alone"]
            result += f" ({', '.join(measured)})" if measured else ""
            lines.append(f"  {each['drill']}  {each['mode']}  {result}  begun {ago} ago")
        lines += [f"  {each.message}; {each.resolve}" for each in self.needs]
        return lined(lines)


def sees_to_writers(begun: JournalEntry) -> bool:
    """Tell whether a drill lets writers in again, or promotes what they are kept off. Pure."""
    return begun.said.get("mode") not in _OTHERS


def _count(value: object) -> int | None:
    """Return what an entry says as a number of offsets."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _seconds(value: object) -> float | None:
    """Return what an entry says as seconds; nobody knows who has written it."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LONGEST_S
    return float(value) if known and isinstance(value, int | float) else None
