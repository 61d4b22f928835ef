"""What the audits of a flow have answered, as the flow's state keeps it: seen from any machine. Pure.

Invariant: what an audit found wrong stays until a later one has compared the very same and found it right;
an audit that looked at less hides nothing. Written by the audit only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from onceover.ages import age_text
from onceover.state.codes import StateCode
from onceover.state.records.value import MALFORMED, record, whole_number

VERSION: Final = 1
# Where an audit begins that goes on where earlier ones ended, or at the flow's start; otherwise at a time.
WATERMARK: Final = "watermark"
START: Final = "start"
# Beginnings that leave nothing out: what came before the watermark was proven by earlier audits.
WHOLE: Final = (WATERMARK, START)
_NAMED: Final = 3


class Verdict(StrEnum):
    """An audit's answer, and a colour of pages; UNVERIFIABLE is never folded into PASS (G9)."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    UNVERIFIABLE = "UNVERIFIABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAnswer:
    """What one audit answered.

    Args:
        verdict: PASS, FAIL or UNVERIFIABLE.
        at_ms: when its bounds were fixed, in ms since 1970.
        summary: in one sentence.
        report: path of its report, on ``host``.
        since: where it began: ``WATERMARK``, ``START`` or a time; ``topics`` the patterns it was limited to,
            ``sample`` the number of ranges.
    """

    verdict: str
    at_ms: int
    summary: str
    report: str
    host: str
    since: str
    topics: tuple[str, ...] = ()
    sample: int | None = None

    @property
    def limited(self) -> bool:
        """True when it did not look at everything in the flow's filter."""
        return bool(self.topics) or self.sample is not None or self._later

    @property
    def _later(self) -> bool:
        return self.since not in WHOLE

    @property
    def scope(self) -> str:
        """What it was limited to, for people; empty where it was not."""
        parts = [f"of {', '.join(self.topics)} only"] if self.topics else []
        parts += [f"of records since {self.since} only"] if self._later else []
        return ", ".join(parts + ([f"a sample of {self.sample} ranges"] if self.sample else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFailure:
    """What an audit found wrong with a partition, and no later one has shown to be right.

    Args:
        topic: source topic; ``partition`` likewise.
        target: target topic and partition as ``topic:number``; empty where there is none.
        ids: topic ids of source and target; empty where they do not matter.
        source_from: first source offset of what was wrong; ``source_to`` the one behind it. Both 0 where a
            claim about the present was wrong, such as a group's position, as the target's then are.
        what: how much of which kind.
        answer: number of the audit in ``Verdicts.audits`` that found it.
        target_from: first target offset of what was wrong; ``target_to`` the one behind it, None where an
            older release wrote it.
        unclaimed_from: first target offset of what nothing claims, behind a handler; ``unclaimed_to``
            the one behind the last. Both 0 where there was none, and where an older release wrote it.
    """

    topic: str
    partition: int
    target: str
    ids: tuple[str, str]
    source_from: int
    source_to: int
    what: Mapping[str, int]
    answer: int
    target_from: int = 0
    target_to: int | None = None
    unclaimed_from: int = 0
    unclaimed_to: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """All that the audits have to say.

    Args:
        last: the newest audit.
        failures: what is wrong, by partition.
        rules: expectations that failed for the flow as a whole, as people say them, by number in ``audits``.
        more: partitions that failed beside the listed ones.
        audits: those that found ``failures`` and ``rules``.
    """

    last: AuditAnswer
    failures: tuple[AuditFailure, ...] = ()
    rules: Mapping[str, int] = field(default_factory=dict)
    more: int = 0
    audits: tuple[AuditAnswer, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the state value."""
        return {"v": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Verdicts | None:
        """Read what ``to_json`` wrote; None for another version's.

        Raises:
            One of ``state.records.value.MALFORMED``: it is not of that shape, or names an audit that is not
                in it.
        """
        if value["v"] != VERSION:
            return None
        audits = tuple(map(_answer, value["audits"]))
        return cls(
            last=_answer(value["last"]),
            failures=tuple(_failure(each, len(audits)) for each in value["failures"]),
            rules={says: _place(at, len(audits)) for says, at in value["rules"].items()},
            more=whole_number(value["more"]),
            audits=audits,
        )

    def open(self, copied: Callable[[AuditFailure], bool]) -> FailedAudit | None:
        """Return what still counts as failed, None when nothing does.

        Args:
            copied: tells whether the flow still copies a failure's topics.
        """
        failures = tuple(each for each in self.failures if copied(each))
        if not failures and not self.rules and not self.more:
            return None
        numbers = [*(each.answer for each in failures), *self.rules.values()]
        newest = max((self.audits[n] for n in numbers), key=lambda a: a.at_ms, default=self.last)
        return FailedAudit(newest, failures, tuple(self.rules), self.more)


@dataclass(frozen=True, slots=True)
class FailedAudit:
    """What counts as failed now; ``audit`` is the newest one that found some of it."""

    audit: AuditAnswer
    failures: Sequence[AuditFailure]
    rules: Sequence[str]
    more: int


def read_verdicts(value: Any) -> Verdicts | None:
    """Return what the audits before have left; None for nothing, and for what nobody can read.

    An audit begins anew then: it must not fail over what an older one has written.
    """
    try:
        return None if value is None else Verdicts.from_json(value)
    except MALFORMED:
        return None


def audit_entry(
    verdicts: Verdicts | None, failed: FailedAudit | None, now_ms: float
) -> dict[str, Any] | None:
    """Return the ``audit`` object of ``status``; None where there never was one."""
    if verdicts is None:
        return None
    last = verdicts.last
    return {
        **asdict(last),
        "topics": list(last.topics),
        "age_s": _age_s(last, now_ms),
        "failed": None if failed is None else _failed_entry(failed, now_ms),
    }


def _failed_entry(failed: FailedAudit, now_ms: float) -> dict[str, Any]:
    listed = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "source_from": each.source_from,
            "source_to": each.source_to,
            "what": dict(each.what),
        }
        for each in failed.failures
    ]
    return {
        "at_ms": failed.audit.at_ms,
        "age_s": _age_s(failed.audit, now_ms),
        "summary": failed.audit.summary,
        "report": failed.audit.report,
        "host": failed.audit.host,
        "partitions": listed,
        "more": failed.more,
        "rules": list(failed.rules),
    }


def audit_need(flow: str, entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return why the audits' answer needs a person, None where it does not."""
    failed = None if entry is None else entry["failed"]
    if failed is None:
        return None
    named = [f"{each['topic']}:{each['partition']}" for each in failed["partitions"]]
    more = len(named) - _NAMED + failed["more"]
    where = f" In {', '.join(named[:_NAMED])}{f' and {more} more' if more > 0 else ''}." if named else ""
    ago = age_text(failed["age_s"])
    full = f"`onceover audit {flow} --full` takes this away"
    # What was wrong with a position or a group has no offsets, and goes with the next audit.
    placed = (each for each in failed["partitions"] if each["source_from"] < each["source_to"])
    records = [f"{each['topic']}:{each['partition']}" for each in placed]
    if records:
        full += (
            " while the source holds those offsets; once it does not, only a copy made anew does: delete the "
            f"target topic, then `onceover partition reseed {flow} {records[0]}`, and so for each"
        )
    return {
        "code": StateCode.AUDIT_FAILED,
        "message": f"an audit found the copy wrong {ago} ago: {failed['summary']}{where}",
        "resolve": f"see {failed['report']} on {failed['host']}; once it is put right, {full}",
    }


def describe_audit(entry: Mapping[str, Any] | None) -> str | None:
    """Return the newest audit as a line for people, None where there never was one."""
    if entry is None:
        return None
    answer = AuditAnswer(**{k: entry[k] for k in AuditAnswer.__dataclass_fields__})
    scope = f" ({answer.scope})" if answer.limited else ""
    return f"{answer.verdict} {age_text(entry['age_s'])} ago{scope}: {answer.summary}"


def _answer(value: Mapping[str, Any]) -> AuditAnswer:
    return record(AuditAnswer, {**value, "topics": tuple(value["topics"])}, "audit")


def _failure(value: Mapping[str, Any], audits: int) -> AuditFailure:
    found = record(AuditFailure, {**value, "ids": tuple(value["ids"])}, "failure of an audit")
    _place(found.answer, audits)
    return found


def _place(value: object, audits: int) -> int:
    """Return the number of an audit among ``audits``."""
    at = whole_number(value)
    if not 0 <= at < audits:
        raise LookupError(f"audit {at} of {audits}")
    return at


def _age_s(answer: AuditAnswer, now_ms: float) -> float:
    return round(max(0.0, (now_ms - answer.at_ms) / 1000), 3)
