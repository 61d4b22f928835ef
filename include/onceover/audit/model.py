"""What the parts of an audit hand to each other: immutable, pickleable, without I/O.

Invariant: no payload is in here unless a person asked for it (``Finding.payload``); everything else is
offsets, counts, names and hashes, and may be kept, shown and logged (G10).

Rows for DataFrames come from ``as_row`` methods: flat, one type a column, 128-bit numbers as 32 hexadecimal
digits (Arrow's widest decimal holds fewer). Records and their hashes are in ``audit.records.recordhash``,
what a whole audit saw in ``audit.checks.result``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from onceover.model import TopicPartition

Row: TypeAlias = dict[str, Any]
# How many findings a row of their table stands for.
COUNT: Final = "findings"


class Side(StrEnum):
    """One of the two clusters."""

    SOURCE = "source"
    TARGET = "target"


class Mode(StrEnum):
    """How a range is compared.

    RECORDS: every record, in order. COMPACTED: the same, but for what a log cleaner can have taken.
    HANDLER: what the flow's handler makes of the source's records.
    """

    RECORDS = "records"
    COMPACTED = "compacted"
    HANDLER = "handler"


class ComparedAs(StrEnum):
    """What a digest was taken over: whole batches that were equal byte by byte, single records, or both."""

    BYTES = "bytes"
    RECORDS = "records"
    MIXED = "mixed"


class FindingKind(StrEnum):
    """What is wrong with a record.

    LOST: on the source, not on the target. REPEATED: on the target more often than on the source.
    REORDERED: there, but before or behind its neighbours. ALTERED: there, with another field.
    MISROUTED: there, in another partition. PHANTOM: on the target, never on the source. LEAKED: on the
    target, from a transaction that was aborted on the source.
    """

    LOST = "LOST"
    REPEATED = "REPEATED"
    REORDERED = "REORDERED"
    ALTERED = "ALTERED"
    MISROUTED = "MISROUTED"
    PHANTOM = "PHANTOM"
    LEAKED = "LEAKED"


class Reason(StrEnum):
    """Why records cannot be compared; the audit counts them and never calls them right."""

    RETENTION = "RETENTION"  # one side no longer holds them, by time or size
    DELETED = "DELETED"  # one side no longer holds them: DeleteRecords, or the topic is gone
    OPEN_TRANSACTION = "OPEN_TRANSACTION"  # at or behind the source's last stable offset
    COMPACTED_HISTORY = "COMPACTED_HISTORY"  # one side lacks what its log cleaner can have taken
    AT_LEAST_ONCE = "AT_LEAST_ONCE"  # delivered more often than once, as that mode of delivery may
    NOT_ENROLLED = "NOT_ENROLLED"  # before the flow's start, or a partition it does not copy
    STOPPED = "STOPPED"  # the partition's copy waits for an operator
    HANDLER_CHANGED = "HANDLER_CHANGED"  # copied through another handler or other arguments
    HANDLER_FAILED = "HANDLER_FAILED"  # the handler fails on the record now
    DEAD_LETTER = "DEAD_LETTER"  # diverted, as the flow file says
    SKIPPED = "SKIPPED"  # an operator told the flow to go past them
    NOT_COPIED_YET = "NOT_COPIED_YET"  # behind the flow's progress at the audit's start
    NOT_IN_MAP = "NOT_IN_MAP"  # the offset map no longer reaches back so far
    NO_LEADER = "NO_LEADER"  # nobody leads the partition on one side, or its leader does not answer
    UNREADABLE = "UNREADABLE"  # a batch that no reader can decode; a topic that may not be read
    TOO_LARGE = "TOO_LARGE"  # a record that takes more memory than the audit may use


# By a person or by the flow file: told of once, and no gap in what is proven.
DECIDED: Final = frozenset({Reason.SKIPPED, Reason.DEAD_LETTER, Reason.AT_LEAST_ONCE})


@dataclass(frozen=True, slots=True)
class Range:
    """Source offsets and the target offsets that are proposed for them; the ends are exclusive.

    Args:
        source: partition on the source.
        source_from: first offset; ``source_to`` the one behind the last.
        target: partition on the target. With a handler, the one of the same number; the records may be
            in others, which the range then names by their own ``Range``.
        target_from: first offset that is proposed; ``target_to`` the one behind the last.
        mode: how it is compared.
    """

    source: TopicPartition
    source_from: int
    source_to: int
    target: TopicPartition
    target_from: int
    target_to: int
    mode: Mode = Mode.RECORDS

    def as_row(self) -> Row:
        """Return the range as columns."""
        return {
            "source_topic": self.source.topic,
            "partition": self.source.partition,
            "source_from": self.source_from,
            "source_to": self.source_to,
            "target_topic": self.target.topic,
            "target_partition": self.target.partition,
            "target_from": self.target_from,
            "target_to": self.target_to,
            "mode": str(self.mode),
        }


@dataclass(frozen=True, slots=True)
class Digest:
    """The fingerprint of what one side holds in a range; the two sides' are equal exactly when all is.

    Args:
        range: what was read.
        side: where.
        records: visible to a reader of committed records.
        sum: of the records' hashes, modulo 2**128; does not know their order.
        chain: of the records' hashes in their order.
        bytes: of batches as stored; where single records were compared, of their keys and values.
        first_timestamp_ms: smallest timestamp, -1 without records; ``last_timestamp_ms`` the largest.
        compared: what the hashes were taken over. The same on both sides of a range, or they say nothing.
    """

    range: Range
    side: Side
    records: int
    sum: int
    chain: int
    bytes: int
    first_timestamp_ms: int = -1
    last_timestamp_ms: int = -1
    compared: ComparedAs = ComparedAs.RECORDS

    def same_content(self, other: Digest) -> bool:
        """Return True when both sides hold the same records in the same order."""
        mine = (self.records, self.sum, self.chain, self.compared)
        return mine == (other.records, other.sum, other.chain, other.compared)

    def as_row(self) -> Row:
        """Return the digest as columns; ``sum`` and ``chain`` as 32 hexadecimal digits."""
        return {
            **self.range.as_row(),
            "side": str(self.side),
            "records": self.records,
            "sum": f"{self.sum:032x}",
            "chain": f"{self.chain:032x}",
            "bytes": self.bytes,
            "first_timestamp_ms": self.first_timestamp_ms,
            "last_timestamp_ms": self.last_timestamp_ms,
            "compared": str(self.compared),
        }


class Field(StrEnum):
    """A part of a record that can differ; findings name all that do, joined by a comma, in this order."""

    KEY = "key"
    VALUE = "value"
    HEADERS = "headers"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Finding:
    """One record that is not as it should be.

    Args:
        kind: what is wrong.
        source: partition it is from; of a PHANTOM, whose copy the target partition is (None: nobody's).
        source_offset: of the record there; None when nothing there is like it.
        target: partition it is in; of a LOST, the one it should be in.
        target_offset: of the record there; None when it is nowhere.
        field: of an ALTERED (also an altered and MISROUTED) record: ``Field`` names, joined by a comma.
        detail: one sentence with offsets and counts, never payload.
        payload: both records, only when it was asked for.
        source_mark: hashes of the record on the source, as text, by which a finding of another range or
            partition is recognised (``audit.records.sketch.RecordMark``); ``target_mark`` of the one on the
            target.
    """

    kind: FindingKind
    source: TopicPartition | None
    source_offset: int | None
    target: TopicPartition | None
    target_offset: int | None
    field: str | None = None
    detail: str = ""
    payload: str | None = None
    source_mark: str | None = None
    target_mark: str | None = None

    def halves(self) -> tuple[Finding, Finding]:
        """Return the LOST and the PHANTOM that a pair made by likeness is without the likeness."""
        lost = replace(
            self, kind=FindingKind.LOST, field=None, detail="", target_offset=None, target_mark=None
        )
        surplus = replace(
            self,
            kind=FindingKind.PHANTOM,
            field=None,
            detail="nothing on the source is like it",
            source_offset=None,
            source_mark=None,
        )
        return lost, surplus

    def as_row(self, *, marked: bool = False) -> Row:
        """Return the finding as columns; absent partitions and offsets are None.

        Args:
            marked: with the marks, for those who match findings. Reports leave them out: the hash of a
                short value can be guessed back.
        """
        marks = {"source_mark": self.source_mark, "target_mark": self.target_mark} if marked else {}
        return {
            "kind": str(self.kind),
            "source_topic": self.source.topic if self.source else None,
            "source_partition": self.source.partition if self.source else None,
            "source_offset": self.source_offset,
            "target_topic": self.target.topic if self.target else None,
            "target_partition": self.target.partition if self.target else None,
            "target_offset": self.target_offset,
            "field": self.field,
            "detail": self.detail,
            "payload": self.payload,
            **marks,
        }


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Findings of one stretch that are counted, and no longer listed.

    They keep the name that their own stretch gives them: only listed ones are matched with those elsewhere.

    Args:
        kind: what is wrong.
        source: partition they are from; ``target`` the one they are, or should be, in.
        count: how many there are beside the listed ones of this kind.
    """

    kind: FindingKind
    source: TopicPartition
    target: TopicPartition
    count: int

    def as_row(self) -> Row:
        """Return them as columns: those of a finding, for the table of both, and how many they are."""
        nameless = Finding(self.kind, self.source, None, self.target, None, detail="counted only")
        return {**nameless.as_row(), COUNT: self.count}


@dataclass(frozen=True, slots=True)
class Unverifiable:
    """Source offsets that cannot be compared.

    Args:
        reason: why.
        source: partition.
        offset_from: first offset; ``offset_to`` is the one behind the last.
        offsets: how many of them: records where that is known, else offsets.
        message: one sentence for people: what, and what would make it comparable.
        gone: the source no longer holds them: no later audit can ask about them again.
    """

    reason: Reason
    source: TopicPartition
    offset_from: int
    offset_to: int
    offsets: int
    message: str = ""
    gone: bool = False

    def as_row(self) -> Row:
        """Return it as columns."""
        return {
            "reason": str(self.reason),
            "source_topic": self.source.topic,
            "partition": self.source.partition,
            "offset_from": self.offset_from,
            "offset_to": self.offset_to,
            "offsets": self.offsets,
            "message": self.message,
            "gone": self.gone,
        }
