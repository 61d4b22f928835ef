"""What was written for which group, kept in a compacted topic of the flow's own on the target.

It tells a group that moves on its own from one that only we move, a rewind from a group that runs ahead, and
a deleted group from one that never was. Written *before* the commit it stands for (``known`` holds the old
and the new position), so that a kill in between leaves nothing to guess. A topic of its own, because the
state's readers, lanes among them, would otherwise read through every move of every group.

Losing it loses no record: groups are then looked at afresh, as the first time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from onceover.engine import names
from onceover.engine.groups import Direction, Remembered
from onceover.engine.statelog import StateLog
from onceover.errors import NeedsOperator, Retriable
from onceover.kafka.admin import Admin, TopicSpec
from onceover.kafka.cluster import Cluster
from onceover.kafka.notes import NoteWriter
from onceover.model import TopicPartition

VERSION: Final = 1
# Small segments: only closed ones are compacted, and a continuous sync writes a record for each group that
# has moved, every interval.
_CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "segment.ms": "3600000"}

# Positions of earlier writes that stay known: enough for as many syncs at once as anybody runs by mistake.
_KEPT: Final = 4

Entries = Mapping[TopicPartition, Remembered | None]


class GroupMemory:
    """Reads and writes it. Not thread-safe; a context manager.

    Args:
        target: the flow's target, whichever way groups are moved.
        flow: name of the flow.
    """

    def __init__(self, target: Cluster, flow: str) -> None:
        self._target = target
        self._tp = TopicPartition(names.groups_topic(flow), 0)
        self._log = StateLog(target, *self._tp)
        self._writer: NoteWriter | None = None
        self._values: dict[str, Any] = {}

    def close(self) -> None:
        """Close all connections."""
        self._log.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def read(self) -> None:
        """Bring it up to date; empty where nothing was ever written.

        Raises:
            Retriable: the target is away.
            NeedsOperator: written by another version.
        """
        if self._tp.topic in self._target.topics([self._tp.topic]):
            self._values = dict(self._log.catch_up(wait=False))

    def groups(self, direction: Direction) -> set[str]:
        """Return the groups that something is remembered of."""
        prefix = f"{direction}/"
        found = self._values.items()
        return {key[len(prefix) :] for key, value in found if key.startswith(prefix) and value is not None}

    def of(self, direction: Direction, group: str) -> dict[TopicPartition, Remembered]:
        """Return what was written for a group in one direction, by receiving partition."""
        return dict(self._entries(direction, group))

    def prepare(self, replication_factor: int) -> None:
        """Create the topic where it is missing, before the first write."""
        admin = Admin(self._target.config)
        admin.create_topics([TopicSpec(self._tp.topic, 1, replication_factor, _CONFIG)])
        self._target.retry(self._check_ready)

    def write(self, direction: Direction, changes: Mapping[str, Entries]) -> None:
        """Remember entries of groups durably, None forgets one; all others stay.

        What another sync of the same flow has remembered meanwhile stays known: its positions are ours, too.

        Raises:
            Retriable: not acknowledged in time.
        """
        self._target.retry(self.read)
        records = {
            f"{direction}/{group}": self._merged(direction, group, new)
            for group, new in changes.items()
            if new
        }
        if records:
            if self._writer is None:
                self._writer = NoteWriter(self._target.config, self._tp)
            self._writer.write_all(records)
            self._values.update(records)

    def _merged(self, direction: Direction, group: str, changes: Entries) -> dict[str, Any] | None:
        before = self.of(direction, group)
        merged: dict[TopicPartition, Remembered | None] = {**before}
        for tp, entry in changes.items():
            merged[tp] = entry if entry is None or tp not in before else _joined(before[tp], entry)
        topics: dict[str, dict[str, Any]] = {}
        for tp, entry in sorted(merged.items()):
            if entry is not None:
                topics.setdefault(tp.topic, {})[str(tp.partition)] = _value(entry)
        return {"v": VERSION, "topics": topics} if topics else None

    def _entries(self, direction: Direction, group: str) -> Iterator[tuple[TopicPartition, Remembered]]:
        value = self._values.get(f"{direction}/{group}")
        if value is None:
            return
        if value.get("v") != VERSION:
            raise NeedsOperator(
                f"what is remembered of group {group} was written by another version of Onceover",
                code="STATE_VERSION",
                where=str(self._tp),
                expected=f"version {VERSION}",
                seen=f"version {value.get('v')}",
                resolve="use the newer version",
            )
        for topic, partitions in value["topics"].items():
            for number, entry in partitions.items():
                known = frozenset(entry["known"])
                yield TopicPartition(topic, int(number)), Remembered(entry["given"], known, entry["at_ms"])

    def _check_ready(self) -> None:
        info = self._target.topics([self._tp.topic]).get(self._tp.topic)
        if info is None or any(p.leader < 0 for p in info.partitions.values()):
            raise Retriable(f"{self._tp.topic} has no leader yet")


def _value(entry: Remembered) -> dict[str, Any]:
    return {"given": entry.given, "known": sorted(entry.known), "at_ms": entry.at_ms}


def _joined(before: Remembered, entry: Remembered) -> Remembered:
    latest = sorted(before.known - entry.known)[-_KEPT:]
    return replace(entry, known=entry.known.union(latest))
