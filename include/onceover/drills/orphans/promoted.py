"""The promoted topics of a flow on its old source, judged before any of their records is looked at.

Invariant: reads only. A topic that another flow has led back, or may have, is no old one any more. What is
not known of a partition keeps it, and takes nothing from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onceover.backoff import Deadline
from onceover.drills.codes import DrillCode
from onceover.drills.orphans.looks import OrphanLook
from onceover.drills.orphans.proof import PATIENCE_S, CopyProver
from onceover.drills.orphans.whose import copied_by, why_not_alone
from onceover.drills.running import started
from onceover.errors import NeedsOperator, OnceoverError, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each, answers_in_time
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.plan import Refusal
from onceover.positions.translate import Translator
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import beside, copied_between
from onceover.topics.otherflows import OtherFlow, OtherFlows

_HANDLED: Final = "the flow has, or had, a handler: its copy is not what the topic holds"
_PLAN_AGAIN: Final = "nothing of it was deleted, what was exported stays; plan again"
# With the progress went what tells the log that was copied from another one.
_FORGOTTEN: Final = (
    "the target has forgotten the flow's progress (after a week without members, or with the copy): the cut "
    "is as the switchover has kept it, and nothing proves that this is the log that was copied"
)
# Tells of a topic, by what may be known of it without looking in.
InScope = Callable[[TopicInfo], bool]


@dataclass(frozen=True)
class JudgedTopics:
    """What is known of promoted topics before their records are looked at.

    Args:
        looks: at their partitions, without what stands in them.
        reasons: why nothing of a topic is an orphan, by topic.
        doubts: partitions that nobody can tell about.
        holding: why no topic at all may be deleted.
        remarks: what is not known as well as it could be.
        others: the flows that write to the old source.
    """

    looks: tuple[OrphanLook, ...]
    reasons: Mapping[str, Refusal]
    doubts: tuple[Refusal, ...]
    holding: tuple[Refusal, ...]
    others: Sequence[OtherFlow]
    remarks: tuple[Refusal, ...] = ()

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """All that stands in the way of anything."""
        return (*self.reasons.values(), *self.doubts, *self.holding)


@dataclass(frozen=True)
class PromotedTopics:
    """Judges them. The clusters belong to the caller.

    Args:
        flow: its name.
        source: the old source; ``target`` where the copies were promoted.
        translator: by the flow's offset map.
        in_scope: tells whether the flow would take a source topic in.
        wanted: tells whether a source topic was asked for; None for all.
        handled: the flow file names a handler by now.
    """

    flow: str
    source: Cluster
    target: Cluster
    translator: Translator
    in_scope: InScope
    wanted: Callable[[str], bool] | None = None
    handled: bool = False

    def again(self, topics: Collection[str]) -> tuple[OrphanLook, ...]:
        """Return the partitions of topics as they are now, where still nothing speaks against deleting them.

        Without what stands in them.

        Raises:
            NeedsOperator: LED_BACK, LOG_CHANGED, NOT_COPIED and others: one of them has to stay.
            Others as ``read``.
        """
        chosen = [e for e in self.enrolled() if e.is_promoted and e.source in topics]
        judged = self.judged(chosen)
        for topic in sorted(set(topics) - {e.source for e in chosen}):
            raise _stays(Refusal(topic, DrillCode.LED_BACK, "the flow copies it again", _PLAN_AGAIN))
        for refusal in judged.refused:
            raise _stays(refusal)
        for look in judged.looks:
            if look.uncopied is not None:
                text = f"{look.source} may hold what is nowhere else: {look.uncopied}"
                raise _stays(Refusal(look.source.topic, DrillCode.NOT_COPIED, text, _PLAN_AGAIN))
        return judged.looks

    def cuts(self, topics: Collection[str]) -> dict[TopicPartition, tuple[str, int]]:
        """Return id and cut of the partitions of topics that still hold what was never copied.

        Raises:
            As ``again``, but for what speaks against deleting one alone.
        """
        chosen = [e for e in self.enrolled() if e.is_promoted and e.source in topics]
        return {look.source: (look.topic_id, look.cut) for look in self.judged(chosen).looks}

    def enrolled(self) -> list[Enrolment]:
        state, layout = started(self.target, self.flow)
        seen = self.source.retry(self.source.cluster_id)
        if seen != layout.source_cluster_id:
            raise NeedsOperator(
                f"{self.source.alias} is not the cluster that flow {self.flow} has copied from",
                code=KafkaCode.FOREIGN_CLUSTER,
                expected=layout.source_cluster_id,
                seen=seen,
                resolve="correct the addresses in the flow file",
            )
        return list(state.enrolled.values())

    def chosen(self, promoted: Sequence[Enrolment]) -> list[Enrolment]:
        chosen = [e for e in promoted if self.wanted is None or self.wanted(e.source)]
        if promoted and not chosen:
            raise UsageError(
                "no switchover of the flow has promoted a topic that was asked for",
                code=DrillCode.NOTHING_CHOSEN,
                where=f"flow {self.flow}",
                expected=f"one of {', '.join(e.source for e in promoted[:5])}",
                resolve="correct --topics, or leave it out",
            )
        return chosen

    def judged(self, chosen: Sequence[Enrolment]) -> JudgedTopics:
        hidden = self._hidden(chosen)
        chosen = [each for each in chosen if each.source not in hidden]
        infos = self.source.retry(lambda: self.source.topics([each.source for each in chosen]))
        group = names.progress_group(self.flow)
        committed = self.target.retry(lambda: self.target.committed(group, None))
        # The flows are looked at last: what they have enrolled meanwhile is among it.
        others, holding = self._others()
        reasons = hidden | {
            each.source: reason
            for each in chosen
            if (reason := self._not_ours(each, infos.get(each.source), others, committed)) is not None
        }
        kept = [each for each in chosen if each.source not in reasons]
        handled = started(self.target, self.flow)[1].handled
        brought = self._brought(others, infos)
        was = self.handled if handled is None else handled
        looks, doubts = self._placed(kept, infos, committed, brought, handled=was)
        remarks = (_by_the_file(self.flow, was=was),) if handled is None else ()
        return JudgedTopics(looks, reasons, doubts, holding, others, remarks)

    def _hidden(self, chosen: Sequence[Enrolment]) -> dict[str, Refusal]:
        """Return the topics that may not be described on one side: nobody can tell of these alone."""
        source, target = self.source, self.target
        here = source.retry(lambda: source.hidden_topics([e.source for e in chosen]))
        there = target.retry(lambda: target.hidden_topics([e.target for e in chosen]))
        unseen = {e.source: (source, here[e.source]) for e in chosen if e.source in here}
        unseen |= {e.source: (target, there[e.target]) for e in chosen if e.target in there}
        return {t: _not_read(t, cluster.alias, error) for t, (cluster, error) in sorted(unseen.items())}

    def _others(self) -> tuple[list[OtherFlow], tuple[Refusal, ...]]:
        """Return the flows that write to the old source, and those of which that is not known."""
        # Brokers leave out what may not be described; asked for by name, there or not, they say so.
        _check_seen(self.source, names.state_topic(self.flow))
        reader = OtherFlows(self.source)
        try:
            found = reader.read(self.source.retry(self.source.topics))
            unreadable = sorted(reader.unreadable.items())
        finally:
            reader.close()
        for _, error in unreadable:
            if isinstance(error, UsageError):
                raise error
        return found, tuple(
            Refusal(
                f"flow {name}",
                DrillCode.NOT_READ,
                f"whether it writes to {self.source.alias} is not known, so it may be what stands behind the "
                f"cuts: {error.message}",
                f"{error.resolve or 'bring its state back'}; until then no topic is deleted",
            )
            for name, error in unreadable
        )

    def _not_ours(
        self,
        enrolment: Enrolment,
        info: TopicInfo | None,
        others: Sequence[OtherFlow],
        committed: Mapping[TopicPartition, CommittedOffset],
    ) -> Refusal | None:
        """Return why nothing of a topic is an orphan, None where it may be."""
        topic, alias = enrolment.source, self.source.alias
        if info is None:
            return Refusal(topic, DrillCode.MADE_ANEW, gone(self.source), "nothing", blocks=False)
        by = copied_by(topic, others)
        if by is not None:
            text = f"flow {by} copies to it by now: what it holds behind the cut came that way"
            return Refusal(topic, DrillCode.LED_BACK, text, "nothing", blocks=False)
        sources = enrolment.sources()
        cuts = {
            tp.partition: _kept_cut(enrolment, tp, committed.get(enrolment.target_of(tp))) or 0
            for tp in sources
        }
        why = why_not_alone(enrolment, info, others, cuts)
        if why is not None:
            way = (
                f"nothing of it is exported or deleted; copy what is wanted of {alias} by a flow, or by hand"
            )
            return Refusal(topic, DrillCode.LED_BACK, why, way)
        if info.topic_id == enrolment.source_id or enrolment.former:
            return None
        count = self._held(info)
        if not count:
            text = f"it was made anew on {alias} since, and is empty"
            return Refusal(topic, DrillCode.MADE_ANEW, text, "nothing", blocks=False)
        return Refusal(
            topic,
            DrillCode.MADE_ANEW,
            f"it was made anew on {alias} since: its up to {count} records were never copied, and are "
            "no part of the export",
            f"find out who writes there; copy what is wanted of it by hand, then delete it on {alias}",
        )

    def _held(self, info: TopicInfo) -> int:
        """Return how many offsets a topic holds: at least as many as records."""
        tps = [TopicPartition(info.name, number) for number in info.partitions]
        starts = self._offsets(tps, calls.EARLIEST, calls.READ_UNCOMMITTED)
        ends = self._offsets(tps, calls.LATEST, calls.READ_UNCOMMITTED)
        # One that does not answer may hold anything.
        return sum(
            ends.found[tp] - starts.found[tp] if tp in ends.found.keys() & starts.found else 1 for tp in tps
        )

    def never_copied(self, enrolled: Sequence[Enrolment], others: Sequence[OtherFlow]) -> list[Refusal]:
        """Return the topics that the flow would have taken in, and never has, with records in them."""
        known = {e.source for e in enrolled} | {e.target for other in others for e in other.enrolments}
        here = self.source.retry(self.source.topics)
        found = []
        for topic, info in sorted(here.items()):
            if topic in known or not self.in_scope(info) or not (self.wanted is None or self.wanted(topic)):
                continue
            count = self._held(info)
            if count:
                text = f"in scope of the flow and never copied: up to {count} records on {self.source.alias}"
                way = "copy what is wanted of it by hand, or exclude it in the flow file; it stays as it is"
                found.append(Refusal(topic, DrillCode.NOT_COPIED, text, way))
        return found

    def _brought(
        self, others: Sequence[OtherFlow], infos: Mapping[str, TopicInfo]
    ) -> dict[TopicPartition, int]:
        """Return up to where partitions hold what a flow from the target had brought by its promotion."""
        here = self.target.retry(self.target.cluster_id)
        return {
            TopicPartition(each.target, number): end
            for other in others
            if other.clusters[0] == here
            for each in other.enrolments
            if each.promoted is not None and each.target in infos
            if each.target_id == infos[each.target].topic_id
            for number, end in each.promoted.ends.items()
        }

    def _placed(
        self,
        kept: Sequence[Enrolment],
        infos: Mapping[str, TopicInfo],
        committed: Mapping[TopicPartition, CommittedOffset],
        brought: Mapping[TopicPartition, int],
        *,
        handled: bool,
    ) -> tuple[tuple[OrphanLook, ...], tuple[Refusal, ...]]:
        """Return each partition with its cut, and those of which nobody can tell it."""
        enrolled = {TopicPartition(e.source, p): e for e in kept for p in sorted(infos[e.source].partitions)}
        logs, unread = self._logs(list(enrolled), infos)
        progress = {tp: committed.get(enrolled[tp].target_of(tp)) for tp in logs}
        doubts = {
            tp: why
            for tp, look in logs.items()
            if (why := _doubt(enrolled[tp], tp, progress[tp], infos[tp.topic], look.end)) is not None
        }
        copied = {tp: enrolled[tp] for tp, at in progress.items() if at is not None and tp not in doubts}
        prover = CopyProver(self.flow, self.source, self.target, self.translator)
        proof = prover.prove(copied, committed, infos)
        doubts |= proof.changed
        unread |= proof.unread
        looks = []
        for tp, look in logs.items():
            if tp in doubts or tp in unread:
                continue
            # A partition that has come since the flow was ended was never copied at all.
            cut = _kept_cut(enrolled[tp], tp, progress[tp])
            placed = look if cut is None else replace(look, cut=cut)
            forgotten = _FORGOTTEN if cut is not None and progress[tp] is None else None
            why = _HANDLED if handled else self._uncopied(enrolled[tp], placed, brought.get(tp, 0))
            why = why or proof.lost.get(tp) or forgotten
            looks.append(replace(placed, uncopied=why))
        whole = [look for look in looks if look.uncopied is None]
        expired = prover.expired(whole, {tp: e.target_of(tp) for tp, e in enrolled.items()})
        told = tuple(replace(look, uncopied=look.uncopied or expired.get(look.source)) for look in looks)
        refused = [_unknown(self.flow, tp, why) for tp, why in doubts.items()]
        refused += [unread_partition(tp, self.source.alias, error) for tp, error in unread.items()]
        return told, tuple(sorted(refused, key=lambda each: each.object))

    def _logs(
        self, tps: Sequence[TopicPartition], infos: Mapping[str, TopicInfo]
    ) -> tuple[dict[TopicPartition, OrphanLook], dict[TopicPartition, OnceoverError | None]]:
        """Return where logs begin and end, cut at their beginnings, and those that do not tell."""
        starts = self._offsets(tps, calls.EARLIEST, calls.READ_UNCOMMITTED)
        stable = self._offsets(list(starts.found), calls.LATEST, calls.READ_COMMITTED)
        ends = self._offsets(list(stable.found), calls.LATEST, calls.READ_UNCOMMITTED)
        failed = {**starts.failed, **stable.failed, **ends.failed}
        looks = {}
        for tp in tps:
            if tp in ends.found:
                start = starts.found[tp]
                topic_id = str(infos[tp.topic].topic_id)
                looks[tp] = OrphanLook(tp, topic_id, start, stable.found[tp], ends.found[tp], start)
        return looks, {tp: failed.get(tp) for tp in tps if tp not in looks}

    def _offsets(self, tps: Sequence[TopicPartition], at: int, isolation: int) -> Each[TopicPartition, int]:
        """Return offsets of logs; who does not answer is not waited for long."""
        return answers_in_time(
            self.source.retry,
            tps,
            lambda some: self.source.each_offset(some, at, isolation),
            Deadline(PATIENCE_S),
        )

    def _uncopied(self, enrolment: Enrolment, look: OrphanLook, brought: int) -> str | None:
        """Return why records before the cut may be nowhere else, as far as the flow's own state tells."""
        number = look.source.partition
        if enrolment.placed_by_an_older_release(number):
            return "an operator has moved its position, and an older release has kept nothing of it"
        if brought > look.start:
            return (
                f"offsets before {brought} were not copied by this flow: a flow the other way has brought "
                "some there, and what stood there before is not known to be the same on both sides"
            )
        hand = enrolment.placed_by_hand(number)
        begins = max(enrolment.start.get(number, 0), 0 if hand is None else hand.offset)
        if begins > look.start:
            last = begins - 1
            return f"offsets {look.start} to {last} may never have been copied: the copy began behind them"
        return None


def _check_seen(cluster: Cluster, state: str) -> None:
    """Refuse to go by what a cluster leaves out because we may not see it.

    Raises:
        UsageError: not authorized.
    """
    for topic, error in cluster.retry(lambda: cluster.hidden_topics([state])).items():
        which = f"topics with prefix {names.PREFIX}"
        raise UsageError(
            f"{topic} on {cluster.alias} may not be looked at",
            code=error.code,
            where=topic,
            expected=f"the right to READ {which}",
            resolve=f"grant the principal READ on {which} on {cluster.alias}",
        ) from error


def _by_the_file(flow: str, *, was: bool) -> Refusal:
    return Refusal(
        f"flow {flow}",
        DrillCode.NOT_COPIED,
        "whether its records went through a handler is told by today's flow file alone, which names "
        f"{'one' if was else 'none'}: an older release has started the flow, and kept nothing of it",
        "nothing, where that was always so; otherwise do not rebuild",
        blocks=False,
    )


def _doubt(
    enrolment: Enrolment, tp: TopicPartition, progress: CommittedOffset | None, info: TopicInfo, end: int
) -> str | None:
    """Return why nobody can tell what of a partition was copied; None where that is known."""
    meta, doubt = beside(progress)
    if doubt is not None:
        return doubt.message
    cut = _kept_cut(enrolment, tp, progress)
    if cut is None:
        return "the flow has no progress for it" if tp.partition in enrolment.start else None
    if copied_between(enrolment, tp.partition, meta)[0] != str(info.topic_id):
        return "it was copied from another topic of that name"
    if end < cut:
        return f"its log ends at {end}, before offset {cut}, up to which it was copied"
    return None


def _kept_cut(enrolment: Enrolment, tp: TopicPartition, progress: CommittedOffset | None) -> int | None:
    """Return up to where a partition was copied: as the switchover has kept it, where brokers have not."""
    if progress is not None:
        return progress.offset
    return None if enrolment.promoted is None else enrolment.promoted.cuts.get(tp.partition)


def _unknown(flow: str, tp: TopicPartition, why: str) -> Refusal:
    return Refusal(
        str(tp),
        DrillCode.LOG_CHANGED,
        f"what of it was never copied cannot be told: {why}",
        f"see {commands.command('status', flow)}; compare both sides by hand",
    )


def unread_partition(tp: TopicPartition, alias: str, error: OnceoverError | None) -> Refusal:
    return _not_read(str(tp), alias, error)


def _not_read(what: str, alias: str, error: OnceoverError | None) -> Refusal:
    why = "no broker leads it" if error is None else error.message
    grants = error.resolve if isinstance(error, UsageError) else None
    return Refusal(
        what,
        DrillCode.NOT_READ,
        f"what of it was never copied is not known: it cannot be read on {alias}: {why}",
        f"{grants or 'bring its brokers back'}, then run again: what was exported of others stays",
    )


def gone(source: Cluster) -> str:
    return f"it is not on {source.alias} any more"


def _stays(why: Refusal) -> NeedsOperator:
    return NeedsOperator(
        f"{why.object} stays: {why.message}", code=DrillCode(why.code), where=why.object, resolve=why.resolve
    )
