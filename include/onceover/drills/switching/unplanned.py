"""What each step of an unplanned switchover does: the source is slow, half dead, frozen or gone.

Invariant: nothing waits for the source beyond its patience; what it does not tell is unknown, never none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.drills import chain as chains
from onceover.drills.codes import DrillCode
from onceover.drills.leaving.watch import written_behind
from onceover.drills.looks.dryrun import losses_of
from onceover.drills.progress import copied_to
from onceover.drills.switching.common import SwitchSteps, shown_already
from onceover.drills.switching.standing import SourceStanding
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.operation import Caller
from onceover.state import names
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.runstate import RunState

_NAMED: Final = 3
# A marker of what was fenced is written within a fraction of it.
_SETTLES_S: Final = 8.0
# What was lost is told at the end, when clients wait for nobody: a source that is gone costs no more.
_LOSS_S: Final = 5.0
# For so long nobody is asked again; a person who says yes takes longer.
_GOOD_S: Final = 5.0


@dataclass
class UnplannedSteps(SwitchSteps):
    """The actions of an unplanned one, in their order. Not thread-safe."""

    _seen: Mapping[str, Any] | None = None
    _good: Deadline = field(default_factory=lambda: Deadline(0.0))
    _stood: SourceStanding | None = None

    def standing(self) -> SourceStanding:
        """Return how source and flow are: what is approved is what *look* tells.

        A look at the source, which may take seconds that clients wait for, is good for some more.
        """
        if self._seen is None or self._good.passed:
            began_s = time.monotonic()
            self._seen = self.parts.glance()
            self.looked_s = time.monotonic() - began_s
            self._good = Deadline(_GOOD_S)
        self._stood = SourceStanding.of(self._seen, self.enrolled, self._copy_ids())
        return self._stood

    @property
    def _shown(self) -> tuple[Mapping[str, Any], SourceStanding]:
        """What the newest look has told, and how source and flow were then."""
        standing = self._stood or self.standing()
        return self._seen or {}, standing

    def look(self, _: Deadline) -> Mapping[str, Any]:
        """Ask what is on the source alone, as far as anybody can tell now."""
        found, standing = self._shown
        mine = [p for p in found["partitions"] if p["topic"] in self.enrolled]
        losses = losses_of(mine)
        # A target that is slow tells of no partition at all.
        told = {TopicPartition(p["topic"], p["partition"]) for p in mine if p["lag_offsets"] is not None}
        wanted = {tp for each in self.enrolled.values() for tp in each.sources()}
        unknown = wanted - told
        stopped = [p for p in mine if p["stop"]]
        for each in stopped[:_NAMED]:
            text = f"{each['topic']}:{each['partition']} was stopped: {each['stop']['message']}"
            self.findings.append((DrillCode.COPY_STOPPED, text))
        if unknown:
            text = f"what is on the source alone in {len(unknown)} of {len(wanted)} partitions is not known"
            self.findings.append((DrillCode.LOSS_UNKNOWN, text))
        return {
            "losses": [loss._asdict() for loss in losses],
            "offsets_missing": sum(loss.offsets or 0 for loss in losses),
            "partitions": len(wanted),
            "partitions_unknown": len(unknown),
            "positions": {f"{p['topic']}:{p['partition']}": p["position"] for p in mine},
            "last_commit_ms": found["last_commit_ms"],
            "source_answers": standing.answers,
            "partitions_answering": standing.answering,
        }

    def place(self, _: Deadline) -> Mapping[str, Any]:
        """Put the groups in place once more where the source tells where they are."""
        if not self._shown[1].answering:
            return self._as_they_stand("the source does not answer")
        try:
            with self.parts.groups() as sync:
                applied = sync.apply(Caller(shown_already, pause=self.parts.pause))
        except OnceoverError as error:
            return self._as_they_stand(error.message)
        for refusal in applied.waiting[:_NAMED]:
            self.findings.append((DrillCode.GROUPS_LEFT, f"{refusal.object}: {refusal.message}"))
        if others := sorted({refusal.object for refusal in applied.waiting[_NAMED:]}):
            self.findings.append((DrillCode.GROUPS_LEFT, f"not in place either: {', '.join(others)}"))
        self._name_skips(applied)
        return {"written": len(applied.done), "left": len(applied.waiting)}

    def stop(self, deadline: Deadline) -> Mapping[str, Any]:
        """End the flow, or fence it where it does not answer: what its lanes have open is aborted."""
        self.notes.check()
        self._was_running = self._stopped(deadline)
        self._leader = self.parts.leader()
        layout = self._leader.seize()
        return {"generation": layout.generation, "was_running": self._was_running}

    def _is_given_up(self, before: FlowState, now: FlowState) -> bool:
        # By its signs, and by no clock alone: one that hangs in a lane, and lives, goes on.
        is_still = before.others.get(names.HEARTBEAT) == now.others.get(names.HEARTBEAT)
        is_shown = self.parts.whatever_is_lost or self._shown[1].wakes
        return is_shown and is_still and now.run(now_ms()).state is RunState.GONE

    @property
    def _if_silent(self) -> str:
        see = commands.command("status", self.parts.flow)
        return (
            f"end its process; once {see} says that its driver is gone, run it again: what it may repeat, "
            "should it wake, is a part of the question then"
        )

    def settle(self, deadline: Deadline) -> Mapping[str, Any]:
        """Wait until no transaction is open in the copies; name those that hang."""
        copies = [e.target_of(tp) for e in self.enrolled.values() for tp in e.sources()]
        # What is not ours holds up its readers, and nobody else: the step itself is not late.
        waits = Deadline(min(_SETTLES_S, deadline.left_s / 2))
        backoff = Backoff(cap_s=0.2)
        late = Retriable("transactions stay open", where=self.parts.target.alias)
        while open_in := _open(self.parts.target, copies):
            try:
                backoff.pause(waits, late)
            except Retriable:
                self._name_hanging(open_in)
                return {"open": len(open_in)}
        return {"open": 0}

    def _let_in(self, deadline: Deadline) -> Mapping[str, Any]:
        """Let in whom the flow the other way has kept off, if that can be asked: its journal is there.

        Whoever is kept off the copies all the same is named.
        """
        evidence: Mapping[str, Any] = {}
        try:
            evidence = self._lift(deadline)
        except OnceoverError as error:
            text = f"whom the flow the other way keeps off {self.parts.target.alias} cannot be asked"
            self.findings.append((DrillCode.STILL_FENCED, f"{text}: {error.message}"))
        try:
            denied = self.parts.denied(self._copies)
        except OnceoverError as error:
            self.findings.append((DrillCode.NOT_COMPARED, f"ACLs: {error.message}"))
            return evidence
        if denied:
            text = f"{len(denied)} ACLs keep clients off the copies, remove them by hand: "
            self.findings.append((DrillCode.TARGET_DENIES, f"{text}{', '.join(denied[:_NAMED])}"))
        return evidence

    def verify(self, deadline: Deadline) -> Mapping[str, Any]:
        """Write and read on the target."""
        self._check_promoted()
        evidence, wrong = self._probed(deadline)
        see = commands.command("drill", "orphans", "plan", self.parts.flow)
        text = f"when the source is back: {see} tells what it holds alone, and which transactions were torn"
        self.findings.append((DrillCode.LOOK_BACK, text))
        self._name_left_fence()
        # Who goes on behind another one has not seen which these were.
        self._name_anew({} if self._stood is None else self._stood.copies)
        if wrong is not None:
            raise wrong
        tps = [e.target_of(tp) for e in self.enrolled.values() for tp in e.sources()]
        there = len(self.parts.clients(self.parts.target, tps).consumers)
        return {**evidence, **self._left_behind(), "clients_on_the_target": there}

    def _left_behind(self) -> Mapping[str, int | None]:
        """Count what stands on the source behind the cut, if it answers: nobody kept its writers off."""
        mine = self._live()
        try:
            with self.parts.source.hasty(_LOSS_S) as source:
                # Before anybody else waits for it: what the flow the other way has led back is told there.
                source.cluster_id()
                led_back = self.parts.led_back()
                live = [each for each in mine.values() if each.target not in led_back]
                copied = copied_to(self.parts.target, self.parts.flow, live)
                behind = written_behind(source, live, copied, Deadline(_LOSS_S))
        except OnceoverError:
            return {"written_behind": None, "topics_unknown": len(mine)}
        return {
            "written_behind": behind.total,
            "topics_unknown": len(behind.unknown) + len(mine) - len(live),
        }

    def _check_topics(self, live: Sequence[Enrolment]) -> None:
        shown, now = self._shown[1].copies, self._copy_ids()
        others = sorted(each.target for each in live if now[each.source] != shown[each.source])
        if others:
            raise NeedsOperator(
                f"{others[0]} on {self.parts.target.alias} is another topic than was looked at",
                code=DrillCode.LOG_CHANGED,
                where=others[0],
                expected="the topics that were shown when somebody said yes",
                seen=f"{len(others)} that were deleted, or made anew, since",
                resolve="find out who did that; then plan again",
            )

    def undo(self, _: Deadline) -> Mapping[str, Any]:
        """Let go of the flow; nothing was made that has to be taken away."""
        self.close()
        if self._promoted():
            return {"promoted": True}
        self._name_stopped()
        return {"promoted": False}

    def _name_left_fence(self) -> None:
        """Say whose writers a planned one has kept off, and could not let in: nobody else knows of it."""
        left = sorted(chains.fenced_topics(self.notes.read()) & set(self.enrolled))
        if left:
            lift = commands.command("drill", "abort", self.parts.flow)
            text = (
                f"an earlier drill keeps writers off {', '.join(left[:_NAMED])} on {self.parts.source.alias} "
                f"({len(left)} topics), and so whoever leads them back: when it is back {lift} lets them in"
            )
            self.findings.append((DrillCode.STILL_FENCED, text))

    def _as_they_stand(self, why: str) -> Mapping[str, Any]:
        text = f"groups go on where they were put in place the last time: {why}"
        self.findings.append((DrillCode.GROUPS_LEFT, text))
        return {"written": 0, "as_they_stand": True}

    def _name_hanging(self, open_in: Sequence[TopicPartition]) -> None:
        try:
            producers = self.parts.clients(self.parts.target, open_in).producers
        except OnceoverError as error:
            producers = ()
            self.findings.append((DrillCode.HANGING, error.message))
        who = ", ".join(sorted(p.transactional_id or f"producer id {p.producer_id}" for p in producers))
        text = f"a transaction is open in {', '.join(map(str, open_in[:_NAMED]))}, of {who or 'nobody known'}"
        self.findings.append((DrillCode.HANGING, text))


def _open(target: Cluster, copies: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return where readers of committed records are held up."""
    stable = target.retry(lambda: target.list_offsets(copies, calls.LATEST, calls.READ_COMMITTED))
    ends = target.retry(lambda: target.list_offsets(copies, calls.LATEST, calls.READ_UNCOMMITTED))
    return [tp for tp in copies if stable[tp] < ends[tp]]
