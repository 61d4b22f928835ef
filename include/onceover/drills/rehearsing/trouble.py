"""What a rehearsal says where its copy stops, is late, or differs: the state in which it stands is removed
behind it, so that everything that somebody needs has to be in the error. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceover.audit.checks.result import PartitionResult
from onceover.audit.model import Side, Unverifiable
from onceover.drills.codes import DrillCode
from onceover.drills.progress import named
from onceover.errors import NeedsOperator, Retriable
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.shown import some
from onceover.state import names
from onceover.stops.codes import StopCode
from onceover.stops.record import Stop

_NAMED: Final = 3
# Between what is to be done and the command that follows.
_DANGLING: Final = re.compile(r"[,;:]?\s*(then|and|or)?\s*$")
_LESS: Final = "give it less to copy: fewer `--topics`, or a smaller `--sample`"
# Of the rehearsal's own position, or of what somebody, or a cluster without a leader, has done to its own
# copy: none of it says anything of the flow's.
_OWN: Final = frozenset(
    {
        StopCode.SOURCE_TRUNCATED,
        StopCode.SOURCE_DIVERGED,
        StopCode.SOURCE_MISSING,
        StopCode.SOURCE_RECREATED,
        StopCode.SOURCE_SHRUNK,
        StopCode.TARGET_MISSING,
        StopCode.TARGET_RECREATED,
        StopCode.TARGET_SHRUNK,
        StopCode.TARGET_SHORTENED,
        StopCode.TARGET_UNDECIDED,
        StopCode.TARGET_DROPPED,
        StopCode.PROGRESS_MISSING,
        StopCode.PROGRESS_FOREIGN,
        StopCode.PROGRESS_UNREADABLE,
    }
)


@dataclass(frozen=True)
class CopyCompared:
    """What an audit of the copies has found.

    Args:
        records: of the source that were compared.
        wrong: partitions with records that are not as they should be.
        unverifiable: what could not be compared.
    """

    records: int
    wrong: Sequence[PartitionResult]
    unverifiable: Sequence[Unverifiable]

    @classmethod
    def of(cls, partitions: Iterable[PartitionResult]) -> CopyCompared:
        """Return what these have found."""
        results = list(partitions)
        return cls(
            sum(each.records(Side.SOURCE) for each in results),
            [each for each in results if each.by_kind],
            [gap for each in results for gap in each.unverifiable],
        )

    def document(self) -> dict[str, int]:
        """Return its counts."""
        return {
            "records": self.records,
            "different": sum(each.by_kind.total() for each in self.wrong),
            "unverifiable": sum(gap.offsets for gap in self.unverifiable),
        }

    @property
    def not_compared(self) -> list[str]:
        """What could not be compared and why, one text for each reason."""
        by_reason: dict[str, list[Unverifiable]] = {}
        for gap in self.unverifiable:
            by_reason.setdefault(gap.reason, []).append(gap)
        return [
            f"{sum(gap.offsets for gap in gaps)} offsets, {reason}: {_some(gap.source for gap in gaps)}: "
            f"{gaps[0].message}"
            for reason, gaps in by_reason.items()
        ]


def copy_differs(flow: str, found: CopyCompared) -> NeedsOperator:
    """Return what a rehearsal ends with whose copy is not like its source."""
    told = [
        f"{each.source}: {', '.join(f'{n} {kind.lower()}' for kind, n in sorted(each.by_kind.items()))}"
        f" (first: {_first(each)})"
        for each in sorted(found.wrong, key=lambda one: one.source)[:_NAMED]
    ]
    if (more := len(found.wrong) - len(told)) > 0:
        told.append(f"and {more} partitions more")
    return NeedsOperator(
        f"{found.document()['different']} records of the copies are not as they should be",
        code=DrillCode.COPY_DIFFERS,
        expected="each record of the source once, in order and unaltered",
        seen="; ".join(told),
        resolve=f"`onceover audit {flow}` compares the flow's own copies; do not fail over",
    )


def copy_stopped(
    flow: str, target: str, stopped: Sequence[TopicPartition], first: Stop | None
) -> NeedsOperator:
    """Return what a rehearsal ends with whose copy has stopped.

    Args:
        flow: the flow that is rehearsed.
        target: alias of the target.
        stopped: partitions there, at least one.
        first: why the first one is; None where nobody can read it.
    """
    why = f": {first.code}: {first.message}" if first else ""
    return NeedsOperator(
        f"the rehearsal's copy stopped at {_some(stopped)}{why}",
        code=DrillCode.COPY_STOPPED,
        where=target,
        expected=first.expected if first else None,
        seen=first.seen if first else None,
        resolve=_way_out(flow, first),
    )


def _way_out(flow: str, stop: Stop | None) -> str:
    see = commands.command("status", flow)
    if stop is not None and stop.code in _OWN:
        return (
            f"run the rehearsal again, it makes its copy anew; {see} says how the flow itself stands there, "
            f"and nobody else may write to what begins with {names.rehearsal_prefix(flow)}"
        )
    # A command of the stop's names the rehearsal's flow and position: it would be refused, or wrong. What is
    # to be done before, such as a right to be granted, holds for the flow as well.
    first = next(iter(commands.split_advice(stop.resolve)), None) if stop else None
    told = "" if first is None or first.is_command else _DANGLING.sub("; ", first.text, count=1)
    return f"the flow itself would stop there, too: {told}{see} names the way out once it does"


def copy_late(
    target: str,
    left: Mapping[TopicPartition, int],
    copies: Mapping[TopicPartition, TopicPartition],
    notes: Mapping[str, Any],
) -> Retriable:
    """Return what a rehearsal ends with whose copy has not come to the end in time.

    Args:
        target: alias of the target.
        left: how many offsets are left, by source partition.
        copies: where each source partition is copied to.
        notes: the second partition of the copy's state: why lanes wait.
    """
    note = _note(left, copies, notes)
    return Retriable(
        f"the rehearsal's copy did not come to the end in time: {named(left)} are left",
        where=target,
        seen=f"{note.get('object')}: {note.get('message')}" if note else None,
        resolve=str(note.get("resolve")) if note else _LESS,
    )


def _note(
    left: Collection[TopicPartition],
    copies: Mapping[TopicPartition, TopicPartition],
    notes: Mapping[str, Any],
) -> Mapping[str, Any] | None:
    """Return why one of them waits; a note about its lane only where nothing is known of a partition."""
    waits = [notes.get(names.wait_key(*copies[tp])) for tp in sorted(left)]
    slowed = [notes[key] for key in sorted(notes) if key.startswith(names.QUOTA_PREFIX)]
    return next((note for note in [*waits, *slowed] if isinstance(note, Mapping)), None)


def _first(result: PartitionResult) -> str:
    if not result.findings:
        return "counted only"
    finding = result.findings[0]
    source = None if finding.source_offset is None else f"source offset {finding.source_offset}"
    target = None if finding.target_offset is None else f"target offset {finding.target_offset}"
    places = ", ".join(place for place in (source, target) if place)
    return ", ".join(part for part in (places, finding.detail) if part)


def _some(partitions: Iterable[TopicPartition]) -> str:
    return some(dict.fromkeys(partitions), _NAMED)
