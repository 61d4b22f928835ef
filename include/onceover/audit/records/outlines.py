"""Many records at once by compiled code: where their fields lie, their hashes, which are the same.

Invariant: what is known of a record is what Python finds in it, and its hash is ``record_hash``. Whatever is
wrong or rare is not outlined: Python reads it, and words the errors (docs/adr/0014). The copy's kernel shares
nothing with it (G9).
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from onceover.audit.records import fields
from onceover.audit.records.recordhash import HASH_BYTES, AuditedRecord
from onceover.compiled import address, functions

SOURCE: Final = Path(__file__).with_name("outlines.c")
# Of what is passed and given back: outlines.c says the same number.
ABI: Final = 1
# As Outline in outlines.c: so many numbers, of eight bytes.
_COLUMNS: Final = 9
_ROW_BYTES: Final = 8 * _COLUMNS
# As Totals there.
_TOTALS: Final = 6
_END: Final = 8
# At once, so that memory is bounded however short records are.
MOST_RECORDS: Final = 1024
_LOW_HALF: Final = (1 << 64) - 1

_Pointer: TypeAlias = ctypes.c_void_p
_Int: TypeAlias = ctypes.c_int64
_Totals: Final = _Int * _TOTALS
_BothTotals: Final = _Int * (2 * _TOTALS)
_SIGNATURES: Final = {
    "onceover_outlines": (
        _Int,
        (_Pointer, _Int, _Int, _Int, _Int, _Int, _Int, ctypes.c_int32, _Pointer, _Int),
    ),
    "onceover_hashes": (None, (_Pointer, _Pointer, _Int, ctypes.c_int32, _Pointer, _Pointer)),
    "onceover_agree": (
        _Int,
        (_Pointer, _Pointer, _Pointer, _Pointer, _Int, ctypes.c_int32, _Pointer, _Pointer),
    ),
}


class BatchNumbers(NamedTuple):
    """What a batch says of all its records; ``log_append`` when ``max_timestamp_ms`` is everybody's."""

    base_offset: int
    last_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    log_append: bool


class Hashed(NamedTuple):
    """Records one behind the other, as a digest needs to know them.

    Args:
        hashes: one behind the other.
        payload_bytes: of keys and values.
        first_ms: the smallest timestamp behind the last negative one; that, where nothing is behind it.
        last_ms: the largest.
        negative: 1 when a timestamp is.
        sum: of the hashes, as numbers, give or take any number of 2**128.
    """

    hashes: bytes
    payload_bytes: int
    first_ms: int
    last_ms: int
    negative: int
    sum: int

    @property
    def records(self) -> int:
        """How many."""
        return len(self.hashes) // HASH_BYTES


@cache
def kernel() -> ctypes.CDLL | None:
    """Return the library; None where this machine has none."""
    return functions(SOURCE, ABI, "records are compared by Python alone, which is slower", _SIGNATURES)


class OutlinedRecords:
    """Records one behind the other, not made yet; from the first on they are taken, or passed by.

    Offsets increase. Memory: the expanded bytes that they lie in, and 72 bytes each.

    Args:
        compiled: the library.
        window: what they lie in.
        rows: where their fields lie, as ``outlines.c`` has it.
        count: how many there are.
        timed: False leaves timestamps out of hashes and comparison.
    """

    __slots__ = (
        "_address",
        "_at",
        "_compiled",
        "_count",
        "_hashed_from",
        "_hashes",
        "_last",
        "_numbers",
        "_timed",
        "_window",
    )

    def __init__(
        self, compiled: ctypes.CDLL, window: bytes, rows: bytearray, count: int, timed: bool
    ) -> None:
        self._compiled = compiled
        self._window = window
        self._numbers = memoryview(rows).cast("q")
        self._address = address(rows)
        self._count = count
        self._timed = timed
        self._last = self._offset(count - 1)
        self._at = 0
        self._hashes = b""
        self._hashed_from = 0

    def __len__(self) -> int:
        """How many are left."""
        return self._count - self._at

    @property
    def end(self) -> int:
        """Where the last one ends in the window."""
        return self._numbers[_COLUMNS * (self._count - 1) + _END]

    def before(self, offset: int) -> int:
        """Return how many of those that are left lie before an offset."""
        if self._last < offset:
            return self._count - self._at
        return bisect_left(range(self._at, self._count), offset, key=self._offset)

    def pass_by(self, count: int) -> None:
        """Go behind so many of those that are left."""
        self._at += count

    def take(self) -> AuditedRecord:
        """Make the next record, and go behind it."""
        if not self._hashes:
            self._hashes, self._hashed_from = self.hashed(len(self)).hashes, self._at
        offset, stamp, key, key_bytes, value, value_bytes, headers, count, _ = self._numbers[
            _COLUMNS * self._at : _COLUMNS * (self._at + 1)
        ].tolist()
        begin = HASH_BYTES * (self._at - self._hashed_from)
        self._at += 1
        return AuditedRecord(
            offset,
            None if key_bytes < 0 else self._window[key : key + key_bytes],
            None if value_bytes < 0 else self._window[value : value + value_bytes],
            fields.headers(self._window, headers, count)[0] if count else (),
            stamp,
            self._hashes[begin : begin + HASH_BYTES],
        )

    def hashed(self, count: int) -> Hashed:
        """Return what a digest needs of so many of the next records, of one at least."""
        hashes, totals = bytearray(HASH_BYTES * count), _Totals()
        self._compiled.onceover_hashes(self._window, self._next, count, self._timed, address(hashes), totals)
        return _hashed(bytes(hashes), *totals)

    def agreed(self, other: OutlinedRecords, count: int) -> tuple[Hashed, Hashed] | None:
        """Return of both sides those of the next records that are the same for certain, ``count`` at most.

        None says nothing: records may be the same, and have their headers written in other bytes. Either both
        leave timestamps out, or none does.
        """
        room, totals = bytearray(HASH_BYTES * count), _BothTotals()
        agreed = self._compiled.onceover_agree(
            *(self._window, self._next, other._window, other._next),
            *(count, self._timed, address(room), totals),
        )
        if not agreed:
            return None
        hashes = bytes(memoryview(room)[: HASH_BYTES * agreed])
        return _hashed(hashes, *totals[:_TOTALS]), _hashed(hashes, *totals[_TOTALS:])

    @property
    def _next(self) -> int:
        return self._address + _ROW_BYTES * self._at

    def _offset(self, index: int) -> int:
        return self._numbers[_COLUMNS * index]


def outlined(window: bytes, at: int, batch: BatchNumbers, most: int, timed: bool) -> OutlinedRecords | None:
    """Return the next records of a window, ``most`` at most; None where Python has to look.

    Args:
        window: expanded bytes of a batch.
        at: where the next record begins; the last one may be cut off.
        batch: whose they are.
        timed: False leaves timestamps out of hashes and comparison.
    """
    compiled = kernel()
    if compiled is None:
        return None
    room = min(most, MOST_RECORDS)
    rows = bytearray(_ROW_BYTES * room)
    count = compiled.onceover_outlines(window, len(window), at, *batch, address(rows), room)
    return OutlinedRecords(compiled, window, rows, count, timed) if count else None


def _hashed(
    hashes: bytes, payload_bytes: int, first_ms: int, last_ms: int, negative: int, high: int, low: int
) -> Hashed:
    # Handed over as signed numbers.
    total = (high << 64) + (low & _LOW_HALF)
    return Hashed(hashes, payload_bytes, first_ms, last_ms, negative, total)
