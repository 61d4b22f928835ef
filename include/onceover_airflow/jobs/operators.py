"""A flow's Spark jobs as Airflow tasks.

Invariant: the task's try ends OK only if the job reported success; it is tried again only when the
job was killed or met a temporary failure; a try can overlap the driver of an older one, which the
newer generation fences (docs/protocol.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Asset, AssetAlias, BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import AirflowSkipException

from onceover.errors import OnceoverError, Retriable
from onceover.planning.background import in_background
from onceover_airflow.errors import JobInterrupted, TaskFailed, shown
from onceover_airflow.flows import by_name
from onceover_airflow.jobs.leftalone import leave_alone, leaves_others
from onceover_airflow.jobs.masters import check_master
from onceover_airflow.jobs.retrying import retry_interrupted, tell_of_restart
from onceover_airflow.jobs.starter import launch_of, run_name
from onceover_airflow.jobs.verdict import (
    AfterJob,
    TaskVerdict,
    count_report,
    judge_scope,
    topics_in,
    verdict_of,
)
from onceover_airflow.lineage.catalogue import ToldOf, open_run
from onceover_airflow.lineage.naming import FlowEnds, ends_of, topic_uri
from onceover_airflow.lineage.untold import LineageRun

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import TaskInstanceKey

    from onceover.config.flow.flowfile import Flow
    from onceover.spark.ended import Ended
    from onceover.spark.launch.again import Restarts
    from onceover.spark.launch.submit import SparkJob
    from onceover_airflow.jobs.hooks import SparkJobHook

log = logging.getLogger(__name__)

# Airflow kills a task's process 5 s after it told it to end. A lane finishes its transaction within half a
# second, Spark needs the remaining time.
STOP_BUDGET_S: Final = 4.0
# How long a task that is over waits until a person has been told that it was started again.
_TELLING_S: Final = 30.0
SPARK_UI_KEY: Final = "_link_spark_ui"
# Outlet under which target topics are announced: which ones, is known at run time only.
COPIED_ALIAS: Final = "onceover_copied"
# Each costs Airflow's database a row in every run.
MOST_TOPIC_ASSETS: Final = 200


class FlowJobOperator(BaseOperator):
    """Run one of a flow's Spark jobs, by the Spark provider's hook, and judge how it ended.

    Not by the provider's operator, of which nothing would be left but its import: where the OpenLineage
    provider is installed that costs a second of CPU in every process that reads a DAG file, on or off.

    :param flow: the flow's name (templated)
    :param master: Spark master instead of the flow file's, one of those that forms may name; empty: the flow
        file's (templated)
    """

    # Names only: nothing else of a job is for the task's page.
    template_fields: Collection[str] = ("flow", "master")
    ui_color = "#e8f0fe"
    # Which of a flow's jobs a catalogue of lineage is told of.
    told_of: ToldOf

    def __init__(self, *, flow: str, master: str = "", **kwargs: Any) -> None:
        super().__init__(**{**retry_interrupted(patient=True), **kwargs})
        self.flow = flow
        self.master = master
        self._job_hook: SparkJobHook | None = None
        self._killed = False

    def job(self, flow: Flow, context: Context) -> SparkJob:
        """Return what to run."""
        raise NotImplementedError

    def look_first(self, context: Context) -> None:
        """Look, each time that the job is about to be started, whether it still should be."""

    def restarts(self) -> Restarts:
        """Return how often the job is started again at once where its processes were killed."""
        from onceover.spark.launch.again import Restarts

        return Restarts("", most=0)

    def result(self, report: Mapping[str, Any]) -> Any:
        """Return what goes into the XCom after a job that ended well."""
        raise NotImplementedError

    def judged(self, verdict: TaskVerdict, report: Mapping[str, Any], context: Context) -> TaskVerdict:
        """Look at how the job ended, before the task ends the same way."""
        return verdict

    def announce(self, report: Mapping[str, Any], ends: Callable[[], FlowEnds], context: Context) -> None:
        """Announce what a job that ended well has brought about."""

    def execute(self, context: Context) -> Any:
        """Run the job; return what it did, as counts.

        Raises:
            AirflowSkipException: another run is left alone.
            JobInterrupted: killed, or temporary failure; Airflow tries again.
            TaskFailed: everything else, with what, where, expected, seen and what resolves it.
        """
        # Spark's and Kafka's libraries are not for the process that parses DAG files.
        from onceover.config import home
        from onceover.config.flow.load import load_flow
        from onceover.spark.launch.master import reach
        from onceover_airflow.access.connections import connection_environment

        try:
            loaded = load_flow(by_name(self.flow))
            check_master(self.master, loaded)
            variables = connection_environment(loaded)
            job = self.job(loaded, context)
            reach(job.master)
        except Retriable as error:
            raise JobInterrupted(str(error)) from shown(error)
        except OnceoverError as error:
            raise TaskFailed(str(error)) from shown(error)
        self.look_first(context)

        def ends() -> FlowEnds:
            # As the flow file is read: embedded clusters' addresses are in no process's environment.
            return ends_of(loaded, {**home.variables(), **variables})

        with open_run(self.told_of, self, context, ends, lambda: self._killed) as told:
            report = self._to_its_end(loaded, job, variables, context, told)
        self.announce(report, ends, context)
        return self.result(report)

    def _to_its_end(
        self, flow: Flow, job: SparkJob, variables: Mapping[str, str], context: Context, told: LineageRun
    ) -> Mapping[str, Any]:
        """Run the job, as often as it takes; return the report of one that ended well.

        Raises:
            As ``execute``.
        """
        restarts, telling = self.restarts(), list[Future[None]]()

        def pause(end: Ended, pause_s: float) -> None:
            message = verdict_of(end).message
            log.warning("%s; %s", message, restarts.words)
            if restarts.number == 1:
                # Whoever is told may take long to be reached, or for ever; the copy waits for nobody.
                what = f"flow {self.flow}: {message}"
                telling.append(in_background(partial(tell_of_restart, context, what)))
            time.sleep(pause_s)
            self.look_first(context)

        end = restarts.to_its_end(
            lambda: self._run(flow, job.with_own_files(), variables, context, told), pause
        )
        verdict = self.judged(verdict_of(end), end.report, context)
        # With the task's process it would end half told.
        wait(telling, _TELLING_S)
        self._end_as(verdict, restarts.ran_s)
        return {**end.report, "restarts": restarts.made}

    def _end_as(self, verdict: TaskVerdict, ran_s: float) -> None:
        """Raise what Airflow knows an end by that is not well.

        Args:
            ran_s: how long the job had run.
        """
        message = f"flow {self.flow}: {verdict.message}"
        match verdict.next:
            case AfterJob.SKIP:
                raise AirflowSkipException(verdict.message)
            case AfterJob.RETRY:
                raise JobInterrupted(message, killed=verdict.killed, ran_s=ran_s)
            case AfterJob.FAIL:
                raise TaskFailed(message)
            case AfterJob.OK:
                pass

    def _run(
        self, flow: Flow, job: SparkJob, variables: Mapping[str, str], context: Context, told: LineageRun
    ) -> Ended:
        """Run the job once; return how it has ended.

        Raises:
            JobInterrupted: the task was told to end.
            TaskFailed: it could not be started.
        """
        from onceover.config.flow.load import DRIVER_NOTE, run_dir
        from onceover_airflow.jobs.hooks import SparkJobHook

        self._job_hook = hook = SparkJobHook(
            job,
            name=f"onceover {flow.flow}",
            environment=variables,
            note=run_dir(flow) / DRIVER_NOTE,
            on_ui=lambda url: show_ui(context, url),
            on_topics=told.copies,
        )
        try:
            end = None if self._killed else hook.run()
        except OnceoverError as error:
            raise TaskFailed(str(error)) from shown(error)
        if end is None or self._killed:
            raise JobInterrupted(f"flow {self.flow}: the task was told to end while the job ran")
        told.saw(end.report)
        return end

    def on_kill(self) -> None:
        """Ask this run to stop, give it a moment to finish its transactions, then kill its JVM.

        Asks the task's own driver and not the flow: by now a newer run may have taken over, and
        must not be stopped. The Python driver is not killed: without its JVM it aborts what the
        lanes left open and ends. Bounded, because Airflow kills the task's process soon after this.
        """
        self._killed = True
        hook = self._job_hook
        if hook is None:
            return
        hook.ask_to_stop()
        if not hook.await_end(STOP_BUDGET_S):
            self.log.warning("flow %s did not stop in time; killed, its next start resumes it", self.flow)
        hook.on_kill()


class SparkUiLink(BaseOperatorLink):
    """A button that leads to the job's Spark UI while it runs: it ends with the job."""

    name = "Spark UI"
    xcom_key = SPARK_UI_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return no address: Airflow asks when the task has ended, and so has the UI."""
        return ""


def show_ui(context: Context, url: str) -> None:
    """Give the button its address."""
    leave(context, SPARK_UI_KEY, url)


def leave(context: Context, key: str, value: Any) -> None:
    """Leave a hint for a page or another task.

    Never the reason why a task fails: the job that it watches would end with it. Airflow's server may be
    restarting or refuse the value; where XComs are kept is each installation's own.
    """
    task_instance = context.get("ti")
    if task_instance is None:
        return
    try:
        task_instance.xcom_push(key=key, value=value)
    except Exception as error:  # noqa: BLE001 - whatever an XCom backend raises
        log.warning("%s is not shown: %s", key, error)


class ReplicateOperator(FlowJobOperator):
    """Copy a flow's topics.

    :param flow: the flow's name (templated)
    :param until: ``caught-up``, ``forever`` or a duration (templated)
    :param master: Spark master instead of the flow file's; empty: the flow file's (templated)
    """

    template_fields: Collection[str] = ("flow", "until", "master")
    operator_extra_links = (SparkUiLink(),)
    told_of = ToldOf.COPY

    def __init__(self, *, flow: str, until: str, master: str = "", **kwargs: Any) -> None:
        super().__init__(flow=flow, master=master, **kwargs)
        self.until = until

    def look_first(self, context: Context) -> None:
        """Leave another run alone, which may have begun while this one waited for a slot or its next try.

        Raises:
            AirflowSkipException, JobInterrupted: as ``leave_alone``.
        """
        leave_alone(self.flow, context)

    def job(self, flow: Flow, context: Context) -> SparkJob:
        """Return the copy, which leaves on record which run of the DAG has begun it."""
        from onceover.spark.launch.submit import replicate_job

        return replicate_job(
            flow,
            until=self.until,
            master=self.master or None,
            begun_by=run_name(context),
            launch=launch_of(context),
            leaves_others=leaves_others(context),
        )

    def restarts(self) -> Restarts:
        """Return what a copy gets: Airflow needs ten seconds to try a task again, and this comes first."""
        from onceover.spark.launch.again import Restarts

        return Restarts(self.until)

    def judged(self, verdict: TaskVerdict, report: Mapping[str, Any], context: Context) -> TaskVerdict:
        """A copy of nothing is no success, although the job ended well."""
        return judge_scope(verdict, report)

    def announce(self, report: Mapping[str, Any], ends: Callable[[], FlowEnds], context: Context) -> None:
        """Announce each target topic, once all that was on the source at the run's start is there.

        Never the reason why a copy fails that ended well.
        """
        copies = sorted(topics_in(report).values()) if report.get("caught_up") is True else []
        if not copies:
            return
        if len(copies) > MOST_TOPIC_ASSETS:
            log.info("%d topics are not announced one by one: the flow's asset stands for them", len(copies))
            return
        try:
            namespace = ends().target[0]
        except OnceoverError as error:
            log.warning("the topics are not announced: %s", error)
            return
        events = context["outlet_events"][AssetAlias(COPIED_ALIAS)]
        for topic in copies:
            events.add(Asset(topic_uri(namespace, topic)), extra={"flow": self.flow})

    def result(self, report: Mapping[str, Any]) -> Any:
        """Return what was copied."""
        return count_report(report)
