"""The tasks of ``seed_progress``: whom they ask, what they refuse to do unasked, what they hand on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from onceover.engine.plan import Change, Refusal
from onceover.engine.seed import Choice, Position, Seat, SeedPlan
from onceover.engine.seedapply import Seeded
from onceover.errors import Fenced, Retriable
from onceover.model import TopicPartition
from onceover.wiring import seeding as seed_runs
from onceover_airflow import seeding
from onceover_airflow.errors import JobInterrupted
from tests.unit.airflow.conftest import FakeSpark

FLOW = "flights"
_TP = TopicPartition("orders", 0)
_SEAT = Seat(source=_TP, target=_TP, start=0, lso=9, end=9)


def plan_of(risk: str = "skip", to: int = 5, refused: tuple[Refusal, ...] = ()) -> SeedPlan:
    change = Change("position", str(_TP), None, to, "said so", risk, to if risk != "none" else None)
    positions = {_TP: Position(_SEAT, to, 0)}
    return SeedPlan(operation="seed", flow=FLOW, changes=(change,), positions=positions, refused=refused)


EMPTY = SeedPlan(operation="seed", flow=FLOW)
PARAMS = {name: param.value for name, param in seeding.seed_params().items()} | {"origin": "group:g"}


class Clusters:
    """What the use case would find: plans in their order, the last one again and again."""

    def __init__(self, *plans: SeedPlan) -> None:
        self._plans = list(plans)
        self.asked: list[Any] = []
        self.problem: Exception | None = None

    def next(self) -> SeedPlan:
        if self.problem is not None:
            raise self.problem
        return self._plans.pop(0) if len(self._plans) > 1 else self._plans[0]

    def plan_seed(self, _: object, origin: str, choice: Choice, topics: str | None) -> SeedPlan:
        self.asked.append((origin, choice, topics))
        return self.next()

    def apply_seed(
        self, _: object, origin: str, choice: Choice, announce: Callable[[SeedPlan], None], topics: str | None
    ) -> Seeded:
        planned = self.next()
        announce(planned)
        return Seeded(planned, 3, len(planned.positions))

    def plan_adoption(self, _: object, wish: seed_runs.Adoption) -> SeedPlan:
        self.asked.append(wish)
        return self.next()


class Context:
    """A task's context: params, and what the plan's task returned."""

    def __init__(self, planned: Mapping[str, Any] | None = None, **params: Any) -> None:
        self.planned = planned
        self.values = {"params": {**PARAMS, **params, "flow": FLOW}, "ti": self}

    def xcom_pull(self, *, task_ids: str) -> Mapping[str, Any] | None:
        assert task_ids == "plan_progress"
        return self.planned


Live = Callable[..., Clusters]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, spark: FakeSpark) -> Live:
    def begin(context: Context, *plans: SeedPlan) -> Clusters:
        clusters = Clusters(*plans)
        for name in ("plan_seed", "apply_seed", "plan_adoption"):
            monkeypatch.setattr(seed_runs, name, getattr(clusters, name))
        monkeypatch.setattr(seeding, "get_current_context", lambda: context.values)
        monkeypatch.setattr("onceover_airflow.connections.connection_environment", lambda _: {})
        return clusters

    return begin


def planned_by(live: Live, *plans: SeedPlan, **params: Any) -> tuple[Context, Clusters]:
    """Run the plan's task; return the context of those after it."""
    context = Context(**params)
    clusters = live(context, *plans)
    context.planned = seeding.plan_progress(FLOW)
    return context, clusters


def test_what_was_approved_is_written(live: Live) -> None:
    """Ids and counts go into the XCom, nothing else."""
    context, clusters = planned_by(live, plan_of())
    assert context.planned is not None
    assert (context.planned["positions"], context.planned["refused"]) == (1, 0)
    assert clusters.asked == [("group:g", Choice(), None)]
    assert seeding.apply_progress(FLOW) == {"flow": FLOW, "written": 1, "generation": 3}


def test_offsets_may_move_but_risks_may_not(live: Live) -> None:
    """The origin goes on meanwhile; a repeat instead of a skip is another question."""
    planned_by(live, plan_of(to=5), plan_of(to=6))
    assert seeding.apply_progress(FLOW)["written"] == 1
    planned_by(live, plan_of(), plan_of(risk="repeat"))
    with pytest.raises(AirflowFailException, match="start the DAG again"):
        seeding.apply_progress(FLOW)


def test_a_refused_partition_fails_the_run_and_says_what_resolves_it(live: Live) -> None:
    """The others are written."""
    planned_by(live, plan_of(refused=(Refusal("orders:1", "GAP", "two are missing", "decide"),)))
    with pytest.raises(
        AirflowFailException, match=r"1 positions written, 1 refused.*two are missing.*decide"
    ):
        seeding.apply_progress(FLOW)


def test_only_a_plan_is_only_a_plan(live: Live) -> None:
    """Neither asked nor applied."""
    context, _ = planned_by(live, plan_of(), apply=False)
    with pytest.raises(AirflowSkipException):
        seeding.apply_progress(FLOW)
    with pytest.raises(AirflowSkipException):
        seeding.ApprovePositionsOperator(task_id="a", flow=FLOW).execute(context.values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("problem", "expected"),
    [(Retriable("away"), JobInterrupted), (Fenced("newer"), AirflowFailException)],
)
def test_only_a_temporary_failure_is_tried_again(
    live: Live, problem: Exception, expected: type[Exception]
) -> None:
    """A newer start is nobody's retry."""
    context = Context()
    live(context, EMPTY).problem = problem
    with pytest.raises(expected):
        seeding.plan_progress(FLOW)


def test_a_person_sees_every_position_with_its_risk(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """And why it is the right one; nothing to write asks nobody."""
    shown = plan_of(refused=(Refusal("orders:1", "GAP", "two are missing", "decide"),))
    context, _ = planned_by(live, shown)
    asked: list[str] = []
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: asked.append(self.body))
    seeding.ApprovePositionsOperator(task_id="a", flow=FLOW).execute(context.values)  # type: ignore[arg-type]
    assert "| position | `orders:0` | - | 5 | skip 5 | said so |" in asked[0]
    assert "**Refused** `orders:1`: two are missing" in asked[0]
    context, _ = planned_by(live, EMPTY)
    with pytest.raises(AirflowSkipException):
        seeding.ApprovePositionsOperator(task_id="a", flow=FLOW).execute(context.values)  # type: ignore[arg-type]


def test_an_adoption_hands_on_what_the_form_says(live: Live) -> None:
    """Empty fields mean what the flow file implies."""
    _, clusters = planned_by(live, replace(EMPTY, operation="adopt"), kind="adopt", mm2_source="primary")
    assert clusters.asked == [seed_runs.Adoption(source="primary")]
