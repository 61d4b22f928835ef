"""The Structured Streaming source: plans on the driver, copies in the workers, yields receipts only.

The payload never enters the JVM. A Spark offset is a token that only has to be new; the progress
group on the target is the only position (G4). Importable under the same name on driver and workers:
Spark pickles these classes by reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from onceover.errors import Fatal
from onceover.spark.failures import carrying
from onceover.spark.schema import DDL, FORMAT

if TYPE_CHECKING:
    # Spark loads this module in half a dozen short-lived processes while it plans; what the copy
    # needs (0.8 s of imports) is loaded where it copies.
    import pyarrow as pa

    from onceover.config.flow.flowfile import Flow
    from onceover.lead.ends import BatchPlanner
    from onceover.model import TopicPartition


@dataclass
class LanePartition(InputPartition):
    """One lane's task: what to copy, for whom, until when. No secrets: a flow holds their names only.

    ``flow`` is as the run was started with it: a file that is broken when a task begins stops nothing, and
    other clusters in it wait for a restart.
    """

    flow: Flow
    settings: str
    generation: int
    run: str
    lane: int
    lanes: int
    token: int
    length_s: float
    ends: dict[str, dict[int, int]] | None


class ReplicaSource(DataSource):
    """Spark's entry point; options: flow (path), settings (the run's fixed ones), generation, run, lanes."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of a receipt."""
        return DDL

    def streamReader(self, schema: StructType) -> ReplicaReader:
        """Return the reader of a query."""
        return ReplicaReader(dict(self.options))


class ReplicaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans tokens on the driver; its copy in a worker replicates."""

    def __init__(self, options: dict[str, str]) -> None:
        self._flow_path = options["flow"]
        self._settings = options["settings"]
        self._generation = int(options["generation"])
        self._run = options["run"]
        self._lanes = int(options["lanes"])
        self._planner: BatchPlanner | None = None
        self._flow: Flow | None = None
        self._ends: dict[TopicPartition, int] | None = None

    # ---- driver

    def initialOffset(self) -> dict[str, Any]:
        """Return the token before the first batch."""
        return {"n": 0}

    @carrying("planning")
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what "caught up" means: the source's LSO now."""
        self._ends = self._plan().ends()

    @carrying("planning")
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return a new token while there is something to do, else ``start``."""
        planner = self._plan()
        if planner.stop_requested() or (self._ends is not None and planner.reached(self._ends)):
            return start
        return {"n": start["n"] + 1}

    @carrying("planning")
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LanePartition]:
        """Return one task per lane."""
        ends: dict[str, dict[int, int]] | None = None
        if self._ends is not None:
            ends = {}
            for tp, offset in self._ends.items():
                ends.setdefault(tp.topic, {})[tp.partition] = offset
        length_s, flow = self._plan().task_length_s(), self._begun_with()
        return [
            LanePartition(
                flow=flow,
                settings=self._settings,
                generation=self._generation,
                run=self._run,
                lane=lane,
                lanes=self._lanes,
                token=end["n"],
                length_s=length_s,
                ends=ends,
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

    def _begun_with(self) -> Flow:
        if self._flow is None:
            raise Fatal("a task is planned before the flow was read")
        return self._flow

    def _plan(self) -> BatchPlanner:
        if self._planner is None:
            from onceover.lead.ends import BatchPlanner
            from onceover.wiring.flows import FlowWatch, open_clusters

            watch = FlowWatch(Path(self._flow_path))
            self._flow = watch.flow
            self._planner = BatchPlanner(
                watch.flow.flow, self._run, lambda: watch.current().spark.task_length_ms / 1000
            )
            self._planner.open(*open_clusters(watch.flow))
        return self._planner

    # ---- worker

    def read(self, partition: LanePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Copy this lane until the task is over; yield receipts of what was committed."""
        from onceover.spark.worker import copy_lane

        yield from copy_lane(partition)
