"""What each step of a planned switchover does on both clusters.

Invariant: until *promote* nothing is changed but what *undo* takes back, and the groups' positions on the
target, which go forward as ``groups apply`` moves them. From *promote* on it only goes forward: that step is
one transaction, and whether it was committed is read from the target, never remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from onceover.advice import advised
from onceover.backoff import Backoff, Deadline
from onceover.drills import chain as chains
from onceover.drills.codes import DrillCode
from onceover.drills.leaving import commits, cutpositions
from onceover.drills.leaving.commits import Positions, SourceGroups
from onceover.drills.leaving.fences import shut
from onceover.drills.leaving.watch import BehindCut, Ends, SourceWatch, written_behind
from onceover.drills.looks.moves import GroupMove, compacted, content, moved, next_on_both
from onceover.drills.progress import copied_to, left_to_copy, named
from onceover.drills.switching.checks import check_audited, check_denied, check_same, check_scope, check_stops
from onceover.drills.switching.common import TOLD
from onceover.drills.switching.groupmove import Placing
from onceover.drills.switching.keepingoff import FencedSteps
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.exitstatus import TEMPORARY, severity
from onceover.groups.apply import AppliedGroups
from onceover.groups.decide import PASSING
from onceover.groups.plan import GroupPlan
from onceover.kafka.groups.admin import GroupAdmin
from onceover.model import TopicPartition
from onceover.operate.states import COPIES
from onceover.planning import commands
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment
from onceover.stops.record import stopped_in

_NAMED: Final = 3
# Less is compared in a moment, while writers are kept off; it need not become less than what they write.
_FEW: Final = 20_000
_AUDITS: Final = 4
_LOOK_S: Final = 0.5


@dataclass
class PlannedSteps(FencedSteps):
    """The actions of a planned one, in their order. Not thread-safe."""

    _ends: Ends = field(default_factory=dict)
    _positions: Positions = field(default_factory=dict)
    _earlier: Positions = field(default_factory=dict)
    _looked: Deadline = field(default_factory=lambda: Deadline(0.0))
    _placeable: GroupPlan | None = None

    # ---- before anybody is kept off

    def look(self, deadline: Deadline) -> Mapping[str, Any]:
        """Ask what a failover would cost now, and whether everything that is needed is there."""
        self._inherited = self._fenced()
        found = self._decided(deadline)
        if found["status"] not in COPIES and found["losses"] != []:
            raise NeedsOperator(
                f"the flow does not run ({found['status']}), and there is something left to copy",
                code=DrillCode.NOT_READY,
                seen=f"{_many(found['losses'])} topics with records on the source alone",
                resolve=f"{commands.command('replicate', self.parts.flow, '--until', 'forever')}, which "
                "goes on beside it, then run it again",
            )
        for part, error in sorted(found["problems"].items(), key=lambda each: severity(each[1]["exit"])):
            kind = Retriable if error["exit"] == TEMPORARY else NeedsOperator
            raise kind(
                f"{part} cannot be looked at: {error['message']}",
                code=DrillCode.NOT_READY,
                where=error["where"],
                resolve=error["resolve"],
            )
        for unseen in (found["clients"] or {}).get("unseen", ()):
            self.findings.append((DrillCode.NOT_READY, unseen["message"]))
        state = self._state()
        self._check_scope(state)
        self._check_logs(state)
        self.parts.fence.check(self._topics)
        check_denied(self.parts.target.alias, self.parts.denied(self._copies))
        self._await_way(deadline)
        others = chains.fenced_topics(self.notes.read()) - set(self.enrolled)
        if left := sorted(others - {e.source for e in state.enrolled.values() if e.is_promoted}):
            text = f"an earlier drill still keeps writers off {', '.join(left[:_NAMED])}"
            self.findings.append((DrillCode.STILL_FENCED, text))
        self._earlier = self._placed(deadline)
        self._placeable = self._placing.check(deadline)
        self._looked = Deadline(commits.COMMITS_S)
        return {
            "topics": len(self.enrolled),
            "partitions": sum(len(e.start) for e in self.enrolled.values()),
            "consumers": len((found["clients"] or {}).get("consumers", ())),
            "producers": len((found["clients"] or {}).get("producers", ())),
        }

    def _decided(self, deadline: Deadline) -> Mapping[str, Any]:
        """Return what a failover would cost now, once nothing has to be decided; what may pass is waited for.

        Raises:
            NeedsOperator: NOT_READY, a person has to.
            Retriable: NOT_READY, what may pass has not.
        """
        backoff = Backoff()
        while True:
            found = self.parts.look()
            needs = [need for need in found["needs"] if need["blocks"]]
            if not needs:
                return found
            codes = {need["code"] for need in needs}
            kind = Retriable if codes <= PASSING else NeedsOperator
            left = kind(
                f"{len(needs)} things have to be decided first: {needs[0]['message']}",
                code=DrillCode.NOT_READY,
                seen=", ".join(sorted(codes)),
                resolve=needs[0]["resolve"],
            )
            if kind is NeedsOperator:
                raise left
            backoff.pause(deadline, left)
            self._placing.release()

    def _await_way(self, deadline: Deadline) -> None:
        """Return when *redirect* can let in whom the flow the other way has kept off.

        Raises:
            Retriable: NOT_READY, a drill of that flow goes on.
        """
        backoff = Backoff()
        while (other := self.parts.in_the_way(self._copies)) is not None:
            back = self.parts.back or ""
            late = Retriable(
                f"drill {other} of flow {back} runs: clients that it has kept off {self.parts.target.alias} "
                "could not be let in behind the promotion",
                code=DrillCode.NOT_READY,
                resolve=f"wait for it ({commands.command('drill', 'status', back)}), or end it with "
                f"{commands.command('drill', 'abort', back)}; then run it again",
            )
            backoff.pause(deadline, late)

    def audit(self, deadline: Deadline) -> Mapping[str, Any]:
        """Compare what was not verified until now, while writers still write, until little is left for later.

        It takes long enough for who still commits without being a member to show.
        """
        found = self._audited()
        for _ in range(_AUDITS):
            if found["records"] < _FEW or deadline.passed:
                break
            found = {**(again := self._audited()), "records": found["records"] + again["records"]}
            if again["records"] < _FEW:
                break
        while not self._looked.passed:
            self.parts.pause(self._looked.left_s)
        if self._placeable is not None:
            self._placing.check_rests(self._placeable, deadline)
        return found

    # ---- while writers are kept off

    def settle(self, deadline: Deadline) -> Mapping[str, Any]:
        """See that nobody writes any more, in all partitions, also ones that appeared meanwhile."""
        self._ends = self._watch.settle(self.parts.quiet_s, deadline)
        self._check_scope(self._state())
        return {"partitions": len(self._ends)}

    def drain(self, deadline: Deadline) -> Mapping[str, Any]:
        """Wait until everything is copied, open transactions included, which end one way or the other."""
        backoff = Backoff(cap_s=0.2)
        while True:
            self._ends = self._watch.check(self._ends, deadline)
            state = self._state()
            self._check_logs(state)
            self._check_stops(state)
            left = self._left(state)
            if not left:
                return {"partitions": len(self._ends)}
            late = Retriable(
                f"the flow has not come to the source's end in time: {named(left)} are left",
                code=DrillCode.NOT_DRAINED,
                where=self.parts.target.alias,
                resolve=f"{commands.command('status', self.parts.flow)} tells why; "
                f"{commands.command('drill', 'plan', self.parts.flow)} names transactions that stay open",
            )
            backoff.pause(deadline, late)

    def commits(self, deadline: Deadline) -> Mapping[str, Any]:
        """Wait until consumers have committed what they have read on the source."""
        self._positions = self._groups.settle(self._earlier, deadline)
        return {"positions": len(self._positions), "groups": len({group for group, _ in self._positions})}

    def place(self, deadline: Deadline) -> Mapping[str, Any]:
        """Put the groups in place on the target, exactly where they are on the source.

        Who pauses for longer than a commit takes is taken for somebody who rests: where it has gone on,
        everything is put in place once more. What may pass, such as a commit there that is not decided, is
        waited for.
        """
        written = 0

        def done(applied: AppliedGroups) -> None:
            nonlocal written
            written += len(applied.done)
            self._name_skips(applied)

        while True:
            planned = self._placing.put(deadline, done)
            now, _ = self.parts.source.retry(self._groups.positions, deadline)
            others = _others(self._positions, now)
            if not others:
                break
            if deadline.passed:
                raise commits.late(self.parts.source.alias, others)
            self._positions = self._groups.settle(self._positions, deadline)
        told = [
            f"{row.object} at {row.decision.to}, by flow {row.facts.forerunner}"
            for row in planned.rows
            if row.facts.forerunner is not None
        ]
        # Of groups that have read nothing since the last promotion, who has told where they go on.
        rested = {"rested": len(told), "rested_at": told[:TOLD]} if told else {}
        return {"written": written, "positions": len(self._positions), **rested}

    def compare(self, deadline: Deadline) -> Mapping[str, Any]:
        """Compare the tail on both sides, and the next record of every position."""
        return {**self._audited(), **self._check_positions(deadline)}

    def stop(self, deadline: Deadline) -> Mapping[str, Any]:
        """End the flow and fence it; then see once more that nothing came meanwhile."""
        self.notes.check()
        self._was_running = asked = self._stopped(deadline)
        self._leader = self.parts.leader()
        layout = self._leader.seize()
        self._ends = self._watch.check(self._ends, deadline)
        state = self._state()
        self._check_scope(state)
        self._check_logs(state)
        self._check_stops(state)
        check_denied(self.parts.target.alias, self.parts.denied(self._copies))
        if left := self._left(state):
            raise NeedsOperator(
                f"the flow has ended before the source's end: {named(left)} are left",
                code=DrillCode.NOT_DRAINED,
                resolve="run it again",
            )
        now, _ = self._groups.positions()
        if changed := _others(self._positions, now):
            group, tp = changed[0]
            raise NeedsOperator(
                f"{len(changed)} positions have moved since they were put in place: group {group} at {tp}",
                code=DrillCode.COMMITS_LATE,
                resolve="stop that consumer on the source, then run it again",
            )
        # Who goes on behind a process that is killed from here on has it from nowhere else.
        for said in cutpositions.noted(now):
            self.notes.write(chains.PLACED, said)
        return {"generation": layout.generation, "was_running": asked}

    # ---- behind the point of no return

    def verify(self, deadline: Deadline) -> Mapping[str, Any]:
        """Write and read on the target, and see that nothing was written behind the cut on the source."""
        self._check_promoted()
        evidence, wrong = self._probed(deadline)
        led_back = self.parts.led_back()
        mine = self._live()
        live = [e for e in mine.values() if e.target not in led_back]
        behind = self._written_behind(live, deadline) if live else BehindCut({}, [], {})
        self._name_anew({e.source: str(e.target_id) for e in live})
        self._name_moved()
        self._name_leaks()
        there, here = self._clients()
        if wrong is not None:
            raise wrong
        return {
            **evidence,
            "written_behind": behind.total,
            # What was led back is not looked at: what stands there by now may be of the flow the other way.
            "topics_unknown": len(behind.unknown) + len(mine) - len(live),
            "clients_on_the_target": there,
            "clients_on_the_source": here,
        }

    def _written_behind(self, live: Sequence[Enrolment], deadline: Deadline) -> BehindCut:
        """Return, and name, what stands on the source behind the cut."""
        source = self.parts.source
        copied = copied_to(self.parts.target, self.parts.flow, live)
        behind = written_behind(source, live, copied, deadline)
        if behind.written:
            text = (
                f"{sum(behind.written.values())} records were written on {source.alias} behind the cut, "
                f"and are there alone: {_first(behind.written)}"
            )
            self.findings.append((DrillCode.WRITTEN_BEHIND, text))
        if behind.unread:
            tp, error = min(behind.unread.items(), key=lambda each: each[0])
            text = (
                f"what stands behind the cut in {len(behind.unread)} partitions of {source.alias} is not "
                f"known: {tp}: {advised(error.as_dict())}"
            )
            # As bad as what was found: nobody can say that nothing was written around the fence.
            self.findings.append((DrillCode.WRITTEN_BEHIND, text))
        if lost := behind.lost:
            text = (
                f"{', '.join(lost[:_NAMED])} ({len(lost)} topics): deleted on {source.alias}, or made anew, "
                "behind the cut; what was written there before that is not known"
            )
            self.findings.append((DrillCode.NOT_COMPARED, text))
        return behind

    def reverse(self, deadline: Deadline) -> Mapping[str, Any]:
        """Have the flow the other way go on exactly behind the promotion.

        Raises:
            NeedsOperator: it does not; never that running it again may help: by then all else is done.
        """
        try:
            return self._lead_back(deadline)
        except Retriable as error:
            lead = commands.lead_back(str(self.parts.back), self.parts.flow)
            raise NeedsOperator(
                error.message,
                code=error.code,
                where=error.where,
                resolve=f"{lead}, once that has passed: nothing else is left",
            ) from error

    def _lead_back(self, deadline: Deadline) -> Mapping[str, Any]:
        self._check_promoted()
        if self.parts.reverse is None:
            return {}
        lifted = {}
        if topics := sorted(shut(self.notes.read()) & set(self._topics)):
            # Whatever becomes of that flow: it would be kept off by it, too.
            lifted = {"lifted": self.parts.lifted.lift(self.notes, topics, deadline)}
        evidence = {**self.parts.reverse(self._topics), **lifted}
        if evidence.pop("ended", False):
            text = (
                f"flow {evidence['flow']} was ended to take in more topics: {evidence['start_it']} starts it"
            )
            self.findings.append((DrillCode.FLOW_STOPPED, text))
        return evidence

    # ---- what they share

    @property
    def _watch(self) -> SourceWatch:
        return SourceWatch(self.parts.source, self._topics, self.parts.pause)

    @property
    def _placing(self) -> Placing:
        return Placing(self.parts.flow, self.parts.target.alias, self.parts.groups, self.parts.pause)

    @property
    def _groups(self) -> SourceGroups:
        return SourceGroups(self.parts.source, self.parts.selects, self._topics, self.parts.pause)

    def _check_topics(self, live: Sequence[Enrolment]) -> None:
        self._check_same(live)
        if gone := self._gone():
            raise NeedsOperator(
                f"the fence does not stand any more: writers of {len(gone)} topics may write again",
                code=DrillCode.FENCE_LEAKS,
                where=", ".join(gone[:_NAMED]),
                expected=self.parts.fence.how,
                resolve="find out who has taken it away; then run it again",
            )

    def _check_logs(self, state: FlowState) -> None:
        """Tell whether both sides' topics are still those that are copied.

        Raises:
            NeedsOperator: LOG_CHANGED.
        """
        self._check_same(list(self._live(state).values()))

    def _check_same(self, live: Sequence[Enrolment]) -> None:
        here = self.parts.source.retry(lambda: self.parts.source.topics([e.source for e in live]))
        there = self.parts.target.retry(lambda: self.parts.target.topics([e.target for e in live]))
        check_same(self.parts.flow, live, here, there)

    def _placed(self, deadline: Deadline) -> Positions:
        """Return where the groups are, once each that reads has a position; who has just begun commits soon.

        Raises:
            NeedsOperator: COMMITS_LATE.
        """
        waits, groups = Deadline(commits.COMMITS_S), self._groups
        while True:
            # A group that rebalances is waited for: nobody can tell what its members read.
            found, living = self.parts.source.retry(groups.positions, deadline)
            look = partial(groups.unplaced, found, living, deadline)
            unplaced = self.parts.source.retry(look, deadline)
            if not unplaced:
                return found
            if waits.passed:
                raise commits.unknown(self.parts.source.alias, unplaced)
            self.parts.pause(min(_LOOK_S, waits.left_s))

    def _name_moved(self) -> None:
        """Say where consumers have committed on the source behind what was put in place on the target."""
        before = cutpositions.read(self.notes.read(), self.by)
        if before is None:
            text = f"positions on the source: drill {self.by} has not written down where they were"
            self.findings.append((DrillCode.NOT_COMPARED, text))
            return
        try:
            now, _ = self._groups.positions()
        except OnceoverError as error:
            self.findings.append((DrillCode.NOT_COMPARED, f"positions on the source: {error.message}"))
            return
        moved_on, gone = cutpositions.compared(before, now)
        if gone:
            text = f"positions on the source: {gone} groups that were put in place are gone there"
            self.findings.append((DrillCode.NOT_COMPARED, text))
        if moved_on:
            text = f"{len(moved_on)} groups moved on the source behind the cut"
            text += f", {', '.join(moved_on[:_NAMED])}"
            self.findings.append((DrillCode.COMMITS_LATE, f"{text}: what was read there is read again"))

    def _left(self, state: FlowState) -> dict[TopicPartition, int]:
        copied = copied_to(self.parts.target, self.parts.flow, list(self._live(state).values()))
        return left_to_copy(copied, self._ends)

    def _check_scope(self, state: FlowState) -> None:
        known = {each.source for each in state.enrolled.values()}
        new = set(self.parts.scope()) - known if self.everything else ()
        check_scope(self.enrolled, {t for t, e in self._live(state).items() if e.active}, new)

    def _check_stops(self, state: FlowState) -> None:
        check_stops(self.parts.flow, self.parts.target.alias, self._copies, stopped_in(state.others))

    def _audited(self) -> dict[str, Any]:
        found = self.parts.audit(self._topics)
        check_audited(self.parts.flow, found)
        if found.unverifiable:
            text = f"{found.unverifiable} offsets: they have expired, or a transaction was open before them"
            self.findings.append((DrillCode.NOT_COMPARED, text))
        return {
            "records": found.records,
            "different": found.different,
            "unverifiable": found.unverifiable,
        }

    def _check_positions(self, deadline: Deadline) -> dict[str, int]:
        """Compare the next record of each position on both sides; return how many are the same.

        Raises:
            NeedsOperator: GROUP_MOVED, or a group has no position on the target.
        """
        moves = self._moves()
        merged = compacted(self.parts.source, {move.tp.topic for move in moves}) if moves else set()
        checked = [m for m in moves if m.tp.topic not in merged and not self.parts.handled]
        here, there = next_on_both(self.parts.source, self.parts.target, checked, self._ends, deadline)
        for move in checked:
            if move in here and move in there and content(here[move]) != content(there[move]):
                raise moved(move)
        exact = sum(1 for move in checked if move in here and move in there)
        return {"exact": exact, "not_compared": len(moves) - exact}

    def _moves(self) -> list[GroupMove]:
        wanted: dict[str, list[TopicPartition]] = {}
        targets = {(g, tp): self.enrolled[tp.topic].target_of(tp) for g, tp in self._positions}
        for (group, _), target_tp in targets.items():
            wanted.setdefault(group, []).append(target_tp)
        placed = GroupAdmin(self.parts.target).each_named(wanted, 5.0)
        for error in placed.failed.values():
            raise error
        moves = []
        for (group, tp), offset in sorted(self._positions.items()):
            at = placed.found[group].committed.get(targets[group, tp])
            if at is None:
                raise NeedsOperator(
                    f"group {group} has no position at {targets[group, tp]} on the target",
                    code=DrillCode.GROUPS_LEFT,
                    resolve=f"{commands.command('groups', 'plan', self.parts.flow)} tells why",
                )
            moves.append(GroupMove(group, tp, offset, targets[group, tp], at.offset))
        return moves


def _others(before: Positions, now: Positions) -> list[tuple[str, TopicPartition]]:
    """Return the positions that are others by now."""
    return sorted(at for at in before.keys() | now.keys() if before.get(at) != now.get(at))


def _many(losses: Collection[Any] | None) -> str:
    return "unknown" if losses is None else str(len(losses))


def _first(written: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{tp} ({count})" for tp, count in sorted(written.items())[:_NAMED])
