"""The tasks of ``migrate_connector_offsets``: whom they ask, what they refuse unasked, what they hand on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from onceover.connectors.model import (
    ConnectorOutcome,
    ConnectorPlan,
    ConnectorState,
    EndState,
    MigrationPlan,
    Report,
    WorkerFacts,
)
from onceover.connectors.settings import ConnectorMove, ConnectorRequest
from onceover.connectors.workers.listing import ConnectorListing
from onceover.errors import Retriable, UsageError
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller
from onceover.planning.plan import Change, Refusal
from onceover.wiring import connectors as runs
from onceover_airflow.access import connections
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.tasks import connectors, operation
from onceover_airflow.tasks.connectors import MIGRATION
from onceover_airflow.tasks.operation import ApproveOperator
from tests.support.raw.hostilenames import HOSTILE
from tests.unit.airflow import asking
from tests.unit.airflow.asking import RETURNED, Exchange

CONNECT = "flights"
PLAN_TASK = "plan_migration"
SECRET = "hunter2-planted"
FACTS = WorkerFacts(
    "4.3.0", "k", "g", "connect-offsets", "connect-configs", True, ("http://w:1",), connect="c"
)
PARAMS = {"connect": CONNECT, "operation": "migrate", "connectors": [], "topic": "", "apply": True}
LISTING = ConnectorListing(
    CONNECT,
    "4.3.0",
    "connect-offsets",
    True,
    (ConnectorState("a", "source", "RUNNING"), ConnectorState("sink", "sink", "RUNNING"),
     ConnectorState("b", "source", "RUNNING")),
)  # fmt: skip


def planned(name: str, *more: Change, refused: bool = False) -> ConnectorPlan:
    changes = (Change("stop", name, "RUNNING", "STOPPED", "no task may write meanwhile"), *more)
    refusal = Refusal(name, "NOT_COMPACTED", "its cleanup.policy is delete", "name another topic")
    return ConnectorPlan(
        name=name,
        from_topic="connect-offsets",
        topic=f"connect-offsets-{name}",
        changes=() if refused else changes,
        refusals=(refusal,) if refused else (),
        warnings=("GET offsets shows something else",),
        notes=("stands still for about 7 s",),
    )


def plan_of(*plans: ConnectorPlan) -> MigrationPlan:
    return MigrationPlan.of("migrate", CONNECT, FACTS, plans)


class Live:
    """A Connect cluster: answers with plans in their order, the last one again and again."""

    def __init__(self) -> None:
        self.plans: list[MigrationPlan] = [plan_of(planned("a"))]
        self.outcome = EndState.DONE
        self.problem: Exception | None = None
        self.asked: list[ConnectorRequest] = []
        self.applied = 0
        self.called: list[str] = []

    def list_connectors(self, _: object) -> ConnectorListing:
        if self.problem is not None:
            raise self.problem
        return LISTING

    @contextmanager
    def connector_operation(
        self, _: object, move: ConnectorMove, request: ConnectorRequest
    ) -> Iterator[FakeMove]:
        self.called.append(str(move))
        yield FakeMove(self, request)

    def verify_connectors(self, _: object, request: ConnectorRequest) -> Report:
        outcomes = tuple(ConnectorOutcome(n, self.outcome, "seen") for n in request.connectors)
        return Report("migrate", CONNECT, outcomes)


class FakeMove:
    """What is done to the connectors of ``Live``."""

    def __init__(self, live: Live, request: ConnectorRequest) -> None:
        self._live, self._request = live, request

    def plan(self) -> MigrationPlan:
        live = self._live
        live.asked.append(self._request)
        return live.plans.pop(0) if len(live.plans) > 1 else live.plans[0]

    def apply(self, caller: Caller, approval: Approval) -> Report:
        now = self.plan()
        caller.announce(now)
        approval.check(now.items, CONNECT)
        self._live.applied += 1
        return self._live.verify_connectors(None, self._request)


class Context:
    """A run's context: params, what tasks returned, what was announced."""

    def __init__(self, **params: Any) -> None:
        self.exchange = Exchange()
        self.assets: list[tuple[str, Mapping[str, Any]]] = []
        self.values: dict[str, Any] = {
            "params": {**PARAMS, **params},
            "ti": self.exchange,
            "outlet_events": {alias: self for alias in (AssetAlias(connectors.MIGRATED_ALIAS),)},
        }

    def returned(self, task: str) -> Any:
        """Return what a task has returned."""
        return self.exchange.xcom_pull(task_ids=task)

    def add(self, asset: Any, extra: Mapping[str, Any]) -> None:
        self.assets.append((asset.uri, extra))

    def after(self, *tasks: Callable[[str], Any]) -> Context:
        """Run tasks, one after the other, and keep what they return."""
        ids: dict[Callable[[str], Any], str] = {
            connectors.list_connectors: connectors.LIST_TASK,
            MIGRATION.plan: PLAN_TASK,
            MIGRATION.apply: MIGRATION.apply_task,
        }
        for task in tasks:
            self.exchange.kept[ids[task], RETURNED] = task(CONNECT)
        return self

    def approved(self) -> Context:
        """Put the plan before a person, who says yes."""
        ask(self)
        return self

    def picked(self, *names: str) -> Context:
        """Answer the question for connectors."""
        self.exchange.kept[connectors.PICK_TASK, RETURNED] = {"chosen_options": list(names)}
        return self


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Live:
    """A Connect file, and a cluster that answers."""
    cluster = Live()
    for name in (name for name in vars(Live) if not name.startswith("_")):
        monkeypatch.setattr(runs, name, getattr(cluster, name))
    monkeypatch.setenv("ONCEOVER_CONNECT", str(tmp_path))
    (tmp_path / f"{CONNECT}.yaml").write_text(
        json.dumps(
            {
                "connect": CONNECT,
                "rest": ["http://127.0.0.1:1"],
                "worker": {
                    "group.id": "g",
                    "offset.storage.topic": "connect-offsets",
                    "config.storage.topic": "connect-configs",
                },
                "kafka": {"client": {"bootstrap.servers": "127.0.0.1:1"}},
            }
        )
    )
    return cluster


@pytest.fixture
def begin(live: Live, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Context]:
    """Begin a run with the form's values."""

    def begin(**params: Any) -> Context:
        context = Context(**params)
        for module in (operation, connectors):
            monkeypatch.setattr(module, "get_current_context", lambda: context.values)
        return context

    return begin


Begin = Callable[..., Context]
LIST, PLAN, APPLY = connectors.list_connectors, MIGRATION.plan, MIGRATION.apply


def test_connectors_that_the_form_names_are_migrated(begin: Begin, live: Live) -> None:
    """In the form's order; names and verdicts go into the XComs, and each is announced."""
    live.plans = [plan_of(planned("b"), planned("a"))]
    context = begin(connectors=["b", "a"], topic="mine").after(LIST, PLAN).approved().after(APPLY)
    assert live.asked[-1] == ConnectorRequest(connectors=("b", "a"), topic="mine")
    assert context.returned(PLAN_TASK)["connectors"] == ["b", "a"]
    assert MIGRATION.verify(CONNECT)["outcomes"] == ["done", "done"]
    assert [uri for uri, _ in context.assets] == [
        "x-onceover://flights/b.offsets",
        "x-onceover://flights/a.offsets",
    ]


@pytest.mark.parametrize("operation", ["rollback", "downgrade", "downgrade-soft"])
def test_the_way_back_is_shown_and_approved_too(begin: Begin, live: Live, operation: str) -> None:
    """By the plan of that way, and nothing else is done; a topic of the form is no topic to go back to."""
    context = begin(connectors=["a"], operation=operation, topic="mine").after(LIST, PLAN)
    with pytest.raises(AirflowSkipException, match="nothing was approved"):
        MIGRATION.apply(CONNECT)
    assert live.applied == 0
    context.approved().after(APPLY)
    assert live.called == [operation] * 3
    assert (live.applied, live.asked[-1]) == (1, ConnectorRequest(connectors=("a",)))
    with pytest.raises(AirflowSkipException, match="has judged them"):
        MIGRATION.verify(CONNECT)
    assert context.assets == []


def test_the_way_back_makes_only_what_was_approved(begin: Begin, live: Live) -> None:
    """As a migration."""
    live.plans = [plan_of(planned("a")), plan_of(planned("a")), plan_of(planned("a", OTHER))]
    begin(connectors=["a"], operation="downgrade").after(LIST, PLAN).approved()
    with pytest.raises(AirflowFailException, match="remove stale offsets connect-offsets-a"):
        MIGRATION.apply(CONNECT)
    assert live.applied == 0


def test_who_has_a_topic_of_its_own_is_offered_to_go_back(
    begin: Begin, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have nothing to go back from; and no run to take back, unless it was interrupted."""
    own = ConnectorState("b", "source", "RUNNING", config={"offsets.storage.topic": "mine"})
    listing = ConnectorListing(CONNECT, "4.3.0", "o", True, (ConnectorState("a", "source", "RUNNING"), own))
    monkeypatch.setattr(runs, "list_connectors", lambda _: listing)
    owing = SimpleNamespace(owing=lambda names, done: set(names) & {"a"} if done == "migrate" else set())
    monkeypatch.setattr(runs, "Migration", lambda _: nullcontext(owing))
    begin(operation="downgrade")
    assert connectors.list_connectors(CONNECT)["sources"] == ["b"]
    begin(operation="rollback")
    assert connectors.list_connectors(CONNECT)["sources"] == ["a"]


def test_the_form_offers_every_operation() -> None:
    """And begins with the one that the DAG is called after."""
    param = connectors.connect_params()["operation"]
    assert param.schema["enum"] == [str(move) for move in ConnectorMove]
    assert param.value == "migrate"


def test_no_two_connectors_share_an_asset() -> None:
    """A connector may be called anything, and Airflow cuts a URI at what it takes for a fragment."""
    found = {
        Asset(connectors.migrated_uri("c", name)).uri for name in ("a", "a#b", "a#c", "a?b", "a/b", "a%23b")
    }
    assert len(found) == 6
    assert "x-onceover://c/a%23b.offsets" in found


def test_without_names_a_person_picks_from_what_the_cluster_has(begin: Begin, live: Live) -> None:
    """Source connectors only, several at once; what was picked is planned."""
    context = begin().after(LIST)
    _, question = put(connectors.PickConnectorsOperator, HITLOperator, context)
    assert (question["options"], question["multiple"]) == (["a", "b"], True)
    context.picked("b").after(PLAN)
    assert live.asked == [ConnectorRequest(connectors=("b",))]


def test_a_person_sees_what_they_pick(begin: Begin, live: Live) -> None:
    """A name may turn text round, or be written as another one is shown: each option is one connector's."""
    names = [*filter(None, HOSTILE), "a\nb", r"a\nb", r"a\\nb"]
    context = begin()
    listed = {"connect": CONNECT, "sources": names, "named": []}
    context.exchange.kept[connectors.LIST_TASK, RETURNED] = listed
    _, question = put(connectors.PickConnectorsOperator, HITLOperator, context)
    options = question["options"]
    assert len(set(options)) == len(names)
    assert all(option.isprintable() for option in options)
    for name, option in zip(names, options, strict=True):
        live.asked.clear()
        context.picked(option).after(PLAN)
        assert live.asked == [ConnectorRequest(connectors=(name,))]


def test_the_form_s_names_are_checked_against_the_cluster(begin: Begin) -> None:
    """Before anything is planned; a sink has no source offsets."""
    begin(connectors=["aa"])
    with pytest.raises(AirflowFailException, match=r'there is no connector aa.*did you mean "a"'):
        connectors.list_connectors(CONNECT)
    begin(connectors=["sink"])
    with pytest.raises(AirflowFailException, match="sink is a sink connector"):
        connectors.list_connectors(CONNECT)
    context = begin(connectors=["a"]).after(LIST)
    with pytest.raises(AirflowSkipException, match="the form names the connectors"):
        put(connectors.PickConnectorsOperator, HITLOperator, context)


def test_an_empty_line_of_the_form_names_nobody(begin: Begin) -> None:
    """Alone it is an empty field: a person is asked."""
    begin(connectors=["", " "])
    assert connectors.list_connectors(CONNECT)["named"] == []
    begin(connectors=["a", ""])
    assert connectors.list_connectors(CONNECT)["named"] == ["a"]


def test_a_cluster_without_source_connectors_has_nothing_to_pick(
    begin: Begin, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said at once."""
    monkeypatch.setattr(runs, "list_connectors", lambda _: ConnectorListing(CONNECT, "4.3.0", "o", True, ()))
    begin()
    with pytest.raises(AirflowFailException, match="has no source connector"):
        connectors.list_connectors(CONNECT)


def test_workers_that_are_away_are_tried_again(begin: Begin, live: Live) -> None:
    """Exit code 5 is; what is wrong for good is not."""
    live.problem = Retriable("the worker does not answer")
    begin()
    with pytest.raises(JobInterrupted, match="does not answer"):
        connectors.list_connectors(CONNECT)
    live.problem = UsageError("the workers refuse the login")
    with pytest.raises(AirflowFailException, match="refuse the login"):
        connectors.list_connectors(CONNECT)
    with pytest.raises(AirflowFailException, match='did you mean "flights"'):
        connectors.list_connectors("fligts")


def test_a_plan_alone_changes_nothing(begin: Begin, live: Live) -> None:
    """Neither asked nor applied."""
    context = begin(connectors=["a"], apply=False).after(LIST, PLAN)
    with pytest.raises(AirflowSkipException):
        ask(context)
    with pytest.raises(AirflowSkipException):
        MIGRATION.apply(CONNECT)
    assert live.applied == 0
    with pytest.raises(AirflowSkipException):
        MIGRATION.verify(CONNECT)


def test_the_question_shows_the_plan(begin: Begin, live: Live) -> None:
    """Every change, what is refused, what deserves a look; silence means no."""
    live.plans = [plan_of(planned("a"), planned("b", refused=True))]
    context = begin(connectors=["a", "b"]).after(LIST, PLAN)
    assert context.returned(PLAN_TASK)["refused"] == ["b"]
    operator = ask(context)
    body = str(operator.body)
    assert "| stop | `a` | RUNNING | STOPPED | no task may write meanwhile |" in body
    assert "**Refused** `b`: its cleanup.policy is delete" in body
    assert "**Look at** `a`: GET offsets shows something else" in body
    assert "**Note** `a`: stands still for about 7 s" in body
    assert operator.defaults == ["Reject"]


def test_nothing_to_do_asks_nobody(begin: Begin, live: Live) -> None:
    """A connector that was migrated before."""
    done = ConnectorPlan(name="a", from_topic="connect-offsets", topic="mine")
    live.plans = [plan_of(done)]
    context = begin(connectors=["a"]).after(LIST, PLAN)
    with pytest.raises(AirflowSkipException, match="nothing of the plan needs an approval"):
        ask(context)
    with pytest.raises(AirflowSkipException, match="nothing was approved"):
        MIGRATION.apply(CONNECT)


def test_when_nothing_can_be_done_the_plan_fails_with_the_way_out(begin: Begin, live: Live) -> None:
    """Nobody is asked to approve refusals."""
    live.plans = [plan_of(planned("a", refused=True))]
    begin(connectors=["a"]).after(LIST)
    with pytest.raises(
        AirflowFailException, match=r"a: its cleanup\.policy is delete; to resolve: name another"
    ):
        MIGRATION.plan(CONNECT)


OTHER = Change("remove stale offsets", "connect-offsets-a", 3, 0, "not in the shared topic", "destructive", 3)


def test_other_changes_than_the_approved_ones_are_not_made(begin: Begin, live: Live) -> None:
    """What was approved is what was seen."""
    live.plans = [plan_of(planned("a")), plan_of(planned("a")), plan_of(planned("a", OTHER))]
    begin(connectors=["a"]).after(LIST, PLAN).approved()
    with pytest.raises(AirflowFailException, match="remove stale offsets connect-offsets-a"):
        MIGRATION.apply(CONNECT)
    assert live.applied == 0


def test_a_try_after_an_interruption_finds_less_to_do(begin: Begin, live: Live) -> None:
    """What is done already is no longer in the plan; the rest was approved."""
    live.plans = [plan_of(planned("a", OTHER)), plan_of(planned("a", OTHER)), plan_of(planned("a"))]
    begin(connectors=["a"]).after(LIST, PLAN).approved().after(APPLY)
    assert live.applied == 1


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (EndState.FAILED, AirflowFailException),
        (EndState.REFUSED, AirflowFailException),
        (EndState.UNVERIFIABLE, AirflowFailException),
        (EndState.RETRIABLE, JobInterrupted),
    ],
)
def test_what_did_not_end_well_fails_the_task(
    begin: Begin, live: Live, outcome: EndState, error: type[Exception]
) -> None:
    """With every connector's verdict; only what is temporary is tried again."""
    live.outcome = outcome
    begin(connectors=["a"]).after(LIST, PLAN).approved()
    with pytest.raises(error, match=f"a: {outcome.label}: seen"):
        MIGRATION.apply(CONNECT)


def test_no_secret_of_the_connect_file_is_shown(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passwords of REST, Kafka and the workers' own file reach the masker; XComs hold names."""
    path = tmp_path / f"{CONNECT}.yaml"
    document = json.loads(path.read_text())
    document |= {
        "rest_auth": {"username": "u", "password": "${REST_PASSWORD}"},
        "worker_config": "w.properties",
    }
    path.write_text(json.dumps(document))
    (tmp_path / "w.properties").write_text('producer.sasl.jaas.config=x password="jaas-secret";\n')
    monkeypatch.setenv("REST_PASSWORD", SECRET)
    masked: list[str] = []
    monkeypatch.setattr(connections, "mask_secret", masked.append)
    with connectors.connect_at_hand(CONNECT) as file:
        assert SECRET not in repr(file)
    assert {SECRET, "jaas-secret"} <= set(masked)


def ask(context: Context) -> ApproveOperator:
    """Put the plan before a person, who says yes; return the operator as it asked."""
    operator = ApproveOperator(task_id=MIGRATION.approve_task, tasks=MIGRATION, name=CONNECT)
    asking.ask(operator, context.values)
    return operator


def put(kind: type[Any], base: type[Any], context: Context) -> tuple[Any, dict[str, Any]]:
    """Execute an operator with the framework's part replaced; return what it would have asked."""
    operator = kind(task_id="ask", connect=CONNECT)
    question: dict[str, Any] = {}

    def ask(self: Any, _: Any) -> None:
        question.update(body=self.body, options=self.options, defaults=self.defaults, multiple=self.multiple)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "execute", ask)
        operator.execute(context.values)
    return operator, question


def test_what_was_picked_is_taken_although_the_options_are_not_those_of_the_file(begin: Begin) -> None:
    """The answer is compared with what was offered, by the API; the operator made anew knows no options."""
    operator = connectors.PickConnectorsOperator(task_id="pick", connect=CONNECT)
    answer = {
        "chosen_options": ["a", "b"],
        "params_input": {},
        "responded_at": datetime(2026, 1, 1, tzinfo=UTC),
        "responded_by_user": {"id": "1", "name": "ann"},
    }
    context: Any = {}
    chosen: Sequence[str] = operator.execute_complete(context, answer)["chosen_options"]
    assert chosen == ["a", "b"]
