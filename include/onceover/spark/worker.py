"""What a Spark worker does with one lane's task: open clusters, copy, hand receipts back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from onceover.config.clients.resolve import ClientConfig
from onceover.config.faults import BadConfig
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.runsettings import RunSettings
from onceover.config.flow.sides import resolve_clients
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
from onceover.wiring.flows import open_clients
from onceover.wiring.runs import lane_task
from onceover.wiring.watch import FlowWatch

log = logging.getLogger(__name__)

# How often a running task hands its receipts to Spark: seldom enough to cost nothing, often enough
# that a killed task leaves few to be found in the offset map only.
_FLUSH_S: Final = 10.0
_FLUSH_RECORDS: Final = 20_000
# Spark gives a worker process one task after the other.
_known: Final = Knowledge()


class RunClients:
    """The clients that tasks of a run have had in this process. Not thread-safe.

    A client file that is not in order when the next task begins changes nothing (docs/flow-file.md): that one
    goes on with the last good version, as a task that runs does.
    """

    def __init__(self) -> None:
        self._run = ("", "")
        self._clients: tuple[ClientConfig, ClientConfig] | None = None

    def of(self, flow: Flow, run: str) -> tuple[ClientConfig, ClientConfig]:
        """Return source and target of a run's next task.

        Raises:
            UsageError: they are not in order, and never were here.
        """
        if self._run != (flow.flow, run):
            self._run, self._clients = (flow.flow, run), None
        try:
            self._clients = resolve_clients(flow)
        except BadConfig as error:
            if self._clients is None:
                raise
            log.warning("the client of the last task is used again: %s", error)
        return self._clients


_clients: Final = RunClients()


@dataclass(frozen=True)
class LanePlan:
    """What every task of a run is told. No secrets: a flow holds their names only.

    Args:
        flow: as the run was started with it: a file that is broken when a task begins stops nothing, and
            other clusters in it wait for a restart.
        settings: the run's fixed ones, as text.
        generation: of the run.
        run: its name.
        lanes: how many there are.
        ends: source offsets at which a lane is done; None to go on.
    """

    flow: Flow
    settings: str
    generation: int
    run: str
    lanes: int
    ends: Mapping[TopicPartition, int] | None


def copy_lanes(plan: LanePlan, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Copy the lane of each row until its task is over; yield receipts of what was committed.

    Importable under the same name on driver and workers: Spark pickles it by reference.

    Args:
        rows: numbers that never come again in a run, one for a task; each stands for a lane.

    Raises:
        WorkerError: what failed, for the driver.
    """
    configure()
    take_secret()
    for row in rows:
        for number in row.column(0).to_pylist():
            token, lane = divmod(number, plan.lanes)
            with carrying(f"lane {lane}"):
                yield from _copy(plan, lane, token)


def nothing(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Take rows and give none: a worker that has done it is ready for a lane."""
    for _ in rows:
        yield from ()


def _copy(plan: LanePlan, lane: int, token: int) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    # The task attempt id never repeats within a SparkContext, attempt numbers do (docs/facts.md).
    attempt = 0 if context is None else context.taskAttemptId() + 1
    begun_with = plan.flow
    watch = FlowWatch(begun_with.path, RunSettings.from_text(plan.settings), begun_with)
    length_s = watch.current().spark.task_length_ms / 1000
    me = LaneIdentity(begun_with.flow, plan.generation, plan.run, lane, plan.lanes, (token, attempt))
    known = _known.of(begun_with.flow, plan.run, lane)
    source, target = open_clients(*_clients.of(begun_with, plan.run))
    before, beyond = known.logins
    known.logins = source.config.login.carrying_on(before), target.config.login.carrying_on(beyond)
    try:
        # An outage longer than the task ends it without rows, so that Spark's retries are kept.
        task = lane_task(watch, me, source, target, give_up_s=length_s, known=known)
        until = Until(time.monotonic() + length_s, plan.ends)
        yield from _receipts(begun_with.flow, task.run(until))
    except Fenced as error:
        # The driver sees the newer generation by itself and ends the run with exit code 4.
        log.info("lane %d stops: %s", lane, error.message)
    finally:
        source.close()
        target.close()


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
