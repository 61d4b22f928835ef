"""The tasks of ``sync_group_offsets``: whom they ask, and what they leave alone unasked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from onceover.errors import Retriable, UsageError
from onceover.groups.apply import GroupSync
from onceover.wiring import groups as group_runs
from onceover.wiring.groups import GroupRequest
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.tasks import groups, operation
from onceover_airflow.tasks.groups import GROUPS
from onceover_airflow.tasks.operation import ApproveOperator
from tests.unit.airflow import asking
from tests.unit.airflow.asking import Exchange
from tests.unit.airflow.conftest import FakeSpark
from tests.unit.groups.groupworld import SHIFT, Lines, World

pytestmark = pytest.mark.usefixtures("unopened")
FLOW = "flights"
FOREIGN = "foreign east.orders:0"


@pytest.fixture(autouse=True)
def flow(spark: FakeSpark) -> None:
    """A flow file named ``flights``."""


class Context:
    """A task's context: params, what tasks keep for each other, outlets."""

    def __init__(self, **params: Any) -> None:
        common = {"direction": "failover", "group": "", "allow_rewind": False, "until": "once"}
        params = {**common, "apply": True, "approve": True, **params}
        self.values: Any = {"params": params, "ti": Exchange(), "outlet_events": self}
        self.assets: list[tuple[str, Mapping[str, Any]]] = []

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

    def sync(*_: object, request: GroupRequest) -> AbstractContextManager[GroupSync]:
        return nullcontext(GroupSync(cast(Any, world), request.allowed, cast(Any, Lines().opened), 1))

    monkeypatch.setattr(group_runs, "group_sync", sync)
    monkeypatch.setattr("onceover_airflow.access.connections.connection_environment", lambda _: {})
    monkeypatch.setattr("onceover_airflow.tasks.groups.time.sleep", lambda _: None)
    monkeypatch.setattr("onceover.planning.operation.time.sleep", lambda _: None)
    return world


@pytest.fixture
def within(monkeypatch: pytest.MonkeyPatch) -> Within:
    """Be in a task with this context."""

    def enter(**params: Any) -> Context:
        context = Context(**params)
        monkeypatch.setattr(operation, "get_current_context", lambda: context.values)
        return context

    return enter


@pytest.fixture
def approved(within: Within) -> Within:
    """Be in the task after the question, which was answered with yes."""

    def enter(**params: Any) -> Context:
        context = within(**params)
        asked(context)
        return context

    return enter


def asked(context: Context) -> str:
    """Put the question and say yes; return its body."""
    operator = ApproveOperator(task_id=GROUPS.approve_task, tasks=GROUPS, name=FLOW)
    return str(asking.ask(operator, context.values).body)


def test_the_plan_counts_what_is_risky_and_changes_nothing(world: World, within: Within) -> None:
    within()
    planned = GROUPS.plan(FLOW)
    assert (planned["changes"], planned["risky"]) == (2, 1)
    assert world.log == []


def test_a_person_is_shown_the_risky_moves_only(world: World, within: Within) -> None:
    body = asked(within())
    assert f"| move group | `{FOREIGN}` | 101 | {7 + SHIFT} | skip 6 |" in body
    assert "new" not in body


@pytest.mark.parametrize("params", [{"approve": False}, {"apply": False}])
def test_nobody_is_asked_when_that_is_not_wanted(
    world: World, within: Within, params: dict[str, bool]
) -> None:
    with pytest.raises(AirflowSkipException):
        asked(within(**params))


def test_a_risk_that_nobody_was_asked_about_is_not_taken(world: World, within: Within) -> None:
    """It was gone when the question would have been put, which was skipped, and has come back."""
    context = within()
    assert GROUPS.plan(FLOW)["risky"] == 1
    world.there["foreign"] = 7 + SHIFT
    with pytest.raises(AirflowSkipException):
        asked(context)
    world.there["foreign"] = 101
    with pytest.raises(AirflowFailException, match="nobody has approved"):
        GROUPS.apply(FLOW)
    assert world.there["foreign"] == 101


def test_another_move_than_the_one_that_was_shown_is_left_alone(world: World, approved: Within) -> None:
    """Somebody has consumed on since, and more would be thrown away than was said; then less."""
    for there in (103, 99):
        world.there["foreign"] = 101
        approved()
        world.there["foreign"] = there
        with pytest.raises(AirflowFailException, match="nobody has approved"):
            GROUPS.apply(FLOW)
        assert world.there["foreign"] == there


def test_what_was_approved_is_done_once(world: World, approved: Within) -> None:
    """Somebody clears the task after the group has gone on: it is not moved back again."""
    world.there["foreign"] = 200
    approved(allow_rewind=True)
    GROUPS.apply(FLOW)
    assert world.there["foreign"] == 7 + SHIFT
    world.there["foreign"] = 300
    with pytest.raises(AirflowFailException, match="nobody has approved"):
        GROUPS.apply(FLOW)
    assert world.there["foreign"] == 300


def test_what_was_approved_is_written_and_announced(world: World, approved: Within) -> None:
    context = approved()
    counts = GROUPS.apply(FLOW)
    assert world.there == {"new": 4 + SHIFT, "foreign": 7 + SHIFT}
    assert context.assets == [("x-onceover://west/flights.groups", counts)]


def test_flow_without_groups_is_skipped_and_announces_nothing(world: World, within: Within) -> None:
    """Nobody consumes yet: nothing is in place, and that is seen."""
    world.here.clear()
    context = within()
    with pytest.raises(AirflowSkipException, match="no consumer group has offsets"):
        GROUPS.apply(FLOW)
    assert context.assets == []


def test_misspelt_group_fails(world: World, within: Within) -> None:
    """The form named it: that it is not there is no success."""
    world.here.clear()
    context = within(group="bilingl-.*")
    with pytest.raises(AirflowFailException, match=r"no group that bilingl-\.\* matches .*groups plan"):
        GROUPS.apply(FLOW)
    assert context.assets == []


def test_some_groups_do_not_stand_for_all(world: World, approved: Within) -> None:
    """The asset is the flow's."""
    context = approved(group="new|foreign")
    assert GROUPS.apply(FLOW)["positions"] == 2
    assert context.assets == []


def test_the_asset_of_a_failback_is_the_sources(world: World, approved: Within) -> None:
    context = approved(direction="failback")
    GROUPS.apply(FLOW)
    assert context.assets[0][0] == "x-onceover://east/flights.groups"


@pytest.mark.parametrize("params", [{}, {"approve": False}])
def test_what_nobody_approved_is_left_alone_and_told(
    world: World, within: Within, params: dict[str, bool]
) -> None:
    """No answer yet, or a scheduled run; the others are put in place all the same."""
    context = within(**params)
    with pytest.raises(AirflowFailException, match="nobody has approved"):
        GROUPS.apply(FLOW)
    assert world.there == {"new": 4 + SHIFT, "foreign": 101}
    assert context.assets == []


def test_only_a_plan_writes_nothing(world: World, within: Within) -> None:
    within(apply=False)
    with pytest.raises(AirflowSkipException):
        GROUPS.apply(FLOW)
    assert world.log == []


def test_following_ends_after_its_time(world: World, approved: Within) -> None:
    context = approved(until="500ms")
    assert GROUPS.apply(FLOW)["changes_made"] == 2
    assert context.assets[0][0] == "x-onceover://west/flights.groups"


def test_the_last_look_is_finished_though_its_time_ends_while_it_looks_twice(
    world: World, approved: Within
) -> None:
    """Otherwise what is announced would be what was not written."""
    context = approved(until="1ms")
    assert GROUPS.apply(FLOW)["changes_made"] == 2
    assert world.there == {"new": 4 + SHIFT, "foreign": 7 + SHIFT}
    assert context.assets[0][0] == "x-onceover://west/flights.groups"


def test_what_may_be_over_soon_is_tried_again(world: World, within: Within) -> None:
    world.broken["new"] = Retriable("its coordinator is away")
    within()
    with pytest.raises(JobInterrupted):
        GROUPS.apply(FLOW)


def test_faults_of_the_flow_fail_at_once(within: Within, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise UsageError("no such login")

    monkeypatch.setattr("onceover_airflow.access.connections.connection_environment", fail)
    within()
    with pytest.raises(AirflowFailException, match="no such login"):
        GROUPS.apply(FLOW)
