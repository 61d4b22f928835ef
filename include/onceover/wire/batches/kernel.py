"""The compiled half of the record codec (kernel.c), called by ctypes; everything here may answer None.

None says: not me. The library is not there, or it met what is wrong or rare. Then the Python code does the
same work, which also words the errors (docs/adr/0014).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from onceover.compiled import address, functions
from onceover.wire.batches.batch import HEADER_BYTES, BatchHeader, parse_header

SOURCE: Final = Path(__file__).with_name("kernel.c")
# Of what is passed and given back: kernel.c says the same number.
ABI: Final = 2
# By how much a record may grow when it is written anew, and the least that it takes: length, attributes and
# two deltas, in five, one, ten and five bytes at most, in one each at least.
_GROWTH_BYTES: Final = 17
_LEAST_BYTES: Final = 4
# Of LZ4: what a block may take beside its record, whose new head may be longer, which is still less than a
# batch's header; a frame's head and end; the largest block, and so the largest record, that is handled.
_BLOCK_BYTES: Final = 16
FRAME_BYTES: Final = 11
_LARGEST_BLOCK_BYTES: Final = 1 << 16
# How many runs are asked for at once.
_ROWS: Final = 64

_Pointer: TypeAlias = ctypes.c_void_p
_Int: TypeAlias = ctypes.c_int64
_SIGNATURES: Final = {
    "onceover_crc32c": (ctypes.c_uint32, (_Pointer, _Int, ctypes.c_int32)),
    "onceover_rewrite": (
        ctypes.c_int32,
        (_Pointer, _Int, _Pointer, _Int, _Int, _Pointer, _Int, _Pointer, _Int, _Pointer),
    ),
    "onceover_merge": (
        ctypes.c_int32,
        (_Pointer, _Int, _Int, _Int, _Pointer, _Int, _Pointer, _Int, _Pointer, _Int, _Pointer),
    ),
    "onceover_runs": (_Int, (_Pointer, _Int, _Int, _Int, _Int, _Pointer, _Pointer, _Int)),
}


class Policy(NamedTuple):
    """Which neighbouring batches are worth merging.

    Args:
        tiny_records: of a batch that is tiny, with ``tiny_bytes``; plain or of lz4.
        small_bytes: of a plain batch that is merged as well.
        merge_from: batches in a run.
        packed_bytes: of a run, where some of it is compressed; ``plain_bytes`` where nothing is.
    """

    tiny_records: int
    tiny_bytes: int
    small_bytes: int
    merge_from: int
    packed_bytes: int
    plain_bytes: int


class RunFacts(NamedTuple):
    """A run of batches in an answer: where it begins and ends, and its last batch.

    Args:
        batches: with records; the first of a run has some. The rest is of these:
        records: how many, as their headers say; a quarter of their bytes at most, or eight each.
        packed: how many batches are compressed, in LZ4.
        lowest: of their timestamps, as the headers say.
    """

    start: int
    end: int
    last: int
    batches: int
    records: int
    payload_bytes: int
    packed: int
    lowest: int

    @property
    def single(self) -> bool:
        """True where each batch is one record in LZ4."""
        return self.batches == self.records == self.packed


_COLUMNS: Final = len(RunFacts._fields)


class Made(NamedTuple):
    """Records written anew.

    Args:
        batch: room for a header, and their bytes, which are not compressed.
        codec: of what they were taken from, the strongest.
        runs: as (first source offset, count).
    """

    batch: bytearray
    count: int  # nobody counts items of it
    base_timestamp: int
    max_timestamp: int
    codec: int
    runs: list[tuple[int, int]]


@cache
def kernel() -> ctypes.CDLL | None:
    """Return the library; None where this machine has none."""
    return functions(SOURCE, ABI, "records are copied by Python alone, which is slower", _SIGNATURES)


class _Into:
    """Where records are written to, and what is told of them."""

    def __init__(self, room_bytes: int, records: int) -> None:
        self._batch = bytearray(HEADER_BYTES + room_bytes)
        self._runs = bytearray(16 * records)
        self._made = (_Int * 6)()
        # As the last arguments of a call.
        self.arguments: Final = (
            address(self._batch) + HEADER_BYTES,
            room_bytes,
            address(self._runs),
            records,
            self._made,
        )

    def taken(self) -> Made:
        """Return what was written, without the room that was not needed."""
        size_bytes, count, base_timestamp, max_timestamp, runs, codec = self._made
        del self._batch[HEADER_BYTES + size_bytes :]
        numbers = iter(memoryview(self._runs).cast("q")[: 2 * runs].tolist())
        return Made(
            self._batch, count, base_timestamp, max_timestamp, codec, list(zip(numbers, numbers, strict=True))
        )


def rewritten(header: BatchHeader, payload: bytes, from_offset: int, to_offset: int) -> Made | None:
    """Return the records of a decompressed batch from one offset to before another."""
    compiled = kernel()
    if compiled is None or not 0 < header.count <= len(payload) // _LEAST_BYTES:
        return None
    batch = (_Int * 6)(
        header.base_offset,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.count,
    )
    into = _Into(len(payload) + _GROWTH_BYTES * header.count, header.count)
    refused = compiled.onceover_rewrite(payload, len(payload), batch, from_offset, to_offset, *into.arguments)
    return None if refused else into.taken()


def merged(batches: memoryview, facts: RunFacts, from_offset: int, most_bytes: int) -> Made | None:
    """Return the records of a run of neighbouring batches from an offset on; checksums are compared.

    Args:
        batches: the run as it lies in the receive buffer.
        most_bytes: that may come out, and that what is compressed may expand to.
    """
    room_bytes = most_bytes if facts.packed else facts.payload_bytes + _GROWTH_BYTES * facts.records
    scratch_bytes = most_bytes if facts.packed else 1
    return _made_one(batches, facts, from_offset, 0, scratch_bytes, min(room_bytes, most_bytes))


def spliced(batches: memoryview, facts: RunFacts, from_offset: int, most_bytes: int) -> Made | None:
    """Return what ``merged`` does as a frame of LZ4, in which each record stays as compressed as it was.

    Only of runs that are ``single``. Nothing is compressed anew but what comes before a record's
    content, so that it costs a fraction; what repeats from record to record is not made use of.
    """
    room_bytes = facts.payload_bytes + _BLOCK_BYTES * facts.records + FRAME_BYTES
    return _made_one(batches, facts, from_offset, most_bytes, _LARGEST_BLOCK_BYTES, room_bytes)


def _made_one(
    batches: memoryview, facts: RunFacts, from_offset: int, spliced: int, scratch_bytes: int, room_bytes: int
) -> Made | None:
    compiled = kernel()
    if compiled is None or batches.readonly:
        return None
    scratch = bytearray(scratch_bytes)
    into = _Into(room_bytes, facts.records)
    refused = compiled.onceover_merge(
        *(address(batches), len(batches), from_offset, spliced, address(scratch), scratch_bytes),
        *into.arguments,
    )
    return None if refused else into.taken()


def runs(records: memoryview, position: int, policy: Policy) -> Iterator[RunFacts]:
    """Yield runs of batches that are worth merging, in their order, of a Fetch that aborted nothing.

    The search ends at what does not follow from what is before it: behind the last run anything may come.

    Args:
        position: the next offset wanted.
    """
    compiled = kernel()
    if compiled is None or records.readonly or len(records) < HEADER_BYTES:
        return
    wanted = (_Int * len(policy))(*policy)
    at, reached = 0, -1
    while True:
        rows = (_Int * (_ROWS * _COLUMNS))()
        found = compiled.onceover_runs(
            address(records), len(records), at, position, reached, wanted, rows, _ROWS
        )
        for number in range(found):
            facts = RunFacts(*rows[number * _COLUMNS : (number + 1) * _COLUMNS])
            at, reached = facts.end, parse_header(records, facts.last).next_offset
            yield facts
        if found < _ROWS:
            return
