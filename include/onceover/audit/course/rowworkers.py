"""Workers that are asked and answer in rows: what Spark's executors and this very process have in common.

Invariant: whoever reads, tasks and answers go through the same few lines, so that an audit's course cannot
depend on where it was read.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum

from onceover.audit.compare.crossmatch import Sighting
from onceover.audit.compare.sides import Sides
from onceover.audit.course.rowcodec import answer_of, answer_row, sighting_of, sighting_row
from onceover.audit.course.worker import compare_task, open_task, seek_task
from onceover.audit.model import Row
from onceover.audit.ranges.tasks import First, Task


class TaskKind(Enum):
    """What is done with a task."""

    COMPARE = "compare"
    OPEN = "open"
    SEEK = "seek"


def answer_rows(step: TaskKind, task: Task, sides: Sides, contents: Collection[int]) -> Iterator[Row]:
    """Yield what comes of one task, each answer as soon as it is known.

    Args:
        sides: both clusters, as this process reads them.
        contents: what is looked for, with ``SEEK``.
    """
    match step:
        case TaskKind.COMPARE:
            yield from map(answer_row, compare_task(task, sides))
        case TaskKind.OPEN:
            yield answer_row(open_task(task, sides))
        case TaskKind.SEEK:
            yield from map(sighting_row, seek_task(task, sides, contents))


class RowWorkers(ABC):
    """An audit's workers (``audit.course.partitions.Workers``) by the rows that their tasks come back as."""

    @abstractmethod
    def rows(self, work: Sequence[Task], step: TaskKind, contents: frozenset[int]) -> Iterable[str]:
        """Yield the answers of ``answer_rows`` to all tasks, each as JSON."""

    def compare(self, work: Sequence[Task]) -> Iterator[First]:
        """Yield one answer for each range of every task."""
        return map(_answer, self.rows(work, TaskKind.COMPARE, frozenset()))

    def open(self, work: Sequence[Task]) -> Iterator[First]:
        """Yield one answer for each task."""
        return map(_answer, self.rows(work, TaskKind.OPEN, frozenset()))

    def seek(self, work: Sequence[Task], contents: frozenset[int]) -> Iterator[Sighting]:
        """Yield where the source holds records of these contents."""
        return (sighting_of(json.loads(each)) for each in self.rows(work, TaskKind.SEEK, contents))


def _answer(text: str) -> First:
    return answer_of(json.loads(text))
