"""Questions and answers between the tasks of a run, without Airflow's server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator

from onceover_airflow.approvals.approval import PlanApprovalOperator

RETURNED = "return_value"
# Of every task: Airflow counts more for one that was cleared.
RETRIES = 3
_RUNS = itertools.count()


class Exchange:
    """What the tasks of a run push and pull: a context's ``ti``.

    Args:
        run_id: which run it is; None for one of its own.
        id: of the task instance, as Airflow gives each try one.
    """

    def __init__(self, run_id: str | None = None) -> None:
        self.kept: dict[tuple[str, str], Any] = {}
        self.task_id = ""
        self.task = SimpleNamespace(retries=RETRIES)
        self.dag_id, self.run_id = "a_dag", run_id or f"run-{next(_RUNS)}"
        self.id, self.max_tries = uuid4(), RETRIES

    def tried_again(self, *, cleared: bool = False) -> None:
        """Begin the next try of the task at hand, after an interruption or because somebody cleared it."""
        self.id = uuid4()
        self.max_tries += cleared

    def xcom_push(self, key: str, value: Any) -> None:
        self.kept[self.task_id, key] = json.loads(json.dumps(value))

    def xcom_pull(self, *, task_ids: str, key: str = RETURNED) -> Any:
        return self.kept.get((task_ids, key))


def ask(
    operator: PlanApprovalOperator,
    values: Any,
    answer: str | None = ApprovalOperator.APPROVE,
    by: str | None = "anna",
    meanwhile: Callable[[], None] = lambda: None,
) -> PlanApprovalOperator:
    """Put the question with Airflow's own part left out, and answer it; return the operator as it asked.

    Args:
        meanwhile: done between question and answer.
    """
    exchange: Exchange = values["ti"]
    exchange.task_id = operator.task_id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApprovalOperator, "execute", lambda *_: None)
        operator.execute(values)
    meanwhile()
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
