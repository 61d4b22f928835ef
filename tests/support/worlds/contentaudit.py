"""Audits without Spark: the same course, read by this very process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onceover.audit.checks.result import PartitionResult
from onceover.audit.compare.sides import Sides
from onceover.audit.course.content import Content, audit_content
from onceover.audit.course.rowcodec import task_of, task_row
from onceover.audit.course.rowworkers import RowWorkers, TaskKind, answer_rows
from onceover.audit.ranges.tasks import Task
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.runsettings import RunSettings
from onceover.model import TopicPartition
from onceover.wiring.audit import (
    AuditRequest,
    keep_verified,
    prepare,
    show_payload,
)
from onceover.wiring.flows import open_clusters
from onceover.wiring.handlers import handler_of


@dataclass(frozen=True)
class InlineWorkers(RowWorkers):
    """Works through tasks here; they are handed over as to Spark's workers, and so are the answers."""

    sides: Sides

    def rows(self, work: Sequence[Task], step: TaskKind, contents: frozenset[int]) -> Iterator[str]:
        """Yield the answers to all tasks, each as JSON."""
        for task in work:
            received = task_of(json.loads(json.dumps(task_row(task))))
            assert received == task
            yield from map(json.dumps, answer_rows(step, received, self.sides, contents))


def audit(
    flow: Flow, request: AuditRequest | None = None, *, keep: bool = False, show: bool = False
) -> Content:
    """Audit the content of a flow in this process.

    Args:
        keep: write the verified watermarks, too.
        show: with payload.
    """
    source, target = open_clusters(flow)
    with source, target:
        workers = InlineWorkers(Sides(source, target, handler_of(flow, RunSettings.of(flow))))
        content = audit_content(prepare(flow, source, target, request or AuditRequest()), workers)
        if show:
            content = show_payload(source, target, content)
        if keep:
            keep_verified(flow, target, content)
    return content


def partition(content: Content, topic: str, number: int = 0) -> PartitionResult:
    """Return one partition's result."""
    return next(each for each in content.partitions if each.source == TopicPartition(topic, number))
