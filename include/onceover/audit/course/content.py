"""The course of an audit, for whoever runs one: plan, compare the records, and what is proven by that.

The bounds come first (``ranges.snapshot``), the flow's own claims afterwards (``checks``). Pure but for the
workers, who read.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceover.audit.checks.result import PartitionResult
from onceover.audit.course.partitions import PairPlan, Workers, compare_partitions, sample
from onceover.audit.course.plans import PlanInputs
from onceover.audit.model import Mode, Unverifiable
from onceover.audit.ranges.bounds import not_taken_in, untold
from onceover.audit.ranges.logs import PartitionLog
from onceover.audit.ranges.snapshot import AuditSnapshot
from onceover.audit.ranges.tasks import TASK_RANGES
from onceover.clock import now_ms
from onceover.kafka import calls
from onceover.model import TopicPartition
from onceover.state.records.verified import Watermark


@dataclass(frozen=True, slots=True)
class Prepared:
    """An audit before anything was read.

    Args:
        plans: one for each partition of the snapshot, in its order.
        surplus: for target partitions that are the copy of none.
    """

    snapshot: AuditSnapshot
    plans: tuple[PairPlan, ...]
    surplus: tuple[PairPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class Content:
    """What an audit saw of the records, before anything else is checked.

    Args:
        partitions: one for each partition of the snapshot, in its order.
        beside: what belongs to no partition that the flow copies.
    """

    snapshot: AuditSnapshot
    partitions: tuple[PartitionResult, ...]
    finished_ms: int
    beside: tuple[PartitionResult, ...] = ()


def planned(inputs: PlanInputs, count: int | None = None) -> Prepared:
    """Return the plans of an audit, or of a sample of ``count`` ranges. Pure."""
    plans, surplus = inputs.plans(), tuple(inputs.surplus_plans())
    if count is not None:
        plans = sample(plans, count, inputs.snapshot.started_ms)
    return Prepared(inputs.snapshot, tuple(plans), surplus)


def audit_content(prepared: Prepared, workers: Workers) -> Content:
    """Compare the records of a flow's partitions.

    Args:
        workers: who reads.

    Raises:
        Retriable: a cluster is away for too long.
    """
    compared = compare_partitions((*prepared.plans, *prepared.surplus), workers, TASK_RANGES)
    finished_ms, count = now_ms(), len(prepared.plans)
    beside = compared[count:]
    beside += [
        _untouched(source, not_taken_in(source, log))
        for source, log in prepared.snapshot.missing.items()
        if log.end > log.start
    ]
    beside += [_untouched(source, untold(source, why)) for source, why in prepared.snapshot.untold.items()]
    return Content(prepared.snapshot, tuple(compared[:count]), finished_ms, tuple(beside))


def _untouched(source: TopicPartition, gap: Unverifiable) -> PartitionResult:
    bounds = gap.offset_from, gap.offset_from, 0, 0
    return PartitionResult(source, None, Mode.RECORDS, *bounds, unverifiable=(gap,))


def _unsettled(content: Content) -> set[str]:
    """Return the target topics of handlers that have lost what was proven, until all of that is seen again.

    What was proven of one partition may lie in any of them, and the loss is told by the watermark of the one
    that has had it: made younger alone, it would have those of the others count again.
    """
    pairs = list(zip(content.snapshot.partitions, content.partitions, strict=True))
    lost = {seen.target.topic for seen, _ in pairs if seen.parted_at[1] is not None}
    return {
        seen.target.topic
        for seen, result in pairs
        if result.mode is Mode.HANDLER and seen.target.topic in lost
        if (mark := seen.watermark) is not None and mark.of(*seen.enrolled)
        if result.verified_to < mark.offset
    }


def _epoch_of(log: PartitionLog | None) -> int:
    return calls.NO_EPOCH if log is None else log.epoch


def proven(content: Content) -> dict[TopicPartition, Watermark]:
    """Return the verified watermarks of partitions that were proven to get further, by target partition."""
    wanted = {}
    # A record that belongs elsewhere is a finding of the partition that misses it, and lies in another one.
    everything = (*content.partitions, *content.beside)
    led_here = {
        finding.target for each in everything for finding in each.findings if finding.target != each.target
    }
    left_beside = {each.target for each in content.beside if not each.nothing_left}
    unsettled = _unsettled(content)
    for seen, result in zip(content.snapshot.partitions, content.partitions, strict=True):
        if seen.target.topic in unsettled:
            continue
        further = result.verified_to > max(result.verified_before, result.source_from)
        # Nothing new on the source and nothing wrong: proven again, now. Not where the target was looked at
        # from a later offset on: what was written behind the proof may be before that.
        again = result.verified_to >= max(0, result.source_to) and result.nothing_left
        again = again and result.target_from <= result.verified_target and seen.target not in led_here
        # Nor where somebody's records behind the position are wrong, or could not be read.
        again = again and seen.target not in left_beside
        if further or again:
            wanted[seen.target] = Watermark(
                offset=result.verified_to,
                target_offset=result.verified_target,
                source_id=seen.enrolled[0],
                target_id=seen.enrolled[1],
                timestamp_ms=result.verified_timestamp_ms,
                at_ms=content.snapshot.started_ms,
                approval=seen.approval,
                source_epoch=_epoch_of(seen.source_log),
                target_epoch=_epoch_of(seen.target_log),
            )
    return wanted
