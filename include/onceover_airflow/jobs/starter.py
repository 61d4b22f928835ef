"""Who has started a run of a DAG, as reports that are kept as evidence name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from airflow.sdk import Context

# What Airflow calls runs that nobody asked for but the schedule: in its time, or, by a backfill, behind it.
_SCHEDULED: Final = ("scheduled", "backfill")


def starter(context: Context) -> str | None:
    """Return who has started a run, as Airflow knows them; None where that was nobody, such as a schedule."""
    by = getattr(context.get("dag_run"), "triggering_user_name", None)
    return f"{by} (in Airflow)" if isinstance(by, str) and by else None


def by_schedule(context: Context) -> bool:
    """Tell whether nobody but the schedule has started a run."""
    run = context.get("dag_run")
    return run is not None and run.run_type in _SCHEDULED


def launch_of(context: Context) -> str | None:
    """Return what all tries share that Airflow makes of a task by itself; None where there is no task.

    Who clears a task starts it anew: Airflow counts its tries from there.
    """
    name, task = run_name(context), context.get("ti")
    return None if name is None or task is None else f"{name} {task.max_tries}"


def run_name(context: Context) -> str | None:
    """Return what tells a run of a DAG from all others; None where there is none."""
    run: Any = context.get("dag_run")
    return None if run is None else f"{run.dag_id} {run.run_id}"
