"""The Structured Streaming source: plans on the driver, copies in the workers, yields receipts only.

The payload never enters the JVM. A Spark offset is a token that only has to be new; the progress
group on the target is the only position (G4). Importable under the same name on driver and workers:
Spark pickles these classes by reference.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from onceover.app import FlowWatch, lane_task, open_clusters
from onceover.engine.copyloop import LaneIdentity, Until
from onceover.engine.planner import Planner
from onceover.errors import Fenced
from onceover.model import TopicPartition
from onceover.spark import receipts
from onceover.wire.offsetmap import MapRecord

log = logging.getLogger(__name__)

FORMAT: Final = "onceover"
# How often a running task hands its receipts to Spark: seldom enough to cost nothing, often enough
# that a killed task leaves few to be found in the offset map only.
_FLUSH_S: Final = 10.0
_FLUSH_RECORDS: Final = 20_000


@dataclass
class LanePartition(InputPartition):
    """One lane's task: what to copy, for whom, until when. Names and numbers only, no secrets."""

    flow_path: str
    generation: int
    run: str
    lane: int
    lanes: int
    token: int
    length_s: float
    ends: dict[str, dict[int, int]] | None


class ReplicaSource(DataSource):
    """Spark's entry point; options: flow (path), generation, run, lanes."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of a receipt."""
        return receipts.DDL

    def streamReader(self, schema: StructType) -> ReplicaReader:
        """Return the reader of a query."""
        return ReplicaReader(dict(self.options))


class ReplicaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans tokens on the driver; its copy in a worker replicates."""

    def __init__(self, options: dict[str, str]) -> None:
        self._flow_path = options["flow"]
        self._generation = int(options["generation"])
        self._run = options["run"]
        self._lanes = int(options["lanes"])
        self._planner: Planner | None = None
        self._ends: dict[TopicPartition, int] | None = None

    # ---- driver

    def initialOffset(self) -> dict[str, Any]:
        """Return the token before the first batch."""
        return {"n": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what "caught up" means: the source's LSO now."""
        self._ends = self._plan().ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return a new token while there is something to do, else ``start``."""
        planner = self._plan()
        if planner.stop_requested() or (self._ends is not None and planner.reached(self._ends)):
            return start
        return {"n": start["n"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LanePartition]:
        """Return one task per lane."""
        ends: dict[str, dict[int, int]] | None = None
        if self._ends is not None:
            ends = {}
            for tp, offset in self._ends.items():
                ends.setdefault(tp.topic, {})[tp.partition] = offset
        length_s = self._plan().task_length_s()
        return [
            LanePartition(
                self._flow_path, self._generation, self._run, lane, self._lanes, end["n"], length_s, ends
            )
            for lane in range(self._lanes)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the truth was committed with the data."""

    def stop(self) -> None:
        """Close the planner's connections."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _plan(self) -> Planner:
        if self._planner is None:
            watch = FlowWatch(Path(self._flow_path))
            self._planner = Planner(
                watch.flow.flow, self._run, lambda: watch.current().spark.task_length_ms / 1000
            )
            self._planner.open(*open_clusters(watch.flow))
        return self._planner

    # ---- worker

    def read(self, partition: LanePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Copy this lane until the task is over; yield receipts of what was committed."""
        context = TaskContext.get()
        # The task attempt id never repeats within a SparkContext, attempt numbers do (FACTS 7).
        attempt = 0 if context is None else context.taskAttemptId() + 1
        watch = FlowWatch(Path(partition.flow_path))
        me = LaneIdentity(
            watch.flow.flow,
            partition.generation,
            partition.run,
            partition.lane,
            partition.lanes,
            (partition.token, attempt),
        )
        source, target = open_clusters(watch.flow)
        try:
            # An outage longer than the task ends it without rows, so that Spark's retries are kept.
            task = lane_task(watch, me, source, target, give_up_s=partition.length_s)
            yield from _receipts(watch.flow.flow, task.run(_until(partition)))
        except Fenced as error:
            # The driver sees the newer generation by itself and ends the run with exit code 4.
            log.warning("lane %d stops: %s", partition.lane, error)
        finally:
            source.close()
            target.close()


def _until(partition: LanePartition) -> Until:
    ends = None
    if partition.ends is not None:
        ends = {TopicPartition(t, p): offset for t, ps in partition.ends.items() for p, offset in ps.items()}
    return Until(time.monotonic() + partition.length_s, ends)


def _receipts(flow: str, commits: Iterator[list[MapRecord]]) -> Iterator[pa.RecordBatch]:
    waiting: list[MapRecord] = []
    transactions, flushed_s = 0, time.monotonic()
    for records in commits:
        waiting += records
        transactions += 1
        if waiting and (time.monotonic() - flushed_s >= _FLUSH_S or len(waiting) >= _FLUSH_RECORDS):
            yield receipts.rows(flow, waiting, transactions)
            waiting, transactions, flushed_s = [], 0, time.monotonic()
    if waiting:
        yield receipts.rows(flow, waiting, transactions)
