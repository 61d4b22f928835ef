"""The offset map in a local SQLite file: applied in log order, looked up in milliseconds.

Invariant: the rows of a pair do not contradict each other and are in order on both sides, whichever form
of the topic's records they were built from: single ones, merged ones, or both while old parts wait for
the broker's compaction. A row that is damaged is never answered from (``StoreDamaged``).

The file is a hint (G4): the topic holds everything that is in it.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from onceover.errors import NeedsOperator, Retriable
from onceover.model import TopicPartition
from onceover.positions.reader import Chunk, MapEntry, Point, Unread
from onceover.wire.offsetlookup import Covered, clipped
from onceover.wire.offsetmap import MapKey, MapRecord, decode_map_value, encode_map_key, encode_map_value

# Two processes bring the same file up to date at once: one waits for the other's write.
_BUSY_S: Final = 30.0
_PRIVATE: Final = ""  # SQLite's name for a database of this connection alone, on disk when it grows

_SCHEMA: Final = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS point (
    partition INTEGER PRIMARY KEY, next_offset INTEGER, epoch INTEGER,
    anchor_offset INTEGER, anchor_crc INTEGER
);
CREATE TABLE IF NOT EXISTS pair (
    id INTEGER PRIMARY KEY, partition INTEGER,
    source_topic TEXT, source_partition INTEGER, target_topic TEXT, target_partition INTEGER,
    UNIQUE (source_topic, source_partition, target_topic, target_partition)
);
CREATE INDEX IF NOT EXISTS pair_target ON pair (target_topic, target_partition);
CREATE TABLE IF NOT EXISTS record (
    pair INTEGER, partition INTEGER, log_offset INTEGER, generation INTEGER,
    source_start INTEGER, source_end INTEGER, target_start INTEGER, target_end INTEGER,
    value BLOB, crc INTEGER,
    UNIQUE (pair, source_start)
);
CREATE INDEX IF NOT EXISTS record_source_end ON record (pair, source_end);
CREATE INDEX IF NOT EXISTS record_target_end ON record (pair, target_end, source_end);
CREATE TABLE IF NOT EXISTS unread (
    partition INTEGER, log_offset INTEGER, pair INTEGER, source_start INTEGER, why TEXT
);
CREATE INDEX IF NOT EXISTS record_log ON record (partition, log_offset);
PRAGMA user_version = 1;
COMMIT;
"""
_INSERT: Final = """
INSERT INTO record (pair, partition, log_offset, generation,
    source_start, source_end, target_start, target_end, value, crc)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# Upkeep merges nothing that a newer generation contradicts, so only what was there before has to give way.
# +generation: by offset, where there is hardly ever anything, not through all records of older generations.
_CONTRADICTED: Final = """
SELECT log_offset, source_start, source_end, target_start, target_end, value, crc FROM record
WHERE pair = ? AND +generation < ? AND source_end > ?
UNION
SELECT log_offset, source_start, source_end, target_start, target_end, value, crc FROM record
WHERE pair = ? AND +generation < ? AND target_end > ?
"""
_PAIRS: Final = """
SELECT id, source_topic, source_partition, target_topic, target_partition FROM pair
WHERE (?1 IS NULL OR (source_topic = ?1 AND source_partition = ?2))
  AND (?3 IS NULL OR (target_topic = ?3 AND target_partition = ?4))
  AND (EXISTS (SELECT 1 FROM record WHERE pair = id) OR EXISTS (SELECT 1 FROM unread WHERE pair = id))
ORDER BY id
"""
_ALL: Final = """
SELECT source_start, source_end, target_start, target_end, value, crc FROM record
WHERE pair = ? AND +generation >= ? AND source_end > ? ORDER BY source_end
"""
_FIRST: Final = """
SELECT min(first) FROM (
    SELECT min(log_offset) AS first FROM record WHERE partition = ?1
    UNION ALL SELECT min(log_offset) FROM unread WHERE partition = ?1
)
"""
_EXPIRE: Final = (
    "DELETE FROM record WHERE partition = ? AND log_offset < ?",
    "DELETE FROM unread WHERE partition = ? AND log_offset < ?",
)
_FORGET: Final = (
    "DELETE FROM record WHERE partition = ?",
    "DELETE FROM unread WHERE partition = ?",
    "DELETE FROM point WHERE partition = ?",
)
# Behind an unread record of a pair there is only what was written later (``_skip``).
_HIDES_THE_END: Final = """
SELECT 1 FROM unread WHERE pair = ?1 AND NOT EXISTS (
    SELECT 1 FROM record WHERE pair = ?1 AND +generation >= ?2 AND source_end > unread.source_start
)
"""
_PAGE: Final = 200


class _Walks(NamedTuple):
    """Queries for the records of a pair that end above an offset, and at or below it, the nearest first."""

    above: str
    below: str


_BY_SOURCE: Final = _Walks(
    _ALL,
    """
SELECT source_start, source_end, target_start, target_end, value, crc FROM record
WHERE pair = ? AND +generation >= ? AND source_end <= ? ORDER BY source_end DESC
""",
)
_BY_TARGET: Final = _Walks(
    """
SELECT source_start, source_end, target_start, target_end, value, crc FROM record
WHERE pair = ? AND +generation >= ? AND target_end > ? ORDER BY target_end, source_end
""",
    """
SELECT source_start, source_end, target_start, target_end, value, crc FROM record
WHERE pair = ? AND +generation >= ? AND target_end <= ? ORDER BY target_end DESC, source_end DESC
""",
)


class StoreDamaged(Exception):
    """The file does not hold what was written to it: build it anew."""


class PairRow(NamedTuple):
    """A pair of partitions and its number in the store.

    ``since``: the first generation that speaks of the topics as they are now; older ones are left out.
    """

    id: int
    source: TopicPartition
    target: TopicPartition
    since: int = 0


class Anchor(NamedTuple):
    """The last record of a partition of the topic that was applied, by which its log is known again.

    Leader epochs alone do not tell: a log that was put back from an older copy counts on with the same ones.
    """

    offset: int
    crc: int

    @classmethod
    def last_of(cls, entries: Sequence[MapEntry]) -> Anchor | None:
        """Return that of the last record; removals do not count, as the topic forgets them."""
        for offset, key, record in reversed(entries):
            if record is not None:
                return cls(offset, zlib.crc32(encode_map_value(record), zlib.crc32(encode_map_key(key))))
        return None


class MapStore:
    """One SQLite database. Not thread-safe; other processes may use the same file at the same time.

    Args:
        path: the file, created when missing; None for a private one that is gone with the connection.

    Raises:
        StoreDamaged: the file is no such database, or no file.
    """

    def __init__(self, path: Path | None) -> None:
        name = _PRIVATE if path is None else str(path)
        with _checked():
            self._db = sqlite3.connect(name, timeout=_BUSY_S, isolation_level=None)
        self._pairs: dict[tuple[TopicPartition, TopicPartition], int] = {}
        try:
            if self._one("PRAGMA user_version") == (0,):
                with _checked():
                    self._db.executescript(_SCHEMA)
        except StoreDamaged:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # ---- bringing it up to date

    def point(self, partition: int) -> Point | None:
        """Return up to where a partition of the topic was applied, None when it was never."""
        row = self._one("SELECT next_offset, epoch FROM point WHERE partition = ?", partition)
        return None if row is None else Point(*row)

    def anchor(self, partition: int) -> Anchor | None:
        """Return the last record that was applied of a partition, None when there was none yet."""
        row = self._one(
            "SELECT anchor_offset, anchor_crc FROM point WHERE partition = ? AND anchor_offset NOT NULL",
            partition,
        )
        return None if row is None else Anchor(*row)

    def apply(self, chunk: Chunk, after: Point | None) -> bool:
        """Apply what one answer brought, whole or, on any failure, not at all.

        Args:
            after: the point that the chunk follows.

        Returns:
            False when another process was faster: read on from the new point.
        """
        with self._transaction():
            if self.point(chunk.partition) != after:
                return False
            both: list[Iterable[MapEntry | Unread]] = [chunk.entries, chunk.unread]
            for entry in merge(*both, key=attrgetter("offset")):
                if isinstance(entry, Unread):
                    self._skip(chunk.partition, entry)
                else:
                    self._apply(chunk.partition, entry)
            anchor = Anchor.last_of(chunk.entries) or self.anchor(chunk.partition) or (None, None)
            self._db.execute(
                "INSERT OR REPLACE INTO point VALUES (?, ?, ?, ?, ?)",
                (chunk.partition, chunk.next_offset, chunk.epoch, *anchor),
            )
        return True

    def expire(self, partition: int, log_start: int) -> None:
        """Forget what the topic has forgotten: records before its first offset."""
        first = self._one(_FIRST, partition)
        if first is not None and first[0] is not None and first[0] < log_start:
            with self._transaction():
                for table in _EXPIRE:
                    self._db.execute(table, (partition, log_start))

    def forget(self, partition: int) -> None:
        """Begin a partition of the topic anew."""
        with self._transaction():
            for table in _FORGET:
                self._db.execute(table, (partition,))

    def _apply(self, partition: int, entry: MapEntry) -> None:
        pair = self._pair_id(entry.key, partition)
        start = entry.key.source_start
        self._db.execute("DELETE FROM record WHERE pair = ? AND source_start = ?", (pair, start))
        self._db.execute("DELETE FROM unread WHERE pair = ? AND source_start = ?", (pair, start))
        record = entry.record
        if record is None:
            return
        # The parts of a merged record, also those whose removal the topic itself has forgotten.
        self._db.execute(
            "DELETE FROM record WHERE pair = ? AND source_start > ? AND source_start < ? AND generation = ?",
            (pair, start, record.source_end, record.generation),
        )
        self._cut_older(pair, partition, record)
        self._put(pair, partition, entry.offset, record)

    def _skip(self, partition: int, unread: Unread) -> None:
        """Leave a record out, and what it may have changed: its pair from its start on.

        Whether it begins there again (a newer generation) or merges what stands there is in what cannot be
        read, and so is how far it goes. What comes later in the log is newer, and counts.
        """
        key = unread.key
        pair = None if key is None else self._pair_id(key, partition)
        self._db.execute(
            "INSERT INTO unread VALUES (?, ?, ?, ?, ?)",
            (partition, unread.offset, pair, key and key.source_start, str(unread.error)),
        )
        if key is None:
            return
        for log_offset, *row in self._all(
            "SELECT log_offset, source_start, source_end, target_start, target_end, value, crc "
            "FROM record WHERE pair = ? AND source_end > ?",
            pair,
            key.source_start,
        ):
            old = _decoded(key.source, key.target, row)
            self._db.execute(
                "DELETE FROM record WHERE pair = ? AND source_start = ?", (pair, old.source_start)
            )
            left = clipped(old, key.source_start, old.target_end)
            if left is not None:
                self._put(self._pair_id(key, partition), partition, log_offset, left)

    def _cut_older(self, pair: int, partition: int, record: MapRecord) -> None:
        """Cut what older generations say of offsets that ``record`` begins again (``arrange``)."""
        older = (pair, record.generation)
        for log_offset, *row in self._all(
            _CONTRADICTED, *older, record.source_start, *older, record.target_start
        ):
            old = _decoded(record.source, record.target, row)
            self._db.execute(
                "DELETE FROM record WHERE pair = ? AND source_start = ?", (pair, old.source_start)
            )
            left = clipped(old, record.source_start, record.target_start)
            if left is not None:
                self._put(pair, partition, log_offset, left)

    def _put(self, pair: int, partition: int, log_offset: int, record: MapRecord) -> None:
        value = encode_map_value(record)
        shape = (record.source_start, record.source_end, record.target_start, record.target_end)
        at = (pair, partition, log_offset, record.generation)
        self._db.execute(_INSERT, (*at, *shape, value, _crc(shape, value)))

    def _pair_id(self, key: MapKey, partition: int) -> int:
        known = self._pairs.get((key.source, key.target))
        if known is not None:
            return known
        names = (*key.source, *key.target)
        self._db.execute("INSERT OR IGNORE INTO pair VALUES (NULL, ?, ?, ?, ?, ?)", (partition, *names))
        row = self._one(
            "SELECT id FROM pair WHERE source_topic = ? AND source_partition = ? "
            "AND target_topic = ? AND target_partition = ?",
            *names,
        )
        if row is None:
            raise StoreDamaged("a pair is missing that was just written")
        self._pairs[key.source, key.target] = row[0]
        return row[0]

    # ---- looking up

    def pairs(
        self, *, source: TopicPartition | None = None, target: TopicPartition | None = None
    ) -> list[PairRow]:
        """Return the pairs that have records, or unread ones, of a source or target partition where named."""
        rows = self._all(_PAIRS, *(source or (None, None)), *(target or (None, None)))
        return [PairRow(i, TopicPartition(s, sp), TopicPartition(t, tp)) for i, s, sp, t, tp in rows]

    def around(self, pair: PairRow, offset: int, *, back: bool) -> list[MapRecord]:
        """Return the neighbouring records that decide what ``offset`` translates to, in order.

        Args:
            back: ``offset`` is the target's.
        """
        walks = _BY_TARGET if back else _BY_SOURCE
        above: list[MapRecord] = []
        below: list[MapRecord] = []
        with self.snapshot():
            for record in self._walk(pair, walks.above, offset):
                broken = bool(above) and not above[-1].joins(record)
                above.append(record)
                last = record.segments[-1] if record.segments else None
                if broken or (last and (last.target_end if back else last.source_end) > offset):
                    break
            for record in self._walk(pair, walks.below, offset):
                following = below[-1] if below else above[0] if above else None
                below.append(record)
                if record.segments or (following is not None and not record.joins(following)):
                    break
        return [*reversed(below), *above]

    def records(self, pair: PairRow) -> Iterator[MapRecord]:
        """Yield all records of a pair, in order.

        In portions, between which other processes may write: a caller that needs one state of the store
        takes a ``snapshot``.
        """
        after = -1
        while page := list(islice(self._walk(pair, _ALL, after), _PAGE)):
            yield from page
            after = page[-1].source_end

    def unread(self) -> list[tuple[int, int, str]]:
        """Return what was left out as nobody can read it: partition of the topic, offset in it, and why."""
        return [
            (partition, offset, why)
            for partition, offset, why in self._all(
                "SELECT partition, log_offset, why FROM unread ORDER BY 1, 2"
            )
        ]

    def has_unread(self, pair: PairRow) -> bool:
        """Tell whether a record of the pair was left out."""
        return self._one("SELECT 1 FROM unread WHERE pair = ?", pair.id) is not None

    def ends_unread(self, pair: PairRow) -> bool:
        """Tell whether the pair goes on behind its last record with one that was left out."""
        return self._one(_HIDES_THE_END, pair.id, pair.since) is not None

    def span(self, pair: PairRow) -> tuple[int, int, int, int] | None:
        """Return first source, end source, first target and end target offset; None without records."""
        row = self._one(
            "SELECT min(source_start), max(source_end), min(target_start), max(target_end) "
            "FROM record WHERE pair = ? AND +generation >= ?",
            pair.id,
            pair.since,
        )
        return None if row is None or row[0] is None else (row[0], row[1], row[2], row[3])

    def runs(self, pair: PairRow) -> list[Covered]:
        """Return what the pair covers of its source, a run for each stretch of one generation."""
        found: list[Covered] = []
        for start, end, generation in self._all(
            "SELECT source_start, source_end, generation FROM record "
            "WHERE pair = ? AND +generation >= ? ORDER BY source_end",
            pair.id,
            pair.since,
        ):
            if found and found[-1].end == start and found[-1].generation == generation:
                found[-1] = found[-1]._replace(end=end)
            else:
                found.append(Covered(start, end, generation))
        return found

    def _walk(self, pair: PairRow, query: str, offset: int) -> Iterator[MapRecord]:
        with _checked():
            cursor = self._db.execute(query, (pair.id, pair.since, offset))
            while (row := cursor.fetchone()) is not None:
                yield _decoded(pair.source, pair.target, row)

    # ---- SQLite

    def _one(self, query: str, *values: object) -> tuple[int, ...] | None:
        with _checked():
            row: tuple[int, ...] | None = self._db.execute(query, values).fetchone()
            return row

    def _all(self, query: str, *values: object) -> list[Any]:
        with _checked():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let what is read inside be one state of the store. For moments: writers wait for its end."""
        if self._db.in_transaction:
            yield
            return
        with _checked():
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _checked():
            # IMMEDIATE: the write lock first, so that what is read inside is what is written upon.
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                # Numbers of pairs that were new in it are not valid any more.
                self._pairs.clear()
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")


def _decoded(source: TopicPartition, target: TopicPartition, row: Sequence[Any]) -> MapRecord:
    *shape, value, crc = row
    if crc != _crc(shape, value):
        raise StoreDamaged(f"a row of {source} -> {target} is not what was written")
    try:
        return decode_map_value(MapKey(source, target, shape[0]), value)
    except NeedsOperator as error:
        raise StoreDamaged(str(error)) from error


def _crc(shape: Sequence[int], value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(repr(tuple(shape)).encode()))


@contextmanager
def _checked() -> Iterator[None]:
    """Turn SQLite's errors into ours.

    Raises:
        Retriable: another process writes for longer than anybody should.
        StoreDamaged: anything else: damaged, removed meanwhile, no space.
    """
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise Retriable(f"another process is writing the index of the offset map ({name})") from error
        raise StoreDamaged(f"{name or type(error).__name__}: {error}") from error
