"""The tasks of ``repair_partition``: whom they ask, what they refuse to do unasked, what they hand on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, ParamValidationError

from onceover.errors import Fenced, Retriable
from onceover.model import TopicPartition
from onceover.operate.repair import Repair, RepairRequest
from onceover.operate.repairapply import Repaired
from onceover.planning.approval import Approval, ObjectState
from onceover.planning.operation import Caller
from onceover.planning.plan import Change, Refusal
from onceover.state.records.enrolment import Enrolment
from onceover.wiring import repairs
from onceover_airflow.approvals.approval import SHOWN_KEY
from onceover_airflow.approvals.seal import opened
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.tasks import operation, repair
from onceover_airflow.tasks.operation import ApproveOperator
from onceover_airflow.tasks.repair import REPAIR
from tests.unit.airflow import asking
from tests.unit.airflow.asking import Exchange
from tests.unit.airflow.conftest import FakeSpark

pytestmark = pytest.mark.usefixtures("unopened")
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


CREATE = Change("create topic", "orders", None, "1 partitions", "copy of orders")
NOTHING = Repair(operation="resume", flow=FLOW, sources=())


class Clusters:
    """What the use case would find: plans in their order, the last one again and again."""

    def __init__(self, *plans: Repair) -> None:
        self.plans = list(plans)
        self.asked: list[RepairRequest] = []
        self.applied = 0
        self.problem: Exception | None = None

    def repairer(self, *_: object, request: RepairRequest) -> AbstractContextManager[Clusters]:
        self.asked.append(request)
        return nullcontext(self)

    def plan(self) -> Repair:
        if self.problem is not None:
            raise self.problem
        return self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]

    def apply(self, caller: Caller, approval: Approval) -> Repaired:
        planned = self.plan()
        caller.announce(planned)
        if planned.is_done_under(approval):
            return Repaired(planned, None, earlier=True)
        approval.check(planned.items, planned.title)
        self.applied += 1
        return Repaired(planned, 4)


class Context:
    """A task's context: params, and what tasks keep for each other."""

    def __init__(self, **params: Any) -> None:
        self.values: Any = {"params": {**PARAMS, **params, "flow": FLOW}, "ti": Exchange()}


Live = Callable[..., tuple[Context, Clusters]]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, spark: FakeSpark) -> Live:
    def begin(*plans: Repair, problem: Exception | None = None, **params: Any) -> tuple[Context, Clusters]:
        context, clusters = Context(**params), Clusters(*plans)
        clusters.problem = problem
        monkeypatch.setattr(repairs, "repairer", clusters.repairer)
        monkeypatch.setattr(operation, "get_current_context", lambda: context.values)
        monkeypatch.setattr("onceover_airflow.access.connections.connection_environment", lambda _: {})
        REPAIR.plan(FLOW)
        return context, clusters

    return begin


def ask(context: Context, answer: str | None = "Approve") -> str:
    """Put the question and answer it; return what a person is shown."""
    operator = ApproveOperator(task_id=REPAIR.approve_task, tasks=REPAIR, name=FLOW)
    return str(asking.ask(operator, context.values, answer).body)


def test_what_was_approved_is_done(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    """The person sees what is skipped, in records, and why; all of it is in the log of the task that asks."""
    context, clusters = live(plan_of(), **SKIP)
    assert clusters.asked == [RepairRequest("skip-to", TP, 8)]
    caplog.clear()
    with caplog.at_level(logging.INFO):
        body = ask(context)
    assert "| position | `orders:3` | 5 | 8 | skip up to 3 | a &#124; b |" in body
    assert "fenced" in body
    assert "position orders:3: 5 -> 8" in caplog.text
    expected = {"flow": FLOW, "operation": "skip-to", "partitions": 1, "generation": 4}
    assert REPAIR.apply(FLOW) == expected


def standing(plan: Repair, state: str = "RECORD_REFUSED", changed: str = "") -> Repair:
    return replace(plan, standing={str(TP): ObjectState(state, changed)})


RESEED = standing(plan_of(0, "repeat", 10, "reseed"))


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (plan_of(records=3), plan_of(records=2), True),
        (plan_of(to=8), plan_of(to=9), False),
        (plan_of(risk="skip"), plan_of(risk="repeat"), False),
        (RESEED, standing(plan_of(2, "repeat", 9, "reseed")), True),
        (RESEED, standing(plan_of(0, "repeat", 1_000_000, "reseed")), False),
        (RESEED, standing(RESEED, "not stopped"), False),
        (RESEED, standing(RESEED, changed="other"), False),
        (replace(RESEED, changes=(CREATE, *RESEED.changes)), RESEED, True),
        (RESEED, replace(RESEED, changes=(CREATE, *RESEED.changes)), False),
    ],
    ids=[
        "flow went on",
        "other offset",
        "other risk",
        "retention passed",
        "a million since",
        "well again",
        "repaired by another run",
        "topic created by an interrupted try",
        "topic gone, too",
    ],
)
def test_what_was_shown_is_approved_and_nothing_else(
    live: Live, before: Repair, after: Repair, same: bool
) -> None:
    """Between question and answer it may have become something else."""
    context, clusters = live(before, before, after, **SKIP)
    ask(context)
    if same:
        REPAIR.apply(FLOW)
    else:
        with pytest.raises(AirflowFailException, match="something else by now"):
            REPAIR.apply(FLOW)
    assert clusters.applied == (1 if same else 0)


def test_an_approval_is_good_for_one_time(live: Live) -> None:
    """Somebody clears the task that does it, days after it did it: nothing is copied twice."""
    context, clusters = live(RESEED, RESEED, RESEED, **SKIP)
    ask(context)
    REPAIR.apply(FLOW)
    given = opened(context.values["ti"].xcom_pull(task_ids=REPAIR.approve_task, key=SHOWN_KEY))["id"]
    clusters.plans = [standing(plan_of(0, "repeat", 1_000_000, "reseed"), "not stopped", given)]
    assert REPAIR.apply(FLOW)["generation"] is None
    assert clusters.applied == 1


@pytest.mark.parametrize("answer", ["Reject", None])
def test_what_nobody_said_yes_to_is_not_done(live: Live, answer: str | None) -> None:
    """Whoever clears the last task of a run that was rejected has not approved it."""
    context, clusters = live(plan_of(), **SKIP)
    ask(context, answer)
    with pytest.raises(AirflowSkipException, match="nothing was approved"):
        REPAIR.apply(FLOW)
    assert clusters.applied == 0


def test_what_was_shown_too_long_ago_is_asked_again(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three days for the answer and one for the tries."""
    context, clusters = live(plan_of(), **SKIP)
    ask(context)
    later_s = time.time() + timedelta(days=4, minutes=1).total_seconds()
    monkeypatch.setattr("onceover_airflow.approvals.approval.time.time", lambda: later_s)
    with pytest.raises(AirflowFailException, match=r"shown 4 days ago.*start the DAG again"):
        REPAIR.apply(FLOW)
    assert clusters.applied == 0


def test_nothing_stopped_asks_nobody_and_is_no_failure(live: Live) -> None:
    """The form submitted untouched, on a flow that is well."""
    context, clusters = live(NOTHING)
    assert clusters.asked == [RepairRequest("resume")]
    with pytest.raises(AirflowSkipException):
        ask(context)
    with pytest.raises(AirflowSkipException):
        REPAIR.apply(FLOW)
    assert clusters.applied == 0


def test_only_a_plan_is_only_a_plan(live: Live) -> None:
    """Neither asked nor applied."""
    context, clusters = live(plan_of(), apply=False, **SKIP)
    with pytest.raises(AirflowSkipException):
        ask(context)
    with pytest.raises(AirflowSkipException):
        REPAIR.apply(FLOW)
    assert clusters.applied == 0


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


@pytest.mark.parametrize(
    "given",
    [
        {"action": "jump"},
        {"partition": -1},
        {"partition": 2**31},
        {"offset": "x"},
        {"offset": -3},
        {"offset": 2**63},
        {"offset": 10**22},
        {"topic": "t" * 1001},
    ],
)
def test_bad_form_values_are_refused(given: dict[str, object]) -> None:
    """Airflow refuses the run before a task exists; untouched it is valid."""
    params = ParamsDict(repair.repair_params())
    assert dict(params.validate())["action"] == "resume"
    with pytest.raises(ParamValidationError):
        params.update(given)
