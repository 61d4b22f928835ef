"""What a flow says in MirrorMaker 2's words: topic names, checkpoints, offset syncs, heartbeats. Pure.

Invariant: everything said is exact. A checkpoint pairs a source offset with its translation, an offset sync
a record with its copy, and a replicated heartbeat of a time means that everything readable on the source at
that time is on the target. What the offset map does not cover is not said (G7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from onceover.groups.decide import PartitionFacts
from onceover.groups.plan import GroupView
from onceover.model import TopicPartition
from onceover.state.records.enrolment import Enrolment
from onceover.wire.mirroroutput import encode_checkpoint, encode_offset_sync
from onceover.wire.offsetmap import MapRecord

# Names as DefaultReplicationPolicy and IdentityReplicationPolicy make them, separator included.
HEARTBEATS_TOPIC: Final = "heartbeats"


def checkpoints_topic(source_alias: str) -> str:
    """Topic on the target with the groups' positions."""
    return f"{source_alias}.checkpoints.internal"


def offset_syncs_topic(source_alias: str) -> str:
    """Topic with the offset syncs as it is called on the target (offset-syncs.topic.location=target)."""
    return f"mm2-offset-syncs.{source_alias}.internal"


def replicated_heartbeats_topic(source_alias: str) -> str:
    """Topic by which MirrorClient knows that ``source_alias`` is upstream, under both policies."""
    return f"{source_alias}.{HEARTBEATS_TOPIC}"


@dataclass(frozen=True)
class MirrorSettings:
    """What is written, from the flow file as it is now.

    Args:
        checkpoints: for the groups that ``selects`` names.
        offset_syncs: one for each partition whenever checkpoints are due.
        heartbeats: that the flow runs, and that it copies.
        checkpoint_interval_s: pause between two looks at the groups.
        heartbeat_interval_s: pause between two heartbeats.
        selects: tells whether a group belongs to the flow.
    """

    checkpoints: bool
    offset_syncs: bool
    heartbeats: bool
    checkpoint_interval_s: float
    heartbeat_interval_s: float
    selects: Callable[[str], bool]

    @property
    def enabled(self) -> bool:
        """True when anything is to be written."""
        return self.checkpoints or self.offset_syncs or self.heartbeats


def plan_checkpoints(view: GroupView) -> dict[bytes, bytes]:
    """Return the checkpoint records of the groups in a view of failover, key to value."""
    found = {}
    for group in view.groups:
        if group.error is not None:
            continue
        for facts in group.partitions:
            pair = _pair(facts)
            if pair is not None:
                key, value = encode_checkpoint(group.name, facts.receiving, *pair, facts.metadata)
                found[key] = value
    return found


def _pair(facts: PartitionFacts) -> tuple[int, int] | None:
    """Return how far the group has read of what is copied, on both sides; None where that is not known.

    A group that runs ahead of the copy is said to be at the copy's position, not at its own with the other
    side's half of another pair: the two offsets of a checkpoint always mean the same place.
    """
    wanted = facts.wanted
    if facts.problem is not None or facts.committed is None or wanted is None:
        return None
    upstream = facts.committed if facts.copied is None else min(facts.committed, facts.copied)
    # As when the group itself is moved: where a consumer finds something, never past the end.
    return upstream, wanted


def offset_sync(source: TopicPartition, records: Sequence[MapRecord]) -> tuple[bytes, bytes] | None:
    """Return the sync of the last record that neighbouring map records speak of; None where they hold none.

    Only of a record: from a sync at s, MirrorMaker takes a reader that is behind s to have read the record
    there, and sends it to the offset after its copy. A position without a record would make it skip one.
    """
    last = next((record.segments[-1] for record in reversed(records) if record.segments), None)
    return None if last is None else encode_offset_sync(source, last.source_end - 1, last.target_end - 1)


class HeartbeatUnderWay:
    """A heartbeat under way: it may arrive when all that was on the source before it is copied.

    MirrorMaker writes a heartbeat to the source and copies it; this one takes the same way without writing.
    """

    def __init__(self) -> None:
        self._at_ms: int | None = None
        self._ends: Mapping[TopicPartition, int] = {}
        self._topics: Mapping[str, Enrolment] = {}

    @property
    def under_way(self) -> bool:
        """True between ``begin`` and the arrival."""
        return self._at_ms is not None

    def begin(self, at_ms: int, ends: Mapping[TopicPartition, int], topics: Mapping[str, Enrolment]) -> None:
        """Send one off.

        Args:
            at_ms: a time before ``ends`` were read.
            ends: LSO of every source partition that is copied.
            topics: what is copied, by target topic.
        """
        self._at_ms, self._ends, self._topics = at_ms, ends, topics

    def keep_to(self, topics: Mapping[str, Enrolment]) -> None:
        """Give it up where somebody has moved a position, or accepted a namesake: it may never get there.

        And where a topic has partitions more: what they held by then was not looked at.

        Args:
            topics: what is copied now.
        """
        now = {target: topics.get(target, before) for target, before in self._topics.items()}
        if not all(
            now[target].is_still(before) and now[target].start.keys() == before.start.keys()
            for target, before in self._topics.items()
        ):
            self._at_ms = None

    def reached(self, positions: Mapping[TopicPartition, int | None]) -> bool:
        """Tell whether one is under way, and all that was there before it is copied by these positions.

        Args:
            positions: next offset to copy of the source partitions that are copied now, None where that is
                not known; one that is no longer among them is not waited for.
        """
        if self._at_ms is None:
            return False
        for source, end in self._ends.items():
            position = positions.get(source) if source in positions else end
            if position is None or position < end:
                return False
        return True

    def arrive(self) -> int | None:
        """Return the time of the one under way, once; None where there is none."""
        at_ms, self._at_ms = self._at_ms, None
        return at_ms
