"""What is expected of an audit's tables, suite by suite, and what it means when it is not so. Pure.

Invariant: this is the only place where numbers become an answer. Every rule says which: FAIL (both sides
were seen, and they differ) or UNVERIFIABLE (it was not seen). Great Expectations evaluates the rules
(``onceover.spark.auditing.quality``), the verdict is read off its results (``audit.checks.verdict``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from onceover.audit.checks.result import Area
from onceover.audit.model import FindingKind
from onceover.state.records.verdicts import Verdict

DIGESTS: Final = "digests"
TOPICS: Final = "topics"
UNVERIFIABLE: Final = "unverifiable"
POSITIONS: Final = str(Area.POSITIONS)
RECEIPTS: Final = str(Area.RECEIPTS)
MAP: Final = str(Area.MAP)
GROUPS: Final = str(Area.GROUPS)
# In the order in which they are shown.
SUITES: Final = (TOPICS, DIGESTS, UNVERIFIABLE, POSITIONS, MAP, RECEIPTS, GROUPS)

NOT_ACCOUNTED: Final = "NOT_ACCOUNTED"
NOTHING_AUDITED: Final = "NOTHING_AUDITED"
NOT_CHECKED: Final = "NOT_CHECKED"
NOT_EVALUATED: Final = "NOT_EVALUATED"


class RuleKind(StrEnum):
    """How a rule looks at its columns."""

    EQUAL = "equal"  # two columns hold the same in every row
    ZERO = "zero"  # a column holds nothing above 0
    TRUE = "true"  # a column is true wherever it is known
    KNOWN = "known"  # a column is not null
    ROWS = "rows"  # there is at least one row


@dataclass(frozen=True, slots=True)
class Rule:
    """One expectation.

    Args:
        suite: of which table's suite.
        kind: how the columns are looked at.
        columns: one or two of them; none for ``ROWS``.
        answer: what it means when it is not met.
        code: short name of that.
        says: what is expected, as people say it.
    """

    suite: str
    kind: RuleKind
    columns: tuple[str, ...]
    answer: Verdict
    code: str
    says: str

    @property
    def name(self) -> str:
        """Unique among all rules."""
        return f"{self.suite}.{self.code.lower()}"


_FINDINGS: Final = {
    FindingKind.LOST: "no record of the source is missing on the target",
    FindingKind.REPEATED: "no record is on the target more often than on the source",
    FindingKind.REORDERED: "records are in the source's order",
    FindingKind.ALTERED: "key, value, headers and timestamp are unchanged",
    FindingKind.MISROUTED: "records are in the partition they belong to",
    FindingKind.PHANTOM: "the target holds nothing that the source never held",
    FindingKind.LEAKED: "nothing of an aborted transaction is on the target",
}


def _checked(suite: str, code: str, what: str, says: str) -> tuple[Rule, Rule]:
    """Return the rules of a table of checks: met where they could be made, and made everywhere."""
    return (
        Rule(suite, RuleKind.TRUE, ("ok",), Verdict.FAIL, code, says),
        Rule(
            suite, RuleKind.KNOWN, ("ok",), Verdict.UNVERIFIABLE, NOT_CHECKED, f"all {what} could be checked"
        ),
    )


RULES: Final[tuple[Rule, ...]] = (
    Rule(TOPICS, RuleKind.ROWS, (), Verdict.UNVERIFIABLE, NOTHING_AUDITED, "there is a partition to audit"),
    *(
        Rule(TOPICS, RuleKind.ZERO, (str(kind).lower(),), Verdict.FAIL, str(kind), says)
        for kind, says in _FINDINGS.items()
    ),
    Rule(
        TOPICS,
        RuleKind.ZERO,
        ("unaccounted",),
        Verdict.UNVERIFIABLE,
        NOT_ACCOUNTED,
        "every offset in scope was compared, or it is said why not",
    ),
    Rule(
        DIGESTS,
        RuleKind.EQUAL,
        ("source_records", "target_records"),
        Verdict.FAIL,
        "RECORDS",
        "ranges hold as many records on both sides",
    ),
    Rule(
        DIGESTS,
        RuleKind.EQUAL,
        ("source_sum", "target_sum"),
        Verdict.FAIL,
        "CONTENT",
        "ranges hold the same records on both sides",
    ),
    Rule(
        DIGESTS,
        RuleKind.EQUAL,
        ("source_chain", "target_chain"),
        Verdict.FAIL,
        "ORDER",
        "ranges hold their records in the same order on both sides",
    ),
    Rule(
        DIGESTS,
        RuleKind.KNOWN,
        ("both_sides",),
        Verdict.UNVERIFIABLE,
        "ONE_SIDE",
        "ranges were read on both sides",
    ),
    Rule(
        UNVERIFIABLE,
        RuleKind.ZERO,
        ("offsets",),
        Verdict.UNVERIFIABLE,
        "OFFSETS",
        "every offset could be compared",
    ),
    Rule(POSITIONS, RuleKind.ROWS, (), Verdict.UNVERIFIABLE, NOTHING_AUDITED, "the flow has positions"),
    *_checked(
        POSITIONS, "POSITION", "positions", "the flow goes on right behind the last record it has copied"
    ),
    *_checked(MAP, "MAP", "of the offset map", "the offset map agrees with the records"),
    *_checked(RECEIPTS, "RECEIPT", "receipts", "receipts are continuous, do not overlap, and add up"),
    *_checked(GROUPS, "GROUP", "groups", "consumer groups stand at the exact record"),
    Rule(GROUPS, RuleKind.ZERO, ("skipped",), Verdict.FAIL, "SKIPPED", "no group would miss a record"),
    Rule(
        GROUPS, RuleKind.ZERO, ("repeated",), Verdict.FAIL, "REPEATED", "no group would read a record again"
    ),
)


def rules_of(suite: str) -> list[Rule]:
    """Return a suite's rules."""
    return [rule for rule in RULES if rule.suite == suite]
