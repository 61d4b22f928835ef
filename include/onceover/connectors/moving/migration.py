"""Moving connectors' source offsets (KIP-618), several in one run, one after the other.

Guarantee: a connector is resumed only when the topic that its tasks will read holds, committed, in the one
partition that the workers write, the very bytes that nobody could change any more since they were read. What
cannot be brought there stays stopped with its old configuration. Every step can be repeated, so a run that
was killed at any point is simply run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import (
    STOPPED,
    ConnectorOutcome,
    ConnectorPlan,
    MigrationPlan,
    Outcome,
    Report,
)
from onceover.connectors.moving.context import HARD, MIGRATE, SOFT, Context, Done, Tell, newest_of
from onceover.connectors.moving.downgrade import HardDowngrade, SoftDowngrade, downgrade_manifest
from onceover.connectors.moving.ending import MIGRATION, ROLLBACK, Ways, ended, outcome_of, own_error
from onceover.connectors.moving.migrate import MigrationRun, migration_manifest
from onceover.connectors.moving.rollback import RollbackRun
from onceover.connectors.moving.verify import judge
from onceover.connectors.planning.access import ConnectAccess
from onceover.connectors.planning.back import plan_hard, plan_rollback, plan_soft
from onceover.connectors.planning.foresight import foreseen
from onceover.connectors.planning.plan import default_topic, plan_migration, unfinished
from onceover.connectors.planning.view import ConnectorView, refusal_of
from onceover.connectors.record.manifest import Manifest, ManifestStore
from onceover.connectors.record.orders import standing
from onceover.connectors.settings import ConnectorRequest, ConnectSettings, DowngradeMode
from onceover.connectors.steps import StepName, reached
from onceover.connectors.workers.rest import ConnectRest
from onceover.errors import NeedsOperator, UsageError
from onceover.planning.approval import Approval, items_of
from onceover.planning.journal import Journal
from onceover.planning.plan import Change

log = logging.getLogger(__name__)

Announce = Callable[[MigrationPlan], None]
Planned = tuple[ConnectorView, Manifest | None, ConnectorPlan]
_DOWNGRADES: Final = {DowngradeMode.HARD: HARD, DowngradeMode.SOFT: SOFT}


class Migration:
    """The use cases on one Connect cluster. A context manager that closes every client; not thread-safe.

    Every call asks the workers and the clusters anew. All raise ``UsageError``, ``NeedsOperator`` or
    ``Retriable`` for what concerns the Connect cluster as a whole; what concerns one connector is its
    refusal in a plan, its outcome in a report.

    Args:
        settings: how the cluster is reached.
        rest: replaces the REST client in tests.
    """

    def __init__(self, settings: ConnectSettings, rest: ConnectRest | None = None) -> None:
        self._settings = settings
        self._access = ConnectAccess(settings, rest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every client."""
        self._access.close()

    # ---- to a topic of its own

    def plan(self, request: ConnectorRequest) -> MigrationPlan:
        """Return what ``apply`` would do. Changes nothing."""
        context = self._context(request, _silent)
        return self._plan_of(context, MIGRATION, self._migration)

    def apply(
        self, request: ConnectorRequest, announce: Announce, tell: Tell, approval: Approval | None = None
    ) -> Report:
        """Move the connectors' offsets.

        Args:
            announce: shown the plan before anything is done.
            tell: hears of progress.
            approval: what somebody has said yes to; None for what ``announce`` is shown.

        Raises:
            NeedsOperator: PLAN_CHANGED, it would be something else than was approved.
        """

        def go(context: Context, planned: Planned, done: Done) -> ConnectorOutcome:
            view, found, _ = planned
            if view.configured == view.topic and not unfinished(found, view.topic):
                return judge(view, found)
            return MigrationRun(context, view, migration_manifest(view, found), done).go()

        context = self._context(request, tell)
        return self._apply(MIGRATION, context, self._migration, announce, go, approval)

    def verify(self, request: ConnectorRequest) -> Report:
        """Judge the connectors' own topics, and whether they go on. Changes nothing."""
        context = self._context(request, _silent)
        outcomes = []
        for name in request.connectors:
            try:
                topic = self._has(context, name)
                view = context.observer.look(name, topic or self._topic(request, name), for_plan=False)
                view = _with_standing(context, view)
                outcomes.append(judge(view, _standing_migration(context.store, name)))
            except Exception as error:  # noqa: BLE001 - the others' verdicts count
                outcomes.append(outcome_of(name, error))
        return Report("connectors verify", self._settings.name, tuple(outcomes))

    # ---- back

    def plan_rollback(self, request: ConnectorRequest) -> MigrationPlan:
        """Return what ``rollback`` would do. Changes nothing."""
        return self._plan_of(self._context(request, _silent), ROLLBACK, self._rollback)

    def rollback(
        self, request: ConnectorRequest, announce: Announce, tell: Tell, approval: Approval | None = None
    ) -> Report:
        """Take back interrupted runs of connectors that were not resumed yet: configuration only.

        Arguments and errors as of ``apply``.
        """

        def go(context: Context, planned: Planned, done: Done) -> ConnectorOutcome:
            view, found, _ = planned
            if found is None:
                raise NeedsOperator("there is no interrupted run", code=ConnectorCode.NOTHING_TO_ROLL_BACK)
            return RollbackRun(context, view, found, done).go()

        return self._apply(ROLLBACK, self._context(request, tell), self._rollback, announce, go, approval)

    def plan_downgrade(self, request: ConnectorRequest, mode: DowngradeMode) -> MigrationPlan:
        """Return what ``downgrade`` would do. Changes nothing."""
        planner = self._hard if mode is DowngradeMode.HARD else self._soft
        return self._plan_of(self._context(request, _silent), f"connectors {_DOWNGRADES[mode]}", planner)

    def downgrade(
        self,
        request: ConnectorRequest,
        mode: DowngradeMode,
        announce: Announce,
        tell: Tell,
        approval: Approval | None = None,
    ) -> Report:
        """Take connectors back to the shared topic (hard), or prepare them for workers without exactly-once
        (soft).

        Arguments and errors as of ``apply``.
        """
        operation = _DOWNGRADES[mode]
        context = self._context(request, tell)
        hard = mode is DowngradeMode.HARD

        def go(context: Context, planned: Planned, done: Done) -> ConnectorOutcome:
            view, found, plan = planned
            manifest = downgrade_manifest(view, found, operation)
            if not plan.changes and (found is None or manifest.begun_ms != found.begun_ms):
                return ConnectorOutcome(view.name, Outcome.DONE, "; ".join(plan.warnings) or "nothing to do")
            if hard:
                return HardDowngrade(context, view, manifest, done).go()
            run = SoftDowngrade(context, view, manifest, done)
            return run.prepare() if view.facts.exactly_once else run.complete()

        planner = self._hard if hard else self._soft
        return self._apply(f"connectors {operation}", context, planner, announce, go, approval)

    # ---- one connector each

    def _migration(self, context: Context, name: str) -> Planned:
        view = _look(context, name, self._meant_topic(context, name))
        found = _found(context, view, MIGRATE)
        if view.configured is None:
            view = context.observer.checked(view, view.topic)
        return view, found, _foreseen(context, plan_migration(view, found), view)

    def _hard(self, context: Context, name: str) -> Planned:
        found = context.store.load(name, HARD)
        topic = self._has(context, name) or (found.from_topic if found else None)
        view = _look(context, name, topic or self._topic(context.request, name), back=True)
        found = _found(context, view, HARD)
        if view.configured is not None:
            view = context.observer.checked(view, None)
        return view, found, _foreseen(context, plan_hard(view, found), view)

    def _soft(self, context: Context, name: str) -> Planned:
        topic = self._has(context, name) or self._topic(context.request, name)
        view = _look(context, name, topic, back=True)
        found = _found(context, view, SOFT)
        stays_stopped = view.facts.exactly_once
        return view, found, _foreseen(context, plan_soft(view, found), view, stays_stopped=stays_stopped)

    def _rollback(self, context: Context, name: str) -> Planned:
        found = _interrupted(context.runs(name))
        topics = [] if found is None else [found.from_topic, found.to_topic]
        own = [topic for topic in topics if topic != context.access.global_topic]
        view = _look(context, name, own[0] if own else self._topic(context.request, name))
        if found is not None:
            view = context.observer.checked(view, found.former)
        return view, found, plan_rollback(view, found)

    def _meant_topic(self, context: Context, name: str) -> str:
        """Return the topic that a connector is to have: unless one is named, the one that it has is right."""
        has = None if context.request.topic else self._has(context, name)
        return has or self._topic(context.request, name)

    def _has(self, context: Context, name: str) -> str | None:
        """Return the topic of its own that a connector has."""
        return context.access.rest.state(name).own_topic(self._access.global_topic)

    def _topic(self, request: ConnectorRequest, name: str) -> str:
        return request.topic or default_topic(self._access.global_topic, name)

    def owing(self, names: Sequence[str], operation: str) -> list[str]:
        """Return the connectors whose newest run of this kind has not come to its end, also if it was run
        at another machine."""
        store = ManifestStore(self._settings.home, self._access.records)
        return [name for name in names if store.owes(name, operation)]

    def meant_to_be_migrated(self, names: Sequence[str]) -> list[str]:
        """Return the connectors that were migrated and not taken back since, wherever their offsets are."""
        store = ManifestStore(self._settings.home, self._access.records)
        return [name for name in names if _is_migrated(store, name)]

    # ---- a run

    def _context(self, request: ConnectorRequest, tell: Tell) -> Context:
        return Context(self._access, self._access.facts(), request, tell)

    def _plan_of(
        self, context: Context, operation: str, planner: Callable[[Context, str], Planned]
    ) -> MigrationPlan:
        plans, failed = [], []
        for name in context.request.connectors:
            try:
                plans.append(_planned(context, name, planner)[1])
            except Exception as error:  # noqa: BLE001 - the others can be moved
                # A cluster that this connector's overrides name is away; or nobody foresaw it.
                failed.append(error)
                plans.append(ConnectorPlan(name, None, None, refusals=(refusal_of(name, own_error(error)),)))
        if failed and len(failed) == len(plans):
            raise failed[0]
        return MigrationPlan.of(operation, self._settings.name, context.facts, tuple(plans))

    def _apply(
        self,
        operation: str,
        context: Context,
        planner: Callable[[Context, str], Planned],
        announce: Announce,
        go: Callable[[Context, Planned, Done], ConnectorOutcome],
        approval: Approval | None = None,
    ) -> Report:
        reached(StepName.PRECHECK)
        first = self._plan_of(context, operation, planner)
        announce(first)
        approved = approval or Approval.of(first.items)
        if not any(_is_covered(plan, approved) for plan in first.connectors):
            approved.check(first.items, operation)
        outcomes = []
        for name in context.request.connectors:
            outcomes.append(self._one(operation, context, name, planner, go, approved))
        return Report(operation, self._settings.name, tuple(outcomes))

    def _one(
        self,
        operation: str,
        context: Context,
        name: str,
        planner: Callable[[Context, str], Planned],
        go: Callable[[Context, Planned, Done], ConnectorOutcome],
        approved: Approval,
    ) -> ConnectorOutcome:
        """Do one connector; whatever ends it leaves the others alone, and their report."""
        try:
            # Looked at again: it may have been minutes since the plan, while others were moved.
            planned, plan = _planned(context, name, planner)
            if planned is None or plan.blocked:
                return _refused(plan)
            approved.check(items_of(plan.changes), f"{operation} of {name}")
            return self._begun(operation, context, planned, go, approved)
        except Exception as error:  # noqa: BLE001 - as just said
            return outcome_of(name, error)

    def _begun(
        self,
        operation: str,
        context: Context,
        planned: Planned,
        go: Callable[[Context, Planned, Done], ConnectorOutcome],
        approved: Approval,
    ) -> ConnectorOutcome:
        view, _, plan = planned
        with Journal(context.journal_path(view.name), approved) as journal:
            try:
                journal.planned(MigrationPlan.of(operation, self._settings.name, context.facts, (plan,)))
                return go(context, planned, _done(journal, plan.changes))
            except Exception as error:  # noqa: BLE001 - the connector may have been stopped
                ours = own_error(error)
                log.warning("%s: %s", view.name, ours)
                try:
                    journal.failed(ours)
                except UsageError as unwritten:
                    # On a full disk. What became of the connector, and of others, is told all the same.
                    log.warning("%s: %s", view.name, unwritten)
                return ended(context, operation, view, ours)


def _interrupted(runs: Iterable[Manifest]) -> Manifest | None:
    """Return the newest run for a connector that did not come to its end."""
    return newest_of(run for run in runs if not run.finished)


def _with_standing(context: Context, view: ConnectorView) -> ConnectorView:
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
    return f"it is {STOPPED} by an interrupted run ({kind}): {Ways(context, kind, view.name).stopped}"


def _is_migrated(store: ManifestStore, name: str) -> bool:
    try:
        run = _standing_migration(store, name)
    except NeedsOperator:
        # Its manifest is damaged: the verdict about it says so, and the others are not kept from theirs.
        return True
    return run is not None and run.is_settled


def _standing_migration(store: ManifestStore, name: str) -> Manifest | None:
    """Return the newest migration of a connector, unless it was taken back since, or is about to be."""
    run, back = store.load(name, MIGRATE), store.load(name, HARD)
    return None if run is not None and back is not None and back.begun_ms > run.begun_ms else run


def _look(context: Context, name: str, topic: str, *, back: bool = False) -> ConnectorView:
    return _with_standing(context, context.observer.look(name, topic, back=back))


def _found(context: Context, view: ConnectorView, operation: str) -> Manifest | None:
    """Return the newest run's manifest; of one that somebody has overtaken nothing is left to do."""
    found = context.store.load(view.name, operation)
    return replace(found, finished=True) if found is not None and found.overtaken(view.records) else found


def _foreseen(
    context: Context, plan: ConnectorPlan, view: ConnectorView, *, stays_stopped: bool = False
) -> ConnectorPlan:
    settle_s = 0.0 if context.facts.exactly_once else context.settle_s
    return foreseen(plan, view, settle_s, stays_stopped=stays_stopped)


def _is_covered(plan: ConnectorPlan, approved: Approval) -> bool:
    """Tell whether something is to be done to a connector, and all of it was approved."""
    changed = bool(plan.changes) and not plan.blocked
    return changed and all(approved.covers(item) for item in items_of(plan.changes))


def _refused(plan: ConnectorPlan) -> ConnectorOutcome:
    blocking = [refusal for refusal in plan.refusals if refusal.blocks]
    first = blocking[0]
    error = NeedsOperator(first.message, code=first.code, where=first.object, resolve=first.resolve)
    text = "; ".join(f"{refusal.message}; {refusal.resolve}" for refusal in blocking)
    return ConnectorOutcome(plan.name, Outcome.REFUSED, text, error.as_dict())


def _planned(
    context: Context, name: str, planner: Callable[[Context, str], Planned]
) -> tuple[Planned | None, ConnectorPlan]:
    try:
        found = planner(context, name)
    except (UsageError, NeedsOperator) as error:
        return None, ConnectorPlan(name, None, None, refusals=(refusal_of(name, error),))
    return found, found[2]


def _done(journal: Journal, changes: tuple[Change, ...]) -> Done:
    """Return what writes changes down as done, by kind: what one step does, one call says."""

    def done(*kinds: str) -> None:
        journal.done(*(change for change in changes if change.what in kinds))

    return done


def _silent(_text: str) -> None:
    pass
