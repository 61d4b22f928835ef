"""What every switchover is made of: the promotion, what comes behind it, and what it is made with.

Invariant: the promotion is one transaction; whether it was committed is read from the target, not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.drills.codes import DrillCode
from onceover.drills.leaving.fences import DrillNotes, Fence, LiftedFences
from onceover.drills.looks.clients import ClientsSeen
from onceover.drills.switching.probe import Probe
from onceover.drills.switching.standing import SourceStanding
from onceover.drills.switching.tail import TailCompared
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.groups.apply import AppliedGroups, GroupSync
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.ports import Cluster
from onceover.lead.leader import Leader
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.operation import Planned
from onceover.state import names
from onceover.state.read import FlowState, read_flow_state
from onceover.state.records.enrolment import Enrolment, LeftAt
from onceover.state.records.progress import promoted_progress
from onceover.stops.requests import request_stop

_STOP_S: Final = 20.0
# Of positions, in a report.
TOLD: Final = 20
_NAMED: Final = 3


@dataclass(frozen=True)
class SwitchoverParts:
    """What a switchover is made of; the caller opens and closes it.

    Args:
        flow: the flow; ``source`` its source, ``target`` its target.
        look: what a failover would cost now, as ``drill plan`` has it.
        glance: the flow's entry of ``status``, for which the source is not waited for.
        selects: tells whether the flow moves a group.
        scope: the source topics that are in the flow's filter now.
        groups: opens what puts the flow's groups in place.
        audit: compares, from the verified watermark on, what was copied of source topics.
        leader: makes a leader of the flow, which asks the source for nothing.
        fence: keeps the source's writers off; ``lifted`` lets in again whom any switchover has kept off.
        denied: DENYs on the target that would keep clients off the copies; where the source cannot be asked,
            with those that the flow the other way has made.
        let_in: lets writers in on the target whom the flow the other way has kept off there.
        in_the_way: the drill of that flow that has to be over before, such as a rehearsal; None without one.
        redirect: brings clients to the target, as far as we have a part in it.
        clients: who uses those partitions of a cluster.
        reverse: makes the flow the other way go on behind the promotion; None where none is named.
        back: that flow's name.
        led_back: copies that the flow the other way has taken in already.
        gone_back: those that clients have gone back with since, by a switchover of that flow.
        handled: the flow has a handler: the records of both sides are not the same ones.
        whatever_is_lost: of an unplanned one: the yes holds however source and flow are when it is done.
        quiet_s: how long nobody may have written for the fence to be believed.
        pause: waits so many seconds.
    """

    flow: str
    source: Cluster
    target: Cluster
    look: Callable[[], Mapping[str, Any]]
    glance: Callable[[], Mapping[str, Any]]
    selects: Callable[[str], bool]
    scope: Callable[[], Sequence[str]]
    groups: Callable[[], AbstractContextManager[GroupSync]]
    audit: Callable[[Sequence[str]], TailCompared]
    leader: Callable[[], Leader]
    fence: Fence
    lifted: LiftedFences
    denied: Callable[[Sequence[str]], Sequence[str]]
    let_in: Callable[[Sequence[str]], Mapping[str, Any]]
    in_the_way: Callable[[Sequence[str]], str | None]
    redirect: Callable[[Sequence[str], Deadline], Mapping[str, Any]]
    clients: Callable[[Cluster, Sequence[TopicPartition]], ClientsSeen]
    reverse: Callable[[Sequence[str]], Mapping[str, Any]] | None
    back: str | None
    led_back: Callable[[], Collection[str]]
    gone_back: Callable[[], Collection[str]]
    handled: bool
    whatever_is_lost: bool
    quiet_s: float
    pause: Callable[[float], bool]


@dataclass
class SwitchSteps:
    """What every switchover does, whatever led to it. Not thread-safe.

    Args:
        parts: what it works with.
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
    # Seconds for which *look* has looked by now, where that is a part of the plan.
    looked_s: float = 0.0
    _leader: Leader | None = None
    _was_running: bool = False
    _began_promoting: bool = False

    def standing(self) -> SourceStanding | None:
        """Return how source and flow are, where that is a part of the question; None elsewhere."""
        return None

    def promote(self, _: Deadline) -> Mapping[str, Any]:
        """Give the copies to clients: the point of no return, one transaction."""
        if self._leader is None or self._leader.layout is None:
            raise NeedsOperator("the flow is not fenced", code=DrillCode.NOT_DRAINED)
        now = LeftAt(self._leader.layout.generation, now_ms())
        # Who would write these records from here on takes the leader's id, and so ends our transaction.
        live = self._still_planned()
        self._check_topics(live)
        ends, progress = self._copy_ends(live), self._progress()
        cuts = self._cuts(live, progress)
        promoted = [e.as_promoted(self.drill, now, ends[e.target], cuts[e.target]) for e in live]
        marked = {tp: at for each in promoted for tp, at in promoted_progress(each, progress).items()}
        # Last: nothing that waits for a broker may lie between this look and the transaction.
        self.notes.check()
        self._began_promoting = True
        self._leader.enrol(promoted, marked)
        return {"topics": len(self.enrolled), "generation": now.generation}

    def redirect(self, deadline: Deadline) -> Mapping[str, Any]:
        """Bring the clients to the target."""
        self._check_promoted()
        return {**self._let_in(deadline), **self.parts.redirect(self._topics, deadline)}

    def close(self) -> None:
        """Let go of the flow, should it still be held."""
        if self._leader is not None:
            self._leader.close()
            self._leader = None

    # ---- what they share

    def _lift(self, deadline: Deadline) -> Mapping[str, Any]:
        """Let in on the target whom the flow the other way has kept off there.

        A rehearsal of that flow may have begun since *look*. It is not disturbed, and ends in minutes: its
        end is waited for during half of the time, as nobody can write on either side until then.
        """
        backoff, waits = Backoff(), Deadline(deadline.left_s / 2)
        while True:
            try:
                return self.parts.let_in(self._copies)
            except (NeedsOperator, Retriable) as error:
                if error.code != DrillCode.DRILL_RUNS:
                    raise
                backoff.pause(waits, Retriable(error.message, code=error.code, resolve=error.resolve))

    def _let_in(self, deadline: Deadline) -> Mapping[str, Any]:
        """Do so, and tell who cannot how to go on."""
        try:
            return self._lift(deadline)
        except Retriable as error:
            mode = "unplanned"
            go_on = commands.command("drill", "run", self.parts.flow, "--mode", mode)
            raise Retriable(
                f"whom the flow the other way keeps off {self.parts.target.alias} cannot be asked: "
                f"{error.message}",
                where=error.where,
                resolve=f"run it again; if {self.parts.source.alias} is gone, {go_on} goes on without it",
            ) from error

    def _progress(self) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the flow's progress, by target partition."""
        target, group = self.parts.target, names.progress_group(self.parts.flow)
        return target.retry(lambda: target.committed(group, None))

    @staticmethod
    def _cuts(
        live: Sequence[Enrolment], progress: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[str, dict[int, int]]:
        """Return up to which source offset each partition was copied, by target topic."""
        return {
            each.target: {
                tp.partition: progress[at].offset
                for tp in each.sources()
                if (at := each.target_of(tp)) in progress
            }
            for each in live
        }

    @property
    def _topics(self) -> list[str]:
        return sorted(self.enrolled)

    @property
    def _copies(self) -> list[str]:
        return sorted(each.target for each in self.enrolled.values())

    def _state(self) -> FlowState:
        """Return the flow's state as it is now; once it is fenced, none of before."""
        target, fence = self.parts.target, None if self._leader is None else self._leader.layout
        since = 0 if fence is None else fence.generation
        return target.retry(lambda: read_flow_state(target, self.parts.flow, since))

    def _live(self, state: FlowState | None = None) -> dict[str, Enrolment]:
        """Return the topics' records as they are now, or were in ``state``."""
        now = state or self._state()
        return {e.source: e for e in now.enrolled.values() if e.source in self.enrolled}

    def _name_skips(self, applied: AppliedGroups) -> None:
        """Name each group that was moved although that may cost it records: nobody was asked about it."""
        done = set(applied.done)
        risky = [row for row in applied.plan.risky if row.change in done]
        for row in risky[:TOLD]:
            change = row.change
            count = "an unknown number of" if change.records is None else change.records
            text = f"{change.object}: from {change.from_} to {change.to}, {change.risk}s {count} offsets"
            self.findings.append((DrillCode.GROUP_SKIPS, f"{text}: {change.reason}"))
        if len(risky) > TOLD:
            names = sorted({row.change.object for row in risky[TOLD:]})
            text = f"{len(risky) - TOLD} more positions were moved likewise: {', '.join(names)}"
            self.findings.append((DrillCode.GROUP_SKIPS, text))

    def _name_stopped(self) -> None:
        """Say where the flow was ended by this drill, which does not start it again."""
        if self._was_running:
            text = f"the flow was ended by this drill: {commands.replicate(self.parts.flow)} starts it again"
            self.findings.append((DrillCode.FLOW_STOPPED, text))

    def _stopped(self, deadline: Deadline) -> bool:
        """Ask the flow to end; tell whether it was running. One that does not answer is fenced anyway.

        Raises:
            Retriable: NO_ANSWER, of one that no fence keeps from going on.
        """
        before = self._state()
        try:
            wait_s = max(1.0, min(_STOP_S, deadline.left_s))
            return bool(request_stop(self.parts.target, self.parts.flow, wait_s=wait_s)["was_running"])
        except Retriable as error:
            now, text = self._state(), f"{error.message}; it was fenced"
            # The one that hangs: what the flow file says now is for the next start.
            if now.layout is None or not now.layout.may_be_fenced:
                # Nobody can fence what writes without transactions: it may wake behind the promotion.
                if not self._is_given_up(before, now):
                    raise Retriable(
                        error.message, code=error.code, where=error.where, resolve=self._if_silent
                    ) from error
                text += ", but for what it has in hand: should it wake, that comes again"
            self.findings.append((DrillCode.FLOW_STOPPED, text))
            return True

    def _is_given_up(self, before: FlowState, now: FlowState) -> bool:
        """Tell whether a run at least once that has not answered may be left behind, as somebody has said.

        Args:
            before: when it was asked to end; ``now`` when it has not.
        """
        return False

    @property
    def _if_silent(self) -> str:
        """What resolves that a run at least once does not answer."""
        start = commands.replicate(self.parts.flow)
        return f"end its process, and start it again: {start}, which goes on beside it; then run this again"

    def _still_planned(self) -> list[Enrolment]:
        """Return the topics' records as they are now: still copied, and moved by nobody since the plan.

        Raises:
            NeedsOperator: SCOPE_CHANGED; promoted again, a copy would be led back from another offset.
        """
        live = self._live()
        others = [t for t in self._topics if t not in live or not live[t].is_still(self.enrolled[t])]
        if others:
            raise NeedsOperator(
                f"the flow's topics are others than were planned: {', '.join(others[:_NAMED])}",
                code=DrillCode.SCOPE_CHANGED,
                expected=f"{len(self.enrolled)} topics that are copied, and not promoted",
                seen=f"{len(others)} others: promoted meanwhile, left, or placed by hand",
                resolve="plan again",
            )
        return [live[topic] for topic in self._topics]

    def _check_topics(self, live: Sequence[Enrolment]) -> None:
        """Tell, right before they are promoted, whether these are still the topics that are meant.

        Raises:
            NeedsOperator: LOG_CHANGED.
        """
        raise NotImplementedError

    def _copy_ids(self) -> dict[str, str | None]:
        """Return the id of each copy's topic now, by source topic; None where there is none."""
        copies, target = self._copies, self.parts.target
        infos = target.retry(lambda: target.topics(copies)) if copies else {}
        return {
            topic: str(infos[each.target].topic_id) if each.target in infos else None
            for topic, each in self.enrolled.items()
        }

    def _name_anew(self, promoted: Mapping[str, str | None]) -> None:
        """Say which copies are other topics by now than were promoted: clients have lost those.

        Args:
            promoted: ids of their topics, by source topic.
        """
        now = self._copy_ids()
        others = sorted(self.enrolled[t].target for t, known in promoted.items() if now[t] != known)
        if others:
            text = f"{len(others)} copies were deleted on {self.parts.target.alias}, or made anew, behind "
            self.findings.append((DrillCode.LOG_CHANGED, f"{text}the cut: {', '.join(others[:_NAMED])}"))

    def _copy_ends(self, live: Sequence[Enrolment]) -> dict[str, dict[int, int]]:
        """Return where each copy ends, now that nobody writes to it: the way back begins there."""
        copies = [e.target_of(tp) for e in live for tp in e.sources()]
        target = self.parts.target
        ends = target.retry(lambda: target.list_offsets(copies, calls.LATEST, calls.READ_UNCOMMITTED))
        found: dict[str, dict[int, int]] = {e.target: {} for e in live}
        for tp, end in ends.items():
            found[tp.topic][tp.partition] = end
        return found

    def _not_promoted(self) -> list[str]:
        """Return the topics that nobody has promoted: a later one may have, where this was taken for dead."""
        live = self._live()
        return [topic for topic in self._topics if topic not in live or not live[topic].is_promoted]

    def _probed(self, deadline: Deadline) -> tuple[Mapping[str, Any], OnceoverError | None]:
        """Write and read on the target; return what is wrong there beside the evidence.

        Whatever a person has to do about it, they are to hear of the rest, too, and raise it behind that.

        Raises:
            Fenced: DRILL_TAKEN_OVER.
            Retriable: the target is away.
        """
        try:
            return self.probe.run(self.drill, deadline), None
        except (NeedsOperator, UsageError) as error:
            return {}, error

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


def shown_already(_: Planned) -> None:
    """The drill's own plan was approved; this one is a part of it."""
