"""Questions and answers between the tasks of a run, without Airflow's server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator

from onceover_airflow.approval import PlanApprovalOperator

RETURNED = "return_value"


class Exchange:
    """What the tasks of a run push and pull: a context's ``ti``."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Any] = {}
        self.task = ""
        self.dag_id, self.run_id = "a_dag", "a_run"

    def xcom_push(self, key: str, value: Any) -> None:
        self.kept[self.task, key] = json.loads(json.dumps(value))

    def xcom_pull(self, *, task_ids: str, key: str = RETURNED) -> Any:
        return self.kept.get((task_ids, key))


def ask(
    operator: PlanApprovalOperator,
    values: Any,
    answer: str | None = ApprovalOperator.APPROVE,
    by: str | None = "anna",
) -> PlanApprovalOperator:
    """Put the question with Airflow's own part left out, and answer it; return the operator as it asked."""
    exchange: Exchange = values["ti"]
    exchange.task = operator.task_id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApprovalOperator, "execute", lambda *_: None)
        operator.execute(values)
    if answer is not None:
        event = {
            "chosen_options": [answer],
            "params_input": {},
            "responded_at": datetime.now(UTC),
            "responded_by_user": by and {"id": by, "name": by},
        }
        operator.execute_complete(values, event)
        exchange.kept[operator.task_id, RETURNED] = {"chosen_options": [answer]}
    return operator
