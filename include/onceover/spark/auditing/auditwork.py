"""What a Spark worker does with the tasks of an audit: open both clusters, read, compare, hand rows back.

Payload stays in this process: rows hold offsets, counts and hashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.accumulators import Accumulator

from onceover.arrowrows import record_batch
from onceover.audit.compare.sides import Sides
from onceover.audit.course.rowcodec import task_of
from onceover.audit.course.rowworkers import TaskKind, answer_rows
from onceover.clock import now_ms
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.runsettings import RunSettings
from onceover.logs import configure
from onceover.process.guard import take_secret
from onceover.spark.failures import carrying
from onceover.wiring.audit import record_bytes
from onceover.wiring.flows import open_clusters
from onceover.wiring.handlers import handler_of

TASK: Final = "task"
WORK: Final = "work"
TASKS_DDL: Final = f"{TASK} int, {WORK} string"
ANSWER: Final = "answer"
BEGAN_MS: Final = "began_ms"
ENDED_MS: Final = "ended_ms"
ANSWER_DDL: Final = f"{ANSWER} string, {BEGAN_MS} bigint, {ENDED_MS} bigint"
_ANSWER: Final = pa.schema([(ANSWER, pa.string()), (BEGAN_MS, pa.int64()), (ENDED_MS, pa.int64())])


@dataclass(frozen=True)
class Job:
    """What a worker needs beside its tasks. No secrets: a flow holds their names only.

    Args:
        flow: as the audit was started with it.
        ids: the cluster ids of source and target; others are refused.
        step: what is done with each task.
        contents: what is looked for.
        done: counts the ranges of the tasks that are done.
    """

    flow: Flow
    ids: tuple[str, str]
    step: TaskKind
    contents: frozenset[int] = frozenset()
    done: Accumulator[int] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Work through the tasks of one Spark partition; yield an answer as soon as it is known."""
        configure()
        take_secret()
        with carrying(f"the step {self.step} of the audit"):
            yield from self._work(batches)

    def _work(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source, target = open_clusters(self.flow)
        source.keep_to(self.ids[0])
        target.keep_to(self.ids[1])
        handler = handler_of(self.flow, RunSettings.of(self.flow))
        sides = Sides(source, target, handler, record_bytes=record_bytes(self.flow))
        with source, target:
            for batch in batches:
                for text in batch.column(WORK).to_pylist():
                    task, began_ms = task_of(json.loads(text)), now_ms()
                    for row in answer_rows(self.step, task, sides, self.contents):
                        answer: dict[str, str | int] = {ANSWER: json.dumps(row), BEGAN_MS: began_ms}
                        answer[ENDED_MS] = now_ms()
                        yield record_batch([answer], _ANSWER)
                    if self.done is not None:
                        self.done.add(len(task.ranges))
