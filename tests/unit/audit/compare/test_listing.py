"""Findings beyond the limit of a stretch: no longer listed, and all of them counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.compare.listing import listing
from onceover.audit.compare.sides import Sides
from onceover.audit.course.rowcodec import answer_of, answer_row
from onceover.audit.course.worker import open_task
from onceover.audit.model import Finding, FindingKind, Mode, Range, Reason, Side, Unlisted
from onceover.audit.ranges.tasks import OpenedStretch, Task
from onceover.audit.ranges.tiling import Hole
from onceover.audit.records.recordhash import AuditedRecord, make_rec
from onceover.model import TopicPartition

PAIR = (TopicPartition("orders", 0), TopicPartition("orders", 0))
SPAN = Range(PAIR[0], 0, 100, PAIR[1], 0, 100)
IDS = (UUID(int=1), UUID(int=2))


@dataclass(frozen=True)
class Held(Sides):
    """Both sides of a stretch, from memory."""

    content: dict[Side, Sequence[AuditedRecord]] = field(default_factory=dict)

    def records(self, task: Task, side: Side, span: Range) -> Iterator[AuditedRecord]:
        """Yield the records that a side was given."""
        yield from self.content[side]

    def aborted(self, task: Task, span: Range) -> Iterator[AuditedRecord]:
        """Yield nothing."""
        yield from ()


def records(values: Sequence[str]) -> list[AuditedRecord]:
    """Return records with these keys and values, from offset 0 on."""
    return [make_rec(at, text.encode(), text.encode(), (), 1_000) for at, text in enumerate(values)]


def opened(source: Sequence[str], target: Sequence[str], limit: int, task: Task) -> OpenedStretch:
    """Return what a worker says of a stretch, after it crossed Spark."""
    content = {Side.SOURCE: records(source), Side.TARGET: records(target)}
    sides = Held(None, None, max_findings=limit, content=content)  # pyrefly: ignore[bad-argument-type]
    answer = open_task(task, sides)
    assert isinstance(answer, OpenedStretch)
    assert answer_of(answer_row(answer)) == answer
    return answer


@pytest.mark.parametrize("mode", [Mode.RECORDS, Mode.COMPACTED])
@pytest.mark.parametrize("hole", [False, True])
def test_worker_lists_up_to_the_limit_and_counts_the_rest(mode: Mode, hole: bool) -> None:
    """Five lost and four surplus ones; with a hole far away, which is looked at record by record."""
    span = Range(PAIR[0], 0, 100, PAIR[1], 0, 100, mode)
    task = Task(IDS, (span,), holes=(Hole(90, 91),) if hole else ())
    source, target = ["a", *"bcdef"], ["a", *"wxyz"]

    cut, whole = (opened(source, target, limit, task) for limit in (2, 100))

    assert [each.kind for each in cut.findings] == [FindingKind.LOST] * 2
    assert cut.findings == whole.findings[:2]
    assert cut.unlisted == (
        Unlisted(FindingKind.LOST, *PAIR, 3),
        Unlisted(FindingKind.PHANTOM, *PAIR, 4),
    )
    assert (len(whole.findings), whole.unlisted) == (9, ())


def test_what_is_excused_is_neither_listed_nor_counted() -> None:
    """An operator skipped four of five lost records: one is left to be counted."""
    task = Task(IDS, (SPAN,), holes=(Hole(1, 5),))

    found = opened(["a", *"bcdef"], ["a"], 0, task)

    (gap,) = found.excused
    assert (gap.reason, gap.offset_from, gap.offset_to, gap.offsets) == (Reason.SKIPPED, 1, 5, 4)
    assert found.digests[0].records == 2
    assert (found.findings, found.unlisted) == ((), (Unlisted(FindingKind.LOST, *PAIR, 1),))


@given(st.lists(st.sampled_from(FindingKind)), st.integers(0, 20), st.booleans())
def test_listed_and_counted_are_all(kinds: list[FindingKind], limit: int, known: bool) -> None:
    """For any findings and limit, whether or not the counts were known before."""
    found = [Finding(kind, PAIR[0], 1, PAIR[1], 1) for kind in kinds]
    counts = {kind: kinds.count(kind) for kind in FindingKind}

    named = listing(SPAN, found, limit, Counter(counts) if known else None)

    assert list(named.findings) == found[:limit]
    again = Counter(each.kind for each in named.findings)
    again.update({each.kind: each.count for each in named.unlisted})
    assert again == Counter(kinds)
    assert all(each.count > 0 for each in named.unlisted)
