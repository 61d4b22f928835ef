"""What a Spark worker does with the tasks of an audit: open both clusters, read, compare, hand rows back.

Payload stays in this process: rows hold offsets, counts and hashes (and what a person asked to see).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from onceover.audit.rows import answer_row, task_of
from onceover.audit.work import First, Opened, Task
from onceover.audit.worker import Sides, compare_task, open_task
from onceover.config.flowfile import Flow
from onceover.logs import configure
from onceover.wiring.flows import open_clusters

TASK: Final = "task"
WORK: Final = "work"
TASKS_DDL: Final = f"{TASK} int, {WORK} string"
ANSWER: Final = "answer"
ANSWER_DDL: Final = f"{ANSWER} string"
_ANSWER: Final = pa.schema([(ANSWER, pa.string())])


@dataclass(frozen=True)
class Job:
    """What a worker needs beside its tasks. No secrets: a flow holds their names only.

    Args:
        flow: as the audit was started with it.
        ids: the cluster ids of source and target; others are refused.
        opening: open stretches that differ, instead of comparing.
        show_payload: findings carry keys and values.
    """

    flow: Flow
    ids: tuple[str, str]
    opening: bool = False
    show_payload: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Work through the tasks of one Spark partition; yield an answer as soon as it is known."""
        configure()
        source, target = open_clusters(self.flow)
        source.expected_id, target.expected_id = self.ids
        with source, target:
            for batch in batches:
                for text in batch.column(WORK).to_pylist():
                    for answer in self._answers(task_of(json.loads(text)), Sides(source, target)):
                        yield pa.RecordBatch.from_pylist([{ANSWER: json.dumps(answer_row(answer))}], _ANSWER)

    def _answers(self, task: Task, sides: Sides) -> Iterable[First | Opened]:
        if self.opening:
            return [open_task(task, sides, show_payload=self.show_payload)]
        return compare_task(task, sides)
