"""Where groups go on, on either side: whether the next record of each is the same one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from onceover.backoff import Deadline
from onceover.drills.codes import DrillCode
from onceover.drills.looks.nextrecords import next_records
from onceover.errors import NeedsOperator
from onceover.kafka.admin.topics import Admin
from onceover.kafka.logs.between import stable_ends
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.wire.batches.records import DecodedRecord


@dataclass(frozen=True)
class GroupMove:
    """Where a group would go on, for one partition.

    Args:
        source: its next offset on the source; ``target`` on the copy, None where that is not known.
        why: why not.
    """

    group: str
    tp: TopicPartition
    source: int
    target_tp: TopicPartition
    target: int | None
    why: str = ""


def next_on_both(
    source: Cluster,
    target: Cluster,
    moves: Sequence[GroupMove],
    ends: Mapping[TopicPartition, int],
    deadline: Deadline,
) -> tuple[Mapping[GroupMove, DecodedRecord | None], Mapping[GroupMove, DecodedRecord | None]]:
    """Return each group's next record, of what was copied, on either side; where it is there.

    Args:
        ends: up to where each source partition was copied, exclusive.

    Raises:
        Retriable: they cannot be read before ``deadline``.
    """
    froms = {move: (move.tp, move.source) for move in moves}
    tos = {move: (move.target_tp, move.source if move.target is None else move.target) for move in moves}
    here = next_records(source, set(froms.values()), ends, deadline)
    there_ends = stable_ends(target, {tp for tp, _ in tos.values()})
    there = next_records(target, set(tos.values()), there_ends, deadline)
    return (
        {move: here[at] for move, at in froms.items() if at in here},
        {move: there[at] for move, at in tos.items() if at in there},
    )


def compacted(source: Cluster, topics: Collection[str]) -> set[str]:
    """Return those of the topics that are compacted, and those that do not tell."""
    configs = Admin(source).topic_configs(topics, standing=("cleanup.policy",))
    told = {topic: held.get("cleanup.policy", "compact") for topic, held in configs.standing.items()}
    return {topic for topic, policy in told.items() if "compact" in policy} | set(configs.failures)


def content(record: DecodedRecord | None) -> tuple[object, ...] | None:
    """Return what of a record is the same on both sides; a target may stamp it with a time of its own."""
    return None if record is None else (record.key, record.value, record.headers)


def moved(move: GroupMove) -> NeedsOperator:
    """Return what is wrong where a group would go on with another record."""
    return NeedsOperator(
        f"group {move.group} would not go on with its next record",
        code=DrillCode.GROUP_MOVED,
        where=str(move.tp),
        expected=f"the record at source offset {move.source} or behind",
        seen=f"another one at target offset {move.target} or behind",
        resolve="do not fail over; send this report to whoever looks after Onceover",
    )
