"""Changing records in a broker's own log files: checksums are right again, so that only content tells."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import crc32c

from onceover.audit.records.batches import walk
from tests.support.raw.mutations import Content
from tests.unit.audit.stored import stored

# Of a batch's header (KIP-98).
_HEADER_BYTES: Final = 61
_LENGTH, _CHECKED, _COUNT = 8, 21, 57
_TIMES: Final = slice(27, 43)

# Records of a batch, each with its offset within it; what is returned is written instead.
Records = list[tuple[int, Content]]


def alter(records: Records) -> Records:
    """One record has another value."""
    (delta, was), *rest = records
    return [(delta, was._replace(value=b"altered")), *rest]


def remove(records: Records) -> Records:
    """One record is gone."""
    return records[1:]


def swap(records: Records) -> Records:
    """Two records have changed places."""
    (one, first), (other, second), *rest = records
    return [(one, second), (other, first), *rest]


def double(records: Records) -> Records:
    """One record stands where the next one was, too."""
    (one, first), (other, _), *rest = records
    return [(one, first), (other, first), *rest]


def change_first_batch(folder: Path, change: Callable[[Records], Records]) -> None:
    """Change the first batch with two records or more in a stopped broker's partition folder."""
    for path in sorted(folder.glob("*.log")):
        if _change_segment(path, change):
            return
    raise AssertionError(f"no batch with two records in {folder}")


def _change_segment(path: Path, change: Callable[[Records], Records]) -> bool:
    log, place = path.read_bytes(), 0
    for batch in walk(memoryview(log)):
        if not batch.is_control and batch.records > 1:
            old = bytes(batch.data)
            recs = [
                (rec.offset - batch.base_offset, Content(rec.key, rec.value, rec.headers, rec.timestamp_ms))
                for rec in batch.decode()
            ]
            path.write_bytes(log[:place] + _rebuilt(old, change(recs)) + log[place + len(old) :])
            return True
        place += batch.size_bytes
    return False


def _rebuilt(old: bytes, records: Sequence[tuple[int, Content]]) -> bytes:
    """Return a batch with other records and the rest of its header, uncompressed."""
    new = stored([content for _, content in records], deltas=[delta for delta, _ in records])
    data = bytearray(old[:_HEADER_BYTES] + new[_HEADER_BYTES:])
    (attributes,) = struct.unpack_from(">h", old, _CHECKED)
    struct.pack_into(">h", data, _CHECKED, attributes & ~0x07)
    data[_TIMES] = new[_TIMES]
    struct.pack_into(">i", data, _COUNT, len(records))
    struct.pack_into(">i", data, _LENGTH, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c.crc32c(data[_CHECKED:]))
    return bytes(data)
