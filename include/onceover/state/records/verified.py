"""The verified watermark: up to where a partition's copy has been proven right (docs/audit.md). Pure.

Invariant: a watermark counts for the two topics that it was proven of (topic ids), never for others of the
same name, and for what an operator has not had copied again since. It is written by the audit only, which
never writes it lower (``audit.ranges.watermark``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

from onceover.ages import age_text
from onceover.kafka.calls import NO_EPOCH
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.enrolment import PlacedProgress
from onceover.state.records.value import MALFORMED, mapping, text, whole_number

VERSION: Final = 1
_NUMBERS: Final = ("offset", "target_offset", "timestamp_ms", "at_ms")
_EPOCHS: Final = ("source_epoch", "target_epoch")
_IDS: Final = ("source_id", "target_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """What is proven of one partition.

    Args:
        offset: source offset up to which everything is on the target as it should be; exclusive.
        target_offset: the target offset that belongs to it: everything before it was looked at.
        source_id: topic id of the source; ``target_id`` of the target.
        timestamp_ms: largest record timestamp before ``offset``, -1 when unknown.
        at_ms: when the bounds of the audit were fixed, in ms since 1970.
        approval: under which an operator had written the partition's progress the last time; empty for
            never, and by an older release.
        source_epoch: leader epoch of the source's log then, ``target_epoch`` of the target's: where one has
            ended earlier, the log has lost at its end what was proven. -1 by an older release.
    """

    offset: int
    target_offset: int
    source_id: UUID
    target_id: UUID
    timestamp_ms: int
    at_ms: int
    approval: str = ""
    source_epoch: int = NO_EPOCH
    target_epoch: int = NO_EPOCH

    def to_json(self) -> dict[str, Any]:
        """Return the value written under ``verified/<target topic>/<partition>``."""
        return {
            "v": VERSION,
            **asdict(self),
            "source_id": str(self.source_id),
            "target_id": str(self.target_id),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Watermark | None:
        """Read what ``to_json`` wrote; None for another version's: the audit begins anew then.

        Raises:
            LookupError, TypeError, ValueError: it is not of that shape.
        """
        if value["v"] != VERSION:
            return None
        numbers = {name: whole_number(value[name]) for name in _NUMBERS}
        numbers |= {name: whole_number(value[name]) for name in _EPOCHS if name in value}
        ids = {name: UUID(text(value[name])) for name in _IDS}
        approval = text(value.get("approval", ""))
        return cls(**numbers, **ids, approval=approval)  # pyrefly: ignore[bad-argument-type]

    def of(self, source_id: UUID, target_id: UUID) -> bool:
        """Tell whether it is about these topics and not about earlier ones of the same name."""
        return (self.source_id, self.target_id) == (source_id, target_id)

    def stands(self, approval: str, placed: PlacedProgress | None, target_start: int = 0) -> bool:
        """Tell whether it is still about what is copied, wherever an operator has put the partition since.

        What was proven stays so: whatever is copied again lies behind it, and is looked at there. Not where
        the target had lost the end of it by then, or has let go of all of it: then what lies there is
        the copy, and what was proven is not.

        Args:
            approval: under which the partition's progress was written by hand the last time; empty for never.
            placed: where; None where that was never done, or by an older release.
            target_start: first offset of the target's log.
        """
        if approval == self.approval:
            return True
        if placed is None or placed.target_end < self.target_offset:
            return False
        return placed.offset >= self.offset or target_start < self.target_offset

    def advances(self, known: Watermark | None) -> bool:
        """Tell whether it may be written over ``known``: further on, or about other topics.

        Also where an operator has put the partition somewhere else in between: a newer one may be lower then.
        """
        if known is None or not self.of(known.source_id, known.target_id):
            return True
        if self.approval != known.approval:
            return self.at_ms > known.at_ms
        # Proven again without getting further: the same offset, seen later.
        return self.offset > known.offset or (self.offset == known.offset and self.at_ms > known.at_ms)


def read_watermarks(others: Mapping[str, Any]) -> dict[TopicPartition, Watermark]:
    """Return the watermarks among the values of the state's second partition, by target partition.

    Where one cannot be read, nothing is proven: the audit begins anew there, and writes it again.
    """
    found = {}
    for key, value in others.items():
        if key.startswith(names.VERIFIED_PREFIX):
            with suppress(*MALFORMED):
                watermark = Watermark.from_json(mapping(value, "watermark"))
                if watermark is not None:
                    found[TopicPartition(*names.split_partition_key(key))] = watermark
    return found


def partition_entry(
    verified: Watermark | None, ids: tuple[str, str], position: int | None, now_ms: float
) -> dict[str, Any] | None:
    """Return ``verified`` of a partition in ``status``; None where nothing is proven.

    Args:
        verified: its watermark; None also where it stands no more.
        ids: topic ids of source and target as the flow copies them now.
        position: next source offset to copy.
        now_ms: the time, in ms since 1970.
    """
    if verified is None or (str(verified.source_id), str(verified.target_id)) != ids:
        return None
    return {
        "offset": verified.offset,
        "at_ms": verified.at_ms,
        "age_s": round(max(0.0, (now_ms - verified.at_ms) / 1000), 3),
        "offsets_since": None if position is None else max(0, position - verified.offset),
    }


def flow_entry(entries: Iterable[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return ``verified`` of a flow: how old the recovery point is that can be proven.

    ``age_s`` is the oldest partition's; None while a partition has none. None altogether without a partition
    that has one.
    """
    every = list(entries)
    known = [entry for entry in every if entry is not None]
    if not known:
        return None
    whole = len(known) == len(every)
    return {
        "partitions": len(known),
        "of": len(every),
        "at_ms": min(entry["at_ms"] for entry in known) if whole else None,
        "age_s": max(entry["age_s"] for entry in known) if whole else None,
        "offsets_since": sum(entry["offsets_since"] or 0 for entry in known),
    }


def describe_verified(entry: Mapping[str, Any] | None) -> str:
    """Return it as a line for people."""
    if entry is None:
        return "never audited"
    since = f"{entry['offsets_since']} offsets copied since"
    if entry["age_s"] is None:
        return f"verified: {entry['partitions']} of {entry['of']} partitions, {since}"
    return f"verified up to {age_text(entry['age_s'])} ago, {since}"
