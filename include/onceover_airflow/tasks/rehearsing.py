"""The tasks of the DAG ``rehearse``: the operation that ``onceover drill run`` runs, and what is told of it.

Invariant: the task ends well with PASS only; its report is named in the log, in the XCom and by a button
whichever it was.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
from airflow.sdk import Asset, AssetAlias, BaseOperator, BaseOperatorLink, Param, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from onceover.errors import OnceoverError
from onceover.state.codes import StateCode
from onceover_airflow.access.flowcontext import flow_at_hand, log_text
from onceover_airflow.errors import JobInterrupted, TaskFailed
from onceover_airflow.jobs.starter import by_schedule, starter
from onceover_airflow.starting import forms
from onceover_airflow.tasks.ending import drill_left, ends_as_a_command
from onceover_airflow.telling.assets import proven_uri
from onceover_airflow.telling.pages import page_link

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import TaskInstanceKey

    from onceover.config.flow.flowfile import Flow
    from onceover.drills.rehearsing.rehearsal import Rehearsal, RehearsalOutcome

log = logging.getLogger(__name__)

# Outlet under which the flows' rehearsals are announced: which flow it is, is known at run time only.
REHEARSED_ALIAS: Final = "onceover_rehearsed"
REHEARSE_TASK: Final = "rehearse"
MAX_SAMPLE: Final = 1_000_000
MAX_CANARIES: Final = 100_000
MIN_CANARIES: Final = 12
_TEMPORARY: Final = 5


def rehearsal_params() -> dict[str, Param]:
    """Return the form's fields, beside the flow."""
    return {
        "topics": forms.optional(
            "Topics", "Regular expression for whole source topics that are copied, too. Empty: the first few."
        ),
        "group": forms.optional(
            "Groups", "Regular expression for whole names, among the flow's groups. Empty: the first few."
        ),
        "sample": Param(
            1000,
            type="integer",
            minimum=1,
            maximum=MAX_SAMPLE,
            title="Sample",
            description_md="How many of the newest offsets of each of their partitions are copied.",
        ),
        "canaries": Param(
            200,
            type="integer",
            minimum=MIN_CANARIES,
            maximum=MAX_CANARIES,
            title="Canaries",
            description_md="How many numbered records.",
        ),
    }


@attrs.define()
class RehearsalLink(BaseOperatorLink):
    """The button that leads to the report."""

    name: str = "Report"

    @property
    def xcom_key(self) -> str:
        """Where Airflow keeps the link."""
        return "_link_rehearsal"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, empty when the rehearsal left no page."""
        from onceover.config.home import onceover_home

        return page_link(onceover_home(), operator.page if isinstance(operator, RehearseOperator) else None)


def plan_rehearsal(flow: str) -> dict[str, Any]:
    """Show the plan in the log; return names and counts. Changes nothing.

    Raises:
        AirflowSkipException: nobody asked but the schedule, and the flow was never started.
        JobInterrupted: a cluster does not answer; tried again.
        TaskFailed: any other error.
    """
    context = get_current_context()
    with flow_at_hand(flow) as loaded, opened(loaded, context) as operation:
        try:
            planned = operation.plan()
        except OnceoverError as error:
            if is_too_early(error, context):
                raise AirflowSkipException(f"skipped: {error.message}") from None
            raise
    log_text(log, planned.describe())
    return dict(planned.counts)


def is_too_early(error: OnceoverError, context: Context) -> bool:
    """Tell whether a schedule has come before the flow's first start: no fault, and nothing to rehearse."""
    return error.code == StateCode.NOT_STARTED and by_schedule(context)


@contextmanager
def opened(flow: Flow, context: Context) -> Iterator[Rehearsal]:
    """Yield the rehearsal that the form asks for, with both clusters open."""
    from functools import partial

    from onceover.planning.operation import wait
    from onceover.wiring import flows
    from onceover.wiring.failovers import drills

    params = context["params"]
    options = drills.RehearsalOptions(
        topics=[params["topics"]] if params["topics"] else [],
        groups=[params["group"]] if params["group"] else [],
        sample=params["sample"],
        canaries=params["canaries"],
        started_by=starter(context),
    )
    with flows.opened(flow, partial(drills.rehearsal, options=options, pause=wait)) as operation:
        yield operation


class RehearseOperator(BaseOperator):
    """Rehearse a failover of a flow, and take everything away again.

    :param flow: the flow's name (templated)
    """

    template_fields: Collection[str] = ("flow",)
    operator_extra_links = (RehearsalLink(),)

    def __init__(self, *, flow: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flow = flow
        # Where the page is, once it is written; the link is made when the task has ended.
        self.page: str | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Rehearse; return names and counts.

        Raises:
            JobInterrupted: a cluster does not answer; tried again, from the beginning.
            TaskFailed: FAIL, with the step; or any other error.
        """
        from onceover.planning.operation import Caller
        from onceover.wiring.failovers.drills import report_page

        with (
            ends_as_a_command(f"rehearsal of flow {self.flow}") as ending,
            flow_at_hand(self.flow) as flow,
            opened(flow, context) as operation,
        ):
            with ending.looked_after(drill_left(flow)):
                outcome = operation.apply(Caller(lambda planned: log_text(log, planned.describe()), log.info))
            self.page = str(report_page(flow, outcome.drill))
            log_text(log, outcome.describe())
            log.info("report: %s", self.page)
            judge(flow.flow, outcome, self.page)
            counts = {**outcome.counts, "report": self.page}
            if context["params"]["topics"] or context["params"]["group"]:
                log.info("not announced: only some topics or groups were asked for")
            else:
                uri = proven_uri(flow.target.alias, f"{flow.flow}.rehearsal")
                context["outlet_events"][AssetAlias(REHEARSED_ALIAS)].add(Asset(uri), extra=counts)
                log.info("announced: %s", uri)
        return counts


def judge(flow: str, outcome: RehearsalOutcome, page: str) -> None:
    """Fail unless a rehearsal passed.

    Raises:
        JobInterrupted: a cluster was away.
        TaskFailed: what failed, and what resolves it; or somebody has ended it by hand.
    """
    if outcome.exit_code == 0:
        return
    said = [f"{r.object}: {r.message}; to resolve: {r.resolve}" for r in outcome.waiting]
    said = said or [text for _, text in outcome.findings]
    message = f"rehearsal of flow {flow}: {outcome.verdict}: {'; '.join(said)}; report: {page}"
    raise JobInterrupted(message) if outcome.exit_code == _TEMPORARY else TaskFailed(message)
