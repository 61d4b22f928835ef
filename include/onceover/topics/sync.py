"""``onceover topics plan`` and ``apply``: a flow's topics, their configuration and ACLs, without running it.

Invariant: it plans from the same picture and acts through the same code as a running flow, and neither
enrols a topic nor touches the leader's id or anybody's progress, so it may be used beside a running flow.
Applying may be interrupted anywhere and run again; the end is the same (G8).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, Self

from onceover.acls.kept import AclPlan, plan_acls
from onceover.acls.sync import apply_acls, not_followed, own_principal, read_view, unavailable
from onceover.backoff import Backoff, Deadline
from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.exitstatus import OK, PERSON, TEMPORARY
from onceover.kafka.admin.acls import AclAdmin
from onceover.kafka.admin.topics import Admin
from onceover.kafka.ports import Cluster
from onceover.planning.approval import ApprovablePlan, Approval, Item, ObjectState, items_of
from onceover.planning.journal import Journal, OpenJournal
from onceover.planning.operation import Caller
from onceover.planning.plan import Change, Refusal, exit_of
from onceover.shown import lined
from onceover.state import names
from onceover.state.read import FlowState, read_flow_state
from onceover.state.records.enrolment import read_enrolments
from onceover.state.records.layout import check_clusters, check_distinct
from onceover.state.records.managed import read_managed
from onceover.topics.codes import TopicCode
from onceover.topics.making import topic_apply
from onceover.topics.own import StateSettings, create_flow_topics, unread_owned
from onceover.topics.plan import TopicPlan, View, plan_topics
from onceover.topics.scope import Rules
from onceover.topics.view import TopicReader

# A running flow, or a person, may change something between two looks; who changes it again and again has
# to be found by a person.
_ROUNDS: Final = 3
_SETTLED_WITHIN_S: Final = 10.0


@dataclass(frozen=True)
class TopicSyncRequest:
    """What the flow file asks for.

    Args:
        rules: which topics are in, and how they are called.
        sync_configs: whether configuration is copied; ``sync_acls`` likewise.
        state: how the flow's own topics are created.
    """

    rules: Rules
    sync_configs: bool
    sync_acls: bool
    state: StateSettings


@dataclass(frozen=True, kw_only=True)
class SyncPlan(ApprovablePlan):
    """A plan of two parts, which are applied by different code."""

    topics: TopicPlan
    acls: AclPlan

    @classmethod
    def of(cls, topics: TopicPlan, acls: AclPlan, unread: Collection[Refusal] = ()) -> Self:
        """Return the plan that does both, topics first.

        Args:
            unread: what is left out beside them, since it cannot be read.
        """
        return cls(
            operation=topics.operation,
            flow=topics.flow,
            changes=(*topics.changes, *acls.changes()),
            refused=(*topics.refused, *acls.refused, *unread),
            computed_at_ms=topics.computed_at_ms,
            topics=topics,
            acls=acls,
        )

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to write, not even a record to tidy up."""
        return not (self.topics.steps or self.topics.forget or self.acls.changes() or self.acls.forget)

    @property
    def risky(self) -> list[Change]:
        """Those changes alone that may cost records."""
        return [change for change in self.changes if change.risk != "none"]

    @property
    def items(self) -> tuple[Item, ...]:
        """What a person approves: the changes that may cost records, from which value to which."""
        changes = self.risky
        return items_of(changes, {c.object: ObjectState(f"from {c.from_}") for c in changes}, exact=True)

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        return {**super().counts, "risky": len(self.risky)}

    @property
    def exit_code(self) -> int:
        """3 when a topic is not copied, or an ACL not followed, until somebody decides; else 0."""
        return PERSON if self.unfollowed else exit_of(self.topics.refused)

    @property
    def unfollowed(self) -> tuple[Refusal, ...]:
        """The ACLs that are not followed until somebody decides; topics are copied all the same."""
        return self.refused[len(self.topics.refused) :]

    def document(self) -> dict[str, Any]:
        """Return the plan's JSON; ``enrol`` lists the source topics that the flow itself takes in."""
        return {**super().document(), "enrol": list(self.topics.enrol)}

    def describe(self) -> str:
        """Return it as text."""
        lines = super().describe().split("\n")
        if self.topics.enrol:
            lines.append(f"  taken in when the flow runs: {', '.join(self.topics.enrol)}")
        return lined(lines)


@dataclass
class AppliedSync:
    """What ``apply`` did.

    Args:
        first: the plan it began with.
        left: what a new plan still wants at the end; empty when all is well.
        refused: what a cluster did not do.
        changes: how many changes were made.
    """

    first: SyncPlan
    left: SyncPlan
    refused: list[Refusal] = field(default_factory=list)
    changes: int = 0

    @property
    def exit_code(self) -> int:
        """3 when somebody has to decide, 5 when running it again may help, else 0."""
        if self.refused or self.left.exit_code:
            return PERSON
        return OK if self.left.is_empty else TEMPORARY

    @property
    def waiting(self) -> list[Refusal]:
        """What is refused until somebody decides."""
        return [*self.refused, *(refusal for refusal in self.left.refused if refusal not in self.refused)]

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        return {"flow": self.first.flow, "plan_id": self.first.plan_id, "changes_made": self.changes}

    def document(self) -> dict[str, Any]:
        """Return the plan it began with, how many changes were made, and what is left."""
        left = self.left.document()
        refused = [refusal.document() for refusal in self.refused]
        return {
            **self.first.document(),
            "applied": True,
            "changes_made": self.changes,
            "left": left["changes"],
            "refused": left["refused"] + [each for each in refused if each not in left["refused"]],
        }

    def describe(self) -> str:
        """Return the end as text; the plan was shown before."""
        lines = [f"changed: {self.changes}" if self.changes else "nothing was changed"]
        lines += [f"  not done: {r.object}: {r.message}; {r.resolve}" for r in self.refused]
        left = self.left.changes
        if left:
            lines += ["left to do:", *(line for change in left for line in change.describe())]
        else:
            lines.append("looked again: nothing is left to do")
        return lined(lines)


class TopicSync:
    """One flow's topics, seen from outside. A context manager; the clusters belong to the caller.

    Args:
        flow: name of the flow.
        request: what its file asks for.
        source: source cluster; ``target`` likewise.
        journal: opens what everything is written down in.
    """

    def __init__(
        self, flow: str, request: TopicSyncRequest, source: Cluster, target: Cluster, journal: OpenJournal
    ) -> None:
        self._flow = flow
        self._request = request
        self._source = source
        self._target = target
        self._reader = TopicReader(flow, source, target)
        self._acls = AclAdmin(source), AclAdmin(target)
        self._admin = Admin(target)
        self._journal = journal

    def __enter__(self) -> TopicSync:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    # ---- plan

    def plan(self) -> SyncPlan:
        """Return what would be done now. Changes nothing.

        Raises:
            Retriable: a cluster is away.
            UsageError: both sides are one cluster, or the principal may not look.
            NeedsOperator: the flow belongs to other clusters.
        """
        return self._target.retry(self._plan)

    def _plan(self) -> SyncPlan:
        ids = self._source.cluster_id(), self._target.cluster_id()
        check_distinct(*ids)
        state = self._state()
        check_clusters(state.layout, *ids)
        self._reader.changed()
        view = self._reader.read(
            self._request.rules,
            read_enrolments(state.leader),
            read_managed(state.owned),
            sync_configs=self._request.sync_configs,
            adopt=True,
        )
        topics = plan_topics(view)
        unread = tuple(unread_owned(names.owned_topic(self._flow), state.owned))
        if not self._request.sync_acls:
            return SyncPlan.of(topics, AclPlan(), unread)
        try:
            return SyncPlan.of(topics, self._plan_acls(view, topics, state), unread)
        except (UsageError, NeedsOperator) as error:
            # The rest of the plan is as good without them.
            return SyncPlan.of(topics, AclPlan(), (*not_followed(error, state.owned), *unread))

    def _plan_acls(self, view: View, topics: TopicPlan, state: FlowState) -> AclPlan:
        principal = own_principal(self._target.config.properties)
        return plan_acls(read_view(in_flow(view, topics), state.owned, *self._acls, principal))

    def _state(self) -> FlowState:
        """Return the flow's state; empty for one that was never started and never applied."""
        return read_flow_state(self._target, self._flow)

    # ---- apply

    def apply(self, caller: Caller, approval: Approval | None = None) -> AppliedSync:
        """Do what a plan computed now says, then plan again to verify; as ``planning.operation`` has it.

        Only changes that may cost records need an approval.
        """
        first = self.plan()
        applied = AppliedSync(first, first)
        caller.announce(first)
        approved = approval or Approval.of(first.items)
        with self._journal(approval) as journal:
            for number in range(_ROUNDS):
                if applied.left.is_empty or applied.refused:
                    break
                if number:
                    caller.announce(applied.left)
                so_far = "what was shown first is done" if number else ""
                approved.check(applied.left.items, applied.left.title, done=so_far)
                done = self._do(applied, journal)
                applied.left = self._settled(applied.left, done)
        return applied

    def _settled(self, before: SyncPlan, done: Collection[Change]) -> SyncPlan:
        """Plan again, once the target shows what was just done."""
        deadline, backoff = Deadline(_SETTLED_WITHIN_S), Backoff()
        while True:
            plan = self.plan()
            waiting = not_shown_yet(before, done, plan)
            if not waiting or deadline.passed:
                return plan
            backoff.pause(deadline, Retriable(f"not shown by the target yet: {', '.join(waiting)}"))

    def _do(self, applied: AppliedSync, journal: Journal) -> list[Change]:
        """Return the changes that were made."""
        plan = applied.left
        with journal.applying(plan):
            create_flow_topics(self._admin, self._flow, self._request.state)
            return self._apply(applied, plan, journal)

    def _apply(self, applied: AppliedSync, plan: SyncPlan, journal: Journal) -> list[Change]:
        made: list[Change] = []

        def done(change: Change) -> None:
            journal.done(change)
            made.append(change)
            applied.changes += 1

        with topic_apply(self._target, self._flow, done) as work:
            work.run(plan.topics)
            refused = list(work.refused)
            try:
                apply_acls(plan.acls, self._acls[1], work.notes, done)
            except (UsageError, NeedsOperator) as error:
                refused.append(unavailable(error))
        journal.refused(refused)
        applied.refused += refused
        return made


def not_shown_yet(before: SyncPlan, done: Collection[Change], after: SyncPlan) -> list[str]:
    """Return what a plan made behind another one's work still asks for, since its broker trails. Pure.

    The controller has done it; the broker that is asked replays that a moment later (KRaft) and shows the
    old configuration, number of partitions or ACLs until then, and new topics without leaders, which look
    refused. Done again, it would be told to people twice.

    Args:
        before: the plan that was applied, ``done`` what of it was made, ``after`` the next plan.
    """
    repeated = set(done) & set(after.changes)
    touched = {step.source for step in before.topics.steps}
    leaderless = {
        r.object for r in after.topics.refused if r.code == TopicCode.NO_LEADER and r.object in touched
    }
    return sorted({change.object for change in repeated} | leaderless)


def in_flow(view: View, topics: TopicPlan) -> dict[str, str]:
    """Return the topics that the flow copies, or will, source name to target name; as a running flow has it.

    Not what is refused, nor a copy that was given to clients: what the source's ACLs say is not about those
    that write to it. Pure.
    """
    refused = {refusal.object for refusal in topics.refused if refusal.blocks}
    enrolled = view.enrolled_by_source | {record.source: record for record in topics.turn}
    left_out = refused | {source for source, record in enrolled.items() if not record.active}
    return {
        decision.topic: decision.target_topic
        for decision in view.decisions()
        if decision.inside and decision.topic not in left_out
    }
