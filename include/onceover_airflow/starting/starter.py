"""Who has started a run of a DAG, as reports that are kept as evidence name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context


def starter(context: Context) -> str | None:
    """Return who has started a run, as Airflow knows them; None where that was nobody, such as a schedule."""
    by = getattr(context.get("dag_run"), "triggering_user_name", None)
    return f"{by} (in Airflow)" if isinstance(by, str) and by else None
