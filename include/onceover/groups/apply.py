"""Writing what a plan for groups says, and doing so again and again.

Invariant: a group is written only as it was when the decision was made. Right before each write its offsets
on the receiving side are read again, from a coordinator that has taken a write meanwhile and so has read
its log to the end (``resume.told``); somebody else's moved or pending commit leaves it alone. What takes
something back, a move backwards or a deletion, is confirmed in the same way on the giving side. The
coordinator itself refuses the write when members have joined meanwhile. What is about to be written is
remembered before it is written, so an interrupted run is simply run again (G8).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from onceover.backoff import Backoff, Deadline
from onceover.errors import OnceoverError, Retriable
from onceover.exitstatus import INTERRUPTED
from onceover.groups.codes import GroupCode
from onceover.groups.decide import Allowed, GroupAction, Remembered, remembered
from onceover.groups.plan import Approves, GroupPlan, GroupSteps, Row, plan_groups, summary
from onceover.groups.view import GroupReader
from onceover.kafka.calls import NO_EPOCH, CommittedOffset, OffsetToCommit
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.groups.admin import HasMembers
from onceover.kafka.groups.offsets import GroupOffsets
from onceover.model import TopicPartition
from onceover.planning.approval import Approval
from onceover.planning.counted import Counted
from onceover.planning.journal import Journal, OpenJournal
from onceover.planning.operation import Caller
from onceover.planning.plan import Change, Refusal, exit_of
from onceover.shown import lined
from onceover.state.steps import Step, reached

# Longer than the 5 s at which consumers commit by default: whoever commits with assign() while its group is
# empty is seen to move between two looks so far apart.
WATCH_S: Final = 6.0
# Groups that are settled, looked at and written together: seconds pass until the last of them is written.
_AT_ONCE: Final = 1000
# What we have aborted is pending for milliseconds.
_PENDING_S: Final = 5.0
# A coordinator that moves is there again within seconds.
_RETRY_S: Final = 5.0
_NOTHING: Final = GroupOffsets({}, frozenset())


class _Unwritten(NamedTuple):
    """What is to be written of a group, and why it may not have been."""

    steps: GroupSteps
    error: Retriable


@dataclass
class AppliedGroups:
    """What one ``apply`` did.

    Args:
        plan: what it did.
        done: the changes that were made, in their order.
        refused: what was left alone at the last moment, beside what the plan leaves alone.
        temporary: True when running it again may help.
        interrupted: True when somebody has ended it with something to write, before anything was written.
        delay_s: longest time from the look at a group to the acknowledged write of it; None without writes.
        since_s: the same from the look before that one: no commit waited longer. None at the first look.
    """

    plan: GroupPlan
    done: list[Change] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    temporary: bool = False
    interrupted: bool = False
    delay_s: float | None = None
    since_s: float | None = None

    @property
    def exit_code(self) -> int:
        """130 when interrupted, 5 when running it again may help, 3 when somebody has to decide, else 0."""
        if self.interrupted:
            return INTERRUPTED
        return exit_of(self.waiting, passes=self.temporary or self.plan.temporary)

    @property
    def waiting(self) -> list[Refusal]:
        """What is left alone, and why."""
        return [*self.plan.refused, *self.refused]

    @property
    def misplaced(self) -> list[Refusal]:
        """What is left alone of groups that have a position on the giving side, or may have one."""
        return [*self.plan.misplaced(), *self.refused]

    @property
    def counts(self) -> dict[str, Any]:
        """Names, ids and counts."""
        made, positions = len(self.done), len(self.plan.rows)
        return {
            "flow": self.plan.flow,
            "changes_made": made,
            "positions": positions,
            "left": len(self.waiting),
        }

    def document(self) -> dict[str, Any]:
        """Return the plan, and what became of it."""
        document = self.plan.document()
        return {
            **document,
            "applied": True,
            "changes_made": len(self.done),
            "refused": document["refused"] + [refusal.document() for refusal in self.refused],
            "delay_ms": None if self.delay_s is None else round(self.delay_s * 1000),
            "interrupted": self.interrupted,
        }

    def describe(self) -> str:
        """Return the end as text; the plan was shown before."""
        lines = [f"written: {summary(self.done, ())}" if self.done else "nothing was written"]
        if self.interrupted:
            lines.append("  interrupted before that: run it again")
        lines += [f"  left alone: {r.object}: {r.message}; {r.resolve}" for r in self.refused]
        return lined(lines)


class GroupSync:
    """Plans and applies, once or again and again. Not thread-safe; the reader belongs to the caller.

    Args:
        reader: looks at the clusters.
        allowed: what is allowed beyond moving forward.
        journal: opens what everything is written down in.
        replication_factor: of the topic that remembers what was written, should it have to be created.
    """

    def __init__(
        self,
        reader: GroupReader,
        allowed: Allowed,
        journal: OpenJournal,
        replication_factor: int,
    ) -> None:
        self._reader = reader
        self._allowed = allowed
        self._journal = journal
        self._replication_factor = replication_factor
        self._looks: dict[str, float] = {}

    def plan(self) -> GroupPlan:
        """Return what would be done now. Changes nothing.

        Raises:
            As ``GroupReader.read``.
        """
        return self._plan(None)

    def _plan(self, approves: Approves | None) -> GroupPlan:
        return plan_groups(self._reader.read(), self._allowed, approves)

    def apply(self, caller: Caller, approval: Approval | None = None) -> AppliedGroups:
        """Plan, and write it, as ``planning.operation`` has it; groups are counted.

        Only rows that may skip, repeat or remove something need an approval: what it does not cover is left
        alone, and named. Without any, all of them are approved by whoever calls this. The caller's pause is
        between the two looks at commits of somebody else, where there are any; where there are none it is
        asked all the same, for no time. Told to stop by then, nothing is written; from then on all is.
        """
        plan = self._plan(None if approval is None else lambda row: approval.covers(row.item))
        caller.announce(plan)
        applied = AppliedGroups(plan)
        self.release(plan)
        if plan.watched:
            caller.tell("looking twice at what somebody else has committed ...")
        if plan.changes and caller.pause(WATCH_S if plan.watched else 0.0):
            applied.interrupted = True
        elif plan.steps:
            with self._journal(approval) as journal:
                self._do(applied, journal, caller.counted)
        self._looks = {group.name: group.seen_s for group in plan.view.groups}
        return applied

    def release(self, plan: GroupPlan) -> None:
        """End what is pending because the marker of a write of ours was lost (KAFKA-20734).

        Its group has no step before that, and the next write of ours in its log brings the marker.
        """
        pending = {
            row.group: row.facts.receiving
            for row in plan.rows
            if row.decision.code == GroupCode.COMMIT_PENDING
        }
        if pending:
            self._reader.settler.settle(pending)

    def _do(self, applied: AppliedGroups, journal: Journal, counted: Counted) -> None:
        with journal.applying(applied.plan):
            every = self._permitted(applied)
            self._reader.memory.prepare(self._replication_factor)
            for at in range(0, len(every), _AT_ONCE):
                counted(at, len(every))
                several = every[at : at + _AT_ONCE]
                self._write(self._remembered(several, applied), applied, journal)
            counted(len(every), len(every))
        journal.refused(applied.refused)

    def _permitted(self, applied: AppliedGroups) -> list[GroupSteps]:
        """Return what may be written: a coordinator refuses the rest, and does not say of which topic."""
        every = applied.plan.steps
        barred = self._reader.unwritable({row.facts.receiving.topic for s in every for row in s.writes})
        permitted = []
        for steps in every:
            kept = []
            for row in steps.writes:
                if row.facts.receiving.topic in barred:
                    applied.refused.append(_barred(row, applied.plan.view.receiving))
                else:
                    kept.append(row)
            if kept or steps.keeps:
                permitted.append(replace(steps, writes=tuple(kept)))
        return permitted

    def _remembered(self, several: Sequence[GroupSteps], applied: AppliedGroups) -> list[GroupSteps]:
        """Remember what is about to be written, together; return the steps of the groups that were."""
        changes = {}
        for steps in several:
            rows = [
                row for row in (*steps.writes, *steps.keeps) if row.decision.kind is not GroupAction.DELETE
            ]
            changes[steps.group] = {
                row.facts.receiving: remembered(row.facts, row.decision, applied.plan.view.now_ms)
                for row in rows
            }
        reached(Step.GROUP_REMEMBER)
        refused = self._reader.memory.write(applied.plan.view.direction, changes)
        for group, error in refused.items():
            _failed(group, error, applied)
        return [steps for steps in several if steps.group not in refused]

    # ---- several groups at once

    def _write(self, several: Sequence[GroupSteps], applied: AppliedGroups, journal: Journal) -> None:
        """Write groups; what becomes of one takes nothing from the others.

        One whose coordinator moves, or whose answer is lost, is looked at anew before it is tried again: what
        stands there may be ours by then, and somebody may have gone on from it.
        """
        deadline, backoff = Deadline(_RETRY_S), Backoff()
        left = self._try(several, applied, journal, again=False)
        while left and not deadline.passed:
            backoff.wait(deadline)
            left = self._try([each.steps for each in left], applied, journal, again=True)
        for each in left:
            _failed(each.steps.group, each.error, applied)

    def _try(
        self, several: Sequence[GroupSteps], applied: AppliedGroups, journal: Journal, *, again: bool
    ) -> list[_Unwritten]:
        """Look, and write at once what is as it was; return what may be written all the same, or not yet."""
        given = self._given(several)
        # What may not be confirmed there is not taken back; the group's other partitions go on.
        asked = [_forward_only(s) if s.group in given.failed else s for s in several]
        wanted = {s.group: [row.facts.receiving for row in s.writes] for s in asked if s.writes}
        unsettled = self._reader.settler.settle({group: tps[0] for group, tps in wanted.items()})
        # Nothing that may wait comes behind this: whoever commits meanwhile would be moved back.
        now = self._reader.receiving.each_named(wanted, _PENDING_S)
        failed = {**now.failed, **unsettled}
        writes: dict[str, list[Row]] = {}
        moved: dict[str, list[Row]] = {}
        for steps in asked:
            if steps.writes and steps.group not in failed:
                there, here = now.found[steps.group], given.found.get(steps.group, _NOTHING)
                both = _unmoved(steps, there, here, applied, again=again)
                writes[steps.group], moved[steps.group] = both
        writes = {group: rows for group, rows in writes.items() if rows}
        unwritten = self._commit(writes, now.found)
        left = [
            _Unwritten(replace(s, writes=tuple(writes[s.group])), error)
            for s in asked
            if isinstance(error := unwritten.get(s.group), Retriable)
        ]
        refused = {group: error for group, error in unwritten.items() if not isinstance(error, Retriable)}
        for group, error in {**given.failed, **failed, **refused}.items():
            _failed(group, error, applied)
        written = [(s, writes[s.group]) for s in several if s.group in writes.keys() - unwritten.keys()]
        self._done(written, applied, journal)
        self._look_behind({s.group: rows for s, rows in written}, applied)
        self._name_moved({group: rows for group, rows in moved.items() if rows}, now.found, applied)
        return left

    def _given(self, several: Sequence[GroupSteps]) -> Each[str, GroupOffsets]:
        """Return what groups have committed on the giving side, of partitions where something is taken back.

        Behind a write there, too: nothing is taken back by what a coordinator tells too early.
        """
        back = {s.group: [row.facts.giving for row in s.writes if _takes_back(row)] for s in several}
        back = {group: tps for group, tps in back.items() if tps}
        if not back:
            return Each()
        failed = self._reader.giving_settler.settle({group: tps[0] for group, tps in back.items()})
        given = self._reader.giving.each_named(back, _PENDING_S)
        return Each(given.found, {**given.failed, **failed})

    def _name_moved(
        self, moved: Mapping[str, Sequence[Row]], now: Mapping[str, GroupOffsets], applied: AppliedGroups
    ) -> None:
        """Name what was left alone because it had moved: by another sync of this flow, or by somebody.

        Another sync remembers before it writes, and may have done both since this one did.
        """
        if not moved:
            return
        try:
            self._reader.memory.refresh()
        except OnceoverError as error:
            for group in moved:
                _failed(group, error, applied)
            return
        for group, rows in moved.items():
            try:
                known = self._reader.memory.of(self._reader.direction, group)
            except OnceoverError as error:
                _failed(group, error, applied)
                continue
            for row in rows:
                tp = row.facts.receiving
                is_ours = _is_ours(row, known.get(tp), now[group].committed.get(tp))
                applied.refused.append((_overtaken if is_ours else _moving)(row, now[group].committed))
                applied.temporary |= is_ours

    def _look_behind(self, written: Mapping[str, Sequence[Row]], applied: AppliedGroups) -> None:
        """Name who began to commit in a transaction in the moment of the write: one of both is not seen."""
        asked = {group: [row.facts.receiving for row in rows] for group, rows in written.items()}
        now = self._reader.receiving.each_named(asked, 0.0)
        for group, error in now.failed.items():
            _failed(group, error, applied)
        for group, named in now.found.items():
            for row in written[group]:
                if row.facts.receiving in named.pending:
                    beside = f"a transaction began to commit there beside our write of {row.decision.to}"
                    applied.refused.append(_pending(row, beside))
                    applied.temporary = True

    def _commit(
        self, writes: Mapping[str, Sequence[Row]], now: Mapping[str, GroupOffsets]
    ) -> dict[str, OnceoverError]:
        """Write, once, what is not there; return why not, for groups that were not written."""
        commits, deletions = {}, {}
        for group, every in writes.items():
            rows = [row for row in every if _stands(row, now[group])]
            commits[group] = {
                # Leader epochs count within one cluster. With one that the receiving side has not reached,
                # Kafka's consumer waits for it, and says nothing (integration/groups/test_groups_epochs.py).
                row.facts.receiving: OffsetToCommit(row.decision.to, NO_EPOCH, row.facts.metadata)
                for row in rows
                if row.decision.to is not None
            }
            deletions[group] = [
                row.facts.receiving for row in rows if row.decision.kind is GroupAction.DELETE
            ]
        receiving = self._reader.receiving
        failed = receiving.each_commit_once(
            {group: offsets for group, offsets in commits.items() if offsets},
            lambda _: reached(Step.GROUP_COMMIT),
        )
        for group, tps in deletions.items():
            if tps and group not in failed:
                try:
                    receiving.delete_offsets(group, tps)
                except OnceoverError as error:
                    failed[group] = error
        forgotten = {
            group: dict.fromkeys(tps)
            for group, rows in writes.items()
            if group not in failed
            and (tps := [r.facts.receiving for r in rows if r.decision.kind is GroupAction.DELETE])
        }
        if forgotten:
            failed.update(self._reader.memory.write(self._reader.direction, forgotten))
        return failed

    def _done(
        self, written: Iterable[tuple[GroupSteps, Sequence[Row]]], applied: AppliedGroups, journal: Journal
    ) -> None:
        changes, now_s = [], time.monotonic()
        for steps, rows in written:
            changes += [row.change for row in rows]
            applied.delay_s = max(applied.delay_s or 0.0, now_s - steps.seen_s)
            before_s = self._looks.get(steps.group)
            if before_s is not None:
                applied.since_s = max(applied.since_s or 0.0, now_s - before_s)
        journal.done(*changes)
        applied.done += changes


def _unmoved(
    steps: GroupSteps, now: GroupOffsets, given: GroupOffsets, applied: AppliedGroups, *, again: bool
) -> tuple[list[Row], list[Row]]:
    """Return the writes whose partition holds what the decision was made for, and those that have moved.

    Args:
        again: it was tried before, and may be ours by now.
    """
    kept, moved = [], []
    for row in steps.writes:
        here = row.facts.giving
        anew = here in given.pending or _offset(given.committed, here) != row.facts.committed
        if anew and _takes_back(row):
            applied.refused.append(_given_anew(row, given.committed))
            applied.temporary = True
        elif row.facts.receiving in now.pending:
            applied.refused.append(_pending(row, "a transaction commits there"))
            applied.temporary = True
        elif _stands(row, now) or (_is_written(row, now) and (again or not row.decision.watch)):
            # Also where another sync was the first to put it there.
            kept.append(row)
        else:
            moved.append(row)
    return kept, moved


def _failed(group: str, error: OnceoverError, applied: AppliedGroups) -> None:
    if isinstance(error, HasMembers):
        applied.refused.append(
            Refusal(group, KafkaCode.HAS_MEMBERS, error.message, error.resolve or "", False)
        )
        return
    passes = isinstance(error, Retriable)
    refusal = Refusal(group, error.code, error.message, error.resolve or "run again", passes=passes)
    applied.refused.append(refusal)
    applied.temporary |= passes


def _offset(committed: Mapping[TopicPartition, CommittedOffset], tp: TopicPartition) -> int | None:
    found = committed.get(tp)
    return None if found is None else found.offset


def _stands(row: Row, now: GroupOffsets) -> bool:
    """Tell whether the partition holds what the decision was made for."""
    return _offset(now.committed, row.facts.receiving) == row.facts.current


def _is_written(row: Row, now: GroupOffsets) -> bool:
    """Tell whether it is as it was to be, by a write of ours: who has read up to there commits an epoch."""
    found = now.committed.get(row.facts.receiving)
    if found is None:
        return row.decision.to is None
    return (found.offset, found.leader_epoch) == (row.decision.to, NO_EPOCH)


def _is_ours(row: Row, entry: Remembered | None, found: CommittedOffset | None) -> bool:
    """Tell whether another sync of this flow has put a partition where it is by now."""
    if row.decision.watch or entry is None or found is None:
        # Whoever moves while it is looked at twice is somebody.
        return False
    return entry.is_ours(found.offset, found.leader_epoch)


def _forward_only(steps: GroupSteps) -> GroupSteps:
    return replace(steps, writes=tuple(row for row in steps.writes if not _takes_back(row)))


def _takes_back(row: Row) -> bool:
    return row.decision.kind in (GroupAction.REWIND, GroupAction.DELETE)


def _given_anew(row: Row, given: Mapping[TopicPartition, CommittedOffset]) -> Refusal:
    seen = _offset(given, row.facts.giving)
    told = row.facts.committed
    text = f"its commit on the giving side was told as {told}, and is {seen} or not decided"
    return Refusal(row.object, GroupCode.COMMIT_PENDING, text, "run again", passes=True)


def _barred(row: Row, alias: str) -> Refusal:
    topic = row.facts.receiving.topic
    return Refusal(
        row.object,
        KafkaCode.NOT_AUTHORIZED,
        f"nothing may be committed for {topic} on {alias}: not authorized, it takes READ on the topic",
        f"grant the flow's principal READ on {topic} on {alias} (docs/groups.md), then run again",
    )


def _pending(row: Row, text: str) -> Refusal:
    resolve = "look whether its reader goes on behind what it has read, and run again once it is decided"
    return Refusal(row.object, GroupCode.COMMIT_PENDING, text, resolve, passes=True)


def _overtaken(row: Row, now: Mapping[TopicPartition, CommittedOffset]) -> Refusal:
    seen = _offset(now, row.facts.receiving)
    return Refusal(
        row.object,
        GroupCode.COMMITS_MOVE,
        f"another sync of this flow has moved it meanwhile: {row.facts.current} became {seen}",
        "run again",
        blocks=False,
        passes=True,
    )


def _moving(row: Row, now: Mapping[TopicPartition, CommittedOffset]) -> Refusal:
    seen = _offset(now, row.facts.receiving)
    return Refusal(
        row.object,
        GroupCode.COMMITS_MOVE,
        f"somebody commits without being a member: {row.facts.current} became {seen} between two looks",
        "nothing, if it consumes there with assign(); otherwise run again",
        False,
    )
