"""What can be done to a connector's source offsets, and how each is planned and gone for one connector.

A plan is computed from the connector as it is now, and from what earlier runs for it have written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import STOPPED, ConnectorOutcome, ConnectorPlan, EndState
from onceover.connectors.moving.context import HARD, MIGRATE, SOFT, Context, MarkDone, newest_of
from onceover.connectors.moving.downgrade import HardDowngrade, SoftDowngrade, downgrade_manifest
from onceover.connectors.moving.ending import MIGRATION, ROLLBACK, GoOnCommands
from onceover.connectors.moving.migrate import MigrationRun, migration_manifest
from onceover.connectors.moving.rollback import RollbackRun
from onceover.connectors.moving.verify import judge
from onceover.connectors.planning.back import plan_hard, plan_rollback, plan_soft
from onceover.connectors.planning.foresight import foreseen
from onceover.connectors.planning.plan import default_topic, plan_migration, unasked_topic, unfinished
from onceover.connectors.planning.view import ConnectorView
from onceover.connectors.record.manifest import Manifest
from onceover.connectors.record.orders import standing
from onceover.connectors.settings import ConnectorMove
from onceover.errors import NeedsOperator


class PlannedMove(NamedTuple):
    """What is planned for one connector.

    Args:
        view: the connector as it was seen.
        found: the run that it goes on with, None where it begins one.
        plan: what would be done.
    """

    view: ConnectorView
    found: Manifest | None
    plan: ConnectorPlan


@dataclass(frozen=True)
class MoveSteps:
    """One thing that can be done.

    Args:
        operation: what plans, reports and the connectors' manifests call it.
        plan: returns what would be done to a connector.
        go: does it, and marks the kinds of changes that are made.
    """

    operation: str
    plan: Callable[[Context, str], PlannedMove]
    go: Callable[[Context, PlannedMove, MarkDone], ConnectorOutcome]


# ---- to a topic of its own


def _plan_migration(context: Context, name: str) -> PlannedMove:
    view = _look(context, name, _meant_topic(context, name))
    found = _found(context, view, MIGRATE)
    if view.configured is None:
        view = context.observer.checked(view, view.topic)
    return PlannedMove(view, found, _foreseen(context, plan_migration(view, found), view))


def _migrate(context: Context, planned: PlannedMove, done: MarkDone) -> ConnectorOutcome:
    view, found, _ = planned
    if view.configured == view.topic and not unfinished(found, view.topic):
        return judge(view, found)
    return MigrationRun(context, view, migration_manifest(view, found), done).go()


# ---- back


def _plan_rollback(context: Context, name: str) -> PlannedMove:
    found = _interrupted(context.runs(name))
    topics = [] if found is None else [found.from_topic, found.to_topic]
    own = [topic for topic in topics if topic != context.access.global_topic]
    view = _look(context, name, own[0] if own else asked_topic(context, name))
    if found is not None:
        view = context.observer.checked(view, found.former)
    return PlannedMove(view, found, plan_rollback(view, found))


def _roll_back(context: Context, planned: PlannedMove, done: MarkDone) -> ConnectorOutcome:
    """Take back an interrupted run of a connector that was not resumed yet: configuration only."""
    view, found, _ = planned
    if found is None:
        raise NeedsOperator("there is no interrupted run", code=ConnectorCode.NOTHING_TO_ROLL_BACK)
    return RollbackRun(context, view, found, done).go()


def _plan_hard(context: Context, name: str) -> PlannedMove:
    found = context.store.load(name, HARD)
    topic = own_topic(context, name) or (found.from_topic if found else None)
    view = _look(context, name, topic or asked_topic(context, name), back=True)
    found = _found(context, view, HARD)
    if view.configured is not None:
        view = context.observer.checked(view, None)
    return PlannedMove(view, found, _foreseen(context, plan_hard(view, found), view))


def _downgrade_hard(context: Context, planned: PlannedMove, done: MarkDone) -> ConnectorOutcome:
    view, manifest = planned.view, downgrade_manifest(planned.view, planned.found, HARD)
    return _nothing_left(planned, manifest) or HardDowngrade(context, view, manifest, done).go()


def _plan_soft(context: Context, name: str) -> PlannedMove:
    topic = own_topic(context, name) or asked_topic(context, name)
    view = _look(context, name, topic, back=True)
    found = _found(context, view, SOFT)
    stays_stopped = view.facts.exactly_once
    plan = _foreseen(context, plan_soft(view, found), view, stays_stopped=stays_stopped)
    return PlannedMove(view, found, plan)


def _downgrade_soft(context: Context, planned: PlannedMove, done: MarkDone) -> ConnectorOutcome:
    view, manifest = planned.view, downgrade_manifest(planned.view, planned.found, SOFT)
    if (outcome := _nothing_left(planned, manifest)) is not None:
        return outcome
    run = SoftDowngrade(context, view, manifest, done)
    return run.prepare() if view.facts.exactly_once else run.complete()


def _nothing_left(planned: PlannedMove, manifest: Manifest) -> ConnectorOutcome | None:
    view, found, plan = planned
    if plan.changes or (found is not None and manifest.begun_ms == found.begun_ms):
        return None
    told = "; ".join(plan.warnings) or "nothing to do"
    return ConnectorOutcome(view.name, EndState.DONE, told)


MOVES: Final[Mapping[ConnectorMove, MoveSteps]] = {
    ConnectorMove.MIGRATE: MoveSteps(MIGRATION, _plan_migration, _migrate),
    ConnectorMove.ROLLBACK: MoveSteps(ROLLBACK, _plan_rollback, _roll_back),
    ConnectorMove.DOWNGRADE: MoveSteps(f"{MIGRATION} {HARD}", _plan_hard, _downgrade_hard),
    ConnectorMove.DOWNGRADE_SOFT: MoveSteps(f"{MIGRATION} {SOFT}", _plan_soft, _downgrade_soft),
}


# ---- one connector as it is


def _meant_topic(context: Context, name: str) -> str:
    """Return the topic that a connector is to have: unless one is named, the one that it has is right."""
    access = context.access
    return context.request.topic or unasked_topic(access.rest.state(name), access.global_topic)


def own_topic(context: Context, name: str) -> str | None:
    """Return the topic of its own that a connector has."""
    return context.access.rest.state(name).own_topic(context.access.global_topic)


def asked_topic(context: Context, name: str) -> str:
    """Return the topic that is asked for, or goes without saying."""
    return context.request.topic or default_topic(context.access.global_topic, name)


def _interrupted(runs: Iterable[Manifest]) -> Manifest | None:
    """Return the newest run for a connector that did not come to its end."""
    return newest_of(run for run in runs if not run.finished)


def with_standing(context: Context, view: ConnectorView) -> ConnectorView:
    """Return a view that also has what runs for the connector have left, and who has commanded it since."""
    runs = context.runs(view.name)
    newest, left = newest_of(runs), _interrupted(runs)
    seen = replace(
        view,
        standing=standing(view.records, newest, view.facts.workers[0]),
        newest_ms=0 if newest is None else newest.begun_ms,
    )
    if left is None or left.overtaken(view.records):
        return seen
    return replace(seen, interrupted=left.initial_state, owed=_owed(context, view, left))


def _owed(context: Context, view: ConnectorView, run: Manifest) -> str:
    """Return that an interrupted run has left the connector STOPPED; empty where it does not stand."""
    if not view.state.is_stopped:
        return ""
    kind = MIGRATION if run.operation == MIGRATE else f"{MIGRATION} {run.operation}"
    return f"it is {STOPPED} by an interrupted run ({kind}): {GoOnCommands(context, kind, view.name).stopped}"


def _look(context: Context, name: str, topic: str, *, back: bool = False) -> ConnectorView:
    return with_standing(context, context.observer.look(name, topic, back=back))


def _found(context: Context, view: ConnectorView, operation: str) -> Manifest | None:
    """Return the newest run's manifest; of one that somebody has overtaken nothing is left to do."""
    found = context.store.load(view.name, operation)
    return replace(found, finished=True) if found is not None and found.overtaken(view.records) else found


def _foreseen(
    context: Context, plan: ConnectorPlan, view: ConnectorView, *, stays_stopped: bool = False
) -> ConnectorPlan:
    settle_s = 0.0 if context.facts.exactly_once else context.settle_s
    return foreseen(plan, view, settle_s, stays_stopped=stays_stopped)
