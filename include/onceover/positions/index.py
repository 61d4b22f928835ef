"""A flow's offset map at hand: the local store, brought up to date from the topic.

Invariant: what the store answers is what the topic says up to the point that was read. It is built anew
when the topic is another one (topic id), when the topic's log is another one (leader epochs, KIP-320, and
the last record that was read, which every catch-up looks at again) and when the file is damaged; deleting it
costs reading the topic again.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.each import answers_in_time
from onceover.kafka.ports import DEFAULT_TIMEOUT_S, Cluster
from onceover.positions.codes import PositionCode
from onceover.positions.reader import Chunk, MapChanged, MapTopic, Point, say_unread
from onceover.positions.store import Anchor, MapStore, StoreDamaged
from onceover.state import names
from onceover.wire.codes import WireCode
from onceover.wire.offsetmap import MapRecord

log = logging.getLogger(__name__)

FOLDER: Final = "map"
# Part of the file's name: another format is another file.
_FORMAT: Final = 2
_SUFFIX: Final = ".sqlite3"
_PORTION: Final = 1000
# Retention may pass the start while the topic is being read, once or twice; a log cannot change for ever.
_ATTEMPTS: Final = 5
# A partition without a leader must not keep those waiting whose part of the map is in the others.
_PATIENCE_S: Final = 5.0


def read_map(target: Cluster, flow: str) -> Iterator[list[MapRecord]]:
    """Yield what the map says about what is on the target, in portions, pair by pair in offset order.

    Merged records come as one; what was copied again after ``reseed`` or ``skip-to`` comes once.

    Raises:
        Retriable: a broker is away; begin again.
        NeedsOperator: a record cannot be read.
    """
    with MapIndex(target, flow, None) as index:
        index.refresh()
        store = index.store
        if store is None:
            return
        for pair in store.pairs():
            records = store.records(pair)
            while portion := list(islice(records, _PORTION)):
                yield portion


class MapIndex:
    """The offset map of one flow. Not thread-safe; several processes may use the same ``home`` at once.

    Args:
        target: the flow's target; belongs to the caller.
        flow: its name.
        home: folder of the flow's files (``ONCEOVER_HOME/<flow>``); None keeps what was read for this
            object alone.

    Attributes:
        store: what was read; None before the first ``refresh`` and while the flow has no map.
    """

    def __init__(self, target: Cluster, flow: str, home: Path | None) -> None:
        self._target = target
        self._flow = flow
        self._folder = None if home is None else home / FOLDER
        self._topic_id: UUID | None = None
        self._path: Path | None = None
        self.store: MapStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self.store is not None:
            self.store.close()
            self.store = None

    def refresh(self, partitions: list[int] | None = None, *, settled: bool = False) -> None:
        """Read what is new in partitions of the topic (None: all of them).

        Args:
            settled: read everything that was in the log when the call began, waiting for transactions
                that are being decided; otherwise up to the LSO.

        Raises:
            Retriable: the target is away, or a transaction does not end.
            NeedsOperator: records cannot be read, so that what was read is not the whole map.
            UsageError: the index cannot be kept in ``home``.
        """
        for _ in self.refreshing(partitions, settled=settled):
            pass
        for partition, offset, why in [] if self.store is None else self.store.unread():
            raise NeedsOperator(
                f"the offset map of {self._flow} cannot be read whole",
                code=WireCode.MAP_UNREADABLE,
                where=f"{names.map_topic(self._flow)}:{partition}, offset {offset}",
                seen=why,
                resolve="run the newest Onceover that has written this flow",
            )

    def each_refresh(
        self, partitions: list[int] | None = None, *, settled: bool = False, settle_s: float | None = None
    ) -> dict[int, OnceoverError]:
        """Do the same, for those who do not need them all; return why some were not read: the others were.

        Single records that cannot be read are left out, with what they may have changed.

        Args:
            settle_s: how long an open transaction is waited for, in each partition, as in ``MapTopic.read``.

        Raises:
            Retriable: the target is away.
            UsageError: the index cannot be kept in ``home``, or the topic may not be read.
        """
        failed: dict[int, OnceoverError] = {}
        for _ in self._refreshing(partitions, settled=settled, failed=failed, settle_s=settle_s):
            pass
        return failed

    def refreshing(self, partitions: list[int] | None = None, *, settled: bool = False) -> Iterator[None]:
        """Do as ``each_refresh`` with records that cannot be read, in steps of well below a second."""
        return self._refreshing(partitions, settled=settled, failed=None)

    def _refreshing(
        self,
        partitions: list[int] | None,
        *,
        settled: bool,
        failed: dict[int, OnceoverError] | None,
        settle_s: float | None = None,
    ) -> Iterator[None]:
        """Read; what cannot be read is noted in ``failed``, where that is given, and raised otherwise."""
        damage: StoreDamaged | None = None
        changed: list[int] = []
        for _ in range(_ATTEMPTS):
            changed.clear()
            if failed is not None:
                failed.clear()
            try:
                yield from self._read(partitions, changed, settled=settled, failed=failed, settle_s=settle_s)
            except StoreDamaged as seen:
                if damage is not None:
                    raise self._unusable(seen) from seen
                damage = seen
                self.discard(seen)
            else:
                if not changed:
                    return
        error = Retriable(f"the log of the offset map of {self._flow} changes again and again")
        if failed is None:
            raise error
        failed.update(dict.fromkeys(changed, error))

    def discard(self, damage: StoreDamaged) -> None:
        """Remove the store; the next ``refresh`` builds another one.

        Raises:
            UsageError: what is in the file's place cannot be removed.
        """
        log.warning("the index of the offset map of %s is built anew: %s", self._flow, damage)
        self.close()
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                raise self._unusable(error) from damage

    def _read(
        self,
        partitions: list[int] | None,
        changed: list[int],
        *,
        settled: bool,
        failed: dict[int, OnceoverError] | None,
        settle_s: float | None,
    ) -> Iterator[None]:
        topic = self._target.retry(lambda: MapTopic.find(self._target, self._flow))
        if topic is None:
            self.close()
            return
        store = self._open(topic.topic_id)
        known = topic.info.partitions
        wanted = [p for p in (sorted(known) if partitions is None else partitions) if p in known]
        bounds = answers_in_time(
            self._target.retry,
            wanted,
            lambda some: topic.each_bounds(some, settled=settled),
            Deadline(DEFAULT_TIMEOUT_S if failed is None else _PATIENCE_S),
        )
        for partition, error in bounds.failed.items():
            _note(failed, partition, error)
        for partition, (start, end) in bounds.found.items():
            try:
                yield from _follow(store, topic, partition, start, end, settle_s)
            except MapChanged as change:
                log.info("%s", change)
                store.forget(partition)
                changed.append(partition)
            except OnceoverError as error:
                _note(failed, partition, error)

    # ---- files

    def _open(self, topic_id: UUID) -> MapStore:
        if self.store is None or topic_id != self._topic_id:
            self.close()
            self._path = None if self._folder is None else self._choose(self._folder, topic_id)
            self.store, self._topic_id = MapStore(self._path), topic_id
        return self.store

    def _choose(self, folder: Path, topic_id: UUID) -> Path:
        """Return the file to use: of several that were begun at the same time, all take the first.

        Names are never used twice: SQLite finds the journal of a killed process by its file's name, and
        would play one that belongs to a removed file into its successor.
        """
        prefix = f"v{_FORMAT}-{topic_id}-"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files = sorted(folder.glob(f"*{_SUFFIX}"))
            mine = [path for path in files if path.name.startswith(prefix)]
            chosen = mine[0] if mine else folder / f"{prefix}{secrets.token_hex(8)}{_SUFFIX}"
            for path in files:
                if path != chosen:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from error
        return chosen

    def _unusable(self, error: Exception) -> UsageError:
        return UsageError(
            f"the index of the offset map of {self._flow} cannot be kept",
            code=PositionCode.INDEX_UNUSABLE,
            where=str(self._folder or "a temporary file"),
            expected="a folder that can be written to, with nothing but files in it",
            seen=str(error),
            resolve="make room there, remove what is in the way, make the folder writable, or set another "
            "ONCEOVER_HOME",
        )


def _note(failed: dict[int, OnceoverError] | None, partition: int, error: OnceoverError) -> None:
    """Take note of what keeps one partition from being read; a missing right is the whole topic's."""
    if failed is None or not isinstance(error, Retriable | NeedsOperator):
        raise error
    failed[partition] = error


def _follow(
    store: MapStore, topic: MapTopic, partition: int, start: int, end: int, settle_s: float | None
) -> Iterator[None]:
    """Apply what is new in one partition of the topic, if its log is still the one that was read."""
    with store.snapshot():
        at, anchor = store.point(partition), store.anchor(partition)
    if at is not None and (anchor is None or anchor.offset < start):
        # Everything that was applied has expired from the topic.
        store.forget(partition)
        at = anchor = None
    if at is not None and at.offset >= end and not topic.holds(partition, at):
        # Where there is something to fetch, the fetch itself compares the epochs.
        raise MapChanged(partition)
    begin, proof = at or Point(start), None
    if at is not None and anchor is not None:
        begin, proof = at._replace(offset=anchor.offset), _Proof(at.offset, anchor)
        end = max(end, anchor.offset + 1)
    while begin.offset < end:
        for answer in topic.read({partition: begin}, {partition: end}, settle_s=settle_s, skip=True):
            chunk = answer if proof is None else proof.new_of(answer)
            if chunk.next_offset > (at or begin).offset:
                if not store.apply(chunk, at):
                    break  # another process has applied it
                at = Point(chunk.next_offset, chunk.epoch)
                for unread in chunk.unread:
                    say_unread(topic, partition, unread)
            yield
        at, proof = store.point(partition), None
        begin = at or Point(start)
    store.expire(partition, start)


class _Proof:
    """That a log which is read from ``anchor`` on is the one of which all before ``next_offset`` is known."""

    def __init__(self, next_offset: int, anchor: Anchor) -> None:
        self._next_offset = next_offset
        self._awaited: Anchor | None = anchor

    def new_of(self, chunk: Chunk) -> Chunk:
        """Return a chunk without what is known.

        Raises:
            MapChanged: the anchor is not there, or other records are behind it where none were.
        """
        known = [entry for entry in chunk.entries if entry.offset < self._next_offset]
        records = [entry for entry in known if entry.record is not None]
        if self._awaited is not None and chunk.next_offset > self._awaited.offset:
            if Anchor.last_of(records[:1]) != self._awaited:
                raise MapChanged(chunk.partition)
            self._awaited, records = None, records[1:]
        if records:
            raise MapChanged(chunk.partition)
        return chunk._replace(
            entries=chunk.entries[len(known) :],
            unread=[unread for unread in chunk.unread if unread.offset >= self._next_offset],
        )
