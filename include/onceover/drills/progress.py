"""How far a copy is, by what is committed on the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.enrolment import Enrolment


def copied_to(target: Cluster, flow: str, enrolled: Collection[Enrolment]) -> dict[TopicPartition, int]:
    """Return up to where each source partition was copied, exclusive; without those that have no progress.

    Raises:
        Retriable: the target is away.
    """
    targets = {e.target_of(tp): tp for e in enrolled for tp in e.sources()}
    group = names.progress_group(flow)
    committed = target.retry(lambda: target.committed(group, targets)) if targets else {}
    return {targets[tp]: offset.offset for tp, offset in committed.items()}


def left_to_copy(
    copied: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return how many offsets are left up to ``ends``, by source partition; only where some are. Pure."""
    left = {tp: end - copied.get(tp, 0) for tp, end in ends.items()}
    return {tp: offsets for tp, offsets in left.items() if offsets > 0}


def named(left: Mapping[TopicPartition, int], most: int = 3) -> str:
    """Return some of them as text. Pure."""
    return ", ".join(f"{tp} ({offsets} offsets)" for tp, offsets in sorted(left.items())[:most])
