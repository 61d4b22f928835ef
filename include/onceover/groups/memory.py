"""What was written for which group, kept in a compacted topic of the flow's own on the target.

It tells a group that moves on its own from one that only we move, a rewind from a group that runs ahead, and
a deleted group from one that never was. Written *before* the commit it stands for (``known`` holds the old
and the new position), so that a kill in between leaves nothing to guess. A topic of its own, because the
state's readers, lanes among them, would otherwise read through every move of every group.

Losing it loses no record: groups are then looked at afresh, as the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from onceover.errors import NeedsOperator, NotNow, OnceoverError
from onceover.groups.codes import GroupCode
from onceover.groups.decide import Direction, Remembered
from onceover.groups.entries import VERSION, Entries, Key, Pieces, entries_of, rewritten
from onceover.kafka.admin.topics import ANY_TIME, Admin, TopicSpec
from onceover.kafka.ports import Cluster
from onceover.kafka.produce.notes import NoteWriter
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.log import StateLog
from onceover.state.records.value import MALFORMED

# Small segments: only closed ones are compacted, and a continuous sync writes a record for each group that
# has moved, every interval.
_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "segment.ms": "3600000",
    **ANY_TIME,
}


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
        self._topic_id: UUID | None = None
        self._writer: NoteWriter | None = None
        self._pieces: dict[tuple[str, str], dict[int, Any]] = {}

    def close(self) -> None:
        """Close all connections."""
        self._log.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def read(self) -> None:
        """Bring it up to date; empty where nothing was ever written, or it was deleted, or made anew, since.

        Raises:
            Retriable: the target is away.
            NeedsOperator: written by another version.
        """
        info = self._target.topics([self._tp.topic]).get(self._tp.topic)
        self._is_of(None if info is None else info.topic_id)
        if info is None:
            return
        try:
            values = self._log.catch_up(wait=False)
        except NeedsOperator as error:
            if error.code != StateCode.STATE_MISSING:
                raise
            self._is_of(None)
            raise NotNow(f"{self._tp.topic} was deleted a moment ago", where=self._target.alias) from error
        self._pieces.clear()
        self._take(values)

    def refresh(self) -> None:
        """Bring it up to date as ``read`` does, and wait for a target that is away for the moment."""
        self._target.retry(self.read)

    def _is_of(self, topic_id: UUID | None) -> None:
        """Begin anew where it is another topic, or none any more: what was read is not of this one."""
        if topic_id != self._topic_id:
            self.close()
            self._log = StateLog(self._target, *self._tp)
            self._pieces.clear()
            self._topic_id = topic_id

    def groups(self, direction: Direction) -> set[str]:
        """Return the groups that something is remembered of."""
        return {group for told, group in self._pieces if told == direction}

    def of(self, direction: Direction, group: str) -> dict[TopicPartition, Remembered]:
        """Return what was written for a group in one direction, by receiving partition.

        Raises:
            NeedsOperator: STATE_UNREADABLE, or written by another version. The other groups' can be read.
        """
        try:
            return entries_of(self._pieces_of(direction, group))
        except MALFORMED as error:
            raise self._unreadable(direction, group, error) from error

    def _unreadable(self, direction: Direction, group: str, error: Exception) -> OnceoverError:
        if isinstance(error, OnceoverError):
            return error
        return NeedsOperator(
            f"what is remembered of group {group} cannot be read: something else writes to {self._tp.topic}",
            code=StateCode.STATE_UNREADABLE,
            where=str(self._tp),
            expected=f"what was written for it, under the key {str(Key(direction, group, 0))!r}",
            seen=str(error) or type(error).__name__,
            resolve="if a newer Onceover wrote it, use that one; otherwise a record without a value for that "
            "key has the group looked at as for the first time",
        )

    def prepare(self, replication_factor: int) -> None:
        """Create the topic where the last ``read`` has found none, before a write."""
        if self._topic_id is None:
            spec = TopicSpec(self._tp.topic, 1, replication_factor, _CONFIG)
            Admin(self._target).make_topics([spec])

    def write(self, direction: Direction, changes: Mapping[str, Entries]) -> dict[str, OnceoverError]:
        """Remember entries of groups durably, None forgets one; all others stay.

        What another sync of the same flow has remembered meanwhile stays known: its positions are ours, too.

        Returns:
            Why not, for groups whose records the broker refuses: nothing may be written for these.

        Raises:
            Retriable: not acknowledged in time, or the topic is not there.
            UsageError: not authorized.
        """
        self.refresh()
        if self._topic_id is None:
            # The library would wait for it, and have brokers that do so make one like any other topic.
            raise NotNow(f"{self._tp.topic} does not exist", where=self._target.alias)
        records = {
            group: {
                str(Key(direction, group, number)): value
                for number, value in self._rewritten(direction, group, new).items()
            }
            for group, new in changes.items()
            if new
        }
        return self._write({group: values for group, values in records.items() if values})

    def _rewritten(self, direction: Direction, group: str, new: Entries) -> dict[int, dict[str, Any] | None]:
        try:
            return rewritten(self._pieces_of(direction, group), new)
        except MALFORMED as error:
            raise self._unreadable(direction, group, error) from error

    def _write(self, records: Mapping[str, Mapping[str, Any]]) -> dict[str, OnceoverError]:
        if not records:
            return {}
        if self._writer is None:
            self._writer = NoteWriter(self._target, self._tp)
        values = {key: value for own in records.values() for key, value in own.items()}
        try:
            self._writer.write_all(values)
        except NeedsOperator as error:
            if len(records) > 1:
                # One of them: the others are not held responsible.
                alone = [self._write({group: own}) for group, own in records.items()]
                return {group: refused for each in alone for group, refused in each.items()}
            return dict.fromkeys(records, self._refused(error))
        self._take(values)
        return {}

    def _refused(self, error: NeedsOperator) -> NeedsOperator:
        return NeedsOperator(
            f"what would be written for it cannot be remembered: {error.message}",
            code=GroupCode.NOT_REMEMBERED,
            where=error.where,
            resolve=f"correct the configuration of {self._tp.topic} (max.message.bytes, say), then run again",
        )

    def _take(self, values: Mapping[str, Any]) -> None:
        """Keep records by the group that they are of."""
        for text, value in values.items():
            key = Key.read(text)
            if key is None:
                continue
            of = self._pieces.setdefault((key.direction, key.group), {})
            of.pop(key.piece, None)
            if value is not None:
                of[key.piece] = value
            if not of:
                del self._pieces[key.direction, key.group]

    def _pieces_of(self, direction: Direction, group: str) -> Pieces:
        pieces = self._pieces.get((direction, group), {})
        for value in pieces.values():
            if not isinstance(value, Mapping):
                raise self._unreadable(direction, group, TypeError("no object"))
            if value.get("v") != VERSION:
                raise NeedsOperator(
                    f"what is remembered of group {group} was written by another version of Onceover",
                    code=StateCode.STATE_VERSION,
                    where=str(self._tp),
                    expected=f"version {VERSION}",
                    seen=f"version {value.get('v')}",
                    resolve="use the newer version",
                )
        return pieces
