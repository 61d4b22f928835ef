"""What an audit looks at before it reads a record: the flow's state and the ends of both logs.

The order of reading carries the proof (docs/audit.md): first the source's end, then the progress, then the
target's end, then the progress again. Every target record before that end was committed before the second
progress was read, with its own progress in the same transaction; so when the progress has not moved, the
target holds nothing beyond it, and whatever else is there is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from onceover.audit.ranges.logs import AskedEnds, PartitionLog, log_bounds, partition_logs, settled, until
from onceover.audit.ranges.parted import CopiedPair, parted
from onceover.audit.records.refusals import Withheld
from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.errors import Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.namematch import names_whole
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.committed import told_beside
from onceover.state.read import FlowState, read_flow_state
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.state.records.layout import Layout, check_clusters, check_distinct
from onceover.state.records.progress import beside
from onceover.state.records.verified import Watermark, read_watermarks
from onceover.stops.record import Stop, readable_stop, stopped_in
from onceover.wire.progress import ProgressMeta

# Most transactions are shorter, and a running flow is this far behind only when it cannot keep up.
SETTLE_S: Final = 10.0
# Commit markers reach the data's partitions within milliseconds of the progress; a broker may restart.
_MARKERS_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """All that is known about one enrolled partition, before it is read.

    Args:
        source: source partition; ``target`` its counterpart.
        start: first source offset of the flow.
        enrolled: topic ids of source and target that the flow copies between.
        source_log: None when the topic or the partition is gone; ``target_log`` likewise.
        position: next source offset to copy, as committed; None when there is none.
        target_end: target offset behind the last record that belongs to ``position``; None when unknown.
        moved: the flow has committed more while the ends were read.
        stop: why the partition is stopped; None where it is not, or nobody can read why.
        watermark: what earlier audits have proven.
        asked_from: source offset of the time that was asked for; None without.
        since: first generation that speaks of the topics as they are now; 0 unless the copy was begun again.
        by_hand: an operator has written its progress: skipped records, or seeded it.
        away: why nobody tells where one of the logs ends, or what was copied; None where all is known.
        enrolled_ms: when the topic was taken in; 0 where nobody tells any more: the time of the enrolment is
            that of the last partition whose progress was written by hand.
        began: where the target's log ended when the copy began at ``start``; None where nobody has written
            that down, or the copy has been put elsewhere since.
        parted_at: up to where the logs of source and target still hold what was copied, where they have lost
            some of it at their ends; None where nothing tells that they have.
        approval: under which an operator has put the partition somewhere the last time, ``placed`` where;
            empty and None where nobody has.
        promoted: clients write to the target since a switchover, behind where ``target_log`` ends.
    """

    source: TopicPartition
    target: TopicPartition
    start: int
    enrolled: tuple[UUID, UUID]
    source_log: PartitionLog | None
    target_log: PartitionLog | None
    position: int | None
    target_end: int | None
    moved: bool
    stop: Stop | None = None
    watermark: Watermark | None = None
    asked_from: int | None = None
    since: int = 0
    by_hand: bool = False
    away: Withheld | None = None
    enrolled_ms: int = 0
    began: int | None = None
    parted_at: tuple[int | None, int | None] = (None, None)
    approval: str = ""
    placed: PlacedProgress | None = None
    promoted: bool = False

    @property
    def is_there(self) -> bool:
        """True when both logs are known, and those that were copied: not others of the same name."""
        here, there = self.source_log, self.target_log
        return self.away is None and (here and here.topic_id, there and there.topic_id) == self.enrolled

    @property
    def untimed(self) -> bool:
        """True when the target stamps records itself, so that their timestamps are its own."""
        return self.target_log is not None and self.target_log.stamped


@dataclass(frozen=True, slots=True)
class AuditSnapshot:
    """Everything that was seen, fixed.

    Args:
        layout: the flow's newest generation.
        started_ms: when the bounds were fixed.
        partitions: the enrolled ones that were asked for.
        missing: partitions on the source that the flow should copy and has not taken in.
        surplus: partitions on the target without a counterpart, each with the source partition it would have.
        untold: source partitions that the flow does not copy, or whose copy is surplus, of which nobody tells
            where their logs end, each with the reason.
        ids: cluster ids of source and target.
    """

    layout: Layout
    started_ms: int
    partitions: tuple[PartitionSnapshot, ...]
    missing: Mapping[TopicPartition, PartitionLog] = field(default_factory=dict)
    surplus: Mapping[TopicPartition, tuple[PartitionLog, TopicPartition]] = field(default_factory=dict)
    ids: tuple[str, str] = ("", "")
    untold: Mapping[TopicPartition, Withheld] = field(default_factory=dict)

    @property
    def promoted(self) -> frozenset[str]:
        """Target topics that clients write to since a switchover."""
        return frozenset(seen.target.topic for seen in self.partitions if seen.promoted)

    @property
    def repeats(self) -> bool:
        """True when delivery is at_least_once."""
        return self.layout.delivery == "at_least_once"


@dataclass(frozen=True, slots=True)
class AuditSelection:
    """What is to be audited.

    Args:
        topics: anchored regular expressions over source topics; none for all of the flow.
        since_ms: records from this time on, in ms since 1970; None for all.
        settle_s: how long to wait for what is under way at the start: open transactions of the source,
            and the running flow's way to the source's end.
        inside: tells whether a topic of the source, internal or not, is in the flow's filter; None where
            topics that are not enrolled yet do not matter.
    """

    topics: tuple[str, ...] = ()
    since_ms: int | None = None
    settle_s: float = SETTLE_S
    inside: Callable[[str, bool], bool] | None = None

    def copies(self, enrolment: Enrolment) -> bool:
        """Tell whether the flow copies a topic: also one that had left and is inside again."""
        return enrolment.active or (self.inside is not None and self.inside(enrolment.source, False))

    def selects(self, topic: str) -> bool:
        """Tell whether a source topic was asked for."""
        return not self.topics or any(names_whole(pattern, topic) for pattern in self.topics)


def take_snapshot(flow: str, source: Cluster, target: Cluster, selection: AuditSelection) -> AuditSnapshot:
    """Fix the bounds of an audit, anew where an operator has put a partition somewhere else meanwhile.

    Raises:
        UsageError: the flow was never started, or no topic was asked for that it copies.
        NeedsOperator: the flow belongs to other clusters.
        Retriable: a cluster is away, or the state is told as of before what has copied: it may not name what
            is copied since, nor what was diverted.
    """
    newest = told_beside(target, flow)

    def told() -> FlowState:
        return target.retry(lambda: read_flow_state(target, flow, newest))

    state = told()
    while True:
        seen = snapshot_of(flow, source, target, selection, state)
        before, state = state, told()
        if _nobody_has_moved(before, state):
            return seen


def _nobody_has_moved(before: FlowState, after: FlowState) -> bool:
    """Tell whether the progress that was read between two states is what the first one speaks of.

    Who skips, reseeds, seeds or promotes writes progress and record at once: where it was done in between, a
    snapshot has the new position, and of what was passed over, or put there, it knows nothing.
    """
    now = after.enrolled
    return all(name in now and now[name].is_still(each) for name, each in before.enrolled.items())


def snapshot_of(
    flow: str, source: Cluster, target: Cluster, selection: AuditSelection, state: FlowState
) -> AuditSnapshot:
    """Fix the bounds of an audit of a flow whose state is known.

    Raises:
        As ``take_snapshot``.
    """
    ids = source.cluster_id(), target.cluster_id()
    check_distinct(*ids)
    layout, enrolments = asked_enrolments(flow, state, target.alias, selection)
    check_clusters(layout, *ids)
    return _Snapshots(flow, source, target, selection, state, enrolments).take(layout, ids)


def asked_enrolments(
    flow: str, state: FlowState, where: str, selection: AuditSelection
) -> tuple[Layout, list[Enrolment]]:
    """Return the newest layout, and what the flow copies of the topics that were asked for.

    Args:
        where: the target's alias.

    Raises:
        UsageError: the flow was never started, or copies none of them.
    """
    if state.layout is None:
        raise UsageError(
            f"flow {flow} was never started: there is nothing to audit",
            code=StateCode.NOT_STARTED,
            where=where,
            resolve=f"start it with `onceover replicate {flow}`",
        )
    enrolments = sorted(
        (e for e in state.enrolled.values() if selection.copies(e) and selection.selects(e.source)),
        key=lambda e: (e.source, e.target),
    )
    if not enrolments:
        raise UsageError(
            f"flow {flow} copies no topic that was asked for",
            expected=", ".join(sorted(e.source for e in state.enrolled.values())) or "an enrolled topic",
            seen=", ".join(selection.topics) or "nothing is enrolled",
            resolve=f"`onceover status {flow}` lists what is copied",
        )
    return state.layout, enrolments


class _Snapshots:
    """Reads both sides of some enrolled topics, once."""

    def __init__(
        self,
        flow: str,
        source: Cluster,
        target: Cluster,
        selection: AuditSelection,
        state: FlowState,
        enrolments: Sequence[Enrolment],
    ) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._here, self._there = AskedEnds(source), AskedEnds(target)
        self._selection = selection
        self._state = state
        self._enrolments = enrolments
        self._pairs = {tp: e.target_of(tp) for e in enrolments for tp in e.sources()}

    def take(self, layout: Layout, ids: tuple[str, str]) -> AuditSnapshot:
        started_ms = now_ms()
        here = partition_logs(self._here, sorted({e.source for e in self._enrolments}))
        asked = self._asked(here)
        here = settled(self._here, here, self._selection.settle_s)
        progress = self._reached(layout, here)
        here = self._up_to(here, progress)
        there = self._copies(self._target_logs(progress))
        again = self._progress()
        watermarks = read_watermarks(self._state.others)
        lost = parted(self._here, self._there, self._on_record(progress, watermarks))
        seen = []
        for enrolment in self._enrolments:
            for source in enrolment.sources():
                target = self._pairs[source]
                at = progress.get(target)
                # A position that somebody else has written says nothing about what was copied.
                meta, doubt = beside(at)
                position = None if at is None or doubt is not None else at.offset
                seen.append(
                    PartitionSnapshot(
                        source,
                        target,
                        enrolment.start[source.partition],
                        _copied_ids(enrolment, meta),
                        here.get(source),
                        there.get(target),
                        position,
                        None if meta is None else meta.target_end,
                        again.get(target) != at,
                        readable_stop(self._state.others, target),
                        watermarks.get(target),
                        asked.get(source),
                        enrolment.since.get(source.partition, 0),
                        source.partition in enrolment.changed,
                        self._here.why_not(source) or self._there.why_not(target),
                        0 if enrolment.since or enrolment.changed else enrolment.at_ms,
                        enrolment.began(source.partition),
                        lost.of(source, target),
                        enrolment.approval(source.partition),
                        enrolment.placed_by_hand(source.partition),
                        enrolment.is_promoted,
                    )
                )
        missing = {tp: log_ for tp, log_ in here.items() if tp not in self._pairs}
        missing.update(self._not_taken_in())
        return AuditSnapshot(
            layout, started_ms, tuple(seen), missing, self._surplus(there), ids, self._untold()
        )

    # ---- the source

    def _up_to(
        self, logs: Mapping[TopicPartition, PartitionLog], progress: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, PartitionLog]:
        """Move the ends of logs that the flow has copied beyond the end of the beginning."""
        past = [
            tp
            for tp, log_ in logs.items()
            if (at := progress.get(self._pairs.get(tp, tp))) is not None and at.offset > log_.stable
        ]
        moved = self._asked_again({tp: logs[tp] for tp in past}) if past else {}
        # Whatever is there behind the position came later than the audit began.
        return {**logs, **{tp: until(each, progress[self._pairs[tp]].offset) for tp, each in moved.items()}}

    def _asked_again(self, logs: Mapping[TopicPartition, PartitionLog]) -> dict[TopicPartition, PartitionLog]:
        # Epochs first: a leader may have been elected since, and in the one of before no log is so long.
        infos = self._here.topics(sorted({tp.topic for tp in logs}))
        epochs = {
            tp: infos[tp.topic].partitions[tp.partition].leader_epoch
            for tp, log_ in logs.items()
            if tp.topic in infos and infos[tp.topic].topic_id == log_.topic_id
        }
        return {
            tp: replace(logs[tp], stable=at, end=max(at, logs[tp].end), epoch=epochs[tp])
            for tp, at in self._here.at(epochs, calls.LATEST).items()
        }

    def _asked(self, logs: Mapping[TopicPartition, PartitionLog]) -> dict[TopicPartition, int]:
        if self._selection.since_ms is None:
            return {}
        found = self._here.at(logs, self._selection.since_ms)
        # -1: no record is so young.
        return {tp: offset if offset >= 0 else logs[tp].end for tp, offset in found.items()}

    def _not_taken_in(self) -> dict[TopicPartition, PartitionLog]:
        inside, enrolled = self._selection.inside, {e.source for e in self._state.enrolled.values()}
        if inside is None:
            return {}
        topics = self._source.retry(self._source.topics)
        names_ = [
            name
            for name, info in sorted(topics.items())
            if name not in enrolled and self._selection.selects(name) and inside(name, info.is_internal)
        ]
        # How long their records stay is nobody's question.
        bounds = log_bounds(self._here, {name: topics[name] for name in names_})
        return {tp: PartitionLog(topics[tp.topic].topic_id, *each) for tp, each in bounds.items()}

    # ---- the flow

    def _progress(self) -> dict[TopicPartition, CommittedOffset]:
        group, wanted = names.progress_group(self._flow), sorted(self._pairs.values())
        each = self._target.retry(lambda: self._target.each_committed(group, wanted))
        self._there.leave_out(each.failed)
        return each.found

    def _reached(
        self, layout: Layout, logs: Mapping[TopicPartition, PartitionLog]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the progress; a running flow is given a little time to reach the source's end."""
        deadline, backoff = Deadline(self._selection.settle_s), Backoff()
        stopped = stopped_in(self._state.others)
        while True:
            progress = self._progress()
            behind = [
                source
                for source, target in self._pairs.items()
                if source in logs
                and target in progress
                and progress[target].offset < logs[source].stable
                and target not in stopped
            ]
            if not behind or deadline.passed or layout.ended_at_ms is not None or not layout.ready:
                return progress
            backoff.pause(deadline, Retriable("the flow has not reached the end of the source"))

    # ---- the target

    def _target_logs(
        self, progress: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, PartitionLog]:
        """Return the target's logs, read when nothing that belongs to ``progress`` is hidden any more."""
        topics = sorted({e.target for e in self._enrolments})
        ends = {}
        for tp, committed in progress.items():
            meta = beside(committed).meta
            if meta is not None:
                ends[tp] = meta.target_end
        deadline, backoff = Deadline(_MARKERS_S), Backoff()
        while True:
            logs = partition_logs(self._there, topics)
            hidden = [tp for tp, end in ends.items() if tp in logs and logs[tp].stable < end <= logs[tp].end]
            if not hidden or deadline.passed:
                return logs
            backoff.pause(deadline, Retriable("transactions are being closed on the target"))

    def _copies(self, logs: Mapping[TopicPartition, PartitionLog]) -> dict[TopicPartition, PartitionLog]:
        """Return the logs up to where they were promoted, where they were: clients have gone on behind it."""
        cuts = {
            TopicPartition(each.target, number): end
            for each in self._enrolments
            if each.promoted is not None and each.is_promoted
            for number, end in each.promoted.ends.items()
        }
        cut = {tp: until(log_, max(log_.start, cuts[tp])) for tp, log_ in logs.items() if tp in cuts}
        return {**logs, **cut}

    # ---- both

    def _on_record(
        self,
        progress: Mapping[TopicPartition, CommittedOffset],
        watermarks: Mapping[TopicPartition, Watermark],
    ) -> Iterator[CopiedPair]:
        for enrolment in self._enrolments:
            for source in enrolment.sources():
                target = self._pairs[source]
                at, mark = progress.get(target), watermarks.get(target)
                yield CopiedPair(source, target, _copied_ids(enrolment, beside(at).meta), at, mark)

    def _untold(self) -> dict[TopicPartition, Withheld]:
        """Return the partitions without a counterpart of which nobody tells where they end."""
        there = {source: self._there.away[tp] for tp, source in self._unpaired(self._there.away).items()}
        return there | {tp: why for tp, why in self._here.away.items() if tp not in self._pairs}

    def _surplus(
        self, logs: Mapping[TopicPartition, PartitionLog]
    ) -> dict[TopicPartition, tuple[PartitionLog, TopicPartition]]:
        return {tp: (logs[tp], source) for tp, source in self._unpaired(logs).items()}

    def _unpaired(self, targets: Iterable[TopicPartition]) -> dict[TopicPartition, TopicPartition]:
        """Return those that are the copy of none, each with the source partition that it would be of."""
        sources, used = {e.target: e.source for e in self._enrolments}, set(self._pairs.values())
        return {tp: TopicPartition(sources[tp.topic], tp.partition) for tp in targets if tp not in used}


def _copied_ids(enrolment: Enrolment, meta: ProgressMeta | None) -> tuple[UUID, UUID]:
    """Return the topics that the newest copying was between: ``reseed`` notes them beside the progress."""
    if meta is None:
        return enrolment.source_id, enrolment.target_id
    return UUID(meta.source_topic_id), UUID(meta.target_topic_id)
