"""What an audit leaves in the state for ``status``: its answer, and what is still to be put right. Pure.

Invariant: a failure goes only when an audit that was no sample has compared all of it, on both sides, and
found it right, or when the topics that it was about are gone. An audit of less adds to it, and replaces
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from onceover.audit.checks.result import Area, AuditResult, Check, PartitionResult
from onceover.audit.checks.verdict import QualityVerdict
from onceover.audit.model import FindingKind, Mode
from onceover.audit.ranges.snapshot import AuditSnapshot
from onceover.model import TopicPartition
from onceover.state.records.verdicts import START, AuditAnswer, AuditFailure, Verdict, Verdicts

# Of 300 bytes each: they stay within one record of 1 MiB.
_MAX_LISTED: Final = 1_000
_ABOUT_NOW: Final = frozenset({str(Area.POSITIONS), str(Area.GROUPS)})

Ids = Mapping[tuple[TopicPartition, TopicPartition | None], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FinishedAudit:
    """One audit, as far as it matters to the next ``status``.

    Args:
        answer: what it answered.
        result: what it saw.
        quality: what its expectations made of it.
        ids: topic ids of the pairs that the flow copies between.
        logs: where each log of the target begins and ends: what is before or behind is on the target no more.
    """

    answer: AuditAnswer
    result: AuditResult
    quality: QualityVerdict
    ids: Ids
    logs: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, answer: AuditAnswer, snapshot: AuditSnapshot, result: AuditResult, quality: QualityVerdict
    ) -> FinishedAudit:
        """Return one with the ids and logs that its snapshot has fixed."""
        ids: dict[tuple[TopicPartition, TopicPartition | None], tuple[str, str]] = {
            (seen.source, seen.target): (str(seen.enrolled[0]), str(seen.enrolled[1]))
            for seen in snapshot.partitions
        }
        logs = {tp: (log.start, log.end) for tp, (log, _) in snapshot.surplus.items()}
        for seen in snapshot.partitions:
            if seen.target_log is not None:
                logs[seen.target] = seen.target_log.start, seen.target_log.end
        return cls(answer, result, quality, ids, logs)


def next_verdicts(old: Verdicts | None, told: FinishedAudit) -> Verdicts:
    """Return what the state says after an audit."""
    found, verdict = _failures(told), told.quality.verdict
    audits = () if old is None else old.audits
    number = len(audits)
    new = [replace(each, answer=number) for each in found]
    failures = _carried(() if old is None else old.failures, new, told)
    rules = {} if old is None else _rules(old, told)
    if verdict is Verdict.FAIL and not found:
        wrong = [o.rule.says for o in told.quality.outcomes if o.answer is Verdict.FAIL]
        rules |= dict.fromkeys(wrong, number)
    # Nobody knows where those are that are counted only: all of it has to be right.
    more = 0 if old is None or (_is_whole(told) and verdict is Verdict.PASS) else old.more
    return _without_unused(
        Verdicts(
            last=told.answer,
            failures=tuple(failures[:_MAX_LISTED]),
            rules=rules,
            more=more + max(0, len(failures) - _MAX_LISTED),
            audits=(*audits, told.answer),
        )
    )


def _is_whole(told: FinishedAudit) -> bool:
    """Tell whether an audit has looked at everything, also at what was proven before."""
    return not told.answer.limited and told.answer.since == START


def _rules(old: Verdicts, told: FinishedAudit) -> dict[str, int]:
    """Return the rules of before that still count: a failure without a place goes with all of it only."""
    met = {outcome.rule.says for outcome in told.quality.outcomes if outcome.met} if _is_whole(told) else ()
    return {says: number for says, number in old.rules.items() if says not in met}


def _carried(
    old: Iterable[AuditFailure], new: Iterable[AuditFailure], told: FinishedAudit
) -> list[AuditFailure]:
    """Return the failures of before that still count, and then the new ones.

    A new one stands for an older one of the same records; where not all of that was looked at, what the
    older one says is kept in it.
    """
    kept, found = [], list(new)
    for failure in old:
        if _settled(failure, told):
            continue
        at = next((n for n, each in enumerate(found) if _same(failure, each)), None)
        if at is None:
            kept.append(failure)
        elif not _compared_again(failure, told):
            found[at] = _with(found[at], failure)
    return [*kept, *found]


def _with(newer: AuditFailure, older: AuditFailure) -> AuditFailure:
    """Return a failure that keeps what an older one says of the same records."""
    unclaimed = _span(
        [(e.unclaimed_from, e.unclaimed_to) for e in (newer, older) if e.unclaimed_from < e.unclaimed_to]
    )
    return replace(
        newer,
        what=dict(Counter(newer.what) | Counter(older.what)),
        unclaimed_from=unclaimed[0],
        unclaimed_to=unclaimed[1],
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
    pairs: dict[tuple[TopicPartition, TopicPartition | None], list[PartitionResult]] = {}
    for result in told.result.partitions:
        pairs.setdefault((result.source, result.target), []).append(result)
    failures = []
    for (source, _), results in pairs.items():
        what = Counter(str(check.area) for check in wrong.pop(source, []))
        for result in results:
            what.update(result.by_kind)
        if what:
            failures.append(_failure(results, told.ids, what))
    return failures


def _failure(results: Sequence[PartitionResult], ids: Ids, what: Mapping[str, int]) -> AuditFailure:
    """Return the failure of a pair: findings beside what was copied are told of with it."""
    first = results[0]
    source, target = _joined(results)
    unclaimed = _unclaimed(results, target)
    if what.keys() <= _ABOUT_NOW:
        source = target = 0, 0
    elif first.by_kind and first.verified_to > max(first.verified_before, source[0]):
        # This very audit has found right what lies before. What was proven earlier may be what is wrong now.
        source = min(first.verified_to, source[1]), source[1]
        target = min(max(first.verified_target, target[0]), target[1]), target[1]
    return AuditFailure(
        topic=first.source.topic,
        partition=first.source.partition,
        target="" if first.target is None else str(first.target),
        ids=ids.get((first.source, first.target), ("", "")),
        source_from=source[0],
        source_to=source[1],
        what=dict(what),
        answer=0,
        target_from=target[0],
        target_to=target[1],
        unclaimed_from=unclaimed[0],
        unclaimed_to=unclaimed[1],
    )


def _joined(results: Sequence[PartitionResult]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return what the results of a pair span, on the source and on the target."""
    source = [(each.source_from, each.source_to) for each in results if each.source_from < each.source_to]
    target = [(each.target_from, each.target_to) for each in results if each.target_from < each.target_to]
    return _span(source), _span(target)


def _unclaimed(results: Sequence[PartitionResult], target: tuple[int, int]) -> tuple[int, int]:
    """Return where on the target something was found that no source record claims, behind a handler.

    Not all that was looked through: the offset map tells of less every day, and so is that.
    """
    # Of a pair that was not looked at otherwise, such as one that nobody leads, the first is of no mode.
    handled = any(each.mode is Mode.HANDLER for each in results)
    if not handled or not any(each.by_kind for each in results):
        return 0, 0
    if any(more.kind is FindingKind.PHANTOM for each in results for more in each.unlisted):
        return target
    found = [f for each in results for f in each.findings if f.target == each.target]
    places = [f.target_offset for f in found if f.source_offset is None]
    return _span([(offset, offset + 1) for offset in places if offset is not None])


def _span(parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return (min(begin for begin, _ in parts), max(end for _, end in parts)) if parts else (0, 0)


def _same(one: AuditFailure, other: AuditFailure) -> bool:
    """Tell whether ``other``, found later, is about all that ``one`` is about, on both sides."""
    pair = one.topic, one.partition, one.target
    if pair != (other.topic, other.partition, other.target) or one.target_to is None:
        return False
    return (
        other.source_from <= one.source_from
        and one.source_to <= other.source_to
        and other.target_from <= one.target_from
        and one.target_to <= (other.target_to or 0)
    )


def _results(failure: AuditFailure, told: FinishedAudit) -> list[PartitionResult]:
    """Return what an audit saw of a failure's pair; one may have several (``PlanInputs.surplus_plans``)."""
    source = TopicPartition(failure.topic, failure.partition)
    return [
        each
        for each in told.result.partitions
        if each.source == source and ("" if each.target is None else str(each.target)) == failure.target
    ]


def _settled(failure: AuditFailure, told: FinishedAudit) -> bool:
    results = _results(failure, told)
    if not results:
        return not told.answer.limited and not any(failure.ids) and _is_gone(failure, told)
    pair = results[0].source, results[0].target
    if any(failure.ids) and told.ids.get(pair, failure.ids) != failure.ids:
        return True  # of topics that are gone
    wrong = any(each.by_kind for each in results)
    wrong = wrong or any(check.ok is False for check in told.result.checks if check.source == pair[0])
    return not wrong and _compared_again(failure, told)


def _is_gone(failure: AuditFailure, told: FinishedAudit) -> bool:
    """Tell whether the target holds nothing any more of what was found where nothing should be.

    Such a partition is not looked at where it is empty, nor is a topic that has left; but neither is one of a
    flow with a handler of which the offset map tells no more, and what was found may still be there.
    """
    begin, end = {str(tp): log for tp, log in told.logs.items()}.get(failure.target, (0, 0))
    first, behind = failure.unclaimed_from, failure.unclaimed_to
    if first == behind:
        first, behind = failure.target_from, end if failure.target_to is None else failure.target_to
    return max(first, begin) >= min(behind, end)


def _compared_again(failure: AuditFailure, told: FinishedAudit) -> bool:
    """Tell whether an audit has looked at all that a failure is about."""
    results = _results(failure, told)
    if told.answer.sample is not None or not results or not all(each.complete for each in results):
        return False
    if any(check.ok is None for check in told.result.checks if check.source == results[0].source):
        return False
    if failure.what.keys() <= _ABOUT_NOW:
        return True  # the present was looked at
    begin, end = failure.source_from, failure.source_to
    gaps = [gap for each in results for gap in each.unverifiable]
    if any(gap.offset_from < end and gap.offset_to > begin for gap in gaps):
        return False
    # One without source offsets is about the target alone, such as a batch there that nobody can read, or
    # what at_least_once may have sent ahead of what the source has lost since.
    if any(gap.offset_from == gap.offset_to for gap in gaps):
        return False
    spans = [(each.source_from, each.source_to) for each in results]
    return _covered(begin, end, spans) and _target_covered(failure, results, told)


def _target_covered(failure: AuditFailure, results: Sequence[PartitionResult], told: FinishedAudit) -> bool:
    if failure.target_to is None:
        return told.answer.since == START
    target = results[0].target
    # Nobody reads any more what was there before its log begins, or behind where it was promoted.
    nowhere = 0, max(failure.target_to, failure.unclaimed_to)
    start, end = nowhere if target is None else told.logs.get(target, nowhere)
    # Claimed records alone are compared where the map no longer tells what is claimed.
    unclaimed = [(each.target_from, each.target_to) for each in results if each.unclaimed]
    if not _covered(max(failure.unclaimed_from, start), min(failure.unclaimed_to, end), unclaimed):
        return False
    every = [(each.target_from, each.target_to) for each in results]
    return _covered(max(failure.target_from, start), min(failure.target_to, end), every)


def _covered(begin: int, end: int, spans: Iterable[tuple[int, int]]) -> bool:
    for first, behind in sorted(spans):
        if first <= begin:
            begin = max(begin, behind)
    return begin >= end
