"""The tasks of ``repair_partition``: whom they ask, what they refuse to do unasked, what they hand on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, ParamValidationError

from onceover.engine.enrolment import Enrolment
from onceover.engine.plan import Change, Refusal
from onceover.engine.repair import Repair
from onceover.engine.repairapply import Repaired
from onceover.errors import Fenced, Retriable
from onceover.model import TopicPartition
from onceover.wiring import repairs
from onceover.wiring.repairs import RepairWish
from onceover_airflow import repair
from onceover_airflow.errors import JobInterrupted
from tests.unit.airflow.conftest import FakeSpark

FLOW = "flights"
TP = TopicPartition("orders", 3)
PARAMS = {name: param.value for name, param in repair.repair_params().items()}
SKIP = {"action": "skip-to", "topic": "orders", "partition": 3, "offset": 8}


def plan_of(
    to: int = 8, risk: str = "skip", records: int = 3, operation: str = "skip-to", *refused: Refusal
) -> Repair:
    change = Change("position", str(TP), 5, to, "a | b", risk, records)
    enrolment = Enrolment("orders", "orders", UUID(int=1), UUID(int=2), {3: 0}, 0)
    changes = () if refused else (change,)
    return Repair(
        operation=operation, flow=FLOW, sources=(TP,), changes=changes, refused=refused, enrolment=enrolment
    )


NOTHING = Repair(operation="resume", flow=FLOW, sources=())


class Clusters:
    """What the use case would find: plans in their order, the last one again and again."""

    def __init__(self, *plans: Repair) -> None:
        self._plans = list(plans)
        self.asked: list[RepairWish] = []
        self.applied = 0
        self.problem: Exception | None = None

    def plan_repair(self, _: object, wish: RepairWish) -> Repair:
        if self.problem is not None:
            raise self.problem
        self.asked.append(wish)
        return self._plans.pop(0) if len(self._plans) > 1 else self._plans[0]

    def apply_repair(self, flow: object, wish: RepairWish, announce: Callable[[Repair], None]) -> Repaired:
        planned = self.plan_repair(flow, wish)
        announce(planned)
        self.applied += 1
        return Repaired(planned, 4)


class Context:
    """A task's context: params, and what the plan's task returned."""

    def __init__(self, **params: Any) -> None:
        self.planned: Mapping[str, Any] | None = None
        self.values: Any = {"params": {**PARAMS, **params, "flow": FLOW}, "ti": self}

    def xcom_pull(self, *, task_ids: str) -> Mapping[str, Any] | None:
        assert task_ids == "plan_repair"
        return self.planned


Live = Callable[..., tuple[Context, Clusters]]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, spark: FakeSpark) -> Live:
    def begin(*plans: Repair, problem: Exception | None = None, **params: Any) -> tuple[Context, Clusters]:
        context, clusters = Context(**params), Clusters(*plans)
        clusters.problem = problem
        for name in ("plan_repair", "apply_repair"):
            monkeypatch.setattr(repairs, name, getattr(clusters, name))
        monkeypatch.setattr(repair, "get_current_context", lambda: context.values)
        monkeypatch.setattr("onceover_airflow.connections.connection_environment", lambda _: {})
        context.planned = repair.plan_repair(FLOW)
        return context, clusters

    return begin


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a person is shown; nobody is asked for real."""
    bodies: list[str] = []
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: bodies.append(self.body))
    return bodies


def ask(context: Context) -> None:
    repair.ApproveRepairOperator(task_id="a", flow=FLOW).execute(context.values)


def test_what_was_approved_is_done(live: Live, asked: list[str]) -> None:
    """The person sees what is skipped, in records, and why; the XCom gets names and counts only."""
    context, clusters = live(plan_of(), **SKIP)
    assert clusters.asked == [RepairWish("skip-to", TP, 8)]
    ask(context)
    assert "| position | `orders:3` | 5 | 8 | skip up to 3 | a &#124; b |" in asked[0]
    assert "fenced" in asked[0]
    expected = {"flow": FLOW, "operation": "skip-to", "partitions": 1, "generation": 4}
    assert repair.apply_repair(FLOW) == expected


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (plan_of(records=3), plan_of(records=2), True),
        (plan_of(to=8), plan_of(to=9), False),
        (plan_of(risk="skip"), plan_of(risk="repeat"), False),
        (plan_of(0, "repeat", 9, "reseed"), plan_of(2, "repeat", 9, "reseed"), True),
    ],
    ids=["flow went on", "other offset", "other risk", "retention passed"],
)
def test_the_same_risks_are_approved_and_no_others(
    live: Live, asked: list[str], before: Repair, after: Repair, same: bool
) -> None:
    """Between plan, question and apply it may have become something else."""
    context, clusters = live(before, after, **SKIP)
    for step in (lambda: ask(context), lambda: repair.apply_repair(FLOW)):
        if same:
            step()
        else:
            with pytest.raises(AirflowFailException, match="start the DAG again"):
                step()
    assert (len(asked), clusters.applied) == ((1, 1) if same else (0, 0))


def test_nothing_stopped_asks_nobody_and_is_no_failure(live: Live, asked: list[str]) -> None:
    """The form submitted untouched, on a flow that is well."""
    context, clusters = live(NOTHING)
    assert clusters.asked == [RepairWish("resume")]
    with pytest.raises(AirflowSkipException):
        ask(context)
    with pytest.raises(AirflowSkipException):
        repair.apply_repair(FLOW)
    assert (asked, clusters.applied) == ([], 0)


def test_only_a_plan_is_only_a_plan(live: Live, asked: list[str]) -> None:
    """Neither asked nor applied."""
    context, clusters = live(plan_of(), apply=False, **SKIP)
    with pytest.raises(AirflowSkipException):
        ask(context)
    with pytest.raises(AirflowSkipException):
        repair.apply_repair(FLOW)
    assert (asked, clusters.applied) == ([], 0)


def test_what_is_not_possible_fails_with_the_way_out(live: Live) -> None:
    """At once, before anybody is asked."""
    refusal = Refusal("orders:3", "OUT_OF_RANGE", "not in the log", "choose another")
    with pytest.raises(AirflowFailException, match=r"orders:3: not in the log; to resolve: choose another"):
        live(plan_of(8, "skip", 3, "skip-to", refusal), **SKIP)


@pytest.mark.parametrize("given", [{"topic": "orders"}, {"partition": 3}])
def test_half_a_partition_is_no_partition(live: Live, given: dict[str, object]) -> None:
    """A topic alone could mean all of it, or a slip."""
    with pytest.raises(AirflowFailException, match="expected: topic and partition, or with resume neither"):
        live(plan_of(), **given)


@pytest.mark.parametrize(
    ("problem", "expected"), [(Retriable("away"), JobInterrupted), (Fenced("newer"), AirflowFailException)]
)
def test_only_a_temporary_failure_is_tried_again(
    live: Live, problem: Exception, expected: type[Exception]
) -> None:
    """A newer start is nobody's retry."""
    with pytest.raises(expected):
        live(problem=problem)


@pytest.mark.parametrize("given", [{"action": "jump"}, {"partition": -1}, {"offset": "x"}, {"offset": -3}])
def test_bad_form_values_are_refused(given: dict[str, object]) -> None:
    """Airflow refuses the run before a task exists; untouched it is valid."""
    params = ParamsDict(repair.repair_params())
    assert dict(params.validate())["action"] == "resume"
    with pytest.raises(ParamValidationError):
        params.update(given)
