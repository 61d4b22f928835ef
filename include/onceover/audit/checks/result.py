"""What an audit saw, partition by partition, and the tables that its verdict is made from.

Invariant: nothing here judges. Tables are plain rows; what they mean is said in one place (the suites).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from onceover.audit.model import COUNT, DECIDED, Digest, Finding, Mode, Row, Side, Unlisted, Unverifiable
from onceover.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What the audit saw of one source partition.

    Args:
        source: partition.
        target: its counterpart; None when there is none.
        mode: how it was compared.
        source_from: lower bound, fixed at the start; ``source_to`` the upper one, exclusive.
        target_from: lower bound on the target; ``target_to`` the upper one, exclusive.
        digests: two for each range, source first.
        findings: every record that is not as it should be, up to a limit.
        unverifiable: what could not be compared.
        verified_before: the verified watermark when the audit began, -1 for none.
        verified_to: source offset up to which everything is proven now, exclusive; -1 for nothing.
            Never below ``verified_before``.
        verified_timestamp_ms: largest timestamp below ``verified_to``, -1 when unknown.
        verified_target: the target offset that belongs to ``verified_to``, -1 likewise.
        complete: False when only a sample of the ranges was read.
        unlisted: how many findings there are beside the listed ones.
        unclaimed: with a handler: the target was looked through for what no source record claims.
        begin: first source offset of the copy: what stands before it is not looked at.
    """

    source: TopicPartition
    target: TopicPartition | None
    mode: Mode
    source_from: int
    source_to: int
    target_from: int
    target_to: int
    digests: tuple[Digest, ...] = ()
    findings: tuple[Finding, ...] = ()
    unverifiable: tuple[Unverifiable, ...] = ()
    verified_before: int = -1
    verified_to: int = -1
    verified_timestamp_ms: int = -1
    verified_target: int = -1
    complete: bool = True
    unlisted: tuple[Unlisted, ...] = ()
    unclaimed: bool = False
    begin: int = 0

    @property
    def nothing_left(self) -> bool:
        """True when nothing is wrong and everything in scope was seen, as far as the source still has it."""
        asked = (each for each in self.unverifiable if not each.gone and each.reason not in DECIDED)
        return self.complete and not self.by_kind and not any(asked)

    @property
    def by_kind(self) -> Counter[str]:
        """How many findings there are of each kind, listed or not."""
        counts = Counter(str(each.kind) for each in self.findings)
        for each in self.unlisted:
            counts[str(each.kind)] += each.count
        return counts

    def records(self, side: Side) -> int:
        """Return how many records were compared on ``side``."""
        return sum(digest.records for digest in self.digests if digest.side is side)

    def bytes(self, side: Side) -> int:
        """Return how many bytes of batches were compared on ``side``."""
        return sum(digest.bytes for digest in self.digests if digest.side is side)

    def as_row(self) -> Row:
        """Return the partition as columns, findings and unverifiable offsets as counts."""
        return {
            "source_topic": self.source.topic,
            "partition": self.source.partition,
            "target_topic": self.target.topic if self.target else None,
            "target_partition": self.target.partition if self.target else None,
            "mode": str(self.mode),
            "source_from": self.source_from,
            "source_to": self.source_to,
            "target_from": self.target_from,
            "target_to": self.target_to,
            "source_records": self.records(Side.SOURCE),
            "target_records": self.records(Side.TARGET),
            "source_bytes": self.bytes(Side.SOURCE),
            "target_bytes": self.bytes(Side.TARGET),
            "findings": self.by_kind.total(),
            "unverifiable": sum(each.offsets for each in self.unverifiable),
            "verified_before": self.verified_before,
            "verified_to": self.verified_to,
            "verified_timestamp_ms": self.verified_timestamp_ms,
            "complete": self.complete,
        }


class Area(StrEnum):
    """What else is audited, beside the records."""

    POSITIONS = "positions"  # progress group = last copied source offset + 1
    MAP = "map"  # the offset map agrees with the content
    RECEIPTS = "receipts"  # map records are continuous, without overlap, and add up
    GROUPS = "groups"  # group positions on the target point at the exact record


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked beside the records.

    Args:
        area: which family it belongs to.
        name: what was checked, as snake_case words: one name for one rule.
        source: partition it is about.
        expected: what should be there, as text.
        seen: what is there.
        ok: True when it is as it should be; None when it could not be checked (then ``detail`` says why).
        group: consumer group, where it is about one.
        offset: source offset it is about, where it is about one.
        skipped: records that a reader who continues there would miss; ``repeated`` those it would see again.
        detail: one sentence for people.
    """

    area: Area
    name: str
    source: TopicPartition
    expected: str
    seen: str
    ok: bool | None
    group: str | None = None
    offset: int | None = None
    skipped: int = 0
    repeated: int = 0
    detail: str = ""

    def as_row(self) -> Row:
        """Return the check as columns."""
        return {
            "area": str(self.area),
            "name": self.name,
            "source_topic": self.source.topic,
            "partition": self.source.partition,
            "group": self.group,
            "offset": self.offset,
            "expected": self.expected,
            "seen": self.seen,
            "ok": self.ok,
            "skipped": self.skipped,
            "repeated": self.repeated,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Everything an audit saw; the verdict is made from its tables.

    Args:
        flow: name.
        started_ms: when the bounds were fixed, in ms since 1970; ``finished_ms`` when the last was compared.
        since: where it began: "watermark", "start" or a timestamp.
        partitions: in the order of topic and partition.
        checks: what was checked beside the records.
        stray: findings that belong to no partition of the flow's source (a PHANTOM in a partition that
            the source does not have).
        topics: regular expressions that narrowed the scope; none for all that the flow copies.
    """

    flow: str
    started_ms: int
    finished_ms: int
    since: str
    partitions: tuple[PartitionResult, ...] = ()
    checks: tuple[Check, ...] = ()
    stray: tuple[Finding, ...] = ()
    topics: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding that is listed."""
        return tuple(each for result in self.partitions for each in result.findings) + self.stray

    @property
    def by_kind(self) -> Counter[str]:
        """How many findings there are of each kind, listed or not."""
        counts = Counter(str(each.kind) for each in self.stray)
        for result in self.partitions:
            counts.update(result.by_kind)
        return counts

    @property
    def unverifiable(self) -> tuple[Unverifiable, ...]:
        """Everything that could not be compared."""
        return tuple(each for result in self.partitions for each in result.unverifiable)

    def digest_rows(self) -> list[Row]:
        """Return one row for each range and side."""
        return [digest.as_row() for result in self.partitions for digest in result.digests]

    def finding_rows(self) -> list[Row]:
        """Return one row for each finding that is listed, and one for those of a stretch that are counted."""
        listed = [{**each.as_row(), COUNT: 1} for each in self.findings]
        return listed + [each.as_row() for result in self.partitions for each in result.unlisted]

    def unverifiable_rows(self) -> list[Row]:
        """Return one row for each stretch that could not be compared."""
        return _rows(self.unverifiable)

    def partition_rows(self) -> list[Row]:
        """Return one row for each partition."""
        return _rows(self.partitions)

    def check_rows(self) -> list[Row]:
        """Return one row for each check."""
        return _rows(self.checks)


def _rows(items: Iterable[Unverifiable | PartitionResult | Check]) -> list[Row]:
    return [item.as_row() for item in items]
