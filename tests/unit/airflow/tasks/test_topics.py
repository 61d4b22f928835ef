"""The tasks of ``sync_topics``: what they return, whom they ask, and what they refuse to do unasked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from onceover.acls.kept import AclPlan
from onceover.errors import Retriable, UsageError
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller
from onceover.planning.plan import Change, Refusal
from onceover.topics.changes import ConfigDiff, SetConfig
from onceover.topics.codes import TopicCode
from onceover.topics.plan import TopicPlan
from onceover.topics.sync import AppliedSync, SyncPlan
from onceover.wiring import topics as topic_runs
from onceover_airflow.approvals import approval
from onceover_airflow.approvals.approval import SHOWN_KEY
from onceover_airflow.approvals.asked import origin_of, question_id
from onceover_airflow.approvals.seal import sealed
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.tasks import operation, topics
from onceover_airflow.tasks.operation import ApproveOperator
from onceover_airflow.tasks.topics import TOPICS
from tests.unit.airflow import asking
from tests.unit.airflow.asking import Exchange
from tests.unit.airflow.conftest import FakeSpark

pytestmark = pytest.mark.usefixtures("unopened")
FLOW = "flights"


def plan_of(*diffs: ConfigDiff, refused: tuple[Refusal, ...] = ()) -> SyncPlan:
    steps = tuple(SetConfig("orders", "orders", one) for one in diffs)
    changes = tuple(step.change for step in steps)
    topics = TopicPlan(operation="topics", flow=FLOW, changes=changes, steps=steps, refused=refused)
    return SyncPlan.of(topics, AclPlan())


HARMLESS = ConfigDiff("segment.ms", None, "1000")
SHORTER = ConfigDiff("retention.ms", "9000", "1000")
SHORTEST = ConfigDiff("retention.ms", "9000", "10")
EMPTY = plan_of()


class Clusters:
    """What the use case would find: plans in their order, the last one again and again."""

    def __init__(self, *plans: SyncPlan) -> None:
        self._plans = list(plans)
        self.applied: list[Change] = []
        self.problem: Exception | None = None

    def plan(self) -> SyncPlan:
        if self.problem is not None:
            raise self.problem
        return self._plans.pop(0) if len(self._plans) > 1 else self._plans[0]

    def apply(self, caller: Caller, approval: Approval) -> AppliedSync:
        first = self.plan()
        caller.announce(first)
        approval.check(first.items, FLOW)
        self.applied += first.changes
        return AppliedSync(first, EMPTY, [], len(first.changes))


class Context:
    """A task's context: params, what tasks keep for each other, outlets."""

    def __init__(self, *, apply: bool = True) -> None:
        self.values: Any = {
            "params": {"apply": apply, "flow": FLOW},
            "ti": Exchange(),
            "outlet_events": self,
        }
        self.assets: list[tuple[str, Mapping[str, Any]]] = []

    def __getitem__(self, alias: Any) -> Context:
        assert alias.name == topics.SYNCED_ALIAS
        return self

    def add(self, asset: Any, *, extra: Mapping[str, Any]) -> None:
        self.assets.append((asset.uri, extra))


@pytest.fixture(autouse=True)
def flow(spark: FakeSpark) -> None:
    """A flow file named ``flights``."""


Live = Callable[..., Clusters]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    """Say what the clusters will look like."""

    def set_up(*plans: SyncPlan) -> Clusters:
        clusters = Clusters(*plans)
        monkeypatch.setattr(topic_runs, "topic_sync", lambda *_: nullcontext(clusters))
        monkeypatch.setattr("onceover_airflow.access.connections.connection_environment", lambda _: {})
        return clusters

    return set_up


def within(monkeypatch: pytest.MonkeyPatch, context: Context) -> Context:
    for module in (operation, topics):
        monkeypatch.setattr(module, "get_current_context", lambda: context.values)
    return context


def test_plan_returns_ids_and_counts_and_shows_the_plan(
    live: Live, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person reads it in the log; the XCom holds no topic and no value."""
    planned = plan_of(HARMLESS, SHORTER)
    live(planned)
    within(monkeypatch, Context())
    with caplog.at_level(logging.INFO):
        counts = TOPICS.plan(FLOW)
    assert counts == {
        "flow": FLOW,
        "operation": "topics",
        "plan_id": planned.plan_id,
        "changes": 2,
        "risky": 1,
        "refused": 0,
    }
    assert "orders retention.ms: 9000 -> 1000" in caplog.text


@pytest.mark.parametrize(
    ("problem", "seen"),
    [(Retriable("west is away"), JobInterrupted), (UsageError("no right"), AirflowFailException)],
)
def test_only_a_cluster_that_is_away_is_tried_again(
    live: Live, monkeypatch: pytest.MonkeyPatch, problem: Exception, seen: type[Exception]
) -> None:
    """Everything else needs a person."""
    live(EMPTY).problem = problem
    within(monkeypatch, Context())
    with pytest.raises(seen, match=str(problem)):
        TOPICS.plan(FLOW)


def test_approved_changes_are_made(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that cost nothing, whether they were in the plan or came later."""
    clusters = live(plan_of(SHORTER), plan_of(HARMLESS, SHORTER))
    asked(within(monkeypatch, Context()))
    assert TOPICS.apply(FLOW)["changes_made"] == 2
    assert len(clusters.applied) == 2


@pytest.mark.parametrize(
    "now", [SHORTEST, ConfigDiff("retention.ms", "5000", "1000"), ConfigDiff("retention.bytes", "-1", "1000")]
)
def test_a_risk_that_nobody_approved_is_not_taken(
    live: Live, monkeypatch: pytest.MonkeyPatch, now: ConfigDiff
) -> None:
    """The clusters changed between the approval and now: other values, or another setting."""
    clusters = live(plan_of(SHORTER), plan_of(SHORTER, now))
    asked(within(monkeypatch, Context()))
    with pytest.raises(AirflowFailException, match="something else by now"):
        TOPICS.apply(FLOW)
    assert clusters.applied == []


def test_a_try_after_an_interruption_finds_less_to_do(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two risky changes is made already; the other one was approved with it."""
    smaller = ConfigDiff("retention.bytes", "9000", "1000")
    clusters = live(plan_of(SHORTER, smaller), plan_of(smaller))
    asked(within(monkeypatch, Context()))
    TOPICS.apply(FLOW)
    assert len(clusters.applied) == 1


def test_not_asked_only_what_costs_nothing_is_done(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question was skipped: what has become risky since is nobody's wish."""
    clusters = live(plan_of(HARMLESS))
    context = within(monkeypatch, Context())
    with pytest.raises(AirflowSkipException):
        asked(context)
    assert TOPICS.apply(FLOW)["changes_made"] == 1
    live(plan_of(HARMLESS, SHORTER))
    with pytest.raises(AirflowFailException, match="something else by now"):
        TOPICS.apply(FLOW)
    assert len(clusters.applied) == 1


def test_with_apply_off_nothing_is_asked_and_nothing_done(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan only."""
    clusters = live(plan_of(SHORTER))
    context = within(monkeypatch, Context(apply=False))
    with pytest.raises(AirflowSkipException):
        TOPICS.apply(FLOW)
    with pytest.raises(AirflowSkipException):
        asked(context)
    assert clusters.applied == []


def test_report_announces_the_asset_when_nothing_is_left(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the asset of a flow that caught up."""
    live(EMPTY)
    context = within(monkeypatch, Context())
    counts = TOPICS.report(FLOW)
    assert context.assets == [("x-onceover://west/flights.topics", counts)]


def test_flow_without_topics_fails_and_announces_nothing(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to do where nothing is in scope, and that is no success."""
    nothing = Refusal(
        "topics.include", TopicCode.NOTHING_IN_SCOPE, "no topic is in scope", "correct it", blocks=False
    )
    live(plan_of(refused=(nothing,)))
    context = within(monkeypatch, Context())
    with pytest.raises(AirflowFailException, match="no topic is in scope; correct it"):
        TOPICS.report(FLOW)
    assert context.assets == []


def test_report_after_a_rejection_announces_nothing(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is still there, and that is what the person wanted."""
    live(plan_of(SHORTER))
    context = within(monkeypatch, Context())
    assert TOPICS.report(FLOW)["changes"] == 1
    assert context.assets == []


def test_report_fails_when_somebody_has_to_decide(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way out; a remark alone fails nothing."""
    blocked = Refusal("orders", "TARGET_NOT_EMPTY", "it holds records", "delete it")
    live(plan_of(refused=(blocked,)))
    context = within(monkeypatch, Context())
    with pytest.raises(AirflowFailException, match="orders: it holds records; to resolve: delete it"):
        TOPICS.report(FLOW)
    live(plan_of(refused=(Refusal("orders", "KEY_UNKNOWN", "no such key", "nothing", blocks=False),)))
    TOPICS.report(FLOW)
    assert len(context.assets) == 1


# ---- the approval


def asked(context: Context) -> ApproveOperator:
    """Put the question and say yes; return the operator as it asked."""
    operator = ApproveOperator(task_id=TOPICS.approve_task, tasks=TOPICS, name=FLOW)
    asking.ask(operator, context.values)
    return operator


def test_only_changes_that_may_cost_records_are_asked_about(live: Live) -> None:
    """The body shows each of them; silence means no."""
    live(plan_of(HARMLESS, SHORTER))
    operator = asked(Context())
    body = str(operator.body)
    assert "| set config | `orders retention.ms` | `9000` | `1000` | destructive |" in body
    assert "segment.ms" not in body
    assert "1 other changes" in body
    assert (operator.options, operator.defaults) == (["Approve", "Reject"], ["Reject"])


def test_a_harmless_plan_is_not_asked_about(live: Live) -> None:
    """Nobody is woken for a new topic."""
    live(plan_of(HARMLESS))
    with pytest.raises(AirflowSkipException, match="nothing of the plan needs an approval"):
        asked(Context())


def test_a_long_list_is_cut_and_says_where_the_rest_is() -> None:
    """A person decides by the first page, and knows that there is more."""
    diffs = [ConfigDiff("retention.ms", str(9000 + n), "1") for n in range(40)]
    body = TOPICS.question(plan_of(*diffs))
    assert body.count("destructive") == approval.MAX_LISTED
    assert "and 10 more: see the log of this task" in body


@pytest.mark.parametrize(("answer", "skipped"), [("Approve", False), ("Reject", True)])
def test_the_answer_decides_about_the_task_downstream(
    monkeypatch: pytest.MonkeyPatch, answer: str, skipped: bool
) -> None:
    """Rejected: apply is skipped, whatever its trigger rule says."""
    from airflow.sdk import DAG, task

    skips: list[str] = []
    monkeypatch.setattr(ApprovalOperator, "skip", lambda _, ti, tasks: skips.extend(t.task_id for t in tasks))
    with DAG("d"):
        operator = ApproveOperator(task_id="approve_changes", tasks=TOPICS, name=FLOW)
        operator >> task(task_id="apply_topics", trigger_rule="none_failed")(lambda: None)()
    event = {
        "chosen_options": [answer],
        "params_input": {},
        "responded_at": datetime(2026, 1, 1, tzinfo=UTC),
        "responded_by_user": {"id": "1", "name": "ann"},
    }
    exchange = Exchange()
    exchange.task_id = operator.task_id
    context: Any = {"ti": exchange, "task": operator}
    shown = {**origin_of(context, operator.task_id), "question": question_id(context)}
    exchange.xcom_push(SHOWN_KEY, sealed(shown))
    operator.execute_complete(context, event)
    assert skips == (["apply_topics"] if skipped else [])
