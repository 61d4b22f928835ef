"""Where the positions of a seeding come from: groups, the log itself, another flow, a file.

Each origin reads live state and names offsets; ``seeding.plan`` decides what is done with them. None writes.
``frommap`` has those that stand on the offset map.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.plan import Change, Refusal
from onceover.resume.sourcelogs import evidence_of, judge_sources, told
from onceover.seeding.codes import SeedingCode
from onceover.seeding.plan import EARLIEST, Seat, SeatedTopic, SeedOffset, SeedOffsets
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.read import FlowState, read_flow_state
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import UNREAD, beside, copied_between
from onceover.stops.codes import StopCode
from onceover.stops.judge import Evidence
from onceover.stops.record import Stop, readable_stop
from onceover.wire.progress import CopiedLast

# Where lanes have stopped a partition, its progress is not where its copy ends, or not in this log.
_MISPLACED: Final = frozenset(
    {
        StopCode.PROGRESS_FOREIGN,
        StopCode.SOURCE_DIVERGED,
        StopCode.TARGET_SHORTENED,
        StopCode.TARGET_DROPPED,
    }
)


@dataclass(frozen=True)
class FlowClusters:
    """Where a flow runs: what origins read from.

    Args:
        left_out: topics in scope that cannot be looked at for now: each is refused, and no origin's concern.
    """

    flow: str
    source: Cluster
    target: Cluster
    left_out: Collection[str] = ()


def never_started(flow: str, target: Cluster) -> UsageError:
    """Return what is wrong with the flow that somebody has named: it has copied nothing. Pure."""
    return UsageError(
        f"flow {flow} has never been started on {target.alias}",
        code=StateCode.NOT_STARTED,
        resolve=f"name a flow that has copied these topics; {commands.command('status')} shows all",
    )


class Origin(Protocol):
    """Names offsets. ``prepare`` is called once everything of the flow is fenced, before the last look."""

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        """Return what is known about the topics' partitions now.

        Raises:
            Retriable: a cluster is away.
            NeedsOperator: the origin cannot be used.
        """

    def changes(self) -> Sequence[Change]:
        """Return what ``prepare`` does, for the plan; valid after ``read``."""

    def prepare(self, place: FlowClusters) -> None:
        """Stop others from writing.

        Raises:
            NeedsOperator: somebody still writes.
        """


class Passive:
    """An origin with nothing to stop."""

    def changes(self) -> Sequence[Change]:
        """Return nothing."""
        return ()

    def prepare(self, place: FlowClusters) -> None:
        """Do nothing."""


def unread(tp: TopicPartition, what: str, error: OnceoverError) -> Refusal:
    """Return that something about a partition, which its offset depends on, cannot be told now.

    Also for want of a right: that is its topic's, and the others can be planned without.
    """
    code = SeedingCode.UNREADABLE if isinstance(error, Retriable) else error.code
    text = f"{what} cannot be asked now: {error.message}"
    return Refusal(str(tp), code, text, error.resolve or error.usual_way)


def seats_of(topics: Sequence[SeatedTopic]) -> Iterator[Seat]:
    """Yield all seats."""
    return (seat for topic in topics for seat in topic.seats)


def check_in_scope(
    offsets: Mapping[TopicPartition, int],
    topics: Sequence[SeatedTopic],
    where: str,
    left_out: Collection[str] = (),
) -> None:
    """Refuse offsets for partitions that are not the flow's: somebody has mistyped.

    Args:
        offsets: in the order of the file that they were read from.
        where: which file that is.
        left_out: further topics of the flow, of which nobody knows the partitions now.

    Raises:
        UsageError: there are such; it tells where they stand and not what is written there.
    """
    ours = {seat.source for seat in seats_of(topics)}
    ours |= {tp for tp in offsets if tp.topic in left_out}
    strangers = [number for number, tp in enumerate(offsets, 1) if tp not in ours]
    if strangers:
        raise UsageError(
            f"offsets are named for {len(strangers)} partitions that are not the flow's",
            where=where,
            expected="source partitions of topics in scope",
            seen=", ".join(f"entry {number}" for number in strangers[:5]),
        )


@dataclass(frozen=True)
class GroupOrigin(Passive):
    """The committed offsets of a consumer group on the source."""

    group: str

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        """Name what the group has committed.

        Raises:
            UsageError: GROUP_UNKNOWN, it has committed nothing at all that we may see.
            Retriable: a commit is pending in a transaction.
        """
        # By name: of all partitions, those with nothing but a pending commit would be left out.
        committed = place.source.committed(self.group, [seat.source for seat in seats_of(topics)])
        if not committed and not place.source.committed(self.group, None):
            raise UsageError(
                f"group {self.group} has committed nothing on {place.source.alias}, in topics that may be "
                "described",
                code=SeedingCode.GROUP_UNKNOWN,
                expected="a group on the source with committed offsets",
                resolve="check the name, and on which cluster the group is; grant DESCRIBE on its topics: "
                "without it brokers leave them out",
            )
        reason = f"committed by group {self.group} on {place.source.alias}"
        return SeedOffsets({tp: SeedOffset(offset.offset, reason) for tp, offset in committed.items()})


@dataclass(frozen=True)
class LogOrigin(Passive):
    """The log itself: its start, its end, or the first record at or after a time.

    Args:
        start: ``earliest``, ``latest``, or a time in ms.
    """

    start: str | int

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        """Name that place of every partition."""
        seats = list(seats_of(topics))
        if isinstance(self.start, int):
            return self._at_time(place, seats, self.start)
        if self.start == EARLIEST:
            return SeedOffsets({s.source: SeedOffset(s.start, "start of the source's log") for s in seats})
        return SeedOffsets({s.source: SeedOffset(s.lso, "end of the source's log now") for s in seats})

    def _at_time(self, place: FlowClusters, seats: Sequence[Seat], time_ms: int) -> SeedOffsets:
        found = place.source.list_offsets([s.source for s in seats], time_ms)
        reason, none = f"first record at or after {time_ms} ms", f"no record at or after {time_ms} ms"
        return SeedOffsets(
            {
                s.source: SeedOffset(found[s.source], reason)
                if found[s.source] >= 0
                else SeedOffset(s.lso, none)
                for s in seats
            }
        )


@dataclass(frozen=True)
class FileOrigin(Passive):
    """Offsets that somebody wrote down, by source partition."""

    offsets: Mapping[TopicPartition, int]
    path: str

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        """Name what the file says; a partition that is not in scope is a mistake.

        Raises:
            UsageError: the file names such a partition.
        """
        check_in_scope(self.offsets, topics, self.path, place.left_out)
        reason = f"from {self.path}"
        return SeedOffsets(
            {tp: SeedOffset(offset, reason, named=True) for tp, offset in self.offsets.items()}
        )


@dataclass(frozen=True)
class FlowOrigin(Passive):
    """Another flow's progress, wherever its target is.

    Args:
        name: the other flow; ``target`` its target cluster, open as long as this object is used.
    """

    name: str
    target: Cluster

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        """Name the other flow's next source offsets, where that flow itself would go on from them.

        Raises:
            NeedsOperator: it copies from another cluster.
            UsageError: it was never started; or its progress may not be described.
        """
        state = read_flow_state(self.target, self.name)
        self._check(state, place)
        wanted = {seat.source: topic.source for topic in topics for seat in topic.seats}
        enrolled = {tp: e for e in state.enrolled.values() for tp in e.sources() if tp in wanted}
        copies = {tp: e.target_of(tp) for tp, e in enrolled.items()}
        # By name: of all partitions, those of topics that may not be described would be left out.
        each = self.target.each_committed(names.progress_group(self.name), list(copies.values()))
        known = {tp: each.found[copy] for tp, copy in copies.items() if copy in each.found}
        what = f"how far flow {self.name} has copied it"
        refused = {tp: unread(tp, what, each.failed[c]) for tp, c in copies.items() if c in each.failed}
        asked: dict[TopicPartition, Evidence] = {}
        for tp, at in known.items():
            stop = readable_stop(state.others, copies[tp])
            if (why := self._not_believed(tp, at, enrolled[tp], wanted[tp], stop)) is not None:
                refused[tp] = why
            else:
                asked[tp] = evidence_of(self.name, tp, enrolled[tp], at.offset, at, wanted[tp], None)
        refused |= self._parted(place.source, asked, {info.name: info for info in wanted.values()})
        reason = f"copied by flow {self.name} to {self.target.alias}"
        taken = {tp: (known[tp].offset, _last(e)) for tp, e in asked.items() if tp not in refused}
        return SeedOffsets(
            {tp: SeedOffset(offset, reason, last=last) for tp, (offset, last) in taken.items()}, refused
        )

    def _not_believed(
        self,
        tp: TopicPartition,
        at: CommittedOffset,
        enrolment: Enrolment,
        here: TopicInfo,
        stop: Stop | None,
    ) -> Refusal | None:
        """Return why the other flow does not go on from where it stands, as far as its target tells."""
        meta, doubt = beside(at)
        if doubt is not None:
            text = f"{doubt.message} (expected {doubt.expected}; seen {doubt.seen})"
            return self._refusal(
                tp, doubt.code, f"{text}: offset {at.offset} may be right or not", doubt.resolve
            )
        copied, _ = copied_between(enrolment, tp.partition, meta)
        if copied != str(here.topic_id):
            text = (
                f"it has copied another topic of that name (expected topic id {copied}; seen "
                f"{here.topic_id}): its offset means other records in this one"
            )
            return self._refusal(tp, StopCode.SOURCE_RECREATED, text)
        return self._refusal(tp, stop.code, told(stop)) if stop and stop.code in _MISPLACED else None

    def _parted(
        self, source: Cluster, asked: Mapping[TopicPartition, Evidence], topics: Mapping[str, TopicInfo]
    ) -> dict[TopicPartition, Refusal]:
        """Return of which partitions the source holds another log by now, or nobody can tell."""
        judged = judge_sources(source, asked, topics)
        what = f"whether it still is the log that flow {self.name} has copied"
        refused = {tp: unread(tp, what, error) for tp, error in judged.unread.items()}
        return refused | {tp: self._refusal(tp, stop.code, told(stop)) for tp, stop in judged.parted.items()}

    def _refusal(self, tp: TopicPartition, code: str, why: str, first: str | None = None) -> Refusal:
        before = f"{first}; or " if first else ""
        return Refusal(
            str(tp),
            code,
            f"flow {self.name} would not go on from its own progress: {why}",
            f"{before}bring flow {self.name} in order first (see "
            f"{commands.command('status', self.name)}), or name the offset with `--from file:...`",
        )

    def _check(self, state: FlowState, place: FlowClusters) -> None:
        if state.layout is None:
            raise never_started(self.name, self.target)
        seen = place.source.cluster_id()
        if state.layout.source_cluster_id != seen:
            raise NeedsOperator(
                f"flow {self.name} copies from another cluster: its offsets mean other records",
                code=KafkaCode.FOREIGN_CLUSTER,
                expected=f"source cluster {seen}",
                seen=f"source cluster {state.layout.source_cluster_id}",
                resolve="name a flow with the same source",
            )


def _last(copied: Evidence) -> CopiedLast:
    """Return what was copied last: the source may part from it before the first lane has read anything."""
    return UNREAD if copied.meta is None else CopiedLast(copied.meta.leader_epoch, copied.last_copied)
