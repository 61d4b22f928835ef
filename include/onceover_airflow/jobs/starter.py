"""Who has started a run of a DAG, as reports that are kept as evidence name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from airflow.sdk import Context

# What Airflow calls a run that nobody asked for but the schedule.
_SCHEDULED: Final = "scheduled"


def starter(context: Context) -> str | None:
    """Return who has started a run, as Airflow knows them; None where that was nobody, such as a schedule."""
    by = getattr(context.get("dag_run"), "triggering_user_name", None)
    return f"{by} (in Airflow)" if isinstance(by, str) and by else None


def by_schedule(context: Context) -> bool:
    """Tell whether nobody but the schedule has started a run."""
    run = context.get("dag_run")
    return run is not None and run.run_type == _SCHEDULED


def scheduled_run(context: Context) -> str | None:
    """Return what tells a run that the schedule has started from all others; None where it was not that."""
    run: Any = context.get("dag_run")
    return f"{run.dag_id} {run.run_id}" if by_schedule(context) else None
