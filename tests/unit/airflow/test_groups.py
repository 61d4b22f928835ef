"""The tasks of ``sync_group_offsets``: whom they ask, and what they leave alone unasked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from onceover.config.flowfile import Flow
from onceover.engine.groupapply import GroupSync
from onceover.engine.groupfollow import follow
from onceover.errors import Retriable, UsageError
from onceover.wiring import groups as group_runs
from onceover.wiring.groups import GroupWish
from onceover_airflow import groups
from onceover_airflow.errors import JobInterrupted
from tests.unit.airflow.conftest import FakeSpark
from tests.unit.engine.groupworld import SHIFT, Lines, World

FLOW = "flights"
FOREIGN = "foreign east.orders:0"


@pytest.fixture(autouse=True)
def flow(spark: FakeSpark) -> None:
    """A flow file named ``flights``."""


class Context:
    """A task's context: params, what the plan's task returned, outlets."""

    def __init__(self, risky: list[str], **params: Any) -> None:
        self._planned = {"risky": risky}
        common = {"direction": "failover", "group": "", "allow_rewind": False, "until": "once"}
        params = {**common, "apply": True, "approve": True, **params}
        self.values = {"params": params, "ti": self, "outlet_events": self}
        self.assets: list[tuple[str, Mapping[str, Any]]] = []

    def xcom_pull(self, *, task_ids: str) -> Mapping[str, Any]:
        assert task_ids == "plan_groups"
        return self._planned

    def __getitem__(self, alias: Any) -> Context:
        assert alias.name == groups.SYNCED_ALIAS
        return self

    def add(self, asset: Any, *, extra: Mapping[str, Any]) -> None:
        self.assets.append((asset.uri, extra))


Within = Callable[..., Context]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Groups of two clusters, one of them committed by somebody else on the receiving side."""
    world = World(here={"new": 4, "foreign": 7}, there={"foreign": 101})

    def sync(wish: GroupWish) -> GroupSync:
        return GroupSync(cast(Any, world), wish.allowed, cast(Any, Lines()), 1, wish.approves)

    def followed(_: Flow, wish: GroupWish, interval_s: float, pause: Any, tell: Any) -> Any:
        return follow(sync(wish), interval_s, pause, tell)

    monkeypatch.setattr(group_runs, "plan_groups", lambda _, wish: sync(wish).plan())
    monkeypatch.setattr(
        group_runs, "apply_groups", lambda _, wish, tell, pause: sync(wish).apply(tell, pause)
    )
    monkeypatch.setattr(group_runs, "follow_groups", followed)
    monkeypatch.setattr("onceover_airflow.connections.connection_environment", lambda _: {})
    monkeypatch.setattr("onceover_airflow.groups.time.sleep", lambda _: None)
    return world


@pytest.fixture
def within(monkeypatch: pytest.MonkeyPatch) -> Within:
    """Be in a task with this context."""

    def enter(*risky: str, **params: Any) -> Context:
        context = Context(list(risky), **params)
        monkeypatch.setattr(groups, "get_current_context", lambda: context.values)
        return context

    return enter


def asked(monkeypatch: pytest.MonkeyPatch, context: Context) -> str:
    """Return the body of the question."""
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, _: self.body)
    operator = groups.ApproveMovesOperator(task_id="approve_moves", flow=FLOW)
    return str(operator.execute(cast(Any, context.values)))


def test_the_plan_names_what_is_risky_and_changes_nothing(world: World, within: Within) -> None:
    within()
    planned = groups.plan_groups(FLOW)
    assert (planned["changes"], planned["risky"]) == (2, [FOREIGN])
    assert world.log == []


def test_a_person_is_shown_the_risky_moves_only(
    world: World, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = asked(monkeypatch, within(FOREIGN))
    assert f"| move group | `{FOREIGN}` | 101 | {7 + SHIFT} | skip 6 |" in body
    assert "new" not in body


@pytest.mark.parametrize("params", [{"approve": False}, {"apply": False}])
def test_nobody_is_asked_when_that_is_not_wanted(
    world: World, within: Within, monkeypatch: pytest.MonkeyPatch, params: dict[str, bool]
) -> None:
    with pytest.raises(AirflowSkipException):
        asked(monkeypatch, within(FOREIGN, **params))


def test_a_risk_that_is_gone_is_not_asked_about(
    world: World, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.there["foreign"] = 7 + SHIFT
    with pytest.raises(AirflowSkipException):
        asked(monkeypatch, within(FOREIGN))


def test_what_was_approved_is_written_and_announced(world: World, within: Within) -> None:
    context = within(FOREIGN)
    counts = groups.apply_groups(FLOW)
    assert world.there == {"new": 4 + SHIFT, "foreign": 7 + SHIFT}
    assert context.assets == [("kafka://west/flights.groups", counts)]


def test_flow_without_groups_is_skipped_and_announces_nothing(world: World, within: Within) -> None:
    """Nobody consumes yet: nothing is in place, and that is seen."""
    world.here.clear()
    context = within()
    with pytest.raises(AirflowSkipException, match="no consumer group has offsets"):
        groups.apply_groups(FLOW)
    assert context.assets == []


def test_misspelt_group_fails(world: World, within: Within) -> None:
    """The form named it: that it is not there is no success."""
    world.here.clear()
    context = within(group="bilingl-.*")
    with pytest.raises(AirflowFailException, match=r"no group that bilingl-\.\* matches .*groups plan"):
        groups.apply_groups(FLOW)
    assert context.assets == []


def test_some_groups_do_not_stand_for_all(world: World, within: Within) -> None:
    """The asset is the flow's."""
    context = within(FOREIGN, group="new|foreign")
    assert groups.apply_groups(FLOW)["positions"] == 2
    assert context.assets == []


def test_the_asset_of_a_failback_is_the_sources(world: World, within: Within) -> None:
    context = within(FOREIGN, direction="failback")
    groups.apply_groups(FLOW)
    assert context.assets[0][0] == "kafka://east/flights.groups"


@pytest.mark.parametrize("params", [{}, {"approve": False}])
def test_what_nobody_approved_is_left_alone_and_told(
    world: World, within: Within, params: dict[str, bool]
) -> None:
    """Risky only since the plan, or in a scheduled run; the others are put in place all the same."""
    context = within(*([FOREIGN] if params else []), **params)
    with pytest.raises(AirflowFailException, match="nobody has approved"):
        groups.apply_groups(FLOW)
    assert world.there == {"new": 4 + SHIFT, "foreign": 101}
    assert context.assets == []


def test_only_a_plan_writes_nothing(world: World, within: Within) -> None:
    within(FOREIGN, apply=False)
    with pytest.raises(AirflowSkipException):
        groups.apply_groups(FLOW)
    assert world.log == []


def test_following_ends_after_its_time(world: World, within: Within) -> None:
    context = within(FOREIGN, until="500ms")
    assert groups.apply_groups(FLOW)["changes_made"] == 2
    assert context.assets[0][0] == "kafka://west/flights.groups"


def test_what_may_be_over_soon_is_tried_again(world: World, within: Within) -> None:
    world.broken["new"] = Retriable("its coordinator is away")
    within(FOREIGN)
    with pytest.raises(JobInterrupted):
        groups.apply_groups(FLOW)


def test_faults_of_the_flow_fail_at_once(within: Within, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise UsageError("no such login")

    monkeypatch.setattr("onceover_airflow.connections.connection_environment", fail)
    within(FOREIGN)
    with pytest.raises(AirflowFailException, match="no such login"):
        groups.apply_groups(FLOW)
