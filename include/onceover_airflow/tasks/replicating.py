"""The light tasks of the DAGs. Plain functions: the DAG file makes tasks of them."""

from __future__ import annotations

import logging
from typing import Any, Final

from airflow.sdk import Asset, AssetAlias, get_current_context

from onceover.errors import OnceoverError
from onceover_airflow.errors import JobInterrupted, TaskFailed, shown
from onceover_airflow.flows import by_name, scheduled_flows
from onceover_airflow.jobs.leftalone import leave_alone
from onceover_airflow.starting.pools import say_who_waits
from onceover_airflow.tasks.standing import show_standing
from onceover_airflow.telling.assets import proven_uri
from onceover_airflow.telling.notify import check_notifier
from onceover_airflow.telling.report import count_run

log = logging.getLogger(__name__)

# Outlet under which the flows' assets are announced: which flow it is, is known at run time only.
CAUGHT_UP_ALIAS: Final = "onceover_caught_up"
DAG_ID: Final = "replicate"
COPY_TASK: Final = "replicate"
_AT_IT: Final = ["scheduled", "queued", "running"]


def check_flow(flow: str) -> dict[str, str | int]:
    """Validate the flow file and its clients without touching a cluster.

    Raises:
        TaskFailed: something is not in order; another try would not help.
    """
    from onceover.config.flow.load import load_flow, say_clash
    from onceover_airflow.access.connections import connection_environment

    check_notifier()
    try:
        loaded = load_flow(by_name(flow))
        say_clash(loaded)
        connection_environment(loaded)
    except OnceoverError as error:
        raise TaskFailed(str(error)) from shown(error)
    log.info(
        "flow %s: %s -> %s, %d lanes", loaded.flow, loaded.source.alias, loaded.target.alias, loaded.lanes
    )
    return {"flow": loaded.flow, "lanes": loaded.lanes}


def check_copy(flow: str) -> dict[str, str | int]:
    """Do as ``check_flow``, and say where the copy is going to wait for a slot.

    Raises:
        AirflowSkipException: the schedule has come while another run of the flow copies.
        TaskFailed: as ``check_flow``.
    """
    checked = check_flow(flow)
    try:
        leave_alone(flow, get_current_context())
    except JobInterrupted as error:
        # The copy asks again before it begins, and waits for an answer.
        log.info("whether another run copies is not known yet: %s", error)
    say_who_waits(_running_copies)
    return checked


def _running_copies() -> int:
    """Return how many copies hold slots or wait for them, by hand and on schedules."""
    task_instance = get_current_context()["ti"]
    own = [f"{DAG_ID}_{each.name}" for each in scheduled_flows(DAG_ID)]
    return sum(
        task_instance.get_ti_count(dag_id=dag_id, task_ids=[COPY_TASK], states=_AT_IT)
        for dag_id in (DAG_ID, *own)
    )


def report_result(flow: str) -> dict[str, Any]:
    """Show where the flow stands on the clusters, return counts, announce the asset when caught up.

    Runs also after a failed or killed job: the position on the target is true in any case.

    Raises:
        JobInterrupted: a cluster does not answer; tried again.
        TaskFailed: any other error.
    """
    context = get_current_context()
    copied = context["ti"].xcom_pull(task_ids="replicate")
    status = show_standing(flow)
    counts = count_run(copied, status)
    if copied is None:
        log.info(
            "what this run copied is not known, and nothing is announced: the job did not end well, or has "
            "left another run alone; the table above is live"
        )
    else:
        log.info("copied by this run: %(records)s records, %(bytes)s bytes", counts)
    if counts["caught_up"]:
        uri = proven_uri(status["target"]["alias"], status["flow"])
        context["outlet_events"][AssetAlias(CAUGHT_UP_ALIAS)].add(Asset(uri), extra=counts)
        log.info("caught up: %s", uri)
    return counts
