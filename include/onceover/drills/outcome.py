"""What a drill came to: its verdict, its seconds and its report. Pure.

Invariant: a drill that says PASS has seen everything that it names: a step that was not run, or whose
evidence is missing, makes none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from onceover.drills.about import DrillAbout
from onceover.drills.chain import DrillResult
from onceover.drills.codes import DrillCode
from onceover.drills.course import StepResult, StepState
from onceover.drills.looks.rpo import Loss, Objectives, rpo_text
from onceover.errors import NeedsOperator
from onceover.planning.operation import Planned
from onceover.planning.plan import Refusal
from onceover.shown import lined

# Of a plan's topics, in the journal; the report has them all.
_NAMED: Final = 100


class DrillPlan(Planned, Protocol):
    """A plan of a drill."""

    @property
    def flow(self) -> str:
        """Name of the flow."""

    @property
    def plan_id(self) -> str:
        """Name of exactly these changes."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Source topics that it is about."""


@dataclass(frozen=True)
class DrillOutcome(ABC):
    """What a drill came to.

    Args:
        plan: what was planned.
        drill: its id.
        results: of its steps.
        findings: code and text of what somebody should look at, and that does not fail it.
        objectives: the flow's.
        began_ms: when it began; ``ended_ms`` when it ended, None while it runs.
        about: who, where, of what; drills before it.
    """

    plan: DrillPlan
    drill: str
    results: Sequence[StepResult]
    findings: Sequence[tuple[str, str]]
    objectives: Objectives
    began_ms: int
    about: DrillAbout
    ended_ms: int | None = None

    @property
    @abstractmethod
    def mode(self) -> str:
        """Which kind of drill it is."""

    @property
    @abstractmethod
    def rto_steps(self) -> tuple[str, ...]:
        """The steps that clients wait for."""

    @property
    def rto_s(self) -> float | None:
        """Seconds that clients wait for us; None where one of those steps was not run."""
        by_name = {result.name: result for result in self.results}
        steps = [by_name[name] for name in self.rto_steps if name in by_name]
        if not steps or any(step.state is not StepState.DONE or step.seconds is None for step in steps):
            return None
        return sum(step.seconds or 0.0 for step in steps)

    @property
    @abstractmethod
    def loss(self) -> Loss | None:
        """What is lost by it, or would have been without warning; None where nobody has looked."""

    @property
    def holds_loss(self) -> bool:
        """Whether what is lost is held against ``objectives.rpo``."""
        return self.objectives.is_promised_at_any_moment

    @property
    def breaking(self) -> tuple[DrillCode, ...]:
        """The findings that keep it from PASS, though every step was done."""
        return (DrillCode.RTO_MISSED,)

    @property
    def verdict(self) -> DrillResult | None:
        """PASS or FAIL; None while it runs."""
        if self.ended_ms is None:
            return None
        in_time = self.rto_s is not None and self.rto_s * 1000 <= self.objectives.rto_ms
        return DrillResult.PASS if self.is_done and in_time else DrillResult.FAIL

    @property
    def is_done(self) -> bool:
        """Tell whether every step was done, however long it took."""
        return all(result.state is StepState.DONE for result in self.results)

    def evidence_of(self, name: str) -> Mapping[str, Any] | None:
        """Return what a step has seen, None where it was not done."""
        done = (r.evidence for r in self.results if r.name == name and r.state is StepState.DONE)
        return next(done, None)

    def begun(self) -> dict[str, Any]:
        """Return what the journal holds of its beginning: no more topics than a record takes."""
        topics = self.plan.topics
        named, more = list(topics[:_NAMED]), len(topics) - _NAMED
        told: dict[str, Any] = {"mode": self.mode, "plan_id": self.plan.plan_id, "topics": named}
        return told if more <= 0 else {**told, "more_topics": more}

    def ended(self) -> dict[str, Any]:
        """Return what the journal holds of its end."""
        rpo = self._rpo()
        return {
            "result": str(self.verdict),
            "rto_s": self.counts["rto_s"],
            "rpo_offsets": rpo["offsets"],
            "rpo_s": rpo["seconds"],
            "done": self.is_done,
        }

    @property
    def exit_code(self) -> int:
        """0 for PASS; of a failed step its error's; 3 where only the objective was missed.

        3 also where its journal was deleted under it: another try is no answer to that. Never 2: something
        was done.
        """
        errors = [result.error for result in self.results if result.error is not None]
        if any(error.code == DrillCode.JOURNAL_DAMAGED for error in errors):
            return NeedsOperator.exit_code
        if errors:
            return max(errors[0].exit_code, NeedsOperator.exit_code)
        return 0 if self.verdict == DrillResult.PASS else NeedsOperator.exit_code

    @property
    def waiting(self) -> Sequence[Refusal]:
        """What failed."""
        return [
            Refusal(
                result.title, result.error.code, result.error.message, str(result.error.as_dict()["resolve"])
            )
            for result in self.results
            if result.error is not None
        ]

    @property
    def counts(self) -> Mapping[str, Any]:
        """Names, ids and counts."""
        return {
            "flow": self.plan.flow,
            "drill": self.drill,
            "verdict": self.verdict,
            "rto_s": None if self.rto_s is None else round(self.rto_s, 3),
        }

    def document(self) -> dict[str, Any]:
        """Return the report."""
        return {
            "flow": self.plan.flow,
            "drill": self.drill,
            "mode": self.mode,
            "verdict": self.verdict,
            "began_ms": self.began_ms,
            "ended_ms": self.ended_ms,
            "rto": {
                "objective_s": self.objectives.rto_ms / 1000,
                "seconds": None if self.rto_s is None else round(self.rto_s, 3),
                "steps": {
                    r.name: None if r.seconds is None else round(r.seconds, 3)
                    for r in self.results
                    if r.name in self.rto_steps
                },
                "before": {},
            },
            "rpo": {
                "objective": self.objectives.rpo_document(),
                **self._rpo(),
                "met": self.objectives.allows(self.loss) if self.holds_loss else None,
            },
            "steps": [result.document() for result in self.results],
            "findings": [
                {"code": code, "text": text, "fails": code in self.breaking} for code, text in self.findings
            ],
            "plan": self.plan.document(),
            "about": self.about.document(),
            "approval": {},
        }

    def describe(self) -> str:
        """Return it as text."""
        lines = []
        for result in self.results:
            took = "" if result.seconds is None else f" in {result.seconds:.1f} s"
            lines.append(f"  {result.state}: {result.title}{took}")
            if result.error is not None:
                lines.append(f"    {result.error}")
        lines += [
            f"  {'fails' if code in self.breaking else 'look at'}: {text} ({code})"
            for code, text in self.findings
        ]
        if self.rto_s is not None:
            objective_s = self.objectives.rto_ms / 1000
            lines.append(f"{self.waited} {self.rto_s:.1f} s for us; the objective is {objective_s:.0f} s")
        if self.loss is not None:
            objective = rpo_text(self.objectives.rpo_document())
            lines.append(f"{self.lost} {self.loss.describe()}; the objective is {objective}")
        lines.append(f"{self.mode} {self.drill}: {self.verdict or 'running'}")
        return lined(lines)

    def _rpo(self) -> dict[str, Any]:
        loss = self.loss or Loss(None, None)
        return {
            "offsets": loss.offsets,
            "seconds": None if loss.seconds is None else round(loss.seconds, 3),
        }

    @property
    def waited(self) -> str:
        """Who has waited, as the beginning of a sentence."""
        return "clients have waited"

    @property
    def lost(self) -> str:
        """Of what ``loss`` is, as the beginning of a sentence."""
        return "on the source alone:"
