"""How many records lie in the dead-letter topic of a flow, as far as its offsets tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onceover.errors import OnceoverError
from onceover.kafka import calls
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.operate.statusread import PartitionStatusReader, described, first_of


@dataclass(frozen=True)
class DeadLetterCount:
    """What is known of a dead-letter topic.

    Args:
        topic: its name.
        at_most: how many records readers find there, or fewer: markers of transactions, records of other
            flows, and offsets that the broker has removed in between count as well. None: not known.
        error: why it is not known, in whole or in part.
    """

    topic: str
    at_most: int | None = None
    error: OnceoverError | None = None

    def document(self) -> dict[str, Any]:
        """Return the ``dead_letters`` object."""
        return {"topic": self.topic, "at_most": self.at_most}


def count_dead_letters(target: Cluster, topic: str) -> DeadLetterCount:
    """Return how many records are in the topic at most; none where it was not created yet.

    Offsets are asked for and nothing is read: whoever sees a flow's status need not be one who may see what
    it could not copy (docs/handlers.md).
    """
    try:
        topics, refused = described(target, [topic])
    except OnceoverError as error:
        return DeadLetterCount(topic, error=error)
    if refused:
        return DeadLetterCount(topic, error=first_of(refused))
    if topic not in topics:
        return DeadLetterCount(topic, 0)
    reader = PartitionStatusReader(target, topics)
    partitions = [TopicPartition(topic, number) for number in topics[topic].partitions]
    starts, ends = reader.offsets(partitions, calls.EARLIEST), reader.offsets(partitions, calls.LATEST)
    if not all(tp in starts and tp in ends for tp in partitions):
        return DeadLetterCount(topic, error=reader.error)
    return DeadLetterCount(topic, sum(max(0, ends[tp] - starts[tp]) for tp in partitions))
