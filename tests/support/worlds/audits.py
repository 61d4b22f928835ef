"""Audits made by hand: what an audit saw, for the tests of what is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onceover.audit.checks.result import Area, AuditResult, Check, PartitionResult
from onceover.audit.model import (
    Digest,
    Finding,
    FindingKind,
    Mode,
    Range,
    Reason,
    Side,
    Unlisted,
    Unverifiable,
)
from onceover.model import TopicPartition

STARTED_MS = 1_700_000_000_000
TOPIC = "orders"


def at(partition: int, topic: str = TOPIC) -> TopicPartition:
    """Return a partition; both sides have the same name."""
    return TopicPartition(topic, partition)


def digests(
    partition: int,
    begin: int,
    end: int,
    *,
    target_records: int | None = None,
    target_sum: int | None = None,
    target_chain: int | None = None,
    records: int | None = None,
) -> tuple[Digest, Digest]:
    """Return the digests of a range, the target's with what is given to differ."""
    tp = at(partition)
    span = Range(tp, begin, end, tp, begin, end, Mode.RECORDS)
    count = end - begin if records is None else records
    first_ms, last_ms = STARTED_MS - 60_000 + begin, STARTED_MS - 60_000 + end
    source = Digest(span, Side.SOURCE, count, begin + 7, begin + 9, count * 100, first_ms, last_ms)
    target = replace(
        source,
        side=Side.TARGET,
        records=count if target_records is None else target_records,
        sum=source.sum if target_sum is None else target_sum,
        chain=source.chain if target_chain is None else target_chain,
    )
    return source, target


def partition_result(
    partition: int,
    found: Sequence[Digest],
    *,
    source_to: int = 200,
    findings: Sequence[Finding] = (),
    unverifiable: Sequence[Unverifiable] = (),
    verified_to: int = 200,
    complete: bool = True,
    unlisted: Sequence[Unlisted] = (),
) -> PartitionResult:
    """Return what was seen of a partition from offset 0 to ``source_to``."""
    return PartitionResult(
        source=at(partition),
        target=at(partition),
        mode=Mode.RECORDS,
        source_from=0,
        source_to=source_to,
        target_from=0,
        target_to=source_to,
        digests=tuple(found),
        findings=tuple(findings),
        unverifiable=tuple(unverifiable),
        verified_before=50,
        verified_to=verified_to,
        verified_timestamp_ms=STARTED_MS - 60_000 + verified_to,
        verified_target=verified_to,
        complete=complete,
        unlisted=tuple(unlisted),
    )


def good_partition(partition: int) -> PartitionResult:
    """Return a partition in which all is as it should be: two ranges of 100 records."""
    return partition_result(partition, digests(partition, 0, 100) + digests(partition, 100, 200))


def finding(kind: FindingKind, partition: int = 0, offset: int = 42) -> Finding:
    """Return a finding of a kind, with the sides that such a finding has."""
    source = None if kind is FindingKind.PHANTOM else at(partition)
    target = None if kind is FindingKind.LOST else at(partition)
    return Finding(
        kind,
        source,
        None if source is None else offset,
        target,
        None if target is None else offset + 1,
        field="value" if kind is FindingKind.ALTERED else None,
        detail=f"{kind} by hand",
    )


def more(kind: FindingKind, count: int, partition: int = 0) -> Unlisted:
    """Return findings of a kind that are counted only."""
    return Unlisted(kind, at(partition), at(partition), count)


def stretch(reason: Reason, partition: int, begin: int, end: int) -> Unverifiable:
    """Return offsets that cannot be compared."""
    return Unverifiable(reason, at(partition), begin, end, end - begin, f"{reason} by hand")


def check(area: Area, *, ok: bool | None = True, skipped: int = 0, repeated: int = 0) -> Check:
    """Return a check of an area."""
    return Check(
        area=area,
        name=f"{area}_by_hand",
        source=at(0),
        expected="200",
        seen="200" if ok else "190",
        ok=ok,
        group="billing" if area is Area.GROUPS else None,
        offset=200,
        skipped=skipped,
        repeated=repeated,
        detail="by hand",
    )


def result(
    partitions: Sequence[PartitionResult] | None = None,
    checks: Sequence[Check] | None = None,
    stray: Sequence[Finding] = (),
) -> AuditResult:
    """Return an audit; by default of two partitions in which all is as it should be."""
    return AuditResult(
        flow="flights-dr",
        started_ms=STARTED_MS,
        finished_ms=STARTED_MS + 2_500,
        since="start",
        partitions=tuple([good_partition(0), good_partition(1)] if partitions is None else partitions),
        checks=tuple([check(area) for area in Area] if checks is None else checks),
        stray=tuple(stray),
    )
