"""The audit's answer, from the results of its expectations and nothing else. Pure.

Invariant: PASS only when every rule was evaluated and met. FAIL outweighs UNVERIFIABLE, which is an answer of
its own and never folded into PASS (G9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceover.audit.checks.suites import NOT_EVALUATED, RULES, Rule, RuleKind
from onceover.state.records.verdicts import Verdict

EXIT_CODES: Final[Mapping[Verdict, int]] = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNVERIFIABLE: 3}


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """One rule after it was evaluated.

    Args:
        rule: what was expected.
        met: True or False; None when it could not be evaluated.
        checked: how many rows were looked at.
        unexpected: in how many of them it was not met.
        numbers: those rows (the first ones): what they are about, and the values that failed.
        problem: why it could not be evaluated.
        expectation: what Great Expectations evaluated, by its own names.
    """

    rule: Rule
    met: bool | None
    checked: int = 0
    unexpected: int = 0
    numbers: tuple[Mapping[str, Any], ...] = ()
    problem: str | None = None
    expectation: str = ""

    @property
    def answer(self) -> Verdict:
        """What this rule alone would answer."""
        if self.met is None:
            return Verdict.UNVERIFIABLE
        return Verdict.PASS if self.met else self.rule.answer

    @property
    def observed(self) -> str:
        """What was seen, as people say it."""
        if self.met is None:
            return f"not evaluated: {self.problem}"
        if self.rule.kind is RuleKind.ROWS:
            return f"{self.checked:,} row{'' if self.checked == 1 else 's'}" if self.checked else "no rows"
        if not self.met:
            return f"not so in {self.unexpected:,} of {self.checked:,} rows"
        if not self.checked:
            return "no rows to look at"
        return "so in the only row" if self.checked == 1 else f"so in all {self.checked:,} rows"

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "suite": self.rule.suite,
            "code": self.rule.code if self.met is not None else NOT_EVALUATED,
            "expected": self.rule.says,
            "expectation": self.expectation,
            "answer": str(self.answer),
            "observed": self.observed,
            "checked": self.checked,
            "unexpected": self.unexpected,
            "numbers": [dict(each) for each in self.numbers],
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class QualityVerdict:
    """The answer with what it stands on.

    Args:
        verdict: PASS, FAIL or UNVERIFIABLE.
        outcomes: one for every rule.
    """

    verdict: Verdict
    outcomes: tuple[RuleOutcome, ...]

    @property
    def exit_code(self) -> int:
        """0 PASS, 1 FAIL, 3 UNVERIFIABLE."""
        return EXIT_CODES[self.verdict]


def conclude(outcomes: Iterable[RuleOutcome]) -> QualityVerdict:
    """Return the verdict of all rules together.

    A rule without an outcome counts as not evaluated: what was not asked is not proven.
    """
    found = {outcome.rule: outcome for outcome in outcomes}
    every = tuple(
        found.get(rule) or RuleOutcome(rule, None, problem="the rule was not evaluated") for rule in RULES
    )
    answers = {outcome.answer for outcome in every}
    for verdict in (Verdict.FAIL, Verdict.UNVERIFIABLE):
        if verdict in answers:
            return QualityVerdict(verdict, every)
    return QualityVerdict(Verdict.PASS, every)
