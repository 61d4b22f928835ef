"""What each step of a planned switchover does on both clusters.

Invariant: until *promote* nothing is changed but what *undo* takes back, and the groups' positions on the
target, which go forward as ``groups apply`` moves them. From *promote* on it only goes forward: that step is
one transaction, and whether it was committed is read from the target, never remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.drills.clients import ClientsSeen
from onceover.drills.codes import DrillCode
from onceover.drills.moves import GroupMove, compacted, content, moved, next_on_both
from onceover.drills.progress import copied_to, left_to_copy, named
from onceover.drills.switching.commits import Positions, SourceGroups
from onceover.drills.switching.fences import DrillNotes, Fence
from onceover.drills.switching.probe import Probe
from onceover.drills.switching.watch import Ends, SourceWatch
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.groups.apply import GroupSync
from onceover.kafka.cluster import Cluster
from onceover.kafka.groups.admin import GroupAdmin
from onceover.lead.leader import Leader
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.operation import Caller, Planned
from onceover.state.enrolment import Enrolment, LeftAt
from onceover.state.read import read_flow_state
from onceover.stops.record import stopped_in
from onceover.stops.requests import request_stop

_STOP_S: Final = 20.0
_NAMED: Final = 3
# What status says of a flow whose driver lives.
_RUNS: Final = ("copying", "caught_up")


@dataclass(frozen=True)
class TailCompared:
    """What an audit of what is not verified yet has found.

    Args:
        records: of the source that were compared.
        different: records that are not as they should be; ``unverifiable`` offsets that nobody can compare.
    """

    records: int
    different: int
    unverifiable: int


@dataclass(frozen=True)
class SwitchoverParts:
    """What a switchover is made of; the caller opens and closes it.

    Args:
        flow: the flow; ``source`` its source, ``target`` its target.
        look: what a failover would cost now, as ``drill plan`` has it.
        selects: tells whether the flow moves a group.
        scope: the source topics that are in the flow's filter now.
        groups: opens what puts the flow's groups in place.
        audit: compares, from the verified watermark on, what was copied of source topics.
        leader: makes a leader of the flow.
        fence: keeps the source's writers off.
        redirect: brings clients to the target, as far as we have a part in it.
        clients: who uses those partitions of a cluster.
        reverse: makes the flow the other way go on behind the promotion; None where none is named.
        lifts: whether the fence would keep that flow off, too.
        handled: the flow has a handler: the records of both sides are not the same ones.
        quiet_s: how long nobody may have written for the fence to be believed.
        pause: waits so many seconds.
    """

    flow: str
    source: Cluster
    target: Cluster
    look: Callable[[], Mapping[str, Any]]
    selects: Callable[[str], bool]
    scope: Callable[[], Sequence[str]]
    groups: Callable[[], AbstractContextManager[GroupSync]]
    audit: Callable[[Sequence[str]], TailCompared]
    leader: Callable[[], Leader]
    fence: Fence
    redirect: Callable[[Sequence[str], Deadline], Mapping[str, Any]]
    clients: Callable[[Cluster, Sequence[TopicPartition]], ClientsSeen]
    reverse: Callable[[Sequence[str]], Mapping[str, Any]] | None
    lifts: bool
    handled: bool
    quiet_s: float
    pause: Callable[[float], bool]


@dataclass
class SwitchoverSteps:
    """The actions, in their order. Not thread-safe.

    Args:
        parts: what they work with.
        drill: the drill's id.
        by: the drill that has promoted the topics; another one where this one goes on behind it.
        enrolled: the topics that are switched over, by source topic.
        everything: whether these are all of the flow's.
        notes: the journal, for this drill.
        probe: writes and reads on the target.
    """

    parts: SwitchoverParts
    drill: str
    by: str
    enrolled: Mapping[str, Enrolment]
    everything: bool
    notes: DrillNotes
    probe: Probe
    findings: list[tuple[str, str]] = field(default_factory=list)
    _ends: Ends = field(default_factory=dict)
    _positions: Positions = field(default_factory=dict)
    _leader: Leader | None = None
    _was_running: bool = False

    # ---- before anybody is kept off

    def look(self, _: Deadline) -> Mapping[str, Any]:
        """Ask what a failover would cost now, and whether everything that is needed is there."""
        found = self.parts.look()
        if found["needs"]:
            need = found["needs"][0]
            raise NeedsOperator(
                f"{len(found['needs'])} things have to be decided first: {need['message']}",
                code=DrillCode.NOT_READY,
                seen=", ".join(sorted({need["code"] for need in found["needs"]})),
                resolve=need["resolve"],
            )
        if found["status"] not in _RUNS and found["losses"]:
            raise NeedsOperator(
                f"the flow does not run ({found['status']}), and there is something left to copy",
                code=DrillCode.NOT_READY,
                seen=f"{len(found['losses'])} topics with records on the source alone",
                resolve=f"{commands.replicate(self.parts.flow)}, then run it again",
            )
        for part, error in found["problems"].items():
            raise Retriable(f"{part} cannot be looked at: {error['message']}", code=DrillCode.NOT_READY)
        for unseen in (found["clients"] or {}).get("unseen", ()):
            self.findings.append((DrillCode.NOT_READY, unseen["message"]))
        self._check_scope()
        self.parts.fence.check()
        return {
            "topics": len(self.enrolled),
            "partitions": sum(len(e.start) for e in self.enrolled.values()),
            "consumers": len((found["clients"] or {}).get("consumers", ())),
            "producers": len((found["clients"] or {}).get("producers", ())),
        }

    def audit(self, _: Deadline) -> Mapping[str, Any]:
        """Compare what was not verified until now, while writers still write: less is left for later."""
        return self._audited()

    # ---- while writers are kept off

    def fence(self, deadline: Deadline) -> Mapping[str, Any]:
        """Keep the source's writers off."""
        self.notes.check()
        return self.parts.fence.make(self.notes, self._topics, deadline)

    def settle(self, deadline: Deadline) -> Mapping[str, Any]:
        """See that nobody writes any more, in all partitions, also ones that appeared meanwhile."""
        self._ends = self._watch.settle(self.parts.quiet_s, deadline)
        self._check_scope()
        return {"partitions": len(self._ends)}

    def drain(self, deadline: Deadline) -> Mapping[str, Any]:
        """Wait until everything is copied, open transactions included, which end one way or the other."""
        backoff = Backoff(cap_s=0.2)
        while True:
            self._ends = self._watch.check(self._ends, deadline)
            left = self._left()
            if not left:
                return {"partitions": len(self._ends)}
            self._check_stops()
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
        self._positions = self._groups.settle(deadline)
        return {"positions": len(self._positions), "groups": len({group for group, _ in self._positions})}

    def place(self, _: Deadline) -> Mapping[str, Any]:
        """Put the groups in place on the target, exactly where they are on the source."""
        with self.parts.groups() as sync:
            applied = sync.apply(Caller(_shown_already, pause=self.parts.pause))
        left = [refusal for refusal in applied.waiting if refusal.blocks]
        if left:
            raise NeedsOperator(
                f"{len(left)} positions are left alone: {left[0].object}: {left[0].message}",
                code=DrillCode.GROUPS_LEFT,
                where=self.parts.target.alias,
                resolve=left[0].resolve,
            )
        return {"written": len(applied.done), "positions": len(self._positions)}

    def compare(self, deadline: Deadline) -> Mapping[str, Any]:
        """Compare the tail on both sides, and the next record of every position."""
        return {**self._audited(), **self._check_positions(deadline)}

    def stop(self, deadline: Deadline) -> Mapping[str, Any]:
        """End the flow and fence it; then see once more that nothing came meanwhile."""
        self.notes.check()
        asked = self._stopped(deadline)
        self._leader = self.parts.leader()
        layout = self._leader.seize()
        self._was_running = asked
        self._ends = self._watch.check(self._ends, deadline)
        self._check_scope()
        if left := self._left():
            raise NeedsOperator(
                f"the flow has ended before the source's end: {named(left)} are left",
                code=DrillCode.NOT_DRAINED,
                resolve="run it again",
            )
        now, _ = self._groups.positions()
        if changed := sorted(at for at in now if now[at] != self._positions.get(at)):
            group, tp = changed[0]
            raise NeedsOperator(
                f"{len(changed)} positions have moved since they were put in place: group {group} at {tp}",
                code=DrillCode.COMMITS_LATE,
                resolve="stop that consumer on the source, then run it again",
            )
        return {"generation": layout.generation, "was_running": asked}

    def promote(self, _: Deadline) -> Mapping[str, Any]:
        """Give the copies to clients: the point of no return, one transaction."""
        if self._leader is None or self._leader.layout is None:
            raise NeedsOperator("the flow is not fenced", code=DrillCode.NOT_DRAINED)
        now = LeftAt(self._leader.layout.generation, now_ms())
        self.notes.check()
        self._leader.enrol([e.as_promoted(self.drill, now) for e in self._live().values()], {})
        return {"topics": len(self.enrolled), "generation": now.generation}

    # ---- behind the point of no return

    def redirect(self, deadline: Deadline) -> Mapping[str, Any]:
        """Bring the clients to the target."""
        self._check_promoted()
        return self.parts.redirect(self._topics, deadline)

    def verify(self, deadline: Deadline) -> Mapping[str, Any]:
        """Write and read on the target, and see that nothing was written behind the cut on the source."""
        self._check_promoted()
        evidence = self.probe.run(self.drill, deadline)
        cut = copied_to(self.parts.target, self.parts.flow, list(self.enrolled.values()))
        written = self._watch.written(cut, self._watch.ends(), deadline)
        there, here = self._clients()
        if written:
            raise NeedsOperator(
                f"{sum(written.values())} records were written on the source behind the cut: "
                f"{_first(written)}",
                code=DrillCode.WRITTEN_BEHIND,
                where=self.parts.source.alias,
                expected="nobody writes there any more",
                resolve="bring whoever does it to the target; these records are on the source alone: write "
                "them to the target if they are wanted",
            )
        return {**evidence, "clients_on_the_target": there, "clients_on_the_source": here}

    def reverse(self, deadline: Deadline) -> Mapping[str, Any]:
        """Have the flow the other way go on exactly behind the promotion."""
        self._check_promoted()
        if self.parts.reverse is None:
            return {}
        evidence = dict(self.parts.reverse(self._topics))
        if self.parts.lifts:
            # It would be kept off by it, too.
            evidence["lifted"] = self.parts.fence.lift(self.notes, self._topics, deadline)
        return evidence

    def undo(self, deadline: Deadline) -> Mapping[str, Any]:
        """Let the writers in again, unless the copies were promoted: then there is no way back."""
        self.close()
        if self._promoted():
            return {"promoted": True}
        evidence = dict(self.parts.fence.lift(self.notes, self._topics, deadline))
        if self._was_running:
            text = f"the flow was ended by this drill: {commands.replicate(self.parts.flow)} starts it again"
            self.findings.append((DrillCode.FLOW_STOPPED, text))
        return {"promoted": False, **evidence}

    def close(self) -> None:
        """Let go of the flow, should it still be held."""
        if self._leader is not None:
            self._leader.close()
            self._leader = None

    # ---- what they share

    @property
    def _topics(self) -> list[str]:
        return sorted(self.enrolled)

    @property
    def _watch(self) -> SourceWatch:
        return SourceWatch(self.parts.source, self._topics, self.parts.pause)

    @property
    def _groups(self) -> SourceGroups:
        return SourceGroups(self.parts.source, self.parts.selects, self._topics, self.parts.pause)

    def _live(self) -> dict[str, Enrolment]:
        """Return the topics' records as they are now."""
        target = self.parts.target
        state = target.retry(lambda: read_flow_state(target, self.parts.flow))
        return {e.source: e for e in state.enrolled.values() if e.source in self.enrolled}

    def _left(self) -> dict[TopicPartition, int]:
        copied = copied_to(self.parts.target, self.parts.flow, list(self._live().values()))
        return left_to_copy(copied, self._ends)

    def _check_scope(self) -> None:
        """Tell whether the topics are still those that were planned.

        Raises:
            NeedsOperator: SCOPE_CHANGED.
        """
        gone = sorted(set(self.enrolled) - {t for t, e in self._live().items() if e.active})
        new = sorted(set(self.parts.scope()) - set(self.enrolled)) if self.everything else []
        if gone or new:
            raise NeedsOperator(
                f"the flow's topics are others than were planned: {', '.join([*gone, *new][:_NAMED])}",
                code=DrillCode.SCOPE_CHANGED,
                expected=f"{len(self.enrolled)} topics, all of them copied",
                seen=f"{len(gone)} of them not, {len(new)} new ones",
                resolve="plan again; `--topics` names those that are wanted",
            )

    def _check_stops(self) -> None:
        target = self.parts.target
        state = target.retry(lambda: read_flow_state(target, self.parts.flow))
        targets = {e.target for e in self.enrolled.values()}
        stopped = sorted(tp for tp in stopped_in(state.others) if tp.topic in targets)
        if stopped:
            raise NeedsOperator(
                f"the flow has stopped at {', '.join(map(str, stopped[:_NAMED]))}",
                code=DrillCode.COPY_STOPPED,
                where=target.alias,
                resolve=f"{commands.command('status', self.parts.flow)} names the way out of each",
            )

    def _audited(self) -> dict[str, Any]:
        found = self.parts.audit(self._topics)
        if found.different:
            raise NeedsOperator(
                f"{found.different} records of the copies are not as they should be",
                code=DrillCode.COPY_DIFFERS,
                resolve=f"{commands.command('audit', self.parts.flow)} names them; do not switch over",
            )
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

    def _stopped(self, deadline: Deadline) -> bool:
        """Ask the flow to end; tell whether it was running. One that does not answer is fenced anyway."""
        try:
            wait_s = max(1.0, min(_STOP_S, deadline.left_s))
            return bool(request_stop(self.parts.target, self.parts.flow, wait_s=wait_s)["was_running"])
        except Retriable as error:
            self.findings.append((DrillCode.FLOW_STOPPED, f"{error.message}; it was fenced"))
            return True

    def _promoted(self) -> bool:
        live = self._live().values()
        return any(e.promoted is not None and e.promoted.drill == self.by for e in live)

    def _check_promoted(self) -> None:
        if not self._promoted():
            raise NeedsOperator("the copies are not promoted", code=DrillCode.SCOPE_CHANGED)

    def _clients(self) -> tuple[int, int]:
        """Return how many members read the topics on the target, and on the source."""
        counts = []
        for cluster, of_target in ((self.parts.target, True), (self.parts.source, False)):
            tps = [e.target_of(tp) if of_target else tp for e in self.enrolled.values() for tp in e.sources()]
            try:
                counts.append(len(self.parts.clients(cluster, tps).consumers))
            except OnceoverError as error:
                self.findings.append((DrillCode.NOT_COMPARED, f"clients: {error.message}"))
                counts.append(0)
        there, here = counts
        if here:
            text = f"{here} consumers still read on {self.parts.source.alias}"
            self.findings.append((DrillCode.STILL_THERE, text))
        return there, here


def _shown_already(_: Planned) -> None:
    """The drill's own plan was approved; this one is a part of it."""


def _first(written: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{tp} ({count})" for tp, count in sorted(written.items())[:_NAMED])
