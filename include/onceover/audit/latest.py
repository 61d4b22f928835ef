"""Compacted topics: the latest value of each key, which is all that compaction promises.

Invariant: what a log cleaner may do on either side, at any time, changes nothing here: earlier values of a
key go, and a tombstone goes after ``delete.retention.ms``, so that a key without a record and a key whose
latest record is a tombstone are the same. A record without a key cannot be in such a topic.

Memory grows with the number of keys, never with their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from onceover.audit.model import Compared, Digest, Finding, FindingKind, Range, Side
from onceover.audit.record import HASH_BYTES, Rec
from onceover.audit.sketch import Mark, differing, mark_of
from onceover.model import TopicPartition

_MASK: Final = (1 << 128) - 1


class _Latest(NamedTuple):
    """The latest record of a key; one that is not live is a tombstone."""

    offset: int
    mark: Mark
    live: bool


class LatestValues:
    """The latest record of each key of one partition, on one side.

    Args:
        timed: False when timestamps are not compared; the records are decoded with the same.
    """

    def __init__(self, *, timed: bool = True) -> None:
        self._timed = timed
        self._latest: dict[bytes, _Latest] = {}
        self._bytes = 0
        self._first = self._last = -1

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, records: Iterable[Rec]) -> None:
        """Add records; a later offset replaces an earlier one, in whatever order they come."""
        for record in records:
            mark = mark_of(record, timed=self._timed)
            self._keep(record.key_hash, _Latest(record.offset, mark, record.value is not None))
            self._bytes += len(record.key or b"") + len(record.value or b"")
            at_ms = record.timestamp_ms
            self._first = at_ms if self._first < 0 else min(self._first, at_ms)
            self._last = max(self._last, at_ms)

    def digest(self, of: Range, side: Side) -> Digest:
        """Return the digest of the keys that have a value.

        Keys have no order on a compacted log, so ``chain`` is a second sum here, of other hashes.
        """
        live = [latest.mark.content for latest in self._latest.values() if latest.live]
        total, again = sum(live) & _MASK, sum(map(_rehashed, live)) & _MASK
        compared = Compared.RECORDS
        return Digest(of, side, len(live), total, again, self._bytes, self._first, self._last, compared)

    def findings(
        self, target: LatestValues, pair: tuple[TopicPartition, TopicPartition]
    ) -> Iterator[Finding]:
        """Yield each key whose latest value differs on ``target``, in the order of the source.

        LOST: the latest record is not there; what an earlier one says may be. ALTERED: it is there, with
        another field. PHANTOM: the target has a value for a key that the source knows nothing of.
        """
        for key, here in sorted(self._latest.items(), key=_by_offset):
            there = target._latest.get(key)
            if there is None:
                if here.live:
                    yield _lost(pair, here, "the key is not on the target")
            elif (here.live or there.live) and here.mark.content != there.mark.content:
                yield _different(pair, here, there)
        for key, there in sorted(target._latest.items(), key=_by_offset):
            if there.live and key not in self._latest:
                yield _phantom(pair, there)

    def _keep(self, key: bytes, latest: _Latest) -> None:
        known = self._latest.get(key)
        if known is None or known.offset < latest.offset:
            self._latest[key] = latest


def _different(pair: tuple[TopicPartition, TopicPartition], here: _Latest, there: _Latest) -> Finding:
    fields = differing(here.mark, there.mark)
    # A record that was altered differs in one field; one that was not copied leaves an earlier one of the
    # same key to be seen, which is rarely of the same time.
    if "," in fields and there.mark.timestamp_ms <= here.mark.timestamp_ms:
        shown = "value" if there.live else "tombstone"
        return _lost(pair, here, f"the target shows an earlier {shown} of its key at offset {there.offset}")
    return Finding(
        FindingKind.ALTERED,
        pair[0],
        here.offset,
        pair[1],
        there.offset,
        fields,
        "latest record of its key",
        source_mark=str(here.mark),
        target_mark=str(there.mark),
    )


def _lost(pair: tuple[TopicPartition, TopicPartition], here: _Latest, seen: str) -> Finding:
    what = "latest value of its key" if here.live else "tombstone of its key"
    return Finding(
        FindingKind.LOST,
        pair[0],
        here.offset,
        pair[1],
        None,
        None,
        f"{what}; {seen}",
        source_mark=str(here.mark),
    )


def _phantom(pair: tuple[TopicPartition, TopicPartition], there: _Latest) -> Finding:
    return Finding(
        FindingKind.PHANTOM,
        pair[0],
        None,
        pair[1],
        there.offset,
        None,
        "a value of a key that the source does not have, or deleted before its tombstone was copied",
        target_mark=str(there.mark),
    )


def _by_offset(item: tuple[bytes, _Latest]) -> int:
    return item[1].offset


def _rehashed(content: int) -> int:
    plain = content.to_bytes(HASH_BYTES, "big")
    return int.from_bytes(blake2b(plain, digest_size=HASH_BYTES).digest(), "big")
