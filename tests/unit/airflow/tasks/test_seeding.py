"""The tasks of ``seed_progress``: whom they ask, what they refuse to do unasked, what they hand on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from onceover.errors import Fenced, Retriable, UsageError
from onceover.model import TopicPartition
from onceover.planning.approval import Approval, ObjectState
from onceover.planning.operation import Caller
from onceover.planning.plan import Change, Refusal
from onceover.seeding.apply import Seeded
from onceover.seeding.plan import Choice, Seat, SeededPosition, SeedPlan
from onceover.wiring.failovers import seeding as seed_runs
from onceover.wiring.offsetfiles import ReadFile, offset_files
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.tasks import operation, seeding
from onceover_airflow.tasks.operation import ApproveOperator
from onceover_airflow.tasks.seeding import PROGRESS
from tests.unit.airflow import asking
from tests.unit.airflow.asking import Exchange
from tests.unit.airflow.conftest import FakeSpark

pytestmark = pytest.mark.usefixtures("unopened")
FLOW = "flights"
_TP = TopicPartition("orders", 0)
_SEAT = Seat(source=_TP, target=_TP, start=0, lso=9, end=9)


def plan_of(risk: str = "skip", to: int = 5, refused: tuple[Refusal, ...] = ()) -> SeedPlan:
    change = Change("position", str(_TP), None, to, "said so", risk, to if risk != "none" else None)
    positions = {_TP: SeededPosition(_SEAT, to, 0)}
    return SeedPlan(operation="seed", flow=FLOW, changes=(change,), positions=positions, refused=refused)


CREATE = Change("create topic", "orders", None, "1 partitions", "copy of orders")
EMPTY = SeedPlan(operation="seed", flow=FLOW)
PARAMS = {name: param.value for name, param in seeding.seed_params().items()} | {"origin": "group:g"}


class Clusters:
    """What the use case would find: plans in their order, the last one again and again."""

    def __init__(self, *plans: SeedPlan) -> None:
        self._plans = list(plans)
        self.asked: list[Any] = []
        self.problem: Exception | None = None
        self.read: ReadFile | None = None

    def next(self) -> SeedPlan:
        if self.problem is not None:
            raise self.problem
        return self._plans.pop(0) if len(self._plans) > 1 else self._plans[0]

    def made(self, *_: object, request: Any, read: ReadFile) -> AbstractContextManager[Clusters]:
        self.asked.append(request)
        self.read = read
        return nullcontext(self)

    def plan(self) -> SeedPlan:
        return self.next()

    def apply(self, caller: Caller, approval: Approval) -> Seeded:
        planned = self.next()
        caller.announce(planned)
        approval.check(planned.items, planned.title)
        return Seeded(planned, 3, len(planned.positions))


class Context:
    """A task's context: params, and what tasks keep for each other."""

    def __init__(self, **params: Any) -> None:
        self.values: Any = {"params": {**PARAMS, **params, "flow": FLOW}, "ti": Exchange()}


Live = Callable[..., Clusters]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, spark: FakeSpark) -> Live:
    def begin(context: Context, *plans: SeedPlan) -> Clusters:
        clusters = Clusters(*plans)
        for name in ("seeder", "adopter"):
            monkeypatch.setattr(seed_runs, name, clusters.made)
        monkeypatch.setattr(operation, "get_current_context", lambda: context.values)
        monkeypatch.setattr("onceover_airflow.access.connections.connection_environment", lambda _: {})
        return clusters

    return begin


def planned_by(live: Live, *plans: SeedPlan, **params: Any) -> tuple[Context, Clusters, Mapping[str, Any]]:
    """Run the plan's task; return the context of those after it, and what it has returned."""
    context = Context(**params)
    clusters = live(context, *plans)
    return context, clusters, PROGRESS.plan(FLOW)


def ask(context: Context) -> str:
    """Put the question and say yes; return what a person is shown."""
    operator = ApproveOperator(task_id=PROGRESS.approve_task, tasks=PROGRESS, name=FLOW)
    return str(asking.ask(operator, context.values).body)


def test_what_was_approved_is_written(live: Live) -> None:
    """Ids and counts go into the plan's XCom, nothing else."""
    context, clusters, planned = planned_by(live, plan_of())
    assert (planned["positions"], planned["refused"]) == (1, 0)
    assert clusters.asked == [seed_runs.SeedingOptions("group:g", Choice())]
    ask(context)
    assert PROGRESS.apply(FLOW) == {"flow": FLOW, "written": 1, "generation": 3}


def standing(state: str = "PROGRESS_MISSING", changed: str = "") -> SeedPlan:
    return replace(plan_of(), standing={str(_TP): ObjectState(state, changed)})


@pytest.mark.parametrize(
    ("shown", "now", "same"),
    [
        (plan_of(to=5), plan_of(to=6), True),
        (plan_of(), plan_of(risk="repeat"), False),
        (standing(), standing("not stopped"), False),
        (standing(), standing(changed="other"), False),
        (replace(plan_of(), changes=(CREATE, *plan_of().changes)), plan_of(), True),
    ],
    ids=[
        "origin went on",
        "other risk",
        "well again",
        "repaired by another run",
        "an earlier try did a part",
    ],
)
def test_what_was_shown_is_approved_and_nothing_else(
    live: Live, shown: SeedPlan, now: SeedPlan, same: bool
) -> None:
    """Between question and answer it may have become something else."""
    context, _, _ = planned_by(live, shown, shown, now)
    ask(context)
    if same:
        assert PROGRESS.apply(FLOW)["written"] == 1
    else:
        with pytest.raises(AirflowFailException, match="something else by now"):
            PROGRESS.apply(FLOW)


def test_a_refused_partition_fails_the_run_and_says_what_resolves_it(live: Live) -> None:
    """The others are written."""
    context, _, _ = planned_by(
        live, plan_of(refused=(Refusal("orders:1", "GAP", "two are missing", "decide"),))
    )
    ask(context)
    with pytest.raises(AirflowFailException, match=r"orders:1: two are missing; to resolve: decide"):
        PROGRESS.apply(FLOW)


def test_only_a_plan_is_only_a_plan(live: Live) -> None:
    """Neither asked nor applied."""
    context, _, _ = planned_by(live, plan_of(), apply=False)
    with pytest.raises(AirflowSkipException):
        PROGRESS.apply(FLOW)
    with pytest.raises(AirflowSkipException):
        ask(context)


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
        PROGRESS.plan(FLOW)


def test_a_person_sees_every_position_with_its_risk(live: Live) -> None:
    """And why it is the right one; nothing to write asks nobody."""
    shown = plan_of(refused=(Refusal("orders:1", "GAP", "two are missing", "decide"),))
    context, _, _ = planned_by(live, shown)
    body = ask(context)
    assert "| position | `orders:0` | - | 5 | skip 5 | said so |" in body
    assert "**Refused** `orders:1`: two are missing" in body
    context, _, _ = planned_by(live, EMPTY)
    with pytest.raises(AirflowSkipException):
        ask(context)


def test_an_adoption_hands_on_what_the_form_says(live: Live) -> None:
    """Empty fields mean what the flow file implies."""
    _, clusters, _ = planned_by(
        live, replace(EMPTY, operation="adopt"), kind="adopt", origin="map", mm2_source="primary"
    )
    assert clusters.asked == [seed_runs.AdoptionOptions(source="primary")]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kind": "seed", "decided": "/nope"}, "decided: not for the kind seed"),
        (
            {"kind": "seed", "mm2_source": "x", "mm2_target": "y"},
            "mm2_source, mm2_target: not for the kind seed",
        ),
        ({"kind": "adopt", "origin": "earliest"}, "origin: not for the kind adopt"),
        (
            {"kind": "adopt", "origin": "map", "replace": True, "missing": "latest"},
            "replace, missing: not for",
        ),
    ],
)
def test_fields_of_the_other_kind_are_refused(live: Live, given: dict[str, Any], named: str) -> None:
    """Ignored in silence, somebody would take them for done."""
    with pytest.raises(AirflowFailException, match=named):
        planned_by(live, plan_of(), **given)


@pytest.mark.parametrize("kind", ["seed", "adopt"])
def test_fields_of_the_other_kind_may_stay_as_they_are(live: Live, kind: str) -> None:
    """An empty text is an empty field."""
    planned_by(live, EMPTY, kind=kind, origin="map", mm2_source="", mm2_target=None, decided="")


@pytest.mark.parametrize("params", [{"origin": "file:x"}, {"kind": "adopt", "origin": "map", "decided": "x"}])
def test_a_form_names_files_of_one_folder_only(
    live: Live, params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may trigger is not to read what the worker may: neither planning nor applying."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    offset_files().mkdir(parents=True)
    (offset_files() / "x").write_text("offsets")
    context, clusters, _ = planned_by(live, plan_of(), **params)
    only_there(clusters, tmp_path / "flights.yaml")
    if params.get("kind") != "adopt":
        clusters.read = None
        ask(context)
        PROGRESS.apply(FLOW)
        only_there(clusters, tmp_path / "flights.yaml")


def only_there(clusters: Clusters, elsewhere: Path) -> None:
    assert clusters.read is not None
    assert clusters.read("x") == "offsets"
    assert elsewhere.is_file()
    with pytest.raises(UsageError):
        clusters.read(str(elsewhere))


@pytest.mark.parametrize("ref", ["/etc/passwd", "../flights.yaml", "flights.yaml", "./flights"])
def test_no_form_names_a_flow_by_its_path(live: Live, ref: str) -> None:
    """A file of somebody's own would have the worker connect anywhere with what its environment holds."""
    live(Context(), plan_of())
    with pytest.raises(AirflowFailException, match="names only"):
        PROGRESS.plan(ref)
    context = Context(origin=f"flow:{ref}")
    live(context, plan_of())
    with pytest.raises(AirflowFailException, match="names only"):
        PROGRESS.plan(FLOW)
