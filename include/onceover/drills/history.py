"""The drills of a flow, as their journal tells of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceover.ages import age_text
from onceover.drills import chain as chains
from onceover.drills.chain import JournalEntry
from onceover.drills.codes import DrillCode
from onceover.drills.modes import PLANNED, UNPLANNED
from onceover.errors import NeedsOperator
from onceover.planning import commands
from onceover.shown import lined

_SHOWN: Final = 10
# No rehearsal, and no export, takes longer: its copy is given up by then.
_LONG_S: Final = 3600.0
# Records that are dated 1970 are as old as that, and more than this nobody has measured.
_LONGEST_S: Final = 1e11


@dataclass(frozen=True)
class DrillHistory:
    """What is known.

    Args:
        flow: its name.
        chain: the journal.
        now_ms: the time, in ms since 1970.
    """

    flow: str
    chain: Sequence[JournalEntry]
    now_ms: int

    @property
    def drills(self) -> list[dict[str, Any]]:
        """The drills, the newest first; those that only took something away, or did nothing, are none."""
        begun = [e for e in self.chain if e.what == chains.BEGUN and e.said.get("mode") != "abort"]
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

        None where there is none. A rehearsal counts once it has taken longer than any does.
        """
        newest = next(iter(self.drills), None)
        running = chains.running(self.chain)
        if newest is None or running is None or running.drill != newest["drill"]:
            return None
        ago_s = max(0.0, (self.now_ms - newest["began_ms"]) / 1000)
        mode, step, switches = newest["mode"], newest["step"], newest["mode"] in (PLANNED, UNPLANNED)
        if not switches and ago_s < _LONG_S:
            return None
        abort = commands.command("drill", "abort", self.flow)
        way = f"{abort} ends it, and takes back what can be"
        if switches:
            word = commands.command("drill", "confirm", self.flow, str(step))
            again = commands.command("drill", "run", self.flow, "--mode", str(mode))
            way = (
                f"where it waits for a person {word} (the DAG confirm_drill) tells it; where its process is "
                f"gone {again} goes on with it, or {way}"
            )
        return NeedsOperator(
            f"drill {newest['drill']} ({mode}) began {age_text(ago_s)} ago and has not ended; it is at "
            f"{step}",
            code=DrillCode.DRILL_RUNS,
            resolve=way,
        )

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        running = chains.running(self.chain)
        return {
            "flow": self.flow,
            "running": None if running is None else running.drill,
            "entries": len(self.chain),
            "hash": self.chain[-1].hash if self.chain else chains.BEGINNING,
            "drills": self.drills,
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
        if (unended := self.unended) is not None:
            lines.append(f"  {unended.message}; {unended.resolve}")
        return lined(lines)


def _count(value: object) -> int | None:
    """Return what an entry says as a number of offsets."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _seconds(value: object) -> float | None:
    """Return what an entry says as seconds; nobody knows who has written it."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LONGEST_S
    return float(value) if known and isinstance(value, int | float) else None
