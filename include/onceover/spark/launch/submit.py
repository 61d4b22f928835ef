"""How a flow is handed to spark-submit: one place, for the command line and for Airflow.

Arguments and Spark configuration carry names and paths only (G10); clients and secrets reach the
driver through its environment or 0600 files.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from onceover.audit.ranges.since import since_ms
from onceover.clock import now_ms
from onceover.config.clients.connection import variable_of
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import run_dir
from onceover.config.patterns import check_each
from onceover.config.units import RUN_LENGTH
from onceover.errors import UsageError
from onceover.logs import is_verbose
from onceover.private import UMASK
from onceover.process.guard import kept, protection
from onceover.process.java import collector_flags, with_any_names
from onceover.spark.codes import SparkCode
from onceover.spark.launch.archive import archive_flags
from onceover.spark.launch.locate import conf_flags, job_script, packages, quoted, spark_submit
from onceover.spark.launch.master import checked
from onceover.spark.launch.quickstart import QUICK_START, launcher_options
from onceover.spark.launch.runfiles import own_report
from onceover.spark.launch.scratch import suits_java
from onceover.state.records.verdicts import WATERMARK

# Attempts of one task before the query fails; local[N] without it would allow none (docs/facts.md).
_TASK_ATTEMPTS: Final = 4
_JVM_FLAGS: Final = [
    "-XX:TieredStopAtLevel=1",
    # Java's own notices, such as that an archive of classes was made elsewhere: a start is slower, no more.
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
]
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_UNTIL: Final = re.compile(rf"caught-up|forever|{RUN_LENGTH}")
_LOCAL: Final = re.compile(r"local(\[([0-9]+|\*)(,[0-9]+)?\])?")


@dataclass(frozen=True)
class SparkJob:
    """A spark-submit call.

    Args:
        application: the Python file.
        master: Spark master URL, with slots for all lanes when it is local.
        conf: Spark configuration.
        arguments: of the application.
        environment: variables to add to the caller's environment.
        report: where the application writes the JSON of ``onceover replicate --json``.
        connections: variables of the Airflow Connections that the flow names.
    """

    application: Path
    master: str
    conf: dict[str, str]
    arguments: list[str]
    environment: dict[str, str]
    report: Path
    connections: frozenset[str] = field(default_factory=frozenset)

    def command(self) -> list[str]:
        """Return the command line."""
        return [
            str(spark_submit()),
            "--master",
            self.master,
            *conf_flags(self.conf),
            str(self.application),
            *self.arguments,
        ]

    def process_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment of spark-submit, which is started from one that is ``environ``.

        What is Airflow's own is not in it; the secret of a standalone cluster is.

        Raises:
            UsageError: SPARK_SECRET, there is none.
        """
        return with_any_names({**kept(environ, self.master, self.connections), **self.environment})

    @property
    def output(self) -> Path:
        """Where a command line puts what the job prints; Airflow has it in the task's log."""
        return self.report.with_suffix(".log")

    @property
    def scratch(self) -> Path:
        """Where the JVM of the run puts its temporary files; who starts it makes and removes that."""
        return self.report.parent.with_name("tmp") / self.report.stem

    def with_own_files(self) -> SparkJob:
        """Return the job of one run: no other run of the flow writes its report, or what it prints."""
        report = own_report(self.report)
        arguments = [str(report) if argument == str(self.report) else argument for argument in self.arguments]
        own = replace(self, report=report, arguments=arguments)
        if not suits_java(own.scratch):
            return own
        # Spark's own folders are below it, too, unless SPARK_LOCAL_DIRS says otherwise.
        temporary = quoted(f"-Djava.io.tmpdir={own.scratch.absolute()}")
        options = f"{self.conf.get(_JAVA_OPTIONS, '')} {temporary}".lstrip()
        return replace(own, conf={**self.conf, _JAVA_OPTIONS: options})


def replicate_job(
    flow: Flow,
    *,
    until: str,
    master: str | None = None,
    begun_by: str | None = None,
    launch: str | None = None,
    leaves_others: bool = False,
) -> SparkJob:
    """Return the job that copies ``flow``.

    Args:
        until: ``caught-up``, ``forever`` or a duration such as ``10m``.
        master: instead of the flow file's ``spark.master``.
        begun_by: which run of a DAG begins it, for its layout; None where it is none.
        launch: what tells this command or task from all others that start the flow; None makes it up.
        leaves_others: it does nothing where a run lives that others have begun.

    Raises:
        UsageError: the master has fewer slots than the flow has lanes, or cannot be talked to safely; or
            ``until`` is none of these: the driver would notice only when it has fenced the running copy.
    """
    if not _UNTIL.fullmatch(until):
        raise UsageError(
            f"--until {until} is not understood",
            expected="caught-up, forever, or a duration such as 90s, 10m, 2h",
        )
    home = run_dir(flow)
    report = home / "log" / "replicate.json"
    where = _master(flow.spark.master if master is None else master, flow.lanes)
    arguments = ["--flow", str(flow.path), "--until", until, "--home", str(home), "--report", str(report)]
    # The job may be run more than once, and each start knows what the ones before have begun. In one piece:
    # it is somebody's name.
    arguments += [f"--launch={launch or secrets.token_hex(8)}"]
    arguments += [] if begun_by is None else [f"--begun-by={begun_by}"]
    arguments += ["--leave-others"] if leaves_others else []
    return SparkJob(
        application=job_script("replicate.py"),
        master=where,
        conf=_conf(where, flow, "onceover.spark.daemon"),
        arguments=arguments,
        environment=_environment(where),
        report=report,
        connections=_connections(flow),
    )


@dataclass(frozen=True)
class AuditOptions:
    """What an audit is told beside its flow; names and paths only.

    Args:
        topics: anchored regular expressions over source topics; none for all of the flow.
        since: ``watermark``, ``start`` or a time.
        sample: how many ranges to read; None for all.
        show_payload: findings carry keys and values.
        html: where the report goes; None for the audit's own folder.
        progress: where the driver says how far it is; None when nobody looks.
        started_by: who wants it, for the report; None for the user that runs it.
    """

    topics: Sequence[str] = ()
    since: str = WATERMARK
    sample: int | None = None
    show_payload: bool = False
    html: Path | None = None
    progress: Path | None = None
    started_by: str | None = None

    def arguments(self) -> list[str]:
        """Return them as the application's arguments."""
        # In one piece: a pattern may begin with a dash.
        found = [f"--topics={pattern}" for pattern in self.topics]
        found += ["--since", self.since]
        found += [] if self.sample is None else ["--sample", str(self.sample)]
        found += ["--show-payload"] if self.show_payload else []
        found += [] if self.html is None else ["--html", str(self.html.absolute())]
        found += [] if self.progress is None else ["--progress", str(self.progress.absolute())]
        # In one piece, too: it is somebody's name.
        found += [] if self.started_by is None else [f"--started-by={self.started_by}"]
        return found


def audit_job(flow: Flow, options: AuditOptions, *, master: str | None = None) -> SparkJob:
    """Return the job that audits ``flow``.

    Args:
        master: instead of the flow file's ``spark.master``.

    Raises:
        UsageError: one of the topics is no regular expression, ``since`` is not understood, or the master
            cannot be talked to safely.
    """
    since_ms(options.since, now_ms())
    check_each("--topics", options.topics)
    report = run_dir(flow) / "log" / "audit.json"
    wanted = flow.spark.master if master is None else master
    # Reading is what takes the time: as many workers as there are cores, unless it is said how many.
    where = _master(wanted, (os.cpu_count() or 1) if wanted == "local" else 1)
    conf = _conf(where, flow, "onceover.spark.auditing.auditdaemon")
    conf["spark.app.name"] = f"onceover audit {flow.flow}"
    return SparkJob(
        application=job_script("audit.py"),
        master=where,
        conf=conf,
        arguments=["--flow", str(flow.path), *options.arguments(), "--report", str(report)],
        environment=_environment(where),
        report=report,
        connections=_connections(flow),
    )


def _connections(flow: Flow) -> frozenset[str]:
    return frozenset(variable_of(side.connection) for side in (flow.source, flow.target) if side.connection)


def _master(master: str, lanes: int) -> str:
    match = _LOCAL.fullmatch(checked(master))
    if match is None:
        return master
    slots = match.group(2)
    if slots is None:
        return f"local[{lanes},{_TASK_ATTEMPTS}]"
    count = (os.cpu_count() or 1) if slots == "*" else int(slots)
    if count < lanes:
        raise UsageError(
            f"{master} has {count} slots, but the flow's {lanes} lanes each need one at the same time",
            code=SparkCode.TOO_FEW_SLOTS,
            expected=f"at least {lanes} slots",
            seen=f"{count}",
            resolve=f"use master local, which takes what is needed, or set lanes to {count} in the flow file",
        )
    return f"local[{count},{_TASK_ATTEMPTS}]"


def _conf(master: str, flow: Flow, daemon: str) -> dict[str, str]:
    conf = {
        "spark.app.name": f"onceover {flow.flow}",
        "spark.driver.memory": "1g",
        # The JVM only plans: a concurrent collector's threads would take time from the copy.
        _JAVA_OPTIONS: " ".join(
            [*collector_flags(), *_JVM_FLAGS, *map(quoted, archive_flags()), *_log_flags()]
        ),
        # Hadoop's files have modes of their own, whatever the process's umask is, also on other machines.
        "spark.hadoop.fs.permissions.umask-mode": f"{UMASK:03o}",
        "spark.sql.shuffle.partitions": "1",
        # A handful of rows is there sooner than code for them could be compiled.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # A machine's own spark-defaults.conf counts more than the environment. The driver has to run here,
        # with this Python, as nobody's client; each lane needs one core, all at the same time.
        "spark.api.mode": "classic",
        "spark.submit.deployMode": "client",
        "spark.pyspark.driver.python": sys.executable,
        "spark.task.cpus": "1",
        # A speculative copy of a lane would fence the running one.
        "spark.speculation": "false",
        # An end of the query that hangs must not keep the run from ending.
        "spark.sql.streaming.stopTimeout": "10s",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.ui.port": "0",
        # Spark switches it off for a streaming query anyway, with a warning.
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": daemon,
        # Where the environment asks for them: such sockets have names of 107 bytes at most, and stay behind.
        "spark.python.unix.domain.socket.enabled": "false",
        **QUICK_START,
        **protection(master),
    }
    if master.startswith("local"):
        conf["spark.driver.host"] = "127.0.0.1"
        conf["spark.driver.bindAddress"] = "127.0.0.1"
        # Where Hadoop's own settings name another, as on the edge of its clusters, checkpoints and receipts
        # would be there, or wait for it.
        conf["spark.hadoop.fs.defaultFS"] = "file:///"
        # On other machines it may be another one's path.
        conf["spark.pyspark.python"] = sys.executable
    else:
        # The lanes must all run at the same time, so wait for the executors to be there.
        conf["spark.cores.max"] = str(flow.lanes)
        conf["spark.scheduler.minRegisteredResourcesRatio"] = "1.0"
        conf["spark.scheduler.maxRegisteredResourcesWaitingTime"] = "60s"
        conf["spark.task.maxFailures"] = str(_TASK_ATTEMPTS)
        conf["spark.executorEnv.PYTHONPATH"] = str(packages())
    return conf


def _log_flags() -> list[str]:
    return [] if is_verbose() else [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"]


def _environment(master: str) -> dict[str, str]:
    home = spark_submit().parents[1]
    environment = {
        # What belongs to the pyspark that is imported, whatever other Spark the machine has; and a program of
        # Spark's looks for it otherwise.
        "SPARK_HOME": str(home),
        "SPARK_LAUNCHER_OPTS": launcher_options(home),
        # Workers would otherwise take whatever python3 is on PATH (docs/facts.md).
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        # Python does not ask spark.api.mode, and takes Connect for granted where its package lies beside, or
        # SPARK_CONNECT_MODE says so.
        "SPARK_API_MODE": "classic",
    }
    if master.startswith("local"):
        # The UI binds to all addresses otherwise.
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment
