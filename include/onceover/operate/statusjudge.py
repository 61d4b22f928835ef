"""Whether partitions may go on, by what is there now: as a lane would judge at its next start. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from onceover.kafka.ports import TopicInfo
from onceover.model import TopicPartition
from onceover.operate.statusread import SourceLogs, TargetLogs
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import beside
from onceover.stops.judge import Evidence, TopicSeen, judge
from onceover.stops.record import Stop

# Of a log that was not read: nothing can be concluded from its end.
_ENDLESS: Final = 1 << 62


def judge_all(
    flow: str, owners: Mapping[TopicPartition, Enrolment], here: SourceLogs, there: TargetLogs
) -> dict[TopicPartition, Stop]:
    """Return why enrolled partitions may not go on; those of which too little is known are left out.

    Args:
        owners: enrolled source partitions, with their topic's enrolment.
    """
    found = {}
    for source, enrolment in owners.items():
        stop = _judge(flow, source, enrolment, here, there)
        if stop is not None:
            found[source] = stop
    return found


def _judge(
    flow: str, source: TopicPartition, enrolment: Enrolment, here: SourceLogs, there: TargetLogs
) -> Stop | None:
    target = enrolment.target_of(source)
    committed = there.committed.get(target)
    meta, doubt = beside(committed)
    if not there.knows_progress or not there.knows_topics:
        return None
    if source.topic in here.refused or target.topic in there.refused:
        return None
    source_topic = _seen(here.topics.get(source.topic))
    if here.reader is None:  # the source does not answer: the target alone is judged
        copied = enrolment.source_id if meta is None else UUID(meta.source_topic_id)
        source_topic = TopicSeen(copied, _ENDLESS)
    known_log = source in here.starts and source in here.high_watermarks and target in there.ends
    evidence = Evidence(
        flow=flow,
        source=source,
        target=target,
        enrolled_source_id=enrolment.source_id,
        enrolled_target_id=enrolment.target_id,
        position=None if committed is None else committed.offset,
        meta=meta,
        doubt=doubt,
        source_topic=source_topic,
        target_topic=_seen(there.topics.get(target.topic)),
        log_start=here.starts.get(source, 0) if known_log else 0,
        log_end=here.high_watermarks.get(source, _ENDLESS) if known_log else _ENDLESS,
        epoch_end=here.epoch_ends.get(source) if known_log else None,
        target_end=there.ends.get(target, _ENDLESS),
    )
    return judge(evidence)


def _seen(topic: TopicInfo | None) -> TopicSeen | None:
    return None if topic is None else TopicSeen(topic.topic_id, len(topic.partitions))
