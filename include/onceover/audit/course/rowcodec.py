"""From rows back to what they were made from: how tasks and answers cross Spark.

Invariant: what is made a row and read back is what it was; a row is plain JSON: nothing is unpickled that
another process has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from onceover.audit.compare.crossmatch import Sighting
from onceover.audit.model import (
    COUNT,
    ComparedAs,
    Digest,
    Finding,
    FindingKind,
    Mode,
    Range,
    Reason,
    Row,
    Side,
    Unlisted,
    Unverifiable,
)
from onceover.audit.ranges.diverted import DeadLetters, Doubt
from onceover.audit.ranges.spreading import TargetStretch
from onceover.audit.ranges.tasks import First, LapsedRange, OpenedStretch, RangeDigests, Task
from onceover.audit.ranges.tiling import Hole
from onceover.model import TopicPartition


def range_of(row: Mapping[str, Any]) -> Range:
    """Return the range that ``row`` names."""
    return Range(
        TopicPartition(row["source_topic"], row["partition"]),
        row["source_from"],
        row["source_to"],
        TopicPartition(row["target_topic"], row["target_partition"]),
        row["target_from"],
        row["target_to"],
        Mode(row["mode"]),
    )


def digest_of(row: Mapping[str, Any]) -> Digest:
    """Return the digest of ``row``."""
    return Digest(
        range_of(row),
        Side(row["side"]),
        row["records"],
        int(row["sum"], 16),
        int(row["chain"], 16),
        row["bytes"],
        row["first_timestamp_ms"],
        row["last_timestamp_ms"],
        ComparedAs(row["compared"]),
    )


def finding_of(row: Mapping[str, Any]) -> Finding:
    """Return the finding of ``row``."""
    return Finding(
        FindingKind(row["kind"]),
        _partition(row["source_topic"], row["source_partition"]),
        row["source_offset"],
        _partition(row["target_topic"], row["target_partition"]),
        row["target_offset"],
        row["field"],
        row["detail"],
        row["payload"],
        row["source_mark"],
        row["target_mark"],
    )


def unlisted_of(row: Mapping[str, Any]) -> Unlisted:
    """Return the findings that ``row`` counts."""
    return Unlisted(
        FindingKind(row["kind"]),
        TopicPartition(row["source_topic"], row["source_partition"]),
        TopicPartition(row["target_topic"], row["target_partition"]),
        row[COUNT],
    )


def unverifiable_of(row: Mapping[str, Any]) -> Unverifiable:
    """Return what ``row`` says cannot be compared."""
    return Unverifiable(
        Reason(row["reason"]),
        TopicPartition(row["source_topic"], row["partition"]),
        row["offset_from"],
        row["offset_to"],
        row["offsets"],
        row["message"],
        row["gone"],
    )


def task_row(task: Task) -> Row:
    """Return a task as JSON has it."""
    return {
        "ids": [str(each) for each in task.ids],
        "ranges": [each.as_row() for each in task.ranges],
        "untimed": task.untimed,
        "holes": [list(hole) for hole in task.holes],
        "letters": _letters_row(task.letters),
        "claims": [[list(claim) for claim in each] for each in task.claims],
        "unclaimed": task.unclaimed,
        "target_partitions": task.target_partitions,
        "handler_changed": task.handler_changed,
        "cleaned": task.cleaned,
        "repeats": task.repeats,
        "proven": list(task.proven),
        "lapsed": None if task.lapsed is None else str(task.lapsed),
        "origins": [list(each) for each in task.origins],
    }


def task_of(row: Mapping[str, Any]) -> Task:
    """Return the task of ``row``."""
    source_id, target_id = (UUID(each) for each in row["ids"])
    return Task(
        (source_id, target_id),
        tuple(range_of(each) for each in row["ranges"]),
        row["untimed"],
        tuple(Hole(*each) for each in row["holes"]),
        _letters_of(row["letters"]),
        tuple(tuple(TargetStretch(*claim) for claim in each) for each in row["claims"]),
        row["unclaimed"],
        row["target_partitions"],
        row["handler_changed"],
        row["cleaned"],
        row["repeats"],
        (row["proven"][0], row["proven"][1]),
        None if row["lapsed"] is None else Reason(row["lapsed"]),
        tuple((partition, position) for partition, position in row["origins"]),
    )


def _letters_row(letters: DeadLetters) -> Row:
    return {
        "offsets": sorted(letters.offsets),
        "hidden": sorted(letters.hidden),
        "unread": [[str(doubt.reason), doubt.why, doubt.until] for doubt in letters.unread],
    }


def _letters_of(row: Mapping[str, Any]) -> DeadLetters:
    unread = tuple(Doubt(Reason(reason), why, until) for reason, why, until in row["unread"])
    return DeadLetters(frozenset(row["offsets"]), frozenset(row["hidden"]), unread)


def answer_row(answer: First) -> Row:
    """Return a worker's answer as JSON has it."""
    row: Row = {"range": answer.range.as_row()}
    match answer:
        case RangeDigests():
            row["digests"] = [answer.source.as_row(), answer.target.as_row()]
            row["parted"] = answer.parted
        case LapsedRange():
            row["lapsed"] = [str(answer.reason), answer.message]
        case OpenedStretch():
            row["digests"] = [digest.as_row() for digest in answer.digests]
            row["findings"] = [finding.as_row(marked=True) for finding in answer.findings]
            row["excused"] = [each.as_row() for each in answer.excused]
            row["unlisted"] = [each.as_row() for each in answer.unlisted]
    return row


def answer_of(row: Mapping[str, Any]) -> First:
    """Return the answer of ``row``."""
    span = range_of(row["range"])
    if "lapsed" in row:
        reason, message = row["lapsed"]
        return LapsedRange(span, Reason(reason), message)
    source, target = (digest_of(each) for each in row["digests"])
    if "findings" not in row:
        return RangeDigests(span, source, target, row["parted"])
    findings = tuple(finding_of(each) for each in row["findings"])
    excused = tuple(unverifiable_of(each) for each in row["excused"])
    unlisted = tuple(unlisted_of(each) for each in row["unlisted"])
    return OpenedStretch(span, (source, target), findings, excused, unlisted)


def sighting_row(seen: Sighting) -> Row:
    """Return a sighting as JSON has it; contents are wider than JSON's numbers."""
    return {
        "content": f"{seen.content:032x}",
        "source": list(seen.source),
        "offset": seen.offset,
        "aborted": seen.aborted,
    }


def sighting_of(row: Mapping[str, Any]) -> Sighting:
    """Return the sighting of ``row``."""
    return Sighting(int(row["content"], 16), TopicPartition(*row["source"]), row["offset"], row["aborted"])


def _partition(topic: str | None, partition: int | None) -> TopicPartition | None:
    return None if topic is None or partition is None else TopicPartition(topic, partition)
