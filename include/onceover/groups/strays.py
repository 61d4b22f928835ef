"""What groups have committed in partitions that are the flow's to copy, and that it has not taken in.

Invariant: none of them is passed over without a word, and nobody waits for the source to tell of them: it is
asked once, and where it does not answer they are named all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from onceover.errors import OnceoverError
from onceover.groups.decide import PartitionFacts
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.ports import TopicCatalog, TopicInfo
from onceover.model import TopicPartition
from onceover.state.codes import StateCode

# Returns how the copy of a source topic is called; None for one that is not the flow's to copy.
Copies = Callable[[str], str | None]
_TEXT = "the flow has not taken it in: there is no copy of it to go on in"


def find_strays(
    source: TopicCatalog, copies: Copies, groups: Iterable[Iterable[TopicPartition]]
) -> dict[TopicPartition, TopicPartition]:
    """Return the partitions that are missing, and how their copies would be called.

    Args:
        source: asked whether they are still there: an offset may be left of a topic that is not.
        copies: by the flow file.
        groups: what each of them has committed in beside the flow's partitions.
    """
    every = {tp for others in groups for tp in others}
    called = {topic: copies(topic) for topic in {tp.topic for tp in every}}
    wanted = {tp: target for tp in every if (target := called[tp.topic]) is not None}
    if not wanted:
        return {}
    try:
        each = source.each_topic(sorted({tp.topic for tp in wanted}))
    except OnceoverError:
        return {tp: TopicPartition(target, tp.partition) for tp, target in wanted.items()}
    return {
        tp: TopicPartition(target, tp.partition)
        for tp, target in wanted.items()
        if tp.topic in each.failed or _is_there(each.found.get(tp.topic), tp)
    }


def stray_facts(
    committed: Mapping[TopicPartition, CommittedOffset], strays: Mapping[TopicPartition, TopicPartition]
) -> list[PartitionFacts]:
    """Return the facts of a group about the partitions that are missing."""
    return [
        PartitionFacts(
            giving=tp,
            receiving=strays[tp],
            committed=committed[tp].offset,
            metadata=committed[tp].metadata,
            problem=(StateCode.NOT_ENROLLED, _TEXT),
        )
        for tp in sorted(committed.keys() & strays.keys())
    ]


def _is_there(info: TopicInfo | None, tp: TopicPartition) -> bool:
    return info is not None and not info.is_internal and tp.partition in info.partitions
