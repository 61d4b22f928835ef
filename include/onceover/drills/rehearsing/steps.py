"""What each step of a rehearsal does on both clusters.

Invariant: only what begins with the rehearsal's own names is written; the flow that is rehearsed, its topics
and its groups are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.advice import advised
from onceover.backoff import Deadline
from onceover.drills import canary as canaries
from onceover.drills.canary import Canary, CanaryVerdict, judge
from onceover.drills.codes import DrillCode
from onceover.drills.feeding import CanaryFeed
from onceover.drills.looks.moves import GroupMove, compacted, content, moved, next_on_both
from onceover.drills.progress import copied_to
from onceover.drills.rehearsing.choice import RehearsalRequest
from onceover.drills.rehearsing.remains import Removal
from onceover.drills.rehearsing.shadow import ShadowCopy
from onceover.drills.rehearsing.trouble import CopyCompared, copy_differs
from onceover.errors import NeedsOperator, OnceoverError
from onceover.kafka import calls
from onceover.kafka.admin.topics import Admin, TopicSpec
from onceover.kafka.calls import NO_EPOCH, OffsetToCommit
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.logs.between import records_between, stable_end
from onceover.kafka.ports import Cluster
from onceover.lead.enroller import Newest
from onceover.model import TopicPartition
from onceover.positions.translate import Translator
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.wire.offsetlookup import Translated

# Whatever a cluster's own defaults are: canaries are there until they are removed, and carry our clock.
_CANARY_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
# Of all numbers, how many are read before the canaries' group moves: in the middle of a transaction.
_READ_SHARE: Final = 0.7


@dataclass(frozen=True)
class RehearsalParts:
    """What a rehearsal is made of; the caller opens and closes it.

    Args:
        flow: the flow that is rehearsed.
        source: its source; ``target`` its target.
        look: what a failover would cost now, as ``drill plan`` has it.
        shadow: makes the copy of the newest part of chosen topics.
        audit: compares what was copied of source topics.
        translator: opens what translates positions.
        replication_factor: of the topic of canaries: that of a flow's own topics.
    """

    flow: str
    source: Cluster
    target: Cluster
    look: Callable[[], Mapping[str, Any]]
    shadow: Callable[[frozenset[str], Newest], ShadowCopy]
    audit: Callable[[Sequence[str]], CopyCompared]
    translator: Callable[[], Translator]
    replication_factor: int


@dataclass
class RehearsalSteps:
    """The actions, in their order. Not thread-safe.

    Args:
        parts: what they work with.
        request: how much.
        drill: the drill's id.
        topics: chosen source topics; ``groups`` likewise.
        ours: asked before anything is written or removed; raises where it is another drill's by now.
    """

    parts: RehearsalParts
    request: RehearsalRequest
    drill: str
    topics: Sequence[str]
    groups: Sequence[str]
    ours: Callable[[], None]
    findings: list[tuple[str, str]] = field(default_factory=list)
    _shadow: ShadowCopy | None = None
    _enrolled: dict[str, Enrolment] = field(default_factory=dict)
    _copied_to: dict[TopicPartition, int] = field(default_factory=dict)
    _moves: list[GroupMove] = field(default_factory=list)
    _read: dict[int, int] = field(default_factory=dict)

    # ---- the steps

    def look(self, _: Deadline) -> Mapping[str, Any]:
        """Ask what a failover would cost now."""
        found = self.parts.look()
        for need in found["needs"]:
            self.findings.append((DrillCode.NOT_READY, advised(need)))
        for part, error in found["problems"].items():
            self.findings.append((DrillCode.NOT_READY, f"{part} cannot be looked at: {advised(error)}"))
        clients = found["clients"] or {}
        for unseen in clients.get("unseen", ()):
            self.findings.append((DrillCode.NOT_READY, advised(unseen)))
        return {
            "ready": found["ready"],
            "losses": found["losses"],
            "groups": found["groups"],
            "drift": None if found["drift"] is None else len(found["drift"]),
            "consumers": len(clients["consumers"]) if clients else None,
            "producers": len(clients["producers"]) if clients else None,
            "needs": [need["code"] for need in found["needs"]],
        }

    def prepare(self, deadline: Deadline) -> Mapping[str, Any]:
        """Remove what an earlier rehearsal has left, then make the topic of canaries."""
        removed = self._removal.remove(deadline, self.ours)
        spec = TopicSpec(self._canary, canaries.PARTITIONS, self._replicas(), _CANARY_CONFIG)
        self.ours()
        Admin(self.parts.source).make_topics([spec], deadline)
        self._feed(0, self._half)
        return {"removed": removed.document(), "canaries": self._half}

    def copy(self, deadline: Deadline) -> Mapping[str, Any]:
        """Begin to copy, and write the second half of the canaries meanwhile."""
        start = Newest(self.request.sample, frozenset({self._canary}))
        self._shadow = self.parts.shadow(frozenset({self._canary, *self.topics}), start)
        self.ours()
        self._enrolled = self._shadow.start()
        left_out = [topic for topic in self.topics if topic not in self._enrolled]
        refused = {refusal.object: refusal for refusal in self._shadow.refused}
        for topic in left_out:
            why = refused[topic].message if topic in refused else "the copy does not take it in"
            self.findings.append((DrillCode.TOPIC_LEFT_OUT, f"{topic}: {why}"))
        if self._canary not in self._enrolled:
            raise NeedsOperator(
                "the topic of canaries is not taken in",
                code=DrillCode.CANARY_LOST,
                where=self._canary,
                seen=refused[self._canary].message if self._canary in refused else None,
            )
        self._check_chosen()
        self._feed(self._half, self.request.canaries)
        everything = self._copied.values()
        self._shadow.await_copied(everything, self._shadow.ends(everything), deadline)
        self._name_expired()
        return {
            "topics": sorted(self._enrolled),
            "left_out": left_out,
            "partitions": sum(len(each.sources()) for each in everything),
        }

    def _check_chosen(self) -> None:
        """See that something of the flow's is rehearsed, or say that nothing is.

        Raises:
            NeedsOperator: TOPIC_LEFT_OUT, somebody has asked for some.
        """
        if any(topic in self._enrolled for topic in self.topics):
            return
        text = "no topic of the flow was rehearsed, only the canaries' own"
        if self.topics and self.request.topics is not None:
            raise NeedsOperator(
                text,
                code=DrillCode.TOPIC_LEFT_OUT,
                expected=f"{len(self.topics)} that were asked for",
                seen=self.findings[-1][1] if self.findings else None,
                resolve="choose others with `--topics`",
            )
        self.findings.append((DrillCode.TOPIC_LEFT_OUT, text))

    def read(self, deadline: Deadline) -> Mapping[str, Any]:
        """Let the canaries' group read a part of them on the source, and commit."""
        offsets = {}
        until = int(self.request.canaries * _READ_SHARE)
        for partition in range(canaries.PARTITIONS):
            tp = TopicPartition(self._canary, partition)
            offset = 0
            for record in records_between(
                self.parts.source, tp, 0, stable_end(self.parts.source, tp), deadline
            ):
                met = Canary.decode(record.value)
                if met is None or met.number >= until:
                    break
                offset, self._read[partition] = record.offset + 1, met.number
            offsets[tp] = OffsetToCommit(offset, NO_EPOCH, "")
        self._commit(self.parts.source, {names.canary_group(self.parts.flow): offsets})
        return {"read": {str(p): number for p, number in sorted(self._read.items())}}

    def drain(self, deadline: Deadline) -> Mapping[str, Any]:
        """Copy up to where the source ends now: a real switchover has its producers fenced by then."""
        shadow = self._running
        ends = shadow.ends(self._copied.values())
        shadow.await_copied(self._copied.values(), ends, deadline)
        self._name_expired()
        return {"partitions": len(ends)}

    def _name_expired(self) -> None:
        """Say what could not be copied to the end: nobody's fault, and nothing to do with the flow."""
        for tp, stop in sorted(self._running.expired.items()):
            text = f"{tp}: its records expired while they were copied ({stop.message})"
            if (DrillCode.NOT_COMPARED, text) not in self.findings:
                self.findings.append((DrillCode.NOT_COMPARED, text))

    def place(self, _: Deadline) -> Mapping[str, Any]:
        """Put the canaries' group and the chosen ones in place on the target, under other names."""
        wanted = [names.canary_group(self.parts.flow), *self.groups]
        committed = GroupAdmin(self.parts.source).each_committed(wanted)
        for group, error in committed.failed.items():
            self.findings.append((DrillCode.GROUP_NOT_COVERED, f"{group}: {error.message}"))
        with self.parts.translator() as translator:
            translator.refresh()
            self._moves = [
                self._move(translator, group, tp, offset.offset)
                for group, positions in sorted(committed.found.items())
                for tp, offset in sorted(positions.items())
                if tp.topic in self._copied
            ]
        self._place_groups()
        for group in sorted(set(self.groups) - {move.group for move in self._moves} - set(committed.failed)):
            text = f"{group}: it has no position any more in what was copied"
            self.findings.append((DrillCode.GROUP_NOT_COVERED, text))
        missing = [move for move in self._moves if move.target is None]
        for move in missing:
            self.findings.append((DrillCode.GROUP_NOT_COVERED, f"{move.group} at {move.tp}: {move.why}"))
        return {
            "groups": len({move.group for move in self._moves}),
            "positions": len(self._moves),
            "not_covered": len(missing),
        }

    def compare(self, _: Deadline) -> Mapping[str, Any]:
        """Compare every record of the copies with its original."""
        found = self.parts.audit(sorted(self._copied))
        self.findings += [(DrillCode.NOT_COMPARED, text) for text in found.not_compared]
        if found.wrong:
            raise copy_differs(self.parts.flow, found)
        return found.document()

    def promote(self, _: Deadline) -> Mapping[str, Any]:
        """End the copy and fence it, as a switchover does with the flow."""
        self.ours()
        self._running.stop()
        self._running.close()
        self._shadow = None
        flow = names.rehearsal_flow(self.parts.flow)
        self._copied_to = copied_to(self.parts.target, flow, self._copied.values())
        return {"fenced": True}

    def verify(self, deadline: Deadline) -> Mapping[str, Any]:
        """Go on reading and writing on the target."""
        total = self.request.canaries + canaries.PARTITIONS
        copy = self._enrolled[self._canary].target
        self._feeding.plain(self.parts.target, copy, self.request.canaries, total)
        verdicts = [
            self._canaries_from(partition, total, deadline) for partition in range(canaries.PARTITIONS)
        ]
        evidence: dict[str, Any] = {
            "canaries": [verdict.document() for verdict in verdicts],
            "written_on_the_target": canaries.PARTITIONS,
            "positions": self._check_moves(deadline),
        }
        wrong = [verdict for verdict in verdicts if not verdict.exact]
        if wrong:
            raise NeedsOperator(
                "the canaries' group did not go on with exactly its next record",
                code=DrillCode.CANARY_LOST,
                seen="; ".join(str(verdict.document()) for verdict in wrong),
                resolve="do not fail over; send this report to whoever looks after Onceover",
            )
        return evidence

    def remove(self, deadline: Deadline) -> Mapping[str, Any]:
        """Take everything away."""
        self.close()
        return self._removal.remove(deadline, self.ours).document()

    def close(self) -> None:
        """Let go of the copy, should there still be one."""
        if self._shadow is not None:
            self._shadow.close()
            self._shadow = None

    # ---- canaries

    @property
    def _canary(self) -> str:
        return names.canary_topic(self.parts.flow)

    def _replicas(self) -> int:
        """Return how many the canaries' topic gets: the source may have fewer brokers than the target."""
        source = self.parts.source
        brokers = source.retry(lambda: len(calls.metadata(source.control(), []).brokers))
        return min(self.parts.replication_factor, brokers)

    @property
    def _half(self) -> int:
        return self.request.canaries // 2

    @property
    def _removal(self) -> Removal:
        return Removal(self.parts.flow, self.parts.source, self.parts.target)

    @property
    def _running(self) -> ShadowCopy:
        if self._shadow is None:
            raise NeedsOperator("the rehearsal's copy does not run")
        return self._shadow

    @property
    def _copied(self) -> Mapping[str, Enrolment]:
        return self._enrolled

    @property
    def _feeding(self) -> CanaryFeed:
        return CanaryFeed(self.drill, self.ours)

    def _feed(self, first: int, last: int) -> None:
        group = names.canary_group(self.parts.flow)
        self._feeding.mixed(self.parts.source, self._canary, group, first, last)

    def _canaries_from(self, partition: int, total: int, deadline: Deadline) -> CanaryVerdict:
        """Return what the canaries' group meets on the target, from where it was put."""
        group = names.canary_group(self.parts.flow)
        moves = [m for m in self._moves if (m.group, m.tp.partition) == (group, partition)]
        if not moves:
            raise _without_position(group, self.parts.source.alias)
        move = moves[0]
        first = self._read.get(partition, -1) + 1
        if move.target is None:
            return CanaryVerdict(total, (first,), (), 0)
        moved = names.rehearsal_group(self.parts.flow, group)
        placed = GroupAdmin(self.parts.target).committed(moved).get(move.target_tp)
        if placed is None:
            raise _without_position(moved, self.parts.target.alias)
        end = stable_end(self.parts.target, move.target_tp)
        met = records_between(self.parts.target, move.target_tp, placed.offset, end, deadline)
        return judge(self.drill, partition, first, total, [record.value for record in met])

    # ---- groups

    def _move(self, translator: Translator, group: str, tp: TopicPartition, offset: int) -> GroupMove:
        enrolment = self._enrolled[tp.topic]
        target = enrolment.target_of(tp)
        start = enrolment.start.get(tp.partition, 0)
        if offset < start:
            why = f"it stands at {offset}, before the {self.request.sample} offsets that were copied"
            return GroupMove(group, tp, offset, target, None, why)
        try:
            found = translator.to_target(tp, offset)
        except OnceoverError as error:
            return GroupMove(group, tp, offset, target, None, error.message)
        if isinstance(found, Translated):
            return GroupMove(group, tp, offset, target, found.offset)
        return GroupMove(group, tp, offset, target, None, found.why or "the offset map does not tell")

    def _place_groups(self) -> None:
        by_group: dict[str, dict[TopicPartition, OffsetToCommit]] = {}
        for move in self._moves:
            if move.target is not None:
                placed = by_group.setdefault(names.rehearsal_group(self.parts.flow, move.group), {})
                placed[move.target_tp] = OffsetToCommit(move.target, NO_EPOCH, "")
        self._commit(self.parts.target, by_group)

    def _commit(
        self, cluster: Cluster, offsets: Mapping[str, Mapping[TopicPartition, OffsetToCommit]]
    ) -> None:
        self.ours()
        for error in GroupAdmin(cluster).each_commit(offsets).values():
            raise error

    def _check_moves(self, deadline: Deadline) -> Mapping[str, int]:
        """Compare the next record of each position on both sides; return how many are the same.

        Raises:
            NeedsOperator: GROUP_MOVED, a group would go on with another record.
        """
        canary = names.canary_group(self.parts.flow)
        moves = [move for move in self._moves if move.target is not None and move.group != canary]
        topics = {move.tp.topic for move in moves}
        merged, gone = compacted(self.parts.source, topics), self._gone(topics)
        # What compaction has removed on one side only is no other place to go on from; the audit knows.
        checked = [move for move in moves if move.tp.topic not in merged]
        there_still = [move for move in checked if move.tp.topic not in gone]
        here, there = next_on_both(
            self.parts.source, self.parts.target, there_still, self._copied_to, deadline
        )
        exact = expired = 0
        for move in checked:
            if move not in here or move not in there:
                expired += 1
                text = f"{move.group} at {move.tp}: its next record is not there any more"
                self.findings.append((DrillCode.NOT_COMPARED, text))
            elif content(here[move]) != content(there[move]):
                raise moved(move)
            else:
                exact += 1
        return {"exact": exact, "compacted": len(moves) - len(checked), "expired": expired}

    def _gone(self, topics: Collection[str]) -> set[str]:
        """Return those of the topics that were deleted, or made anew, since they were copied."""
        source = self.parts.source
        found = source.retry(lambda: source.topics(sorted(topics))) if topics else {}
        return {
            topic
            for topic in topics
            if topic not in found or found[topic].topic_id != self._enrolled[topic].source_id
        }


def _without_position(group: str, alias: str) -> NeedsOperator:
    return NeedsOperator(
        f"the canaries' group has no position any more on {alias}",
        code=DrillCode.CANARY_LOST,
        where=f"group {group}",
        expected="the one that this drill has written there",
        resolve="find out who deletes groups or topics there, then run it again",
    )
