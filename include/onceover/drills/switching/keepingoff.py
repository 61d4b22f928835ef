"""Keeping writers off the source, and letting them in again, as the steps of a planned switchover do.

Invariant: whoever is kept off is let in again by *undo*, or is named in what it finds, with how that is done;
and nobody is let in once the copies may have been promoted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.backoff import Deadline
from onceover.drills import chain as chains
from onceover.drills.codes import DrillCode
from onceover.drills.leaving.fences import START_AGAIN, Mark
from onceover.drills.switching.common import SwitchSteps
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable
from onceover.planning import commands

_NAMED: Final = 3


@dataclass
class FencedSteps(SwitchSteps):
    """The actions of *fence* and *undo*. Not thread-safe."""

    # What a killed one keeps off: the target, which tells, may be away when it has to be lifted.
    _inherited: Mapping[str, Collection[Mark]] = field(default_factory=dict)
    _began_fencing: bool = False

    def fence(self, deadline: Deadline) -> Mapping[str, Any]:
        """Keep the source's writers off."""
        self.notes.check()
        self._began_fencing = True
        evidence = self.parts.fence.make(self.notes, self._topics, deadline)
        if there := evidence.get("there_before"):
            text = f"{there} DENYs of WRITE were there before: they are somebody's, and stay"
            self.findings.append((DrillCode.STILL_FENCED, text))
        return evidence

    def undo(self, deadline: Deadline) -> Mapping[str, Any]:
        """Let the writers in again, unless the copies were promoted: then there is no way back."""
        self.close()
        try:
            topics = self._not_promoted()
            if topics:
                # A journal that knows nothing of us knows of no fence either.
                self.notes.check()
            evidence = self.parts.lifted.lift(self.notes, topics, deadline) if topics else {}
        except Fenced:
            # They are somebody else's by now.
            raise
        except Retriable as error:
            self._lift_untold(error)
            raise
        except OnceoverError as error:
            if error.code == DrillCode.JOURNAL_DAMAGED:
                self._lift_unknown(error)
            else:
                self._name_kept_off(error)
            raise
        if not topics:
            return {"promoted": True}
        self._name_stopped()
        if waiting := evidence.get(START_AGAIN):
            text = f"nobody but a person lets the producers of {waiting} topics in again: start them"
            self.findings.append((DrillCode.STILL_FENCED, text))
        return {"promoted": False, **evidence}

    def _lift_untold(self, error: Retriable) -> None:
        """Let writers in though a cluster is away, as long as nobody can have promoted anything."""
        if self._began_promoting:
            return
        if not self.notes.holds():
            # Somebody else may go on with this very fence by now, and promote behind it.
            self._name_standing()
            return
        # Where it is the target, the writers of the source need not wait; the source may be back by now.
        try:
            done = self.parts.lifted.give_up(self.parts.fence, self._inherited)
        except OnceoverError as met:
            self._name_kept_off(met)
            return
        text = f"{done}, though a cluster is away ({error.message})"
        self.findings.append((DrillCode.STILL_FENCED, text))

    def _name_kept_off(self, error: OnceoverError) -> None:
        """Say that writers are kept off still, and how they are let in."""
        if not self._keeps_off:
            return
        text = (
            f"{self._writers} are kept off "
            f"{self.parts.source.alias} still: {error.message}. "
            f"{commands.command('drill', 'abort', self.parts.flow)} lets them in"
        )
        self.findings.append((DrillCode.STILL_FENCED, text))

    def _lift_unknown(self, error: OnceoverError) -> None:
        """Let in whom we keep off though the journal cannot tell of it: nobody else will ever know."""
        if not self._keeps_off:
            return
        if self._began_promoting or self._is_anothers():
            text = (
                f"{self._writers} may be kept off "
                f"{self.parts.source.alias} ({self.parts.fence.how}), and the journal does not know of it: "
                "let them in by hand"
            )
        else:
            done = self.parts.lifted.give_up(self.parts.fence, self._inherited)
            text = f"{done}, though the journal does not know of it any more ({error.message})"
        self.findings.append((DrillCode.STILL_FENCED, text))

    def _is_anothers(self) -> bool:
        """Tell whether another one runs by a journal that was made anew; nobody can by a damaged one."""
        try:
            return chains.running(self.notes.read()) is not None
        except NeedsOperator:
            return False

    def _name_standing(self) -> None:
        """Say that writers may be kept off still, and how they are let in where the target is gone."""
        if not self._keeps_off:
            return
        source, target = self.parts.source.alias, self.parts.target.alias
        text = (
            f"{self._writers} may be kept off "
            f"{source} ({self.parts.fence.how}): {target} does not tell whether another run has taken this "
            f"one over. {commands.command('drill', 'abort', self.parts.flow)} lets them in once it answers; "
            "where it is gone for good, do so by hand"
        )
        self.findings.append((DrillCode.STILL_FENCED, text))

    # ---- what they share

    @property
    def _keeps_off(self) -> bool:
        """Whether writers may be kept off by this drill, or by the one whose fence it has taken over."""
        return self._began_fencing or bool(self._inherited)

    @property
    def _writers(self) -> str:
        return f"writers of {', '.join(self._topics[:_NAMED])} ({len(self._topics)} topics)"

    def _fenced(self) -> dict[str, set[Mark]]:
        """Return what keeps writers off the topics by now, by the kind of fence."""
        fenced = chains.fenced(self.notes.read())
        ours = {kind: {m for m in marks if m[0] in self.enrolled} for kind, marks in fenced.items()}
        return {kind: marks for kind, marks in ours.items() if marks}

    def _gone(self) -> list[str]:
        """Return the topics that writers should be kept off, and are not, though nobody has let them in."""
        return self.parts.fence.gone(self._fenced().get(self.parts.fence.kind, ()))

    def _name_leaks(self) -> None:
        """Say whose writers are not kept off any more though nobody has let them in."""
        try:
            gone = self._gone()
        except OnceoverError as error:
            self.findings.append((DrillCode.NOT_COMPARED, f"whether the fence stands: {error.message}"))
            return
        if gone:
            text = f"the fence was taken away behind the cut: {', '.join(gone[:_NAMED])} ({len(gone)} topics)"
            self.findings.append((DrillCode.FENCE_LEAKS, text))
