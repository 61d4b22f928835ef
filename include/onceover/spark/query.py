"""The streaming query of a flow: a row for each lane and batch, and Python that copies where a row goes.

The payload never enters the JVM: a lane's task gets the number of its lane and gives receipts. The rows come
from a source that is built into Spark, so that planning a batch starts no Python process. What Spark keeps
about them is a token that only has to be new; the progress group on the target is the only position (G4).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from onceover.errors import Retriable
from onceover.planning.background import begin
from onceover.spark.receipts import DDL
from onceover.spark.worker import LanePlan, copy_lanes, nothing

_TOKENS: Final = "rate-micro-batch"


def start_query(spark: SparkSession, plan: LanePlan, checkpoint: Path, receipts: Path) -> StreamingQuery:
    """Start copying: batch after batch, in each a task for every lane, until the query is stopped.

    Args:
        plan: what the tasks are told.
        checkpoint: folder of this run alone; what a killed run left behind can neither confuse this one's
            commit log nor make it skip a batch.
        receipts: folder of this run alone, for the receipts as Parquet.
    """
    rows = (
        spark.readStream.format(_TOKENS)
        .option("rowsPerBatch", plan.lanes)
        .option("numPartitions", plan.lanes)
        .load()
        .select("value")
    )
    return (
        _observed(rows.mapInArrow(partial(copy_lanes, plan), DDL))
        .writeStream.queryName(plan.flow.flow)
        .format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(receipts))
        # Or Spark's list of them, written anew every few batches, grows for as long as a run lasts.
        .option("retention", f"{plan.flow.state.map_retention_ms // 1000}s")
        .trigger(processingTime="0 seconds")
        .start()
    )


def warm_up(spark: SparkSession, lanes: int) -> None:
    """Have Spark load what its first batch needs, in a thread, while the run takes the flow over.

    A hint, no more: whatever goes wrong with it will go wrong with the query again, and is told there.
    """

    def load() -> None:
        with suppress(Py4JError, PySparkException, ConnectionError):
            spark.range(lanes, numPartitions=lanes).mapInArrow(nothing, DDL).collect()

    with suppress(Retriable):
        begin(threading.Thread(target=load, name="onceover-warm-up", daemon=True))


def batch_of(query: StreamingQuery) -> int:
    """Return the number of the last batch that is over; -1 while there is none."""
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


def _observed(frame: DataFrame) -> DataFrame:
    return frame.observe(
        "receipts",
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.sum("transactions").alias("transactions"),
    )
