"""Where a flow the other way goes on, behind what a switchover has promoted.

Invariant: a partition is named only where both sides hold the same up to there: everything before the offset
has come from where it is copied to, and nothing else has been written there since. What is copied from is the
very log that was promoted, whole up to what was copied: the offset means nothing in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Final, Protocol

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator, OnceoverError, UsageError
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.logs.between import records_between, stable_end
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.planning.plan import Change, Refusal
from onceover.resume.resume import Problem, with_target_logs
from onceover.resume.sourcelogs import JudgedSources, evidence_of, judge_sources, told
from onceover.seeding.codes import SeedingCode
from onceover.seeding.origins import FlowClusters, never_started, unread
from onceover.seeding.plan import Seat, SeatedTopic, SeedOffset, SeedOffsets, copied_up_to
from onceover.state import names
from onceover.state.read import FlowState, read_flow_state
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import beside
from onceover.stops.codes import StopCode
from onceover.stops.judge import Evidence, lost_on_target
from onceover.stops.record import Stop, readable_stop
from onceover.topics.codes import TopicCode

_NONE: Final = "none"
_COUNT_S: Final = 60.0
MANY: Final = 20_000
_PARTED: Final = frozenset({StopCode.SOURCE_DIVERGED, StopCode.TARGET_SHORTENED})


@dataclass(frozen=True)
class _Logs:
    """What the partitions that are copied to hold, and which are other logs than were copied.

    ``lost``: of which the promoted copy does not hold any more what was copied; ``unread``: or which nobody
    can tell of now, on either side.
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    judged: JudgedSources
    lost: Mapping[TopicPartition, Stop]
    unread: Mapping[TopicPartition, OnceoverError]
    others: Mapping[str, Any]


class SwitchFences(Protocol):
    """What the switchovers of the promoted flow keep off its source, which this flow is to write to."""

    def shut(self) -> Collection[str]:
        """Return the topics there that everybody is kept off, this flow too."""

    def lift(self, topics: Collection[str]) -> None:
        """Let their writers in again.

        Raises:
            NeedsOperator: a drill of that flow is running; PAST_RETURN, it has not brought clients over yet.
            Retriable: a cluster is away.
        """


def records_that_may_count(target: Cluster, tp: TopicPartition, start: int, end: int) -> int:
    """Return how many records of ``[start, end)`` are committed, or may be yet; those of aborted ones do not.

    One of them is too many: not more than ``MANY`` are counted, whatever writers have left there for hours.

    Raises:
        OnceoverError: as ``records_between``; a minute is given for it.
    """
    deadline = Deadline(_COUNT_S)
    decided = min(end, max(start, stable_end(target, tp))) if start < end else end
    with (
        closing(records_between(target, tp, start, decided, deadline)) as committed,
        closing(
            records_between(target, tp, decided, end, deadline, isolation=calls.READ_UNCOMMITTED)
        ) as open_yet,
    ):
        return sum(1 for _ in islice(chain(committed, open_yet), MANY))


@dataclass(frozen=True)
class PromotedOrigin:
    """The end of each copy as it was when a switchover promoted it.

    Args:
        name: the flow whose copies were promoted; it copies from this flow's target to this flow's source.
        written: how many records a partition of this flow's target holds from one offset to another that are
            committed, or may be yet.
        fences: lifted where they would keep this flow off.
    """

    name: str
    written: Callable[[TopicPartition, int, int], int]
    fences: SwitchFences
    # By topic, the cluster where everybody is kept off it.
    _shut: dict[str, str] = field(default_factory=dict, init=False)

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        """Name where each promoted copy ended.

        Raises:
            UsageError: that flow was never started.
            NeedsOperator: it is between other clusters.
        """
        state = read_flow_state(place.source, self.name)
        self._check(state, place)
        committed = place.source.committed(names.progress_group(self.name), None)
        logs = self._logs(place, topics, committed, state)
        found: dict[TopicPartition, SeedOffset] = {}
        refused: dict[TopicPartition, Refusal] = {}
        for topic in topics:
            record = state.enrolled.get(topic.source.name)
            for seat in topic.seats:
                answer = self._answer(place, topic, seat, record, committed, logs)
                if isinstance(answer, Refusal):
                    refused[seat.source] = answer
                elif answer is not None:
                    found[seat.source] = _weighed(topic, seat, answer)
        begun = {topic.target for topic in topics if any(seat.source in found for seat in topic.seats)}
        self._shut.clear()
        self._shut.update(dict.fromkeys(sorted(begun & set(self.fences.shut())), place.target.alias))
        return SeedOffsets(found, refused)

    def changes(self) -> Sequence[Change]:
        """Return the fences that are lifted."""
        return [
            Change("let in", f"writers of {topic} on {alias}", f"kept off by flow {self.name}", "free", "")
            for topic, alias in self._shut.items()
        ]

    def prepare(self, place: FlowClusters) -> None:
        """Lift what would keep this flow from writing.

        Raises:
            As ``SwitchFences.lift``.
        """
        if self._shut:
            self.fences.lift(sorted(self._shut))

    def _logs(
        self,
        place: FlowClusters,
        topics: Sequence[SeatedTopic],
        committed: Mapping[TopicPartition, CommittedOffset],
        state: FlowState,
    ) -> _Logs:
        """Ask about all at once: a request for each of thousands would take a while."""
        copies: list[TopicPartition] = []
        infos: dict[str, TopicInfo] = {}
        wanted: dict[TopicPartition, Evidence] = {}
        for topic in topics:
            record, here = state.enrolled.get(topic.source.name), topic.copy
            if here is None:
                continue
            infos[topic.target] = here
            for seat in topic.seats:
                if seat.target.partition not in here.partitions:
                    continue
                copies.append(seat.target)
                progress = committed.get(seat.source)
                cut = None if record is None else self._cut(seat, record, progress)
                # That flow copied the other way: what it calls its source is this one's target.
                if record is not None and cut is not None and here.topic_id == record.source_id:
                    wanted[seat.target] = evidence_of(
                        self.name, seat.target, record, cut, progress, here, topic.source
                    )
        starts = place.target.each_offset(copies, calls.EARLIEST, calls.READ_UNCOMMITTED)
        ends = place.target.each_offset(copies, calls.LATEST, calls.READ_UNCOMMITTED)
        judged = judge_sources(place.target, wanted, infos)
        evidence, untold = dict(judged.evidence), dict[TopicPartition, Problem]()
        with_target_logs(place.source, judged.evidence, evidence, untold)
        lost = {tp: stop for tp, e in evidence.items() if (stop := lost_on_target(e)) is not None}
        unread = {
            **judged.unread,
            **{tp: problem.error for tp, problem in untold.items()},
            **starts.failed,
            **ends.failed,
        }
        return _Logs(starts.found, ends.found, judged, lost, unread, state.others)

    def _answer(
        self,
        place: FlowClusters,
        topic: SeatedTopic,
        seat: Seat,
        record: Enrolment | None,
        committed: Mapping[TopicPartition, CommittedOffset],
        logs: _Logs,
    ) -> SeedOffset | Refusal | None:
        if record is None or (record.source != topic.target and not record.is_promoted):
            return None
        why = self._not_promoted(topic, seat, record) or self._gone_back(place, topic, seat, record)
        if why is not None:
            return why
        if topic.copy is None:
            # Deleted, to be copied anew: everything comes from here.
            return SeedOffset(seat.start, f"{topic.target} is not there: it is copied anew", _NONE, None)
        if topic.copy.topic_id != record.source_id:
            return self._made_anew(place, topic, seat, logs)
        return self._behind(place, seat, record, committed.get(seat.source), logs)

    def _not_promoted(self, topic: SeatedTopic, seat: Seat, record: Enrolment) -> Refusal | None:
        if record.source != topic.target:
            text = f"it was copied from {record.source}, and would be copied to {topic.target}"
            way = "use `naming: identity` in both flows, or exclude the topic from this one"
            return Refusal(str(seat.source), SeedingCode.NOT_PROMOTED, text, way)
        if not record.is_promoted:
            text = f"flow {self.name} still copies to it: no switchover has promoted it"
            way = f"{commands.command('drill', 'run', self.name, '--mode', 'planned')} does"
            return Refusal(str(seat.source), SeedingCode.NOT_PROMOTED, text, way)
        return None

    def _gone_back(
        self, place: FlowClusters, topic: SeatedTopic, seat: Seat, record: Enrolment
    ) -> Refusal | None:
        """Return that this flow has led it back already, and clients are there again; None where not.

        Its copy is no copy any more: what it holds behind the cut is what they have written.
        """
        own, copy = topic.enrolment, topic.copy
        if own is None or own.promoted is None or copy is None or copy.topic_id != own.target_id:
            return None
        if not own.is_promoted_since(record):
            return None
        go_on = commands.command("drill", "run", place.flow, "--mode", "planned")
        lead = commands.lead_back(self.name, place.flow)
        return Refusal(
            str(seat.source),
            TopicCode.PROMOTED,
            f"flow {place.flow} has led it back since, and switchover {own.promoted.drill} has given "
            f"{topic.target} on {place.target.alias} to clients",
            f"{go_on} goes on with that switchover, where it has not ended; {lead} has flow {self.name} copy "
            "what they write there",
        )

    def _made_anew(
        self, place: FlowClusters, topic: SeatedTopic, seat: Seat, logs: _Logs
    ) -> SeedOffset | Refusal:
        """Return where to go on into another topic of the name: nothing of what was copied is in it.

        All of it is copied anew where it is empty. Whoever has made it may have been quicker than this flow:
        a consumer that was left there is enough, where brokers make topics that are asked for.
        """
        for each in topic.seats:
            if (error := logs.unread.get(each.target)) is not None:
                return unread(seat.source, "whether the topic that was made anew is empty", error)
        held = {
            partition: logs.ends[partition] - logs.starts[partition]
            for each in topic.seats
            if (partition := each.target) in logs.ends and partition in logs.starts
        }
        if not any(held.values()):
            reason = f"{topic.target} was made anew and is empty: all of it is copied"
            return SeedOffset(seat.start, reason, _NONE, None)
        where = place.target.alias
        return Refusal(
            str(seat.source),
            SeedingCode.ORPHANS,
            f"{topic.target} on {where} is another topic than the one that flow {self.name} has copied from, "
            f"and holds {sum(held.values())} offsets that were never copied",
            f"see what they are, keep them elsewhere, then delete {topic.target} on {where}: it is copied "
            "anew; or keep them there and name the offset with `--from file:...`",
        )

    def _cut(self, seat: Seat, record: Enrolment, progress: CommittedOffset | None) -> int | None:
        """Return up to where the partition was copied; None where nobody knows.

        Brokers forget the offsets of a group without members after a week, by default.
        """
        if progress is not None:
            return progress.offset
        return None if record.promoted is None else record.promoted.cuts.get(seat.target.partition)

    def _behind(
        self,
        place: FlowClusters,
        seat: Seat,
        record: Enrolment,
        progress: CommittedOffset | None,
        logs: _Logs,
    ) -> SeedOffset | Refusal:
        """Return where the copy ended, where the source holds up to there what was copied, and no more."""
        ends = {} if record.promoted is None else record.promoted.ends
        cut = self._cut(seat, record, progress)
        # A partition that was added since is clients' own from its first record on.
        end = ends.get(seat.source.partition, seat.start)
        _, doubt = beside(progress)
        text = self._untold(seat, record, cut) if doubt is None else doubt.message
        if text is not None:
            way = f"see {commands.command('status', self.name)}; or name an offset with `--from file:...`"
            return Refusal(str(seat.source), SeedingCode.NOT_PROMOTED, text, way)
        cut = cut or 0
        log_end = logs.ends.get(seat.target)
        if (lost := logs.lost.get(seat.target)) is not None:
            return _lost(self.name, place, seat, end, lost)
        if (error := logs.unread.get(seat.target)) is not None:
            return unread(seat.source, "whether it is the log that was copied", error)
        if (stop := self._parted(seat, logs)) is not None:
            return _diverged(self.name, place, seat, stop)
        # What has expired there is nowhere any more, and in nobody's way.
        start = max(cut, logs.starts.get(seat.target, cut))
        try:
            orphans = self.written(seat.target, start, cut if log_end is None else log_end)
        except OnceoverError as unreadable:
            if isinstance(unreadable, UsageError) and unreadable.code != KafkaCode.NOT_AUTHORIZED:
                raise
            return unread(seat.source, "whether it holds records that were never copied", unreadable)
        if orphans:
            return _orphans(self.name, place, seat, cut, orphans)
        reason = f"behind what flow {self.name} had copied when it was promoted"
        return SeedOffset(end, reason, _NONE, None)

    def _untold(self, seat: Seat, record: Enrolment, cut: int | None) -> str | None:
        """Return what is not known of where the copy ended; None where all is.

        One that was copied and has no end is of a promotion that was written again by a part of its marks.
        """
        number = seat.source.partition
        end = None if record.promoted is None else record.promoted.ends.get(number)
        if end is None and (cut is not None or number in record.start):
            return f"flow {self.name} does not tell where its copy ended when it was promoted"
        return f"flow {self.name} has no progress for it" if end and cut is None else None

    @staticmethod
    def _parted(seat: Seat, logs: _Logs) -> Stop | None:
        """Return why both sides have parted: as a lane has found it, or as it would."""
        # A stop that nobody can read says nothing; the log does.
        stop = readable_stop(logs.others, seat.source)
        return stop if stop and stop.code in _PARTED else logs.judged.parted.get(seat.target)

    def _check(self, state: FlowState, place: FlowClusters) -> None:
        if state.layout is None:
            raise never_started(self.name, place.source)
        seen = place.target.cluster_id()
        if state.layout.source_cluster_id != seen:
            raise NeedsOperator(
                f"flow {self.name} does not copy from where this one copies to",
                code=KafkaCode.FOREIGN_CLUSTER,
                expected=f"source cluster {seen}",
                seen=f"source cluster {state.layout.source_cluster_id}",
                resolve="name the flow in the other direction",
            )


def _weighed(topic: SeatedTopic, seat: Seat, answer: SeedOffset) -> SeedOffset:
    """Return the answer with its risk.

    Its own progress is of an earlier journey. Where it is of this one, it was led back before, and what it
    has copied since has expired: that would come again.
    """
    position = copied_up_to(topic, seat)
    return answer if position is None or position <= answer.offset else replace(answer, risk=None)


def _diverged(flow: str, place: FlowClusters, seat: Seat, stop: Stop) -> Refusal:
    where = place.target.alias
    return Refusal(
        str(seat.source),
        stop.code,
        f"{told(stop)}: what {seat.target.topic} on {where} holds is not what flow {flow} has copied there",
        f"keep what is on {where} alone elsewhere (an audit of flow {flow} tells where both sides part), "
        f"then delete {seat.target.topic} there: it is copied anew; or name the offset with "
        "`--from file:...`",
    )


def _lost(flow: str, place: FlowClusters, seat: Seat, end: int, stop: Stop) -> Refusal:
    here, there = place.source.alias, place.target.alias
    return Refusal(
        str(seat.source),
        stop.code,
        f"{told(stop)}: offset {end}, where the copy of flow {flow} ended when it was promoted, means other "
        f"records on {here} now",
        f"what was copied from {there} may be there alone: keep it elsewhere, then delete "
        f"{seat.target.topic} on {there}: what {here} holds is copied anew; or keep it there and name the "
        "offset with `--from file:...`",
    )


def _orphans(flow: str, place: FlowClusters, seat: Seat, cut: int, orphans: int) -> Refusal:
    see = commands.command("drill", "orphans", "plan", flow)
    rebuild = commands.command("drill", "orphans", "apply", flow, "--rebuild")
    many = f"{MANY} records or more" if orphans >= MANY else f"{orphans} records"
    return Refusal(
        str(seat.source),
        SeedingCode.ORPHANS,
        f"{seat.target} on {place.target.alias} holds {many} from {cut} on that were never "
        "copied: they were written around the switchover",
        f"{see} says what they are; {rebuild} exports them, then deletes {seat.target.topic} on "
        f"{place.target.alias} to have it copied anew; or keep them there and name the offset with "
        "`--from file:...`",
    )
