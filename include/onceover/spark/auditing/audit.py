"""The Spark driver of an audit: spreads the reading over executors, has the tables judged, reports.

The payload never enters the JVM: rows name ranges on the way in, and carry counts, hashes and findings on
the way out. Exit codes: 0 PASS, 1 FAIL, 3 UNVERIFIABLE.
"""

from __future__ import annotations

import argparse
import json
import logging
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onceover.audit.checks.result import AuditResult
from onceover.audit.checks.suiterows import suite_rows
from onceover.audit.course.content import audit_content
from onceover.audit.course.rowcodec import task_row
from onceover.audit.course.rowworkers import RowWorkers, TaskKind
from onceover.audit.ranges.snapshot import AuditSnapshot
from onceover.audit.ranges.tasks import Task
from onceover.audit.report import datadocs, jsonreport
from onceover.audit.report import pages as report
from onceover.audit.report.nextsteps import first_wrong, next_steps
from onceover.audit.report.runs import earlier_audits, keep_answer, run_folder, runs_folder
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow, run_dir
from onceover.errors import OnceoverError, is_of_a_path, unexpected, unusable_path
from onceover.exitstatus import VIOLATED
from onceover.logs import configure
from onceover.private import privately
from onceover.release import versions
from onceover.spark.auditing.auditprogress import AuditProgressFile
from onceover.spark.auditing.auditwork import (
    ANSWER,
    ANSWER_DDL,
    BEGAN_MS,
    ENDED_MS,
    TASK,
    TASKS_DDL,
    Job,
)
from onceover.spark.auditing.quality import judge
from onceover.spark.failures import session_error
from onceover.spark.launch.runfiles import forget_old_runs, write_report
from onceover.spark.session import Opening
from onceover.state.records.verdicts import WATERMARK
from onceover.wiring.audit import (
    AuditRequest,
    audit_bookkeeping,
    keep_verified,
    prepare,
    show_payload,
    told_of,
)
from onceover.wiring.flows import login, open_clusters

log = logging.getLogger(__name__)
_DOING: Final = {
    TaskKind.COMPARE: "comparing",
    TaskKind.OPEN: "naming what differs",
    TaskKind.SEEK: "looking for originals on the source",
}


class SparkWorkers(RowWorkers):
    """Reads on Spark's executors: one Spark partition for each task.

    Args:
        spark: a session.
        flow: whose clusters are read.
        snapshot: whose clusters, by id, are meant.
        progress: is told how many ranges are done.

    Attributes:
        reading: when the first worker began to compare ranges, and when the last one had done so, in ms
            since 1970; empty before.
    """

    def __init__(
        self, spark: SparkSession, flow: Flow, snapshot: AuditSnapshot, progress: AuditProgressFile
    ) -> None:
        self.reading: dict[str, int] = {}
        self._progress = progress
        self._spark = spark
        self._flow = flow
        self._ids = snapshot.ids

    def rows(self, work: Sequence[Task], step: TaskKind, contents: frozenset[int]) -> list[str]:
        """Return the answers to all tasks, each as JSON."""
        tasks = [(number, json.dumps(task_row(task))) for number, task in enumerate(work)]
        frame = self._spark.createDataFrame(tasks, TASKS_DDL).repartitionById(len(tasks), TASK)
        done = self._spark.sparkContext.accumulator(0)
        total = sum(len(task.ranges) for task in work)
        job = Job(self._flow, self._ids, step, contents, done)
        with self._progress.counting(_DOING[step], total, lambda: done.value):
            # Small: one row for each range, which is tens of megabytes of the logs.
            rows = frame.mapInArrow(job, ANSWER_DDL).collect()
        if step is TaskKind.COMPARE:
            self.reading = {
                BEGAN_MS: min(row[BEGAN_MS] for row in rows),
                ENDED_MS: max(row[ENDED_MS] for row in rows),
            }
        return [row[ANSWER] for row in rows]


class Audit:
    """One audit, from an open Spark session to its document.

    Args:
        flow: what is audited.
        request: how much of it.
        home: folder of this audit's files.
        html: where the report is written.
        progress: is told what is being done.
        started_by: who wants it, where that is somebody else than this process's user.
    """

    def __init__(
        self,
        flow: Flow,
        request: AuditRequest,
        home: Path,
        html: Path,
        progress: AuditProgressFile,
        started_by: str | None = None,
    ) -> None:
        self._flow = flow
        self._request = request
        self._home = home
        self._html = html
        self._progress = progress
        self._started_by = started_by

    def execute(self, spark: SparkSession) -> tuple[dict[str, Any], int]:
        """Compare, judge, report, keep what was proven; return the document and the exit code.

        Raises:
            OnceoverError: as classified; nothing was judged then.
        """
        source, target = open_clusters(self._flow)
        with source, target:
            self._progress.tell("fixing the bounds")
            plan = prepare(self._flow, source, target, self._request)
            log.info("bounds of %d partitions are fixed", len(plan.plans))
            workers = SparkWorkers(spark, self._flow, plan.snapshot, self._progress)
            content = audit_content(plan, workers)
            log.info("content is compared")
            self._progress.tell("checking what the flow says of its work")
            if self._request.show_payload:
                content = show_payload(source, target, content)
            bookkeeping = audit_bookkeeping(self._flow, source, target, content)
            log.info("%d claims of the flow are checked", len(bookkeeping.checks))
            result = AuditResult(
                self._flow.flow,
                content.snapshot.started_ms,
                content.finished_ms,
                self._request.since,
                content.partitions + content.beside,
                bookkeeping.checks,
                topics=self._request.topics,
            )
            self._progress.tell("judging")
            quality = judge(suite_rows(result), self._home)
            log.info("verdict: %s", quality.verdict)
            # After the verdict: an audit that cannot be judged has proven nothing.
            told = told_of(self._request, content, result, quality, self._html)
            keep_verified(self._flow, target, content, told)
        document = jsonreport.document(result, quality, bookkeeping) | self._sides(plan.snapshot)
        document |= {"about": self._about(plan.snapshot), "earlier": earlier_audits(self._home, self._html)}
        document["next_steps"] = next_steps(document)
        for said in (first_wrong(document), *document["next_steps"]):
            if said is not None:
                log.warning("%s", said)
        return self.published({**document, "reading": workers.reading}, quality.exit_code)

    def published(self, document: dict[str, Any], exit_code: int) -> tuple[dict[str, Any], int]:
        """Write the pages, each whatever becomes of the others; return the document and the exit code.

        The document says where they are, None for those that could not be written. Then it says why, too,
        beside its verdict, and the exit code is that error's.

        Args:
            document: the audit's answer, which is kept by now; ``exit_code`` is its verdict's.
        """
        pages: dict[str, str | None] = {"report": None, "data_docs": None}
        refused: OnceoverError | None = None
        for name, write in (("report", self._report), ("data_docs", self._data_docs)):
            try:
                pages[name] = str(write(document))
            except OnceoverError as error:
                log.error("%s", error)  # noqa: TRY400 - expected errors come without a traceback
                refused = refused or error
        log.info("report: %s; Data Docs: %s", *pages.values())
        if refused is None:
            return {**document, **pages}, exit_code
        return {**document, **pages, "error": refused.as_dict()}, refused.exit_code

    def _report(self, document: Mapping[str, Any]) -> Path:
        report.write(document, self._html)
        keep_answer(self._home, document)
        return self._html

    def _data_docs(self, document: Mapping[str, Any]) -> Path:
        return datadocs.write(document, self._home)

    def _about(self, snapshot: AuditSnapshot) -> dict[str, Any]:
        """Return what was audited, as which, and by whom: the evidence has to say of what it is."""
        return {
            "flow_file": str(self._flow.path),
            "flow_sha256": self._flow.sha256,
            "running_sha256": snapshot.layout.flow_sha256,
            "generation": snapshot.layout.generation,
            "started_by": self._started_by or login(),
            "host": socket.gethostname(),
            "versions": versions(),
        }

    def _sides(self, snapshot: AuditSnapshot) -> dict[str, Any]:
        sides = ("source", "target"), (self._flow.source, self._flow.target), snapshot.ids
        return {
            side: {"alias": spec.alias, "cluster_id": cluster_id}
            for side, spec, cluster_id in zip(*sides, strict=True)
        }


def _with_spark(audit: Audit, opening: Opening) -> tuple[dict[str, Any], int]:
    try:
        with opening as spark:
            return audit.execute(spark)
    except (Py4JError, PySparkException, ConnectionError) as error:
        raise session_error(error, opening.jvm) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="audit.py")
    parser.add_argument("--flow", required=True)
    parser.add_argument("--topics", action="append", default=[])
    parser.add_argument("--since", default=WATERMARK)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--show-payload", action="store_true")
    parser.add_argument("--report", required=True, type=Path)
    parser.add_argument("--html", type=Path)
    parser.add_argument("--progress", type=Path)
    parser.add_argument("--started-by")
    return parser


@privately()
def main(argv: Sequence[str], opening: Opening) -> int:
    """Run the driver; return the exit code (docs/audit.md)."""
    args = _parser().parse_args(argv)
    configure()
    # It tells of its own workings, hundreds of lines an audit.
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    args.report.unlink(missing_ok=True)
    forget_old_runs(args.report)
    document: dict[str, Any] = {"flow": Path(args.flow).stem}
    exit_code: int = VIOLATED
    try:
        flow = load_flow(args.flow)
        request = AuditRequest(tuple(args.topics), args.since, args.sample, args.show_payload)
        with run_folder(runs_folder(run_dir(flow), show_payload=args.show_payload)) as home:
            html, progress = args.html or home / "report.html", AuditProgressFile(args.progress)
            audit = Audit(flow, request, home, html, progress, args.started_by)
            document, exit_code = _with_spark(audit, opening)
    except OnceoverError as error:
        log.error("%s", error)  # noqa: TRY400 - expected errors come without a traceback
        exit_code = error.exit_code
        document["error"] = error.as_dict()
    except Exception as error:
        log.exception("the audit failed")
        foreign = unusable_path(error) if is_of_a_path(error) else unexpected(error)
        exit_code = foreign.exit_code
        document["error"] = foreign.as_dict()
    document.update(onceover=1, command="audit", ok=exit_code == 0, exit=exit_code)
    write_report(args.report, document)
    return exit_code
