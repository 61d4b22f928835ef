"""Workers of an audit that is read by the very process that asks for it: small ones, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onceover.audit.compare.sides import Sides
from onceover.audit.course.rowworkers import RowWorkers, TaskKind, answer_rows
from onceover.audit.ranges.tasks import Task


@dataclass(frozen=True)
class LocalWorkers(RowWorkers):
    """Works through one task after the other."""

    sides: Sides

    def rows(self, work: Sequence[Task], step: TaskKind, contents: frozenset[int]) -> Iterator[str]:
        """Yield the answers to all tasks, each as JSON."""
        for task in work:
            yield from map(json.dumps, answer_rows(step, task, self.sides, contents))
