"""Moving connectors' source offsets (KIP-618), several in one run, one after the other.

Guarantee: a connector is resumed only when the topic that its tasks will read holds, committed, in the one
partition that the workers write, the very bytes that nobody could change any more since they were read. What
cannot be brought there stays stopped with its old configuration. Every step can be repeated, so a run that
was killed at any point is simply run again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from onceover.connectors.model import (
    ConnectorOutcome,
    ConnectorPlan,
    EndState,
    MigrationPlan,
    Report,
)
from onceover.connectors.moving.context import HARD, MIGRATE, Context, MarkDone
from onceover.connectors.moving.ending import ended, outcome_of, own_error
from onceover.connectors.moving.moves import (
    MOVES,
    MoveSteps,
    PlannedMove,
    asked_topic,
    own_topic,
    with_standing,
)
from onceover.connectors.moving.verify import judge
from onceover.connectors.planning.access import ConnectAccess
from onceover.connectors.planning.view import refusal_of
from onceover.connectors.record.manifest import Manifest, ManifestStore
from onceover.connectors.settings import ConnectorMove, ConnectorRequest, ConnectSettings
from onceover.connectors.steps import StepName, reached
from onceover.connectors.workers.rest import ConnectRest
from onceover.errors import NeedsOperator, UsageError
from onceover.planning.approval import Approval, items_of
from onceover.planning.journal import Journal
from onceover.planning.operation import Caller, Tell
from onceover.planning.plan import Change

log = logging.getLogger(__name__)


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

    def operation(self, move: ConnectorMove, request: ConnectorRequest) -> ConnectorOperation:
        """Return what is asked for, to be planned and applied as long as this is open."""
        return ConnectorOperation(self._settings, self._access, MOVES[move], request)

    def verify(self, request: ConnectorRequest) -> Report:
        """Judge the connectors' own topics, and whether they go on. Changes nothing."""
        context = Context(self._access, self._access.facts(), request, _silent)
        outcomes = []
        for name in request.connectors:
            try:
                topic = own_topic(context, name) or asked_topic(context, name)
                view = context.observer.look(name, topic, for_plan=False)
                view = with_standing(context, view)
                outcomes.append(judge(view, _standing_migration(context.store, name)))
            except Exception as error:  # noqa: BLE001 - the others' verdicts count
                outcomes.append(outcome_of(name, error))
        return Report("connectors verify", self._settings.name, tuple(outcomes))

    def owing(self, names: Sequence[str], operation: str) -> list[str]:
        """Return the connectors whose newest run of this kind has not come to its end, also if it was run
        at another machine."""
        store = ManifestStore(self._settings.home, self._access.records)
        return [name for name in names if store.owes(name, operation)]

    def meant_to_be_migrated(self, names: Sequence[str]) -> list[str]:
        """Return the connectors that were migrated and not taken back since, wherever their offsets are."""
        store = ManifestStore(self._settings.home, self._access.records)
        return [name for name in names if _is_migrated(store, name)]


@dataclass(frozen=True)
class ConnectorOperation:
    """One move of several connectors, one after the other (``planning.operation``). Clients are the caller's.

    Args:
        settings: of the Connect cluster, which ``access`` reaches.
        move: what is done to each.
        request: to which, and how.
    """

    settings: ConnectSettings
    access: ConnectAccess
    move: MoveSteps
    request: ConnectorRequest

    def plan(self) -> MigrationPlan:
        """Return what would be done now. Changes nothing."""
        return self._plan(self._context(_silent))

    def apply(self, caller: Caller, approval: Approval | None = None) -> Report:
        """Do it, one connector after the other; one that fails does not touch the others.

        Each is looked at again when it is its turn, and left alone where that is another plan than was
        approved.
        """
        context = self._context(caller.tell)
        reached(StepName.PRECHECK)
        first = self._plan(context)
        caller.announce(first)
        approved = approval or Approval.of(first.items)
        if not any(_is_covered(plan, approved) for plan in first.connectors):
            approved.check(first.items, self.move.operation)
        outcomes = [self._one(context, name, approved) for name in self.request.connectors]
        return Report(self.move.operation, self.settings.name, tuple(outcomes))

    def _context(self, tell: Tell) -> Context:
        return Context(self.access, self.access.facts(), self.request, tell)

    def _plan(self, context: Context) -> MigrationPlan:
        plans, failed = [], []
        for name in self.request.connectors:
            try:
                plans.append(self._planned(context, name)[1])
            except Exception as error:  # noqa: BLE001 - the others can be moved
                # A cluster that this connector's overrides name is away; or nobody foresaw it.
                failed.append(error)
                plans.append(ConnectorPlan(name, None, None, refusals=(refusal_of(name, own_error(error)),)))
        if failed and len(failed) == len(plans):
            raise failed[0]
        return self._plan_of(context, *plans)

    def _plan_of(self, context: Context, *plans: ConnectorPlan) -> MigrationPlan:
        return MigrationPlan.of(self.move.operation, self.settings.name, context.facts, plans)

    def _planned(self, context: Context, name: str) -> tuple[PlannedMove | None, ConnectorPlan]:
        try:
            found = self.move.plan(context, name)
        except (UsageError, NeedsOperator) as error:
            return None, ConnectorPlan(name, None, None, refusals=(refusal_of(name, error),))
        return found, found.plan

    def _one(self, context: Context, name: str, approved: Approval) -> ConnectorOutcome:
        """Do one connector; whatever ends it leaves the others alone, and their report."""
        try:
            # Looked at again: it may have been minutes since the plan, while others were moved.
            planned, plan = self._planned(context, name)
            if planned is None or plan.blocked:
                return _refused(plan)
            approved.check(items_of(plan.changes), f"{self.move.operation} of {name}")
            return self._begun(context, planned, approved)
        except Exception as error:  # noqa: BLE001 - as just said
            return outcome_of(name, error)

    def _begun(self, context: Context, planned: PlannedMove, approved: Approval) -> ConnectorOutcome:
        view, plan = planned.view, planned.plan
        with Journal(context.journal_path(view.name), approved) as journal:
            try:
                journal.planned(self._plan_of(context, plan))
                return self.move.go(context, planned, _marking(journal, plan.changes))
            except Exception as error:  # noqa: BLE001 - the connector may have been stopped
                ours = own_error(error)
                log.warning("%s: %s", view.name, ours)
                journal.failed(ours)
                return ended(context, self.move.operation, view, ours)


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


def _is_covered(plan: ConnectorPlan, approved: Approval) -> bool:
    """Tell whether something is to be done to a connector, and all of it was approved."""
    changed = bool(plan.changes) and not plan.blocked
    return changed and all(approved.covers(item) for item in items_of(plan.changes))


def _refused(plan: ConnectorPlan) -> ConnectorOutcome:
    blocking = [refusal for refusal in plan.refusals if refusal.blocks]
    first = blocking[0]
    error = NeedsOperator(first.message, code=first.code, where=first.object, resolve=first.resolve)
    text = "; ".join(f"{refusal.message}; {refusal.resolve}" for refusal in blocking)
    return ConnectorOutcome(plan.name, EndState.REFUSED, text, error.as_dict())


def _marking(journal: Journal, changes: tuple[Change, ...]) -> MarkDone:
    """Return what writes changes down as done, by kind: what one step does, one call says."""

    def done(*kinds: str) -> None:
        journal.done(*(change for change in changes if change.what in kinds))

    return done


def _silent(_text: str) -> None:
    pass
