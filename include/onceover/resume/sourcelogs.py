"""Whether a source is still the log that was copied, by what its brokers tell; ``stops.judge`` judges.

Invariant: reads only. What is not answered is an error of its partition, and never a yes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onceover.errors import OnceoverError
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.resume.resume import Problem, with_last_batches, with_source_logs
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import beside
from onceover.stops.judge import Evidence, TopicSeen, parted
from onceover.stops.record import Stop


@dataclass(frozen=True)
class JudgedSources:
    """What was found out, by source partition.

    Args:
        evidence: of those that have answered.
        parted: why the source holds another log than was copied.
        unread: why that is not known at the moment.
    """

    evidence: Mapping[TopicPartition, Evidence]
    parted: Mapping[TopicPartition, Stop]
    unread: Mapping[TopicPartition, OnceoverError]


def evidence_of(
    flow: str,
    source: TopicPartition,
    enrolment: Enrolment,
    cut: int,
    progress: CommittedOffset | None,
    here: TopicInfo,
    copy: TopicInfo | None,
) -> Evidence:
    """Return what is known of a partition before its logs are asked. Pure.

    Args:
        cut: up to where it was copied; ``progress`` what the target has committed of that, if it still has.
        here: the source topic as it is now; ``copy`` the target's.
    """
    return Evidence(
        flow,
        source,
        enrolment.target_of(source),
        enrolment.source_id,
        enrolment.target_id,
        cut,
        beside(progress).meta,
        _seen(here),
        None if copy is None else _seen(copy),
    )


def judge_sources(
    source: Cluster, wanted: Mapping[TopicPartition, Evidence], topics: Mapping[str, TopicInfo]
) -> JudgedSources:
    """Return which sources are other logs than were copied.

    Args:
        wanted: what is known until now.
        topics: of the source.

    Raises:
        UsageError: a right is missing.
        Retriable: the source is away.
    """
    evidence, problems = dict(wanted), dict[TopicPartition, Problem]()
    with_source_logs(source, wanted, evidence, problems)
    with_last_batches(source, topics, evidence, problems, lambda e: (e.position or 0) <= e.log_end)
    found = {tp: stop for tp, e in evidence.items() if (stop := parted(e)) is not None}
    return JudgedSources(evidence, found, {tp: problem.error for tp, problem in problems.items()})


def told(stop: Stop) -> str:
    """Return a stop's evidence in one line."""
    return f"{stop.message} (expected {stop.expected}; seen {stop.seen})"


def _seen(info: TopicInfo) -> TopicSeen:
    return TopicSeen(info.topic_id, len(info.partitions))
