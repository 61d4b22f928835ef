"""Gathering the evidence on which a lane resumes its partitions (DESIGN 5, step 5).

Everything is read after InitProducerId and after the second look at the layout: what a predecessor
left open is decided by then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from onceover.engine import names
from onceover.engine.enrolment import Enrolment
from onceover.engine.stops import Evidence, TopicSeen, judge, needs_epoch
from onceover.errors import Superseded
from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset, OffsetToCommit
from onceover.kafka.cluster import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.wire.progress import ProgressMeta

# After a leader change the high watermark trails the log for a moment; an end that seems too low is
# looked at again for this long before it counts as truncation.
_PATIENCE_S = 5.0
_LOOK_AGAIN_S = 0.2


def read_progress(
    target: Cluster, flow: str, owned: Mapping[TopicPartition, Enrolment]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the stable committed progress by *source* partition; those without are left out."""
    wanted = {enrolment.target_of(source): source for source, enrolment in owned.items()}
    committed = target.committed(names.progress_group(flow), wanted) if wanted else {}
    return {wanted[tp]: offset for tp, offset in committed.items()}


def resting_progress(
    flow: str, target: Cluster, resting: Mapping[TopicPartition, Enrolment]
) -> dict[TopicPartition, OffsetToCommit]:
    """Return the progress of partitions that are not copied now, as it is, by *target* partition.

    Stopped partitions and topics that have left the filter: their lane commits it again from time to time,
    or it would expire after seven days, and a topic that returns would have lost its place. What has no
    counterpart on the target any more is left out: the broker would refuse the commit.
    """
    wanted = [enrolment.target_of(source) for source, enrolment in resting.items()]
    if not wanted:
        return {}
    topics = target.topics(sorted({tp.topic for tp in wanted}))
    there = [tp for tp in wanted if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
    committed = target.committed(names.progress_group(flow), there) if there else {}
    return {
        tp: OffsetToCommit(offset.offset, offset.leader_epoch, offset.metadata)
        for tp, offset in committed.items()
    }


def check_instance(
    progress: Iterable[CommittedOffset], generation: int, instance: tuple[int, int], lane: int
) -> None:
    """Stop when a newer instance of this very lane has claimed it.

    Only within the own generation: instances of different generations do not compare (model: Mi).

    Raises:
        Superseded: a newer instance runs.
    """
    for offset in progress:
        meta = ProgressMeta.decode(offset.metadata)
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
    progress: Mapping[TopicPartition, CommittedOffset],
) -> tuple[dict[TopicPartition, Evidence], dict[str, TopicInfo]]:
    """Read both sides' logs for all owned partitions.

    Returns:
        The evidence by source partition, and the source topics' metadata. A partition without a leader
        on either side is left out: the others need not wait for its broker.

    Raises:
        Retriable: a broker is away.
    """
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        evidence, topics = _look(flow, source, target, owned, progress)
        if time.monotonic() >= until_s or not any(_seems_too_short(e) for e in evidence.values()):
            return evidence, topics
        time.sleep(_LOOK_AGAIN_S)


def _seems_too_short(e: Evidence) -> bool:
    stop = judge(e)
    return stop is not None and stop.code in ("SOURCE_DIVERGED", "TARGET_SHORTENED")


def _look(
    flow: str,
    source: Cluster,
    target: Cluster,
    owned: Mapping[TopicPartition, Enrolment],
    progress: Mapping[TopicPartition, CommittedOffset],
) -> tuple[dict[TopicPartition, Evidence], dict[str, TopicInfo]]:
    source_topics = source.topics(sorted({tp.topic for tp in owned}))
    target_topics = target.topics(sorted({e.target for e in owned.values()}))
    evidence: dict[TopicPartition, Evidence] = {}
    for tp, enrolment in owned.items():
        if is_leaderless(source_topics, tp) or is_leaderless(target_topics, enrolment.target_of(tp)):
            continue
        committed = progress.get(tp)
        evidence[tp] = Evidence(
            flow=flow,
            source=tp,
            target=enrolment.target_of(tp),
            enrolled_source_id=enrolment.source_id,
            enrolled_target_id=enrolment.target_id,
            position=None if committed is None else committed.offset,
            meta=None if committed is None else ProgressMeta.decode(committed.metadata),
            source_topic=_seen(source_topics.get(tp.topic)),
            target_topic=_seen(target_topics.get(enrolment.target)),
        )
    readable = {
        tp: e for tp, e in evidence.items() if judge(replace(e, log_end=1 << 62, target_end=1 << 62)) is None
    }
    evidence.update(_with_logs(source, target, readable))
    return evidence, source_topics


def is_leaderless(topics: Mapping[str, TopicInfo], tp: TopicPartition) -> bool:
    """Tell whether the partition exists but nobody leads it at the moment."""
    partition = topics[tp.topic].partitions.get(tp.partition) if tp.topic in topics else None
    return partition is not None and partition.leader < 0


def _with_logs(
    source: Cluster, target: Cluster, readable: Mapping[TopicPartition, Evidence]
) -> dict[TopicPartition, Evidence]:
    starts = source.list_offsets(readable, calls.EARLIEST)
    ends = source.list_offsets(readable, calls.LATEST, calls.READ_UNCOMMITTED)
    target_ends = target.list_offsets(
        [e.target for e in readable.values()], calls.LATEST, calls.READ_UNCOMMITTED
    )
    epochs = source.epoch_ends(
        {tp: e.meta.leader_epoch for tp, e in readable.items() if e.meta is not None and needs_epoch(e.meta)}
    )
    return {
        tp: replace(
            e,
            log_start=starts[tp],
            log_end=ends[tp],
            epoch_end=_known(epochs.get(tp)),
            target_end=target_ends[e.target],
        )
        for tp, e in readable.items()
    }


def _known(epoch_end: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return None where the broker knows no epochs (-1): nothing can be concluded then."""
    return None if epoch_end is None or epoch_end[1] < 0 else epoch_end


def _seen(topic: TopicInfo | None) -> TopicSeen | None:
    return None if topic is None else TopicSeen(topic.topic_id, len(topic.partitions))
