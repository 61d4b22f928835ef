"""The Spark driver of a flow: leads it, runs the query, ends gracefully, reports.

Exit codes are those of docs/operations.md. SIGTERM and ``onceover stop`` finish the open transactions; if the
JVM or a worker is killed instead, the leader ends what they left open, so that no reader of the target waits.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onceover.backoff import Deadline
from onceover.config.flow.load import DRIVER_NOTE
from onceover.config.units import parse_duration_ms
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable, UsageError, unusable_path
from onceover.kafka.ports import Cluster
from onceover.lead.ends import CAUGHT_UP, listed
from onceover.lead.leftalone import leave_alone
from onceover.lead.supervisor import Supervisor
from onceover.logs import configure
from onceover.model import TopicPartition
from onceover.operate.caughtup import run_caught_up
from onceover.operate.status import flow_status, stopped_partitions
from onceover.planning import commands
from onceover.private import privately
from onceover.spark.codes import SparkCode
from onceover.spark.failures import cause_of, foreign_error, jvm_gone, query_error, session_error
from onceover.spark.launch.runfiles import forget_old_runs, prune_receipts, write_report
from onceover.spark.outage import Outage
from onceover.spark.progresslog import ProgressLog
from onceover.spark.query import batch_of, start_query, warm_up
from onceover.spark.session import Opening, is_ending
from onceover.spark.slots import SlotWatch, slots_of, too_few
from onceover.spark.totals import Totals
from onceover.spark.untilend import UntilEnd
from onceover.spark.worker import LanePlan
from onceover.state.records.layout import ASKED, DONE, FAILED, Layout
from onceover.wiring.flows import open_clusters
from onceover.wiring.runs import supervisor
from onceover.wiring.watch import FlowWatch

log = logging.getLogger(__name__)

Look = Callable[[], Mapping[str, Any]]

_TICK_S = 1.0
# Without contact to a cluster for this long the run ends with exit code 5, for Airflow to retry.
_GIVE_UP_S = 120.0
# The lanes finish their transactions within half a second; then Spark ends the batch.
_STOP_S = 8.0
_KEEP_RUNS = 3
_CHECKPOINT = "checkpoint"
_RECEIPTS = "receipts"
_PRUNED_EVERY_S = 3600.0
# How long the report at the end of a run waits for a target that does not answer for the moment.
_STOPS_S = 30.0


@dataclass(frozen=True)
class Begun:
    """Who begins a run.

    Args:
        launch: the same for all starts that one command or task makes by itself.
        by: which run of a DAG it is; None where it is none.
        leaves_others: it does nothing where a run lives that others have begun.
    """

    launch: str
    by: str | None = None
    leaves_others: bool = False


class DriverRun:
    """One run of the driver, from an open Spark session to the report."""

    def __init__(self, watch: FlowWatch, until: str, home: Path, jvm: int, begun: Begun) -> None:
        self._watch = watch
        self._until = until
        self._home = home
        # Asked later, it may be gone already, and another the parent.
        self._jvm = jvm
        self._begun = begun
        self._stop = threading.Event()
        # Set by whatever the driver's loop need not wait its turn for.
        self._wake = threading.Event()
        self._totals = Totals(self._wake.set)
        self._started_s = self._next_pruning_s = time.monotonic()
        self.layout: Layout | None = None
        self.stopped: list[dict[str, Any]] = []
        self._topics: dict[str, str] = {}
        self._discoveries = 0
        self._note: dict[str, Any] = {}
        self._remarks: list[dict[str, Any]] = []
        # True once everything that was on the source at the start is copied, by a run nobody cut short.
        self._came_to_its_end = False
        self._left: list[TopicPartition] = []
        self._stops_known = False
        # True once all is done: what Spark says while it is taken down is nobody's concern.
        self.ended = False
        self._asked = False

    def stop(self, *_: object) -> None:
        """Ask the run to end, from a signal handler."""
        self._stop.set()
        self._wake.set()

    def execute(self, spark: SparkSession) -> None:
        """Replicate until ``until`` or a stop request.

        Raises:
            OnceoverError: as classified; ``exit_code`` is the process's.
        """
        flow = self._watch.flow
        # Spark has waited a minute for them by now.
        if (slots := slots_of(spark)) < flow.lanes:
            raise too_few(slots, flow.lanes)
        # Spark would find out when the copy that runs is fenced.
        for each in (self._home / _CHECKPOINT, self._home / _RECEIPTS):
            _make_usable(each)
        warm_up(spark, flow.lanes)
        source, target = open_clusters(flow)
        begun = self._begun
        leader = supervisor(
            self._watch, source, target, home=self._home, begun_by=begun.by, launch=begun.launch
        )
        try:
            if self._stop.is_set():
                # Told to end before it has led anything: it takes nothing from nobody.
                return
            if begun.leaves_others:
                leave_alone(target, flow.flow, begun.by)
            self.layout = leader.start()
            if leader.was_asked_before():
                log.info("the run before was asked to stop: this one copies nothing")
                self._asked = True
                leader.end(ASKED)
            else:
                with ProgressLog(flow):
                    self._lead(spark, leader, target)
            self._remarks = [each.document() for each in leader.refused if not each.blocks]
            look = partial(flow_status, flow.flow, source, target)
            self.stopped = known_stops(look, target, asked=self._asked)
            self._stops_known = self.ended = True
            if self._left and not self.stopped:
                raise incomplete(flow.flow, self._left)
        finally:
            leader.close()
            source.close()
            target.close()

    def _lead(self, spark: SparkSession, leader: Supervisor, target: Cluster) -> None:
        try:
            target.retry(leader.discover, Deadline(_GIVE_UP_S))
            self._announce(spark, leader)
            log.info("flow %s runs as generation %d", self._watch.flow.flow, self._layout().generation)
            log.info("Spark UI: %s", spark.sparkContext.uiWebUrl)
            with self._until_end() as until_end:
                ends = None if until_end is None else until_end.begin()
                query = self._start_query(spark, ends)
                log.info("query started")
                over = self._watch_over(
                    query, leader, SlotWatch(partial(slots_of, spark), self._layout().lanes), until_end
                )
            self._asked = self._stop.is_set() or leader.stop_requested()
            self._finish(spark, query, leader)
            log.info("finished")
        except BaseException as error:
            if not self.clean_up(spark, leader, error):
                raise
            self._asked = True
            return
        leader.end(ASKED if self._asked else DONE)
        if until_end is not None and over and not self._asked:
            # Nobody copies any more: what is read now stays so.
            self._left = until_end.left()
            self._came_to_its_end = not self._left

    def clean_up(self, spark: SparkSession, leader: Supervisor, cause: BaseException) -> bool:
        """End what killed workers may have left open; unreachable, there is nothing to do.

        Args:
            cause: what the run ends with.

        Returns:
            Whether the run was told to end, and all is as if its processes had lived to see it: then it is
            no failure, and nobody starts it again.

        Raises:
            Fenced: a newer run leads the flow. Whoever takes this one for killed would fence that.
        """
        # With the session it would end by an exception, and Spark writes a page about that.
        with suppress(Py4JError, PySparkException, ConnectionError):
            for query in spark.streams.active:
                query.stop()
        error = cause_of(cause, self._jvm, partial(is_ending, spark))
        try:
            # Told to end, by a signal or by request, its JVM may be taken from it before it is through.
            asked = self._stop.is_set() or leader.was_asked_to_stop()
            if asked and isinstance(error, Retriable):
                leader.end(ASKED)
                return True
            leader.end(FAILED, error)
        except Fenced:
            raise
        except OnceoverError as failure:
            log.debug("not cleaned up: %s", failure)
        except Exception:
            # What the run has ended with is what its caller has to hear of.
            log.exception("not cleaned up")
        return False

    def _watch_over(
        self, query: StreamingQuery, leader: Supervisor, slots: SlotWatch, until_end: UntilEnd | None
    ) -> bool:
        """Return when the query has failed or the run should end; tell whether it has reached its end."""
        ends_s = self._deadline_s()
        outage = Outage(_GIVE_UP_S)
        while query.isActive and not self._stop.is_set() and time.monotonic() < ends_s:
            self._wake.clear()
            try:
                leader.tick()
                self._tell_topics(leader)
                outage.over()
            except Retriable as error:
                outage.met(error)
            self._prune_receipts()
            if leader.stop_requested():
                log.info("asked to stop")
                return False
            # Not before every lane has looked: a stop may have been mended, a position has to be renewed.
            if until_end is not None and batch_of(query) >= 0 and until_end.reached():
                log.info("caught up")
                return True
            if os.getppid() != self._jvm:
                raise jvm_gone()
            slots.check()
            self._wake.wait(_TICK_S)
        return False

    def _until_end(self) -> AbstractContextManager[UntilEnd | None]:
        if self._until != CAUGHT_UP:
            return nullcontext()
        return UntilEnd(self._watch.flow, self._layout().run, self._wake.set)

    def _prune_receipts(self) -> None:
        """Remove receipts that the offset map does not tell of any more either."""
        now_s = time.monotonic()
        if now_s >= self._next_pruning_s:
            self._next_pruning_s = now_s + _PRUNED_EVERY_S
            try:
                prune_receipts(self._home / _RECEIPTS, self._watch.flow.state.map_retention_ms / 1000)
            except OSError as error:
                # Another driver may be at it; receipts are a hint, and no copy ends for one.
                log.warning("old receipts are not removed now: %s", error)

    def _deadline_s(self) -> float:
        if self._until in ("forever", CAUGHT_UP):
            return float("inf")
        return time.monotonic() + parse_duration_ms(self._until) / 1000

    def _start_query(self, spark: SparkSession, ends: Mapping[TopicPartition, int] | None) -> StreamingQuery:
        layout, watch = self._layout(), self._watch
        spark.streams.addListener(self._totals)
        settings = watch.run.to_text()
        plan = LanePlan(watch.flow, settings, layout.generation, layout.run, layout.lanes, ends)
        # All of it is a hint (G4).
        _forget_old_runs(self._home / _CHECKPOINT)
        name = f"{layout.generation:08d}-{layout.run}"
        return start_query(spark, plan, self._home / _CHECKPOINT / name, self._home / _RECEIPTS / name)

    def _finish(self, spark: SparkSession, query: StreamingQuery, leader: Supervisor) -> None:
        """End the query; its lanes commit or abort first."""
        by_itself = not query.isActive
        if not by_itself:
            leader.finish_lanes()
            # Spark goes on with another batch; its tasks see the request before they begin anything.
            _await_batch(query, batch_of(query) + 1, _STOP_S)
            _stop(query)
        error = query.exception()
        if error is not None or by_itself:
            leader.leader.check()  # fenced explains everything else
            # Its rows never end: it does not end by itself for a good reason.
            raise query_error(error or PySparkException("the query has ended"), partial(is_ending, spark))

    def _announce(self, spark: SparkSession, leader: Supervisor) -> None:
        """Leave a note of who runs, for people, for Airflow's button and for tests that kill."""
        layout = self._layout()
        jvm: Any = spark._jvm
        self._note = {
            "pid": os.getpid(),
            "jvm_pid": jvm.java.lang.ProcessHandle.current().pid(),
            "run": layout.run,
            "generation": layout.generation,
            "started_at_ms": layout.started_at_ms,
            "ui": spark.sparkContext.uiWebUrl,
        }
        self._write_note()
        self._tell_topics(leader)

    def _tell_topics(self, leader: Supervisor) -> None:
        """Say, at the start and whenever it changes, which topics are copied: Airflow tells a catalogue."""
        if leader.discoveries == self._discoveries:
            return
        self._discoveries, copied = leader.discoveries, leader.copied()
        if copied != self._topics:
            self._topics = copied
            self._write_note()
            log.info("topics copied: %d", len(copied))

    def _write_note(self) -> None:
        temporary = self._home / f"{DRIVER_NOTE}.new"
        try:
            # Somebody may have taken the folder away under the run.
            self._home.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps({**self._note, "topics": self._topics}))
            temporary.replace(self._home / DRIVER_NOTE)
        except OSError as error:
            # A driver that takes over may have put it in place; it is a hint, and no copy ends for one.
            log.warning("%s is not written now: %s", DRIVER_NOTE, error)

    def _layout(self) -> Layout:
        if self.layout is None:
            raise UsageError("the run has not been started")
        return self.layout

    def report(self) -> dict[str, Any]:
        """Return the ``replicate`` document without its exit code."""
        return {
            "flow": self._watch.flow.flow,
            "generation": self.layout.generation if self.layout else None,
            "until": self._until,
            "records": self._totals.records,
            "bytes": self._totals.bytes,
            "transactions": self._totals.transactions,
            "seconds": round(time.monotonic() - self._started_s, 3),
            "topics": self._topics,
            "stopped": self.stopped,
            "caught_up": self._caught_up,
            "warnings": self._remarks,
        }

    @property
    def _caught_up(self) -> bool:
        """Whether what was on the source at the start is on the target: never of nothing, nor in part."""
        return run_caught_up(
            came_to_its_end=self._came_to_its_end,
            stopped=self.stopped if self._stops_known else None,
            remarks=self._remarks,
        )


def known_stops(look: Look, target: Cluster, *, asked: bool) -> list[dict[str, Any]]:
    """Return what is stopped at the end of a run, for its report.

    Args:
        look: returns the status of the flow; called again for a moment while the target does not answer.
        asked: somebody has asked the run to end, and does not want it to be started again for this.

    Raises:
        Retriable, NeedsOperator: STOPS_UNKNOWN, the target does not answer: "nothing is stopped" would be a
            guess.
    """
    try:
        return target.retry(lambda: _stops_in(look()), Deadline(_STOPS_S))
    except Retriable as error:
        if not asked:
            raise
        details = {"code": error.code, "where": error.where, "resolve": error.resolve}
        raise NeedsOperator(error.message, **details) from error


def incomplete(flow: str, left: Sequence[TopicPartition]) -> Retriable:
    """Return why a run until caught-up that nobody cut short has not done what it was to do."""
    return Retriable(
        f"the run has ended, and not copied up to where the source ended as it began: {listed(left)}",
        code=SparkCode.COPY_INCOMPLETE,
        expected="a copy of everything, or a stop that says why not",
        seen="neither: perhaps it was resumed as the run ended",
        resolve=f"{commands.command('replicate', flow)} goes on from there",
    )


def _stops_in(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    error = status["target"]["error"]
    if error is None:
        return stopped_partitions(status)
    kind = Retriable if error["exit"] == Retriable.exit_code else NeedsOperator
    raise kind(
        f"the run has ended, but whether a partition is stopped cannot be read: {error['message']}",
        code=SparkCode.STOPS_UNKNOWN,
        where=error["where"] or status["target"]["alias"],
        resolve=f"`onceover status {status['flow']}` tells, once {status['target']['alias']} answers",
    )


def _await_batch(query: StreamingQuery, number: int, limit_s: float) -> None:
    """Wait until a batch is over, or the query has ended."""
    deadline = time.monotonic() + limit_s
    while query.isActive and batch_of(query) < number and time.monotonic() < deadline:
        time.sleep(0.05)


def _stop(query: StreamingQuery) -> None:
    """Stop a query whose lanes were told to finish.

    Where Spark does not get to its end in time, as on a busy machine, the run ends around it: its lanes are
    fenced then.
    """
    try:
        query.stop()
    except (Py4JJavaError, PySparkException):
        log.warning("Spark has not ended its query in time")


def _make_usable(folder: Path) -> None:
    """Make a folder that Spark writes to.

    Raises:
        UsageError, NeedsOperator: PATH_UNUSABLE.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        raise unusable_path(error) from error


def _forget_old_runs(folder: Path) -> None:
    if folder.is_dir():
        for old in sorted(folder.iterdir())[:-_KEEP_RUNS]:
            shutil.rmtree(old, ignore_errors=True)


def _with_spark(run: DriverRun, opening: Opening) -> None:
    try:
        with opening as spark:
            run.execute(spark)
    except (Py4JError, PySparkException, ConnectionError) as error:
        if not run.ended:
            raise session_error(error, opening.jvm) from error
        log.debug("Spark did not end in order: %s", error)


@privately()
def main(argv: Sequence[str], opening: Opening) -> int:
    """Run the driver; return the exit code (docs/operations.md)."""
    parser = argparse.ArgumentParser(prog="replicate.py")
    parser.add_argument("--flow", required=True)
    parser.add_argument("--until", required=True)
    parser.add_argument("--home", required=True, type=Path)
    parser.add_argument("--report", required=True, type=Path)
    parser.add_argument("--launch", required=True)
    parser.add_argument("--begun-by")
    parser.add_argument("--leave-others", action="store_true")
    args = parser.parse_args(argv)
    configure()
    args.report.unlink(missing_ok=True)
    forget_old_runs(args.report)
    document: dict[str, Any] = {"onceover": 1, "command": "replicate", "ok": False, "exit": 1}
    try:
        begun = Begun(args.launch, args.begun_by, args.leave_others)
        run = DriverRun(FlowWatch(Path(args.flow)), args.until, args.home, opening.jvm, begun)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, run.stop)
        try:
            _with_spark(run, opening)
        finally:
            document.update(run.report())
        document.update(ok=not run.stopped, exit=NeedsOperator.exit_code if run.stopped else 0)
    except OnceoverError as error:
        log.error("%s", error)  # noqa: TRY400 - expected errors come without a traceback
        document.update(exit=error.exit_code, error=error.as_dict())
    except Exception as error:
        log.exception("the driver failed")
        foreign = foreign_error(error)
        document.update(exit=foreign.exit_code, error=foreign.as_dict())
    write_report(args.report, document)
    return int(document["exit"])
