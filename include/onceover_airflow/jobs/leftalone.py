"""Whether a copy that a schedule has started leaves another one alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowSkipException

from onceover_airflow.access.flowcontext import flow_at_hand
from onceover_airflow.errors import TaskFailed
from onceover_airflow.flows import CAUGHT_UP
from onceover_airflow.jobs.starter import by_schedule, run_name

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)


def leaves_others(context: Context) -> bool:
    """Tell whether nobody but a schedule wants a copy, which ends when it has caught up."""
    return by_schedule(context) and context["params"]["run_length"] == CAUGHT_UP


def leave_alone(flow: str, context: Context) -> None:
    """Skip a run that the schedule has started while another one of the flow copies.

    It would take over, and end when caught up: behind it nobody would copy what a run without an end was
    there for. A person who starts one means it. What an earlier try of the same run has left is its own.

    Raises:
        AirflowSkipException: another run copies, or is about to.
        JobInterrupted: nobody knows, as the target does not answer.
    """
    if not leaves_others(context):
        return
    from onceover.lead.leftalone import is_other, left_alone
    from onceover.wiring.status import newest_run

    try:
        with flow_at_hand(flow) as loaded:
            other = newest_run(loaded)
    except TaskFailed as error:
        # Whoever copies next says what is the matter, and what to do.
        log.info("whether another run copies is not known: %s", error)
        return
    if is_other(other, run_name(context)):
        raise AirflowSkipException(f"skipped: {left_alone(flow, other)}")
