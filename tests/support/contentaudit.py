"""Audits without Spark: the same course, read by this very process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onceover.audit.crossmatch import Sighting
from onceover.audit.result import PartitionResult
from onceover.audit.rows import answer_of, answer_row, sighting_of, sighting_row, task_of, task_row
from onceover.audit.sides import Sides
from onceover.audit.work import First, Lapsed, Opened, Task
from onceover.audit.worker import compare_task, open_task, seek_task
from onceover.config.flowfile import Flow
from onceover.config.runsettings import RunSettings
from onceover.model import TopicPartition
from onceover.wiring.audit import (
    AuditWish,
    Content,
    audit_content,
    keep_verified,
    prepare,
    show_payload,
)
from onceover.wiring.flows import open_clusters
from onceover.wiring.treatments import handler_of


@dataclass(frozen=True)
class InlineWorkers:
    """Works through tasks here, handing them over as Spark does."""

    sides: Sides

    def compare(self, work: Sequence[Task]) -> Iterator[First]:
        """Yield one answer for each range of every task."""
        for task in work:
            for answer in compare_task(task_of(json.loads(json.dumps(task_row(task)))), self.sides):
                back = answer_of(json.loads(json.dumps(answer_row(answer))))
                assert back == answer
                yield back

    def open(self, work: Sequence[Task]) -> Iterator[Opened | Lapsed]:
        """Yield one answer for each task."""
        for task in work:
            answer = open_task(task, self.sides)
            assert answer_of(json.loads(json.dumps(answer_row(answer)))) == answer
            yield answer

    def seek(self, work: Sequence[Task], contents: frozenset[int]) -> Iterator[Sighting]:
        """Yield where the source holds records of these contents."""
        for task in work:
            for seen in seek_task(task, self.sides, contents):
                assert sighting_of(json.loads(json.dumps(sighting_row(seen)))) == seen
                yield seen


def audit(flow: Flow, wish: AuditWish | None = None, *, keep: bool = False, show: bool = False) -> Content:
    """Audit the content of a flow in this process.

    Args:
        keep: write the verified watermarks, too.
        show: with payload.
    """
    source, target = open_clusters(flow)
    with source, target:
        workers = InlineWorkers(Sides(source, target, handler_of(flow, RunSettings.of(flow))))
        content = audit_content(prepare(flow, source, target, wish or AuditWish()), workers)
        if show:
            content = show_payload(source, target, content)
        if keep:
            keep_verified(flow, target, content)
    return content


def partition(content: Content, topic: str, number: int = 0) -> PartitionResult:
    """Return one partition's result."""
    return next(each for each in content.partitions if each.source == TopicPartition(topic, number))
