"""Gathering the evidence on which a lane resumes its partitions (docs/protocol.md).

Everything is read after InitProducerId and after the second look at the layout: what a predecessor
left open is decided by then. What is not answered about one partition takes nothing from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from onceover.errors import MustReset, OnceoverError, Retriable, Superseded
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.logs.batchat import batches_at
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition, lane_of
from onceover.resume.beyond import batch_behind, behind
from onceover.resume.receipted import GenerationPosition, copied_further
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import beside, put_back
from onceover.stops.aside import TroubleSide
from onceover.stops.codes import WaitCode
from onceover.stops.judge import Evidence, TopicSeen, judge, needs_epoch
from onceover.stops.lastbatch import place_of
from onceover.stops.undecided import OpenTransaction


@dataclass(frozen=True)
class Problem:
    """Why nothing can be said about a partition at the moment."""

    side: TroubleSide
    error: OnceoverError


@dataclass(frozen=True)
class LaneWriter:
    """Under which producer id a lane writes.

    Args:
        producer_id: as its InitProducerId said.
        alone: every copy of the lane's partitions is written under it, each partition's into one.
        mixed: records of several partitions may come into one.
    """

    producer_id: int
    alone: bool
    mixed: bool


@dataclass(frozen=True)
class PartitionsSeen:
    """What was seen of some partitions, by source partition.

    Args:
        evidence: of those about which everything was answered.
        problems: of the others.
        topics: metadata of the source topics.
        positions: next source offsets to copy, where they could be read.
    """

    evidence: Mapping[TopicPartition, Evidence]
    problems: Mapping[TopicPartition, Problem]
    topics: Mapping[str, TopicInfo]
    positions: Mapping[TopicPartition, int]


def check_instance(
    progress: Iterable[CommittedOffset], generation: int, instance: tuple[int, int], lane: int
) -> None:
    """Stop when a newer instance of this very lane has claimed it, or a newer generation its partitions.

    Instances only within the own generation (``INSTANCES_WITHIN_A_GENERATION``, docs/protocol.md).

    Raises:
        Superseded: a newer instance runs.
        MustReset: the layout that was read is not the newest: a broker may tell what it knew while it led the
            state, as long as it has not heard that it does no more. Look again.
    """
    for offset in progress:
        meta = beside(offset).meta
        if meta is not None and meta.generation > generation:
            raise MustReset(
                f"generation {meta.generation} has written the progress of lane {lane}'s partitions, and the"
                f" layout that was read is of generation {generation}"
            )
        if meta is not None and meta.generation == generation and meta.instance > instance:
            raise Superseded(
                f"a newer attempt of lane {lane} runs",
                expected=f"instance {instance}",
                seen=str(meta.instance),
            )


def gather(
    flow: str,
    source: Cluster,
    target: Cluster,
    owned: Mapping[TopicPartition, Enrolment],
    progress: Each[TopicPartition, CommittedOffset],
    writer: LaneWriter,
) -> PartitionsSeen:
    """Read both sides' logs for some owned partitions.

    Args:
        writer: the lane's own.

    Raises:
        Retriable: a cluster as a whole is away.
    """
    here = source.each_topic(sorted({tp.topic for tp in owned}))
    there = target.each_topic(sorted({names.map_topic(flow), *(e.target for e in owned.values())}))
    evidence: dict[TopicPartition, Evidence] = {}
    problems: dict[TopicPartition, Problem] = {}
    for tp, enrolment in owned.items():
        problem = (
            _unanswered(tp, TroubleSide.SOURCE, here)
            or _unanswered(enrolment.target_of(tp), TroubleSide.TARGET, there)
            or _unmapped(flow, tp, there)
        )
        if problem is None and tp in progress.failed:
            problem = Problem(TroubleSide.TARGET, progress.failed[tp])
        if problem is not None:
            problems[tp] = problem
            continue
        committed = progress.found.get(tp)
        meta, doubt = beside(committed)
        evidence[tp] = Evidence(
            flow=flow,
            source=tp,
            target=enrolment.target_of(tp),
            enrolled_source_id=enrolment.source_id,
            enrolled_target_id=enrolment.target_id,
            position=None if committed is None else committed.offset,
            meta=meta,
            doubt=doubt,
            source_topic=_seen(here.found.get(tp.topic)),
            target_topic=_seen(there.found.get(enrolment.target)),
        )
    readable = {
        tp: e for tp, e in evidence.items() if judge(replace(e, log_end=1 << 62, target_end=1 << 62)) is None
    }
    with_source_logs(source, readable, evidence, problems)
    with_target_logs(target, readable, evidence, problems)
    with_last_batches(source, here.found, evidence, problems, lambda e: judge(e) is None)
    _with_what_is_open(target, writer, evidence, problems)
    if writer.alone:
        _with_what_follows(flow, target, writer.producer_id, evidence, problems)
    positions = {tp: committed.offset for tp, committed in progress.found.items()}
    return PartitionsSeen(evidence, problems, here.found, positions)


def map_partition(flow: str, source: TopicPartition) -> TopicPartition:
    """Return the partition of the flow's offset map that a source partition is written to."""
    return TopicPartition(names.map_topic(flow), lane_of(source, names.MAP_PARTITIONS))


def is_leaderless(topics: Mapping[str, TopicInfo], tp: TopicPartition) -> bool:
    """Tell whether the partition exists but nobody leads it at the moment."""
    partition = topics[tp.topic].partitions.get(tp.partition) if tp.topic in topics else None
    return partition is not None and partition.leader < 0


def _unanswered(tp: TopicPartition, side: TroubleSide, topics: Each[str, TopicInfo]) -> Problem | None:
    """Return why a partition cannot be asked about: its topic may not be seen, or nobody leads it."""
    if tp.topic in topics.failed:
        return Problem(side, topics.failed[tp.topic])
    return _unled(tp, side) if is_leaderless(topics.found, tp) else None


def _unmapped(flow: str, source: TopicPartition, topics: Each[str, TopicInfo]) -> Problem | None:
    """Return a problem where the partition of the offset map that the copy has to write is not there.

    Nobody leads it, or its topic was deleted, or made by somebody else, with fewer: the run makes what is
    missing in a moment.

    Noticed only by writing it, it would cost the others their open transaction at every try.
    """
    written = map_partition(flow, source)
    if written.topic not in topics.found and written.topic not in topics.failed:
        text = f"the offset map's topic {written.topic} does not exist: it was deleted, the run makes it anew"
        return Problem(TroubleSide.TARGET, Retriable(text, code=WaitCode.MAP_MISSING, where=written.topic))
    if written.topic in topics.found and written.partition not in topics.found[written.topic].partitions:
        text = f"partition {written} of the offset map does not exist: the run adds it"
        return Problem(TroubleSide.TARGET, Retriable(text, code=WaitCode.MAP_MISSING, where=str(written)))
    return _unled(written, TroubleSide.TARGET) if is_leaderless(topics.found, written) else None


def _unled(tp: TopicPartition, side: TroubleSide) -> Problem:
    return Problem(
        side, Retriable(f"{tp} has no leader at the moment", code=KafkaCode.NO_LEADER, where=str(tp))
    )


def with_source_logs(
    source: Cluster,
    readable: Mapping[TopicPartition, Evidence],
    evidence: dict[TopicPartition, Evidence],
    problems: dict[TopicPartition, Problem],
) -> None:
    """Add what the source's logs say to the evidence; take out what is not answered."""
    # Who does not answer the first question is not asked the next ones: a silent broker is waited for once.
    starts = source.each_offset(readable, calls.EARLIEST)
    ends = source.each_offset(starts.found, calls.LATEST, calls.READ_UNCOMMITTED)
    metas = {tp: readable[tp].meta for tp in ends.found}
    epochs = source.each_epoch_end(
        {tp: meta.leader_epoch for tp, meta in metas.items() if meta is not None and needs_epoch(meta)}
    )
    unread = {**starts.failed, **ends.failed, **epochs.failed}
    for tp in readable:
        if tp in unread:
            problems[tp] = Problem(TroubleSide.SOURCE, unread[tp])
            evidence.pop(tp, None)
        elif tp in evidence:
            evidence[tp] = replace(
                evidence[tp],
                log_start=starts.found[tp],
                log_end=ends.found[tp],
                epoch_end=epochs.found.get(tp),
            )


def with_target_logs(
    target: Cluster,
    readable: Mapping[TopicPartition, Evidence],
    evidence: dict[TopicPartition, Evidence],
    problems: dict[TopicPartition, Problem],
) -> None:
    """Add what the target's logs say likewise; what the source did not answer is its problem."""
    ends = target.each_offset([e.target for e in readable.values()], calls.LATEST, calls.READ_UNCOMMITTED)
    there = {e.target: e.meta for e in readable.values() if e.target in ends.found}
    histories = target.each_epoch_end(
        {tp: meta.target_epoch for tp, meta in there.items() if meta and meta.target_epoch is not None}
    )
    untold = {**ends.failed, **histories.failed}
    for tp, e in readable.items():
        if e.target in untold:
            problems.setdefault(tp, Problem(TroubleSide.TARGET, untold[e.target]))
            evidence.pop(tp, None)
        elif tp in evidence:
            evidence[tp] = replace(
                evidence[tp],
                target_end=ends.found[e.target],
                target_epoch_end=histories.found.get(e.target),
            )


def with_last_batches(
    source: Cluster,
    topics: Mapping[str, TopicInfo],
    evidence: dict[TopicPartition, Evidence],
    problems: dict[TopicPartition, Problem],
    wanted: Callable[[Evidence], bool],
) -> None:
    """Add what lies where the last batch was copied from, where the log goes back to it; likewise.

    Args:
        wanted: tells where that would say more.
    """
    places = {
        tp: place_of(batch, e.position, tp, topics[tp.topic])
        for tp, e in evidence.items()
        if e.position is not None
        and (batch := e.last_copied) is not None
        and e.log_start < e.position
        and wanted(e)
    }
    found = batches_at(source, places)
    for tp, error in found.failed.items():
        problems[tp] = Problem(TroubleSide.SOURCE, error)
        del evidence[tp]
    for tp, header in found.found.items():
        evidence[tp] = replace(evidence[tp], last_batch=header)


def _with_what_is_open(
    target: Cluster,
    writer: LaneWriter,
    evidence: dict[TopicPartition, Evidence],
    problems: dict[TopicPartition, Problem],
) -> None:
    """Add what transactions of the lane's own have left open; take out what is not answered."""
    going = {tp: (e, e.meta) for tp, e in evidence.items() if e.meta is not None and judge(e) is None}
    now = writer.producer_id
    ids = {e.target: {now} if m.producer is None else {now, m.producer} for e, m in going.values()}
    opened = target.each_open(ids)
    for tp, (e, meta) in going.items():
        try:
            if e.target in opened.failed:
                raise opened.failed[e.target]
            first, whose = opened.found[e.target]
            if first >= 0:
                start = max(first, meta.target_end)
                later = batch_behind(target, e.target, start, e.target_end, whose)
                left_open = OpenTransaction(first, later, is_ours=whose == now)
                # Also when it has no handler any more: what is open may be of the time when it had one.
                evidence[tp] = replace(e, left_open=left_open, mixed=writer.mixed or not meta.is_alone)
        except OnceoverError as error:
            problems[tp] = Problem(TroubleSide.TARGET, error)
            del evidence[tp]


def _with_what_follows(
    flow: str,
    target: Cluster,
    producer_id: int,
    evidence: dict[TopicPartition, Evidence],
    problems: dict[TopicPartition, Problem],
) -> None:
    """Doubt positions behind which there are records of ours; take out what cannot be read."""
    unclear: dict[TopicPartition, GenerationPosition] = {}
    for tp, e in list(evidence.items()):
        if e.meta is None or e.left_open is not None or judge(e) is not None:
            continue
        # Otherwise what follows tells nothing: a handler of then may have written there for others.
        if not e.meta.is_alone:
            continue
        try:
            ids = {producer_id} if e.meta.producer is None else {producer_id, e.meta.producer}
            found, is_dropped, is_unclear = behind(target, e.target, e.meta.target_end, e.target_end, ids)
        except OnceoverError as error:
            # Also a missing right: what one partition's copy does not show takes nothing from the others.
            problems[tp] = Problem(TroubleSide.TARGET, error)
            del evidence[tp]
            continue
        if is_dropped:
            evidence[tp] = replace(e, is_dropped=True)
        elif found is not None:
            evidence[tp] = replace(e, meta=None, doubt=put_back(e.meta.target_end, found))
        elif is_unclear and e.position is not None:
            unclear[tp] = GenerationPosition(e.position, e.meta.generation)
    _with_what_the_map_tells(flow, target, unclear, evidence, problems)


def _with_what_the_map_tells(
    flow: str,
    target: Cluster,
    unclear: Mapping[TopicPartition, GenerationPosition],
    evidence: dict[TopicPartition, Evidence],
    problems: dict[TopicPartition, Problem],
) -> None:
    """Doubt positions behind which the map knows of copies; take them out where it cannot be read."""
    try:
        further = copied_further(target, flow, unclear)
    except OnceoverError as error:
        further = Each(failed=dict.fromkeys(unclear, error))
    for tp, problem in further.failed.items():
        problems[tp] = Problem(TroubleSide.TARGET, problem)
        del evidence[tp]
    for tp, place in further.found.items():
        e = evidence[tp]
        evidence[tp] = replace(e, meta=None, doubt=put_back(e.meta.target_end if e.meta else 0, place))


def _seen(topic: TopicInfo | None) -> TopicSeen | None:
    return None if topic is None else TopicSeen(topic.topic_id, len(topic.partitions))
