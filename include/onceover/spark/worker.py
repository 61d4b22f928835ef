"""What a Spark worker does with one lane's task: open clusters, copy, hand receipts back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext

from onceover.config.flow.runsettings import RunSettings
from onceover.copy.identity import LaneIdentity
from onceover.copy.known import Knowledge
from onceover.copy.loop import Until
from onceover.errors import Fenced
from onceover.logs import configure
from onceover.model import TopicPartition
from onceover.process.guard import take_secret
from onceover.spark import receipts
from onceover.spark.failures import carrying
from onceover.wire.offsetmap import MapRecord
from onceover.wiring.flows import FlowWatch, lane_task, open_clusters

if TYPE_CHECKING:
    from onceover.spark.source import LanePartition

log = logging.getLogger(__name__)

# How often a running task hands its receipts to Spark: seldom enough to cost nothing, often enough
# that a killed task leaves few to be found in the offset map only.
_FLUSH_S: Final = 10.0
_FLUSH_RECORDS: Final = 20_000
# Spark gives a worker process one task after the other.
_known: Final = Knowledge()


def copy_lane(partition: LanePartition) -> Iterator[pa.RecordBatch]:
    """Copy a lane until its task is over; yield receipts of what was committed.

    Raises:
        WorkerError: what failed, for the driver.
    """
    configure()
    take_secret()
    with carrying(f"lane {partition.lane}"):
        yield from _copy(partition)


def _copy(partition: LanePartition) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    # The task attempt id never repeats within a SparkContext, attempt numbers do (docs/facts.md).
    attempt = 0 if context is None else context.taskAttemptId() + 1
    begun_with = partition.flow
    watch = FlowWatch(begun_with.path, RunSettings.from_text(partition.settings), begun_with)
    me = LaneIdentity(
        begun_with.flow,
        partition.generation,
        partition.run,
        partition.lane,
        partition.lanes,
        (partition.token, attempt),
    )
    known = _known.of(begun_with.flow, partition.run, partition.lane)
    source, target = open_clusters(begun_with)
    before, beyond = known.logins
    known.logins = source.config.login.carrying_on(before), target.config.login.carrying_on(beyond)
    try:
        # An outage longer than the task ends it without rows, so that Spark's retries are kept.
        task = lane_task(watch, me, source, target, give_up_s=partition.length_s, known=known)
        yield from _receipts(begun_with.flow, task.run(_until(partition)))
    except Fenced as error:
        # The driver sees the newer generation by itself and ends the run with exit code 4.
        log.info("lane %d stops: %s", partition.lane, error.message)
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
    # The first commit is handed over at once: what the JVM loads for its first rows takes a second of
    # both cores, and belongs to the start rather than ten seconds into a steady copy.
    transactions, flushed_s = 0, float("-inf")
    for records in commits:
        waiting += records
        transactions += 1
        if waiting and (time.monotonic() - flushed_s >= _FLUSH_S or len(waiting) >= _FLUSH_RECORDS):
            yield receipts.rows(flow, waiting, transactions)
            waiting, transactions, flushed_s = [], 0, time.monotonic()
    if waiting:
        yield receipts.rows(flow, waiting, transactions)
