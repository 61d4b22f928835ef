"""The tasks of the DAG ``audit``: the job that ``onceover audit`` runs, and what is told of it.

Invariant: the task ends well with the verdict PASS only. FAIL and UNVERIFIABLE fail it at once, each in its
own words; the report is named in the log and in the XCom whichever it was.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
from airflow.sdk import Asset, AssetAlias, BaseOperator, BaseOperatorLink, Param, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from onceover.state.codes import StateCode
from onceover.state.records.verdicts import WHOLE
from onceover_airflow.access.flowcontext import flow_at_hand, log_text
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.jobs.operators import FlowJobOperator, leave
from onceover_airflow.jobs.starter import by_schedule, starter
from onceover_airflow.jobs.verdict import AfterJob, TaskVerdict
from onceover_airflow.lineage.catalogue import ToldOf
from onceover_airflow.starting import forms
from onceover_airflow.tasks.replicating import check_flow
from onceover_airflow.telling.assets import proven_uri
from onceover_airflow.telling.pages import page_link

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import TaskInstanceKey

    from onceover.config.flow.flowfile import Flow
    from onceover.spark.launch.submit import SparkJob

log = logging.getLogger(__name__)

# Outlet under which the flows' audits are announced: which flow it is, is known at run time only.
AUDITED_ALIAS: Final = "onceover_audited"
AUDIT_TASK: Final = "audit"
# Also where the task failed, and a return value would not be kept.
VERDICT_KEY: Final = "verdict"
# A time with its zone left out is UTC, as on the command line.
SINCE_PATTERN: Final = r"^(watermark|start|[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9:]+)?)?)$"
# An audit reads for long, and what it meets is either temporary for minutes or not at all.
RETRIES: Final = 20
_COUNTS: Final = ("flow", "verdict", "since", "topics", "complete", "seconds", "report", "data_docs")


def audit_params() -> dict[str, Param]:
    """Return the form's fields, beside the flow."""
    return {
        "topics": forms.topic_param(),
        "since": Param(
            "watermark",
            type="string",
            pattern=SINCE_PATTERN,
            maxLength=forms.MAX_TEXT,
            examples=["watermark", "start", "2026-01-31T12:00:00Z"],
            title="Since",
            description_md="`watermark`: where the last audit ended. `start`: everything. Or a time.",
        ),
        "full": forms.switch(
            "Full", "Everything that both sides still hold, whatever was audited before.", on=False
        ),
    }


@attrs.define()
class PageLink(BaseOperatorLink):
    """A button of the task that leads to a page which its audit left.

    :param title: on the button
    :param page: which page: a key of the audit's document
    """

    title: str
    page: str

    @property
    def name(self) -> str:
        """What the button says."""
        return self.title

    @property
    def xcom_key(self) -> str:
        """Where Airflow keeps the link: each its own."""
        return f"_link_{self.page}"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, empty when the audit left no page."""
        from onceover.config.home import onceover_home

        pages = operator.pages if isinstance(operator, AuditOperator | ReportOperator) else {}
        return page_link(onceover_home(), pages.get(self.page))


_PAGES: Final = (PageLink("Report", "report"), PageLink("Data Docs", "data_docs"))


def pages_of(told: Mapping[str, Any] | None) -> dict[str, str | None]:
    """Return the pages that an audit left, from its document or its counts."""
    return {link.page: (told or {}).get(link.page) for link in _PAGES}


def check_audit(flow: str) -> dict[str, Any]:
    """Validate the flow file, its clients and the form, before anything is started.

    Raises:
        TaskFailed: something is not in order; another try would not help.
    """
    from onceover.wiring.audit import check_topics

    params, checked = get_current_context()["params"], check_flow(flow)
    since = params["since"]
    if params["full"] and since not in WHOLE:
        raise TaskFailed(
            f"`full` and `since` exclude each other; seen: since {since}; to resolve: start the DAG again "
            "with one of them"
        )
    topics = (params["topics"],) if params["topics"] else ()
    try:
        with flow_at_hand(flow) as loaded:
            audit_of(loaded, topics, since, params["master"])
            check_topics(loaded, topics)
    except JobInterrupted as error:
        # The job waits for a cluster, and says the same when it is back.
        log.warning("the topics are not checked yet: %s", error)
    return checked


def audit_of(
    flow: Flow, topics: tuple[str, ...], since: str, master: str | None, started_by: str | None = None
) -> SparkJob:
    """Return the job.

    Args:
        started_by: who has started the DAG's run, for the report; None where that is not known.

    Raises:
        UsageError: something that was asked for is not understood.
    """
    from onceover.spark.launch.submit import AuditOptions, audit_job

    options = AuditOptions(topics=topics, since=since, started_by=started_by)
    return audit_job(flow, options, master=master or None)


class AuditOperator(FlowJobOperator):
    """Compare both sides of a flow, record by record.

    :param flow: the flow's name (templated)
    :param topics: regular expression over source topics; empty: all (templated)
    :param since: ``watermark``, ``start`` or a time (templated)
    :param full: ``True`` in place of ``since``: from the start (templated)
    :param master: Spark master instead of the flow file's; empty: the flow file's (templated)
    """

    template_fields: Collection[str] = ("flow", "topics", "since", "full", "master")
    operator_extra_links = _PAGES
    told_of = ToldOf.AUDIT

    def __init__(
        self,
        *,
        flow: str,
        topics: str = "",
        since: str = "watermark",
        full: str | bool = "False",
        master: str = "",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", RETRIES)
        super().__init__(flow=flow, master=master, **kwargs)
        self.topics = topics
        self.since = since
        self.full = full
        # Where the pages are, once they are written; links are made when the task has ended.
        self.pages: dict[str, str | None] = {}

    def job(self, flow: Flow, context: Context) -> SparkJob:
        """Return the audit, whose report says who wanted it."""
        topics = (self.topics,) if self.topics else ()
        since = "start" if self.is_full else self.since
        return audit_of(flow, topics, since, self.master, starter(context))

    @property
    def is_full(self) -> bool:
        """What became of the form's field: templates render to text."""
        return str(self.full).lower() == "true"

    def result(self, report: Mapping[str, Any]) -> Any:
        """Return the verdict with its numbers."""
        return count_audit(report)

    def judged(self, verdict: TaskVerdict, report: Mapping[str, Any], context: Context) -> TaskVerdict:
        """Keep what an audit found that did not pass, and say it in its own words.

        Raises:
            AirflowSkipException: nobody asked but the schedule, and the flow was never started.
        """
        if is_too_early(report, context):
            raise AirflowSkipException(f"skipped: {verdict.message}")
        self.pages = pages_of(report)
        if verdict.next is not AfterJob.FAIL or "verdict" not in report:
            return verdict
        leave(context, VERDICT_KEY, count_audit(report))
        return TaskVerdict(AfterJob.FAIL, describe_audit(report))


def is_too_early(report: Mapping[str, Any], context: Context) -> bool:
    """Tell whether a schedule has come before the flow's first start: no fault, and nothing to prove yet."""
    error = report.get("error") or {}
    return error.get("code") == StateCode.NOT_STARTED and by_schedule(context)


def count_audit(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the audit as names, counts and paths, for the XCom and the asset event."""
    return {
        **{key: report.get(key) for key in _COUNTS},
        "records": report["records"]["source"],
        "findings": report["findings"]["total"],
        "unverifiable": report["unverifiable"]["total"],
        "nothing_compared": report["nothing_compared"],
        "partitions": len(report["partitions"]),
        "verified_partitions": report["verified"]["partitions"],
    }


def describe_audit(report: Mapping[str, Any]) -> str:
    """Return an audit that did not pass in its own words, with where to look."""
    from onceover.audit.report.jsonreport import summary
    from onceover.audit.report.nextsteps import first_wrong, next_steps

    first = first_wrong(report)
    lines = [f"{report['verdict']}: {summary(report)}"]
    lines += [] if first is None else [f"first: {first}"]
    lines += [f"do: {step}" for step in next_steps(report)]
    return "\n".join([*lines, f"report: {report.get('report')}"])


class ReportOperator(BaseOperator):
    """Show what an audit found, with the same buttons as the audit itself.

    :param flow: the flow's name (templated)
    """

    template_fields: Collection[str] = ("flow",)
    operator_extra_links = _PAGES

    def __init__(self, *, flow: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flow = flow
        self.pages: dict[str, str | None] = {}

    def execute(self, context: Context) -> Any:
        """Return the counts; see ``report_audit``."""
        counts = report_audit(self.flow)
        self.pages = pages_of(counts)
        return counts


def report_audit(flow: str) -> dict[str, Any] | None:
    """Show the verdict and where the report is; announce what a PASS has proven. None without a verdict.

    Raises:
        TaskFailed: the flow file is not in order.
    """
    from onceover.audit.report.standing import why_unproven

    context = get_current_context()
    counts = context["ti"].xcom_pull(task_ids=AUDIT_TASK) or context["ti"].xcom_pull(
        task_ids=AUDIT_TASK, key=VERDICT_KEY
    )
    if counts is None:
        log.info("the audit ended without a verdict: nothing is proven, nothing is disproven")
        return None
    log_text(log, audit_lines(counts))
    unproven = why_unproven(counts)
    if unproven is not None:
        log.warning("no asset is announced: %s", unproven)
    else:
        with flow_at_hand(flow) as loaded:
            uri = proven_uri(loaded.target.alias, f"{loaded.flow}.audit")
        context["outlet_events"][AssetAlias(AUDITED_ALIAS)].add(Asset(uri), extra=counts)
        log.info("announced: %s", uri)
    return dict(counts)


def audit_lines(counts: Mapping[str, Any]) -> str:
    """Return the counts as text."""
    scope = "" if counts["complete"] else ", a sample"
    return "\n".join(
        [
            f"{counts['verdict']}: {counts['records']} records compared since {counts['since']}{scope}",
            f"  {counts['findings']} findings, {counts['unverifiable']} not comparable",
            f"  verified watermark in {counts['verified_partitions']} of {counts['partitions']} partitions",
            f"  report: {counts['report']}",
            f"  Data Docs: {counts['data_docs']}",
        ]
    )
