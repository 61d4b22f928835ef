"""spark-submit as a child of the task: the job's own settings, no Connection of type spark needed.

Invariant: the child's secrets travel in its environment only, the child never outlives the task, and
its exit code is always known to the caller; nothing of Airflow's own (its keys, its database, its line to the
task) reaches the child.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk._shared.secrets_masker import redact
from airflow.sdk.exceptions import AirflowException

from onceover.private import UMASK
from onceover.process.children import guarded_argv
from onceover.shown import visible
from onceover.spark.ended import KEPT_LINES, Ended, judge
from onceover.spark.launch.driverprocess import ask_to_end, children_of
from onceover.spark.launch.locate import spark_submit
from onceover.spark.launch.runfiles import read_report, refused
from onceover.spark.launch.scratch import scratch
from onceover.spark.launch.submit import SparkJob
from onceover_airflow.jobs.loglevels import levelled
from onceover_airflow.jobs.verdict import topics_in

# What the driver logs when it has left a note of itself. Its lines are mixed with those of handlers, which
# may print what a record says: what is told is read from the note.
_UI_LINE: Final = re.compile(r"onceover\.spark\.driver: Spark UI: \S+")
_TOPICS_LINE: Final = re.compile(r"onceover\.spark\.driver: topics copied: [0-9]+")
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")


class SparkJobHook(SparkSubmitHook):
    """Runs one :class:`SparkJob` in client mode and tells how it ended.

    :param note: file in which the driver says who it is
    :param on_ui: is told the address of the job's Spark UI, once it is there
    :param on_topics: is told which topics are copied, source name to target name, whenever that changes
    """

    def __init__(
        self,
        job: SparkJob,
        *,
        name: str,
        environment: Mapping[str, str],
        note: Path | None = None,
        on_ui: Callable[[str], None] | None = None,
        on_topics: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        self._job = job
        self._note = note
        self._on_ui = on_ui
        self._on_topics = on_topics
        super().__init__(
            conf=dict(job.conf),
            name=name,
            application_args=list(job.arguments),
            spark_binary=str(spark_submit()),
        )
        # Of the provider's twenty the reason may be none.
        self._last_submit_log_lines = deque(maxlen=KEPT_LINES)
        # Not the provider's `env_vars`: for YARN and Kubernetes it would turn those into --conf options,
        # which the Spark UI and `ps` show; and nothing of this process's own could be left out.
        self._environment = dict(environment)

    def _resolve_connection(self) -> dict[str, Any]:
        """Return what the provider would have read from a Connection of type spark.

        The flow file names the master, so that the same flow runs the same way from the command line.
        """
        return {
            "master": self._job.master,
            "queue": None,
            "deploy_mode": None,
            "spark_binary": self.spark_binary,
            "namespace": None,
            "principal": None,
            "keytab": None,
            "rest_scheme": "http",
            "rest_port": 6066,
            "rest_endpoint": None,
        }

    def _build_spark_submit_command(self, application: str) -> list[str]:
        # SIGTERM when the task's process ends in whatever way: Airflow kills a task that takes long to stop.
        return guarded_argv(super()._build_spark_submit_command(application), signal.SIGTERM)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        """Log every line of the job at its own level, and keep the last ones.

        Instead of the provider's, which logs all as INFO, and looks for the ids of jobs in cluster mode:
        ours run in client mode. Without the time: the task's log stamps each line anew.
        """
        # Airflow masks the task's log, but not the copy of it that LocalExecutor writes to the
        # scheduler's own output (seen with 3.3.2).
        for level, line in levelled(visible(str(redact(raw)).rstrip().expandtabs(4)) for raw in itr):
            self._last_submit_log_lines.append(line)
            self._look_for_note(line)
            self.log.log(level, "%s", line)

    def _look_for_note(self, line: str) -> None:
        if self._on_ui is not None and _UI_LINE.fullmatch(line):
            address = self._own_note().get("ui")
            if isinstance(address, str) and _ADDRESS.fullmatch(address):
                self._on_ui(address)
        if self._on_topics is not None and _TOPICS_LINE.fullmatch(line) and (note := self._own_note()):
            self._on_topics(topics_in(note))

    def _own_note(self) -> Mapping[str, Any]:
        """Return the note of this job's driver, nothing of another one's."""
        try:
            note = json.loads(self._note.read_text()) if self._note else None
        except (OSError, ValueError):
            return {}
        process: subprocess.Popen[str] | None = self._submit_sp
        own = set() if process is None else {each.pid for each in children_of(process.pid, recursive=True)}
        pid = note.get("pid") if isinstance(note, dict) else None
        return note if isinstance(note, dict) and isinstance(pid, int) and pid in own else {}

    def run(self) -> Ended:
        """Run the job to its end and return how it has ended; its report is removed then.

        Raises:
            AirflowException: spark-submit could not be started at all.
            UsageError: there is no secret to talk to its master, or no folder for its temporary files.
        """
        try:
            # A session of its own: Airflow signals the task's whole process group, which would kill the
            # JVM before the driver could finish its transaction.
            with scratch(self._job.scratch) as held:
                self._submit(held)
                # Before its scratch is removed, which makes room again.
                why = refused(self._job.report)
        finally:
            self._close_output()
        report = read_report(self._job.report)
        self._job.report.unlink(missing_ok=True)
        code = 1 if self.returncode is None else self.returncode
        return judge(code, report, self._job.report.parent, tail=self.tail, refused=why)

    def _submit(self, held: int) -> None:
        try:
            self.submit(
                str(self._job.application),
                env={**self._job.process_environment(os.environ), **self._environment},
                # A task's own is its line to Airflow, which gives it every Connection that it asks for.
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                umask=UMASK,
                pass_fds=(held,),
                # A handler may print whatever it likes; bytes that are no text are no reason to end the copy.
                encoding="utf-8",
                errors="backslashreplace",
            )
        except AirflowException:
            # The provider says no more than "not 0" for every way to end.
            if self.returncode is None:
                raise

    def _close_output(self) -> None:
        # The provider leaves the pipe open.
        process: subprocess.Popen[str] | None = self._submit_sp
        if process is not None and process.stdout is not None:
            process.stdout.close()

    @property
    def returncode(self) -> int | None:
        """The exit code, ``None`` while the job has not ended."""
        process: subprocess.Popen[str] | None = self._submit_sp
        return None if process is None else process.returncode

    @property
    def tail(self) -> str:
        """The job's last lines."""
        return "\n".join(self._last_submit_log_lines)

    def ask_to_stop(self) -> None:
        """Ask the driver to finish its open transactions and end; the JVM is left for it to close."""
        process: subprocess.Popen[str] | None = self._submit_sp
        if process is None:
            return
        if ask_to_end(process.pid, self._job.application):
            self.log.info("asking the driver to stop")

    def await_end(self, timeout_s: float) -> bool:
        """Tell whether the job ended within ``timeout_s`` seconds, or was never started."""
        process: subprocess.Popen[str] | None = self._submit_sp
        if process is None:
            return True
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True
