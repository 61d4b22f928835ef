"""What an audit leaves in the state for ``status``: its answer, and what is still to be put right. Pure.

Invariant: a failure goes only when an audit that was no sample has compared all of it and found it right, or
when the topics that it was about are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from onceover.audit.checks.result import Area, AuditResult, Check, PartitionResult
from onceover.audit.checks.verdict import QualityVerdict
from onceover.audit.model import Verdict
from onceover.model import TopicPartition
from onceover.state.records.verdicts import AuditAnswer, AuditFailure, Verdicts

# Of 300 bytes each: they stay within one record of 1 MiB.
_MAX_LISTED: Final = 1_000
_ABOUT_NOW: Final = frozenset({Area.POSITIONS, Area.GROUPS})

Ids = Mapping[tuple[TopicPartition, TopicPartition | None], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FinishedAudit:
    """One audit, as far as it matters to the next ``status``.

    Args:
        answer: what it answered.
        result: what it saw.
        quality: what its expectations made of it.
        ids: topic ids of the pairs that the flow copies between.
    """

    answer: AuditAnswer
    result: AuditResult
    quality: QualityVerdict
    ids: Ids


def next_verdicts(old: Verdicts | None, told: FinishedAudit) -> Verdicts:
    """Return what the state says after an audit."""
    found = _failures(told)
    kept, rules, more = [], {}, 0
    if old is not None:
        kept = [each for each in old.failures if not _settled(each, told)]
        kept = [each for each in kept if all(not _same(each, new) for new in found)]
        everything = not told.answer.limited and told.quality.verdict is not Verdict.FAIL
        more = 0 if everything and told.result.since == "start" else old.more
        met = {outcome.rule.says for outcome in told.quality.outcomes if outcome.met}
        settled = set() if told.answer.limited else met
        rules = {says: number for says, number in old.rules.items() if says not in settled}
    audits = () if old is None else old.audits
    number = len(audits)
    failures = [*kept, *(replace(each, answer=number) for each in found)]
    if told.quality.verdict is Verdict.FAIL and not found:
        wrong = [o.rule.says for o in told.quality.outcomes if o.answer is Verdict.FAIL]
        rules |= dict.fromkeys(wrong, number)
    return _without_unused(
        Verdicts(
            last=told.answer,
            failures=tuple(failures[:_MAX_LISTED]),
            rules=rules,
            more=more + max(0, len(failures) - _MAX_LISTED),
            audits=(*audits, told.answer),
        )
    )


def _without_unused(verdicts: Verdicts) -> Verdicts:
    used = sorted({*(each.answer for each in verdicts.failures), *verdicts.rules.values()})
    numbers = {old: new for new, old in enumerate(used)}
    return replace(
        verdicts,
        failures=tuple(replace(each, answer=numbers[each.answer]) for each in verdicts.failures),
        rules={says: numbers[number] for says, number in verdicts.rules.items()},
        audits=tuple(verdicts.audits[number] for number in used),
    )


def _failures(told: FinishedAudit) -> list[AuditFailure]:
    """Return what is wrong, by pair of partitions; claims are added to their source partition's."""
    wrong: dict[TopicPartition, list[Check]] = {}
    for check in told.result.checks:
        if check.ok is False:
            wrong.setdefault(check.source, []).append(check)
    failures = []
    for result in told.result.partitions:
        checks = wrong.pop(result.source, [])
        what = result.by_kind + Counter(str(check.area) for check in checks)
        if not what:
            continue
        begin, end = 0, 0
        if result.by_kind or any(check.area not in _ABOUT_NOW for check in checks):
            begin, end = result.source_from, result.source_to
        if result.by_kind and result.verified_to > begin:
            begin = min(result.verified_to, end)
        failures.append(_failure(result, told.ids, begin, end, what))
    return failures


def _failure(
    result: PartitionResult, ids: Ids, begin: int, end: int, what: Mapping[str, int]
) -> AuditFailure:
    return AuditFailure(
        topic=result.source.topic,
        partition=result.source.partition,
        target="" if result.target is None else str(result.target),
        ids=ids.get((result.source, result.target), ("", "")),
        source_from=begin,
        source_to=end,
        what=dict(what),
        answer=0,
    )


def _same(one: AuditFailure, other: AuditFailure) -> bool:
    """Tell whether ``other``, found later, stands for all of ``one``."""
    pair = one.topic, one.partition, one.target
    return (
        pair == (other.topic, other.partition, other.target)
        and other.source_from <= one.source_from
        and one.source_to <= other.source_to
    )


def _settled(failure: AuditFailure, told: FinishedAudit) -> bool:
    source = TopicPartition(failure.topic, failure.partition)
    results = [
        each
        for each in told.result.partitions
        if each.source == source and ("" if each.target is None else str(each.target)) == failure.target
    ]
    if not results:
        # A surplus partition that holds nothing any more is not looked at, nor is a topic that has left.
        return not told.answer.limited and not any(failure.ids)
    return all(_shown_right(failure, each, told) for each in results)


def _shown_right(failure: AuditFailure, result: PartitionResult, told: FinishedAudit) -> bool:
    if any(failure.ids) and told.ids.get((result.source, result.target), failure.ids) != failure.ids:
        return True  # of topics that are gone
    if told.answer.sample is not None or not result.complete or result.by_kind:
        return False
    if any(check.ok is not True for check in told.result.checks if check.source == result.source):
        return False
    begin, end = failure.source_from, failure.source_to
    if not end:
        return True  # it was about the present, and the present is right
    gaps = [gap for gap in result.unverifiable if gap.offset_from < end and gap.offset_to > begin]
    return not gaps and result.source_from <= begin and end <= result.source_to
