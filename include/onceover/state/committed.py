"""Reading the progress that a flow has committed on its target."""

from __future__ import annotations

from collections.abc import Mapping

from onceover.backoff import Deadline
from onceover.errors import UsageError
from onceover.kafka.calls import CommittedOffset, OffsetToCommit
from onceover.kafka.each import Each
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import newest_of


def newest_beside(target: Cluster, flow: str, deadline: Deadline | None = None) -> int:
    """Return the newest generation that has written progress; 0 where nothing tells of one.

    Read before a layout, one that is older than that is of before: a leader has read its own generation when
    its lanes begin.

    Raises:
        Retriable: the target is away.
        UsageError: the group may not be described.
    """
    return newest_of(all_progress(target, flow, deadline).values())


def all_progress(
    target: Cluster, flow: str, deadline: Deadline | None = None
) -> Mapping[TopicPartition, CommittedOffset]:
    """Return the progress of all partitions that the group knows, by *target* partition.

    Raises:
        As ``newest_beside``.
    """
    group = names.progress_group(flow)
    return target.retry(lambda: target.each_committed(group, None, stable=False), deadline).found


def told_beside(target: Cluster, flow: str, deadline: Deadline | None = None) -> int:
    """Do as ``newest_beside`` for who has no right to look, perhaps: 0 where the group may not be seen."""
    try:
        return newest_beside(target, flow, deadline)
    except UsageError:
        return 0


def read_progress(
    target: Cluster, flow: str, owned: Mapping[TopicPartition, Enrolment]
) -> Each[TopicPartition, CommittedOffset]:
    """Return the stable committed progress by *source* partition; those without are left out."""
    wanted = {enrolment.target_of(source): source for source, enrolment in owned.items()}
    if not wanted:
        return Each()
    each = target.each_committed(names.progress_group(flow), wanted)
    return Each(
        {wanted[tp]: offset for tp, offset in each.found.items()},
        {wanted[tp]: error for tp, error in each.failed.items()},
    )


def resting_progress(
    flow: str, target: Cluster, resting: Mapping[TopicPartition, Enrolment]
) -> dict[TopicPartition, OffsetToCommit]:
    """Return the progress of partitions that are not copied now, as it is, by *target* partition.

    Stopped partitions and topics that have left the filter: their lane commits it again from time to time,
    or it would expire after seven days, and a topic that returns would have lost its place. What has no
    counterpart on the target any more, or may not be looked at, is left out: the broker would refuse the
    commit.
    """
    wanted = [enrolment.target_of(source) for source, enrolment in resting.items()]
    if not wanted:
        return {}
    topics = target.each_topic(sorted({tp.topic for tp in wanted})).found
    there = [tp for tp in wanted if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
    committed = target.each_committed(names.progress_group(flow), there).found if there else {}
    return {
        tp: OffsetToCommit(offset.offset, offset.leader_epoch, offset.metadata)
        for tp, offset in committed.items()
    }
