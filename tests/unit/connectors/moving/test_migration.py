"""Several connectors in one run: each is looked at again when its turn comes, and nothing unseen is done."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.connectors.model import ConnectorOutcome, ConnectorPlan, EndState, MigrationPlan
from onceover.connectors.moving import migration, moves
from onceover.connectors.moving.migration import ConnectorOperation, Migration
from onceover.connectors.offsets.configtopic import ConfigRecords
from onceover.connectors.planning.view import Observer
from onceover.connectors.settings import ConnectorMove, ConnectorRequest
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.planning.approval import Approval
from onceover.planning.journal import Journal
from onceover.planning.operation import Caller, Planned
from onceover.planning.plan import Change
from tests.unit.connectors.views import connector, facts

COPY = Change("copy offsets", "global -> own", None, 3, "bytes")
STALE = Change("remove stale offsets", "own", 2, 0, "not in the shared topic", "destructive", 2)


class Workers:
    """A Connect cluster whose connectors' plans change from look to look; the last one stays."""

    def __init__(self, home: Path, *looks: tuple[Change, ...]) -> None:
        self.settings = SimpleNamespace(home=home, name="c")
        self.global_topic = "global"
        self.rest = SimpleNamespace(state=lambda _: connector())
        self.records = SimpleNamespace(load=lambda *_: None)
        self.done: list[str] = []
        self._looks = list(looks)

    def facts(self) -> Any:
        return facts()

    def plan(self, name: str) -> ConnectorPlan:
        changes = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        return ConnectorPlan(name, "global", "own", changes=changes)


def tool(monkeypatch: pytest.MonkeyPatch, workers: Workers) -> Migration:
    class Run:
        def __init__(self, context: Any, view: Any, *_: object) -> None:
            self._name = view.name

        def go(self) -> ConnectorOutcome:
            workers.done.append(self._name)
            return ConnectorOutcome(self._name, EndState.DONE, "done")

    view: Any = SimpleNamespace(configured="global", topic="own")
    monkeypatch.setattr(migration, "ConnectAccess", lambda *_: workers)
    monkeypatch.setattr(moves, "_look", lambda _, name, __: SimpleNamespace(**vars(view), name=name))
    monkeypatch.setattr(moves, "plan_migration", lambda view, _: workers.plan(view.name))
    monkeypatch.setattr(moves, "foreseen", lambda plan, *_, **__: plan)
    monkeypatch.setattr(moves, "migration_manifest", lambda *_: None)
    monkeypatch.setattr(moves, "MigrationRun", Run)
    return Migration(cast(Any, workers.settings))


def both(migrating: Migration) -> ConnectorOperation:
    return migrating.operation(ConnectorMove.MIGRATE, ConnectorRequest(connectors=("a", "b")))


def applied(migrating: Migration, approval: Approval | None = None) -> list[tuple[str, EndState]]:
    shown: list[Planned] = []
    report = both(migrating).apply(Caller(shown.append), approval)
    assert len(shown) == 1
    return [(outcome.name, outcome.outcome) for outcome in report.outcomes]


def test_what_has_come_since_the_plan_was_shown_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line, too, minutes later: that connector waits for somebody, the others are done."""
    workers = Workers(tmp_path, (COPY,), (COPY,), (COPY, STALE), (COPY,))
    assert applied(tool(monkeypatch, workers)) == [("a", EndState.REFUSED), ("b", EndState.DONE)]
    assert workers.done == ["b"]


def test_less_than_was_shown_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier try has done the rest."""
    workers = Workers(tmp_path, (COPY, STALE), (COPY, STALE), (COPY,))
    assert applied(tool(monkeypatch, workers)) == [("a", EndState.DONE), ("b", EndState.DONE)]


def test_what_nobody_approved_stops_the_run_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connector is stopped for it."""
    workers = Workers(tmp_path, (COPY,))
    approval = Approval.of(MigrationPlan.of("m", "c", facts(), (workers.plan("a"),)).items)
    worse = Workers(tmp_path, (COPY, STALE))
    with pytest.raises(NeedsOperator, match="nothing was done"):
        applied(tool(monkeypatch, worse), approval)
    assert worse.done == []


@pytest.mark.parametrize(
    ("has", "asked", "expected"),
    [
        (None, None, "global-a"),
        ("global", None, "global-a"),
        ("other", None, "other"),
        ("other", "own", "own"),
        (None, "own", "own"),
    ],
)
def test_topic_that_a_connector_has_is_right_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: str | None, asked: str | None, expected: str
) -> None:
    """A migration with --topic is no reason for every later one with --all to ask for a decision."""
    workers = Workers(tmp_path, (COPY,))
    workers.rest.state = lambda name: connector(has, name=name)
    migrating, looked = tool(monkeypatch, workers), []

    def look(_: Any, name: str, topic: str) -> Any:
        looked.append(topic)
        return SimpleNamespace(configured="global", topic="own", name=name)

    monkeypatch.setattr(moves, "_look", look)
    migrating.operation(ConnectorMove.MIGRATE, ConnectorRequest(connectors=("a",), topic=asked)).plan()
    assert looked == [expected]


class Away(Workers):
    """One of two connectors keeps its offsets on a cluster that is away."""

    def plan(self, name: str) -> ConnectorPlan:
        if name == "a":
            raise Retriable("the other cluster does not answer", code="BROKER_AWAY")
        return super().plan(name)


def test_cluster_of_one_connector_that_is_away_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its overrides name one of its own: the plan says so of it, and the run that it may be run again."""
    workers = Away(tmp_path, (COPY,))
    migrating = tool(monkeypatch, workers)
    planned = both(migrating).plan()
    assert [(plan.name, [r.code for r in plan.refusals]) for plan in planned.connectors] == [
        ("a", ["BROKER_AWAY"]),
        ("b", []),
    ]
    assert applied(migrating) == [("a", EndState.RETRIABLE), ("b", EndState.DONE)]


def test_cluster_that_is_away_for_all_is_an_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to decide: run again."""
    migrating = tool(monkeypatch, Away(tmp_path, (COPY,)))
    with pytest.raises(Retriable, match="does not answer"):
        migrating.operation(ConnectorMove.MIGRATE, ConnectorRequest(connectors=("a",))).plan()


def test_connector_that_is_another_than_was_approved_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours after somebody said yes to all of them."""
    approval = Approval.of(MigrationPlan.of("m", "c", facts(), (plan_of(COPY),)).items)
    workers = Workers(tmp_path, (COPY, STALE), (COPY,), (COPY, STALE), (COPY,))
    assert applied(tool(monkeypatch, workers), approval) == [("a", EndState.REFUSED), ("b", EndState.DONE)]
    assert workers.done == ["b"]


def plan_of(*changes: Change) -> ConnectorPlan:
    return ConnectorPlan("a", "global", "own", changes=changes)


def test_full_disk_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was done before is told, and in which state the connector was left that it met."""
    workers = Workers(tmp_path, (COPY,))
    workers.rest.state = lambda name: connector(state="STOPPED", name=name)
    migrating = tool(monkeypatch, workers)

    def write(*_: object) -> None:
        if workers.done == ["a"]:
            raise OSError(errno.ENOSPC, "No space left on device")

    class Run:
        def __init__(self, _: Any, view: Any, *__: object) -> None:
            self.view = view

        def go(self) -> ConnectorOutcome:
            if workers.done == ["a"]:
                raise UsageError("the manifest cannot be written", code="MANIFEST")
            workers.done.append(self.view.name)
            return ConnectorOutcome(self.view.name, EndState.DONE, "done")

    view = SimpleNamespace(configured="global", topic="own", initial_state="RUNNING", state=connector())
    monkeypatch.setattr(moves, "_look", lambda _, name, __: SimpleNamespace(**vars(view), name=name))
    monkeypatch.setattr(moves, "MigrationRun", Run)
    monkeypatch.setattr(Observer, "config_records", lambda _: ConfigRecords())
    monkeypatch.setattr(Journal, "_write", write)
    report = both(migrating).apply(Caller(lambda _: None))
    assert [each.outcome for each in report.outcomes] == [EndState.DONE, EndState.UNFINISHED]
    assert "it is STOPPED" in report.outcomes[1].message
    assert report.exit_code == 3


@pytest.mark.parametrize("at", ["plan", "go", "look"])
def test_what_nobody_foresaw_about_one_connector_keeps_the_report_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A client library, or a bug of ours: each connector has its outcome, in one document."""

    class Broken(Workers):
        def plan(self, name: str) -> ConnectorPlan:
            if name == "a" and at == "plan":
                raise SystemError("returned a result with an exception set")
            return super().plan(name)

    def state(name: str) -> Any:
        if at == "look":
            raise SystemError("once more")
        return connector(state="STOPPED", name=name)

    class Run:
        def __init__(self, _: Any, view: Any, *__: object) -> None:
            self.view = view

        def go(self) -> ConnectorOutcome:
            if self.view.name == "a":
                raise SystemError("returned a result with an exception set")
            return ConnectorOutcome(self.view.name, EndState.DONE, "done")

    workers = Broken(tmp_path, (COPY,))
    migrating = tool(monkeypatch, workers)
    view = SimpleNamespace(configured="global", topic="own", initial_state="RUNNING", state=connector())
    monkeypatch.setattr(moves, "_look", lambda _, name, __: SimpleNamespace(**vars(view), name=name))
    monkeypatch.setattr(moves, "MigrationRun", Run)
    monkeypatch.setattr(Observer, "config_records", lambda _: ConfigRecords())
    monkeypatch.setattr(moves, "_meant_topic", lambda *_: "own")
    workers.rest.state = state
    report = both(migrating).apply(Caller(lambda _: None))
    assert [each.outcome for each in report.outcomes] == [EndState.FAILED, EndState.DONE]
    first = report.outcomes[0]
    assert (first.error or {})["code"] == "UNEXPECTED" and report.exit_code == 1
    assert "returned a result with an exception set" in first.message
    assert ("it is STOPPED" in first.message) is (at == "go")


def test_what_nobody_foresaw_about_all_of_them_is_an_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no other whose plan could be shown."""

    class Broken(Workers):
        def plan(self, name: str) -> ConnectorPlan:
            raise SystemError(name)

    with pytest.raises(SystemError, match="a"):
        both(tool(monkeypatch, Broken(tmp_path, (COPY,)))).plan()


def test_verdict_that_nobody_foresaw_is_one_connectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have theirs."""
    migrating = tool(monkeypatch, Workers(tmp_path, (COPY,)))

    def look(_: Any, name: str, *__: Any, **___: Any) -> Any:
        if name == "a":
            raise KeyError("trace")

    monkeypatch.setattr(Observer, "look", look)
    monkeypatch.setattr(migration, "with_standing", lambda _, view: view)
    monkeypatch.setattr(migration, "_standing_migration", lambda *_: None)
    monkeypatch.setattr(migration, "judge", lambda *_: ConnectorOutcome("b", EndState.DONE, "on"))
    report = migrating.verify(ConnectorRequest(connectors=("a", "b")))
    assert [each.outcome for each in report.outcomes] == [EndState.FAILED, EndState.DONE]
