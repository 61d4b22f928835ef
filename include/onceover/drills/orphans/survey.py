"""Looking at an old source behind a switchover: what stands behind the cut of each promoted partition.

Invariant: reads only, and no further back than ``_BACK_OFFSETS`` before a cut. What cannot be told apart
there is named, never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from onceover.backoff import Deadline
from onceover.drills.codes import DrillCode
from onceover.drills.orphans.tally import MetBatch, OrphanTally, SpanReader
from onceover.drills.orphans.torn import (
    PartitionSpans,
    SpanState,
    TornTransaction,
    TransactionSpan,
    named,
    torn,
)
from onceover.drills.records import visible_between
from onceover.drills.running import started
from onceover.errors import NeedsOperator, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.logs.reading import OffsetGone
from onceover.kafka.logs.usage import active_producers, transactions
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.plan import Refusal
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import beside, copied_between
from onceover.topics.otherflows import OtherFlow, OtherFlows
from onceover.wire.batches.records import decode
from onceover.wire.batches.visibility import Visible

# A partition that gives nothing for so long cannot be read now; one that goes on may be of any length.
STALL_S: Final = 30.0
# Transactions that are compared, of all partitions together: a few hundred bytes each.
_MOST_SPANS: Final = 400_000
_LEAST_SPANS: Final = 1_000
# How far before a cut is looked for the other part of a transaction: headers only, a few MB of a log.
_BACK_OFFSETS: Final = 20_000
_FIRST_BACK: Final = 500
_BACK_GROWS: Final = 6
# transaction.max.timeout.ms of a broker, unless somebody has set it: no transaction is open for longer.
_LONGEST_TRANSACTION_MS: Final = 15 * 60_000


@dataclass(frozen=True)
class OrphanLook:
    """One promoted partition of the old source.

    Args:
        topic_id: of the topic that was looked at.
        start: of its log; ``stable`` its last stable offset and ``end`` its high watermark.
        cut: the first offset that was never copied.
        tally: the records that count from there to ``stable``.
        aborted: transactions behind the cut that are none.
        opened: those that have not ended: what they hold may count yet, and what stands behind them is not
            counted.
        uncopied: why records before the cut may be nowhere else; None where all were copied.
    """

    source: TopicPartition
    topic_id: str
    start: int
    stable: int
    end: int
    cut: int
    tally: OrphanTally = field(default_factory=OrphanTally)
    aborted: int = 0
    opened: tuple[TransactionSpan, ...] = ()
    uncopied: str | None = None

    @property
    def first_wanted(self) -> int:
        """Where the records begin that may be orphans: what has expired is nowhere any more."""
        return max(self.cut, self.start)

    @property
    def is_decided(self) -> bool:
        """Tell whether nothing in it is open."""
        return self.stable >= self.end and not self.opened


@dataclass(frozen=True)
class OrphanSurvey:
    """What was seen.

    Args:
        looks: one for each promoted partition that is there, in their order.
        torn: source transactions of which a part was copied.
        short: partitions in which not as far back was looked as the other part of one may lie.
        ids: transactional ids that the coordinators know, by producer id.
        notes: topics that hold nothing of ours any more, and partitions that cannot be told about.
    """

    looks: tuple[OrphanLook, ...]
    torn: tuple[TornTransaction, ...]
    short: tuple[TopicPartition, ...]
    ids: Mapping[int, str]
    notes: tuple[Refusal, ...]


@dataclass(frozen=True)
class OrphanReader:
    """Looks at the old source of one flow. The clusters belong to the caller.

    Args:
        flow: its name.
        source: the old source; ``target`` where the copies were promoted.
        wanted: tells whether a source topic was asked for; None for all.
        handled: the flow has a handler: its copies are not the same records.
    """

    flow: str
    source: Cluster
    target: Cluster
    wanted: Callable[[str], bool] | None = None
    handled: bool = False

    def read(self) -> OrphanSurvey:
        """Return what stands behind the cuts now. Changes nothing.

        Raises:
            UsageError: NOT_STARTED, NOTHING_CHOSEN.
            NeedsOperator: FOREIGN_CLUSTER, another cluster answers than the one that was copied from.
            Retriable: a cluster is away.
        """
        chosen = self._chosen()
        if not chosen:
            text = "no switchover has promoted a topic of it: it copies on, and has left nothing behind"
            note = Refusal(f"flow {self.flow}", DrillCode.NOTHING_CHOSEN, text, "nothing", blocks=False)
            return OrphanSurvey((), (), (), {}, (note,))
        infos = self.source.retry(lambda: self.source.topics([each.source for each in chosen]))
        others = self._others()
        reasons = {
            each.source: reason
            for each in chosen
            if (reason := _not_ours(each, infos.get(each.source), others, self.source.alias)) is not None
        }
        kept = [each for each in chosen if each.source not in reasons]
        found, doubts = self._placed(kept, infos, self._brought(others, infos))
        most = max(_LEAST_SPANS, _MOST_SPANS // max(1, 2 * len(found)))
        scanned = [self._scanned(look, most) for look in found]
        ids = self._ids()
        several, short = self._torn(scanned, ids, most)
        looks = tuple(look for look, _ in scanned)
        return OrphanSurvey(looks, tuple(several), short, ids, (*reasons.values(), *doubts))

    def _chosen(self) -> list[Enrolment]:
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
        promoted = sorted((e for e in state.enrolled.values() if e.is_promoted), key=lambda e: e.source)
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

    def _others(self) -> list[OtherFlow]:
        """Return the flows that write to the old source: what they bring is no orphan."""
        # Brokers leave out what may not be described; asked for by name, there or not, they say so.
        own = names.state_topic(self.flow)
        _check_seen(self.source, [own], f"topics with prefix {names.PREFIX}", "READ")
        reader = OtherFlows(self.source)
        try:
            found = reader.read(self.source.retry(self.source.topics))
            for name, error in sorted(reader.unreadable.items()):
                raise NeedsOperator(
                    f"whether flow {name} writes to {self.source.alias} is not known: {error.message}",
                    code=error.code,
                    where=names.state_topic(name),
                    resolve=error.resolve or "run again",
                )
        finally:
            reader.close()
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
        brought: Mapping[TopicPartition, int],
    ) -> tuple[list[OrphanLook], list[Refusal]]:
        """Return each partition with its cut, and those whose cut nobody can tell."""
        group = names.progress_group(self.flow)
        _check_seen(self.target, [e.target for e in kept], "the flow's topics", "DESCRIBE")
        committed = self.target.retry(lambda: self.target.committed(group, None))
        tps = [TopicPartition(e.source, p) for e in kept for p in sorted(infos[e.source].partitions)]
        starts = self._offsets(tps, calls.EARLIEST, calls.READ_UNCOMMITTED)
        stable = self._offsets(tps, calls.LATEST, calls.READ_COMMITTED)
        ends = self._offsets(tps, calls.LATEST, calls.READ_UNCOMMITTED)
        enrolled = {e.source: e for e in kept}
        found: list[OrphanLook] = []
        doubts: list[Refusal] = []
        for tp in tps:
            enrolment, info = enrolled[tp.topic], infos[tp.topic]
            progress = committed.get(enrolment.target_of(tp))
            # A partition that has come since the flow was ended was never copied at all.
            cut = starts[tp] if progress is None else progress.offset
            why = _doubt(enrolment, tp, progress, info, ends[tp])
            if why is not None:
                doubts.append(_unknown(self.flow, tp, why))
                continue
            look = OrphanLook(tp, str(info.topic_id), starts[tp], stable[tp], ends[tp], cut)
            found.append(replace(look, uncopied=self._uncopied(enrolment, look, brought.get(tp, 0))))
        return found, doubts

    def _offsets(self, tps: Sequence[TopicPartition], at: int, isolation: int) -> dict[TopicPartition, int]:
        return self.source.retry(lambda: self.source.list_offsets(tps, at, isolation))

    def _uncopied(self, enrolment: Enrolment, look: OrphanLook, brought: int) -> str | None:
        """Return why records before the cut may be nowhere else; before ``brought`` both sides are alike."""
        if self.handled:
            return "the flow has a handler: its copy is not what the topic holds"
        number = look.source.partition
        hand = enrolment.placed_by_hand(number)
        begins = max(enrolment.start.get(number, 0), 0 if hand is None else hand.offset)
        first = max(look.start, brought)
        if enrolment.placed_by_an_older_release(number):
            return "an operator has moved its position, and an older release has kept nothing of it"
        if begins > first:
            return f"offsets {first} to {begins - 1} may never have been copied: the copy began behind them"
        return None

    def _scanned(self, look: OrphanLook, most: int) -> tuple[OrphanLook, SpanReader]:
        """Return a look with what stands behind its cut, and the transactions there."""
        reader, tally = SpanReader(most), OrphanTally()
        first, tp = look.first_wanted, look.source
        if first < look.stable:
            met = visible_between(self.source, tp, first, look.stable, Deadline(STALL_S), stall_s=STALL_S)
            for each in met:
                if each.header.is_control or each.header.is_transactional:
                    reader.feed(_met(each))
                if each.batch is not None:
                    for record in decode(each.header, each.batch):
                        if first <= record.offset < look.stable:
                            tally.add(record)
        aborted = sum(1 for s in reader.spans() if s.state is SpanState.ABORTED and s.last >= first)
        opened = self._opened(look)
        return replace(look, tally=tally, aborted=aborted, opened=opened), reader

    def _opened(self, look: OrphanLook) -> tuple[TransactionSpan, ...]:
        if look.stable >= look.end:
            return ()
        each = self.source.retry(lambda: active_producers(self.source, [look.source]))
        return tuple(
            # When it has begun nobody tells; what it has written last is no longer ago.
            TransactionSpan(
                one.producer_id,
                one.epoch,
                one.transaction_start,
                look.end - 1,
                SpanState.OPEN,
                first_ms=one.last_ms,
            )
            for one in each.whole().get(look.source, ())
            if one.transaction_start >= 0
        )

    def _ids(self) -> dict[int, str]:
        listed, _ = self.source.retry(lambda: transactions(self.source))
        return {one.producer_id: one.transactional_id for one in listed}

    # ---- torn transactions

    def _torn(
        self, scanned: Sequence[tuple[OrphanLook, SpanReader]], ids: Mapping[int, str], most: int
    ) -> tuple[list[TornTransaction], tuple[TopicPartition, ...]]:
        """Return what was torn, and where not as far back was looked as it may reach."""
        left = [
            span
            for look, reader in scanned
            for span in (*reader.spans(), *look.opened)
            if span.state is not SpanState.ABORTED and span.last >= look.cut
        ]
        short = [look.source for look, reader in scanned if reader.is_short]
        if not left:
            return [], tuple(short)
        since_ms = min(min(s.first_ms, s.ended_ms) for s in left) - _LONGEST_TRANSACTION_MS
        parts = []
        for look, reader in scanned:
            before, is_enough = self._looked_back(look, since_ms, most)
            if not is_enough and look.source not in short:
                short.append(look.source)
            parts.append(PartitionSpans(look.source, look.cut, [*reader.behind(before), *look.opened]))
        return named(torn(parts), ids), tuple(sorted(short))

    def _looked_back(self, look: OrphanLook, since_ms: int, most: int) -> tuple[SpanReader, bool]:
        """Return the transactions before a cut, and whether everything since then was met."""
        met: list[MetBatch] = []
        begins, window = look.cut, _FIRST_BACK
        lowest = max(look.start, look.cut - _BACK_OFFSETS)
        is_enough = begins <= look.start
        while not is_enough and begins > lowest:
            first = max(lowest, begins - window)
            try:
                earlier = self._headers(look.source, first, begins)
            except OffsetGone:
                break
            met = [*earlier, *met]
            begins, window = first, window * _BACK_GROWS
            # Markers are stamped by the broker; records by whoever has written them.
            marks = [each.header.max_timestamp for each in earlier if each.header.is_control]
            is_enough = begins <= look.start or any(at_ms < since_ms for at_ms in marks)
        reader = SpanReader(most)
        for one in met:
            reader.feed(one)
        return reader, is_enough

    def _headers(self, tp: TopicPartition, first: int, end: int) -> list[MetBatch]:
        met = visible_between(self.source, tp, first, end, Deadline(STALL_S), stall_s=STALL_S)
        return [
            _met(each)
            for each in met
            if (each.header.is_control or each.header.is_transactional) and each.header.base_offset >= first
        ]


def _check_seen(cluster: Cluster, topics: Sequence[str], which: str, right: str) -> None:
    """Refuse to go by what a cluster leaves out because we may not see it.

    Raises:
        UsageError: not authorized.
    """
    for topic, error in sorted(cluster.retry(lambda: cluster.hidden_topics(topics)).items()):
        raise UsageError(
            f"{topic} on {cluster.alias} may not be looked at",
            code=error.code,
            where=topic,
            expected=f"the right to {right} {which}",
            resolve=f"grant the principal {right} on {which} on {cluster.alias}",
        ) from error


def _met(each: Visible) -> MetBatch:
    return MetBatch(each.header, each.batch is None and not each.header.is_control)


def _not_ours(
    enrolment: Enrolment, info: TopicInfo | None, others: Sequence[OtherFlow], alias: str
) -> Refusal | None:
    """Return why nothing of a topic is an orphan, None where it may be."""
    topic = enrolment.source
    if info is None:
        text = f"it is not on {alias} any more"
        return Refusal(topic, DrillCode.MADE_ANEW, text, "nothing", blocks=False)
    if info.topic_id != enrolment.source_id and not enrolment.former:
        text = f"it was made anew on {alias} since: what it holds now was not written around the switchover"
        return Refusal(topic, DrillCode.MADE_ANEW, text, "nothing", blocks=False)
    for other in others:
        if any(each.active and each.target == topic for each in other.enrolments):
            text = f"flow {other.name} copies to it by now: what it holds behind the cut came that way"
            return Refusal(topic, DrillCode.LED_BACK, text, "nothing", blocks=False)
    return None


def _doubt(
    enrolment: Enrolment, tp: TopicPartition, progress: CommittedOffset | None, info: TopicInfo, end: int
) -> str | None:
    """Return why nobody can tell what of a partition was copied; None where that is known."""
    meta, doubt = beside(progress)
    if doubt is not None:
        return doubt.message
    if progress is None:
        return "the flow has no progress for it" if tp.partition in enrolment.start else None
    if copied_between(enrolment, tp.partition, meta)[0] != str(info.topic_id):
        return "it was copied from another topic of that name"
    if end < progress.offset:
        return f"its log ends at {end}, before offset {progress.offset}, up to which it was copied"
    return None


def _unknown(flow: str, tp: TopicPartition, why: str) -> Refusal:
    return Refusal(
        str(tp),
        DrillCode.LOG_CHANGED,
        f"what of it was never copied cannot be told: {why}",
        f"see {commands.command('status', flow)}; compare both sides by hand",
    )
