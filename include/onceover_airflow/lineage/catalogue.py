"""Opens a run that a catalogue of lineage is told of, through Airflow's OpenLineage provider.

Invariant: where no transport is configured nothing is made, and nothing imported but the provider's settings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from onceover_airflow.lineage.untold import LineageRun

if TYPE_CHECKING:
    from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
    from airflow.sdk import BaseOperator, Context
    from openlineage.client.facet_v2 import RunFacet

    from onceover_airflow.lineage.naming import FlowEnds

log = logging.getLogger(__name__)


class ToldOf(StrEnum):
    """Which of a flow's jobs a run belongs to."""

    COPY = "copy"
    AUDIT = "audit"


def open_run(
    told_of: ToldOf,
    operator: BaseOperator,
    context: Context,
    ends: Callable[[], FlowEnds],
    was_killed: Callable[[], bool],
) -> LineageRun:
    """Return a run to be told of; one that tells nobody where that is off, or not to be done for this task.

    Args:
        operator: of the task that runs the job.
        ends: returns the flow's.
        was_killed: tells whether the task was told to end.
    """
    from airflow.providers.openlineage import conf

    try:
        if conf.is_disabled() or not _is_wanted(operator, context):
            return LineageRun()
        from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
        from openlineage.client.generated import base
        from openlineage.client.uuid import generate_new_uuid

        from onceover_airflow.lineage.about import AuditEvents, CopyEvents
        from onceover_airflow.lineage.toldrun import Teller, ToldRun

        about = CopyEvents if told_of is ToldOf.COPY else AuditEvents
        # Not the provider's own: that one's connections and threads do not live through its forks.
        adapter = OpenLineageAdapter()
        return ToldRun(
            what=about.of(conf.namespace(), ends()),
            run_id=str(generate_new_uuid()),
            parent={"parent": _parent(context)},
            producer=base.PRODUCER,
            teller=Teller(adapter.emit, lambda: _close(adapter)),
            was_killed=was_killed,
            patience_s=float(conf.execution_timeout()),
        )
    except Exception as error:
        log.warning("lineage is not told: %s", type(error).__name__)
        log.debug("lineage is not told", exc_info=True)
        return LineageRun()


def _close(adapter: OpenLineageAdapter) -> None:
    adapter.get_or_create_openlineage_client().close()


def _is_wanted(operator: BaseOperator, context: Context) -> bool:
    """Tell whether the provider's settings want this task's lineage."""
    from airflow.providers.openlineage.utils.emission_policy import resolve_task_emission_policy

    ti = context["ti"]
    policy = resolve_task_emission_policy(operator=operator, dag_id=ti.dag_id, task_id=ti.task_id)
    return policy.emit and policy.extract_operator_metadata


def _parent(context: Context) -> RunFacet:
    """Return the task and the DAG's run that this one belongs to, by the ids that the provider gives them."""
    from airflow.providers.openlineage import conf
    from airflow.providers.openlineage.plugins import macros
    from openlineage.client.facet_v2 import parent_run

    ti: Any = context["ti"]
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=macros.lineage_run_id(ti)),
        job=parent_run.Job(namespace=conf.namespace(), name=macros.lineage_job_name(ti)),
        root=parent_run.Root(
            run=parent_run.RootRun(runId=macros.lineage_root_run_id(ti)),
            job=parent_run.RootJob(
                namespace=macros.lineage_root_job_namespace(ti), name=macros.lineage_root_job_name(ti)
            ),
        ),
    )
