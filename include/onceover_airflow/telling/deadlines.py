"""Telling a person of a run that has not ended by when it should have.

Whatever keeps it: a task that waits, one that is tried again and again, a worker that is not there. The
scheduler notices, and one of its executor's processes tells, so nothing of the run itself has to work for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from onceover.shown import visible
from onceover_airflow.telling.notify import notify

# A rehearsal's own limit is half an hour a try.
REHEARSAL: Final = timedelta(hours=1)
# Of a flow that is audited, or copied, once a day: half of that.
AUDIT: Final = timedelta(hours=12)
COPY: Final = timedelta(hours=12)


def told_after(limit: timedelta) -> DeadlineAlert:
    """Return what tells a person, once, of a run that has not ended so long after it was queued."""
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=limit,
        callback=SyncCallback(tell_of_lateness, {"limit": str(limit)}),
    )


def tell_of_lateness(context: Mapping[str, Any], limit: str) -> None:
    """Tell a person; called by Airflow with what it knows of the run.

    Notifiers are given what tasks give them, as far as there is any: ``ti``, ``params``, ``dag_run``.
    """
    run = context["dag_run"]
    dag_id, run_id = visible(run["dag_id"]), visible(run["dag_run_id"])
    told = {
        **context,
        "dag_run": SimpleNamespace(**{**run, "run_id": run_id}),
        "ti": SimpleNamespace(dag_id=dag_id, run_id=run_id, task_id=None),
        "params": run.get("conf") or {},
    }
    notify(told, f"late: run {run_id} of {dag_id} has not ended {limit} after it was queued")
