"""Taking the payload out of a batch without taking more memory than there is.

Invariant: nothing is expanded beyond a ceiling. A batch that is too large as a whole comes in pieces, each a
whole number of records under a header of its own; whoever can deal with a batch can deal with a piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from onceover.wire.batches.batch import HEADER_BYTES, BatchHeader, BatchTooLarge, Buffer, CorruptBatch
from onceover.wire.batches.compression import NONE, decompress, decompress_chunks
from onceover.wire.batches.varint import MalformedVarint, decode_uvarint, decode_varint

# What Python needs for a record beside its bytes, roughly: a record of 7 bytes takes some 200 when it is
# taken apart, so bytes alone would say nothing about memory.
RECORD_BYTES: Final = 128
_LONGEST_VARINT: Final = 10
# However small the pieces: expanding asks a codec for no less at once. Byte by byte, a record of 1 MB took
# 135 MB and a second.
_LEAST_CHUNK_BYTES: Final = 64 << 10


class Ceiling(NamedTuple):
    """How much of a batch may be expanded at once, with ``RECORD_BYTES`` more for every record.

    Args:
        piece_bytes: of records together.
        record_bytes: of a single record, which cannot be had in pieces. A batch that was stored larger than
            this is in memory already and may be taken apart up to its own size.
    """

    piece_bytes: int
    record_bytes: int


# For what is read outside a lane: the flow's own topics, and a few records of others.
READERS: Final = Ceiling(4 << 20, 64 << 20)


class Unpacked(NamedTuple):
    """A batch's header and its decompressed records; or a piece of it, whose header names only its part."""

    header: BatchHeader
    payload: bytes


def unpack(header: BatchHeader, batch: Buffer, limit_bytes: int) -> Unpacked:
    """Return a batch, which starts with its 61-byte header, with its records decompressed.

    Args:
        limit_bytes: as of a piece.

    Raises:
        CorruptBatch: cut off, of an old format, or no stream of its codec.
        BatchTooLarge: it takes more.
    """
    room = limit_bytes - max(0, header.count) * RECORD_BYTES
    if room <= 0:
        raise too_large(header, _at_once(limit_bytes), f"{header.count} records")
    try:
        return Unpacked(header, decompress(header.codec, _payload(header, batch), room))
    except CorruptBatch as error:
        raise _corrupt(header, error.expected or "a whole batch", error.seen or "damage") from error
    except BatchTooLarge as error:
        raise too_large(header, _at_once(limit_bytes), error.seen or "more") from error


def unpack_pieces(header: BatchHeader, batch: Buffer, ceiling: Ceiling) -> Iterator[Unpacked]:
    """Yield a batch with its records decompressed, in pieces where the whole would be too large.

    Raises:
        CorruptBatch: as ``unpack``; pieces before the damage were yielded.
        BatchTooLarge: a record takes more than the ceiling; pieces before it were yielded.
    """
    record_bytes = max(ceiling.record_bytes, header.size_bytes)
    try:
        # Not kept here while the caller has it.
        yield unpack(header, batch, ceiling.piece_bytes)
        return
    except BatchTooLarge:
        pass
    yield from _Cutter(header, ceiling.piece_bytes, record_bytes).pieces(_payload(header, batch))


def _payload(header: BatchHeader, batch: Buffer) -> memoryview:
    if header.magic != 2 or len(batch) < header.size_bytes:
        raise _corrupt(
            header,
            f"magic 2 and {header.size_bytes} bytes",
            f"magic {header.magic}, {len(batch)} bytes",
        )
    return memoryview(batch)[HEADER_BYTES : header.size_bytes]


class _Cutter:
    """Cuts the records of one batch into pieces as they are expanded."""

    def __init__(self, header: BatchHeader, piece_bytes: int, record_bytes: int) -> None:
        self._header = header
        self._piece_bytes = piece_bytes
        self._chunk_bytes = max(piece_bytes, _LEAST_CHUNK_BYTES)
        self._record_bytes = record_bytes
        self._left = header.count
        self._last_delta = -1

    def pieces(self, payload: memoryview) -> Iterator[Unpacked]:
        header = self._header
        if not 0 < header.count <= header.last_offset_delta + 1:
            raise _corrupt(
                header, f"1 to {header.last_offset_delta + 1} records", f"a count of {header.count}"
            )
        chunks = decompress_chunks(header.codec, payload, self._chunk_bytes, self._record_bytes)
        try:
            yield from self._cut(chunks)
        except CorruptBatch as error:
            raise _corrupt(header, error.expected or "a whole batch", error.seen or "damage") from error
        except BatchTooLarge as error:
            raise too_large(header, _at_once(self._record_bytes), error.seen or "more") from error
        except MalformedVarint as error:
            raise _corrupt(header, f"{header.count} whole records", str(error)) from error

    def _cut(self, chunks: Iterator[bytes]) -> Iterator[Unpacked]:
        last: Unpacked | None = None
        rest: list[bytes] = []
        missing = 0
        for chunk in _joined(chunks, self._chunk_bytes):
            rest.append(chunk)
            missing -= len(chunk)
            if missing > 0:
                continue
            window, at = b"".join(rest), 0
            rest.clear()
            while self._left and (run := self._run(window, at)) is not None:
                piece = self._piece(window, at, run)
                at = run.end
                if self._left:
                    yield piece
                else:
                    # Kept back until it is known that nothing follows: then the whole batch is in order.
                    last = piece
            if last is not None and at < len(window):
                raise MalformedVarint("bytes left over after the last")
            rest, missing = [window[at:]], self._missing(window, at)
        if last is None:
            raise MalformedVarint(f"{self._left} are missing, {sum(map(len, rest))} bytes are left over")
        yield last

    def _missing(self, window: bytes, at: int) -> int:
        """Return how much of the record at ``at`` is still to come; 0 when that is not known yet."""
        try:
            size, body = decode_varint(window, at)
        except MalformedVarint:
            return 0
        # Before anything of it is gathered: what it says may be a lie, but is as good as true here. Where
        # nothing is compressed it can only be a lie, and all that there is lies in memory already.
        if body + size - at > self._record_bytes and self._header.codec != NONE:
            raise too_large(self._header, _at_once(self._record_bytes), f"a record of {size} bytes")
        return body + size - len(window)

    def _run(self, window: bytes, at: int) -> _Run | None:
        """Return as many whole records as one piece takes, at least one; None where the first is cut off."""
        count, cost, first, last = 0, 0, at, at
        while count < self._left:
            try:
                size, body = decode_varint(window, at)
            except MalformedVarint:
                if len(window) - at >= _LONGEST_VARINT:
                    raise
                break  # the rest of it is in the next chunk
            if size < 0:
                raise MalformedVarint("a record of negative length")
            cost += body + size - at + RECORD_BYTES
            if body + size > len(window) or (count and cost > self._piece_bytes):
                break
            first, last = first if count else body, body
            count, at = count + 1, body + size
        # pyrefly: ignore[redundant-condition]  # it takes the count for 0 behind the loop
        return _Run(count, first, last, at) if count else None

    def _piece(self, window: bytes, at: int, run: _Run) -> Unpacked:
        """Return a run of records; its header says how far they reach, which the position is moved by."""
        first, last = _delta(window, run.first), _delta(window, run.last)
        if not self._last_delta < first <= last <= self._header.last_offset_delta:
            raise MalformedVarint("offsets that do not grow")
        self._last_delta = last
        self._left -= run.count
        header = self._header._replace(count=run.count)
        return Unpacked(
            header._replace(last_offset_delta=last) if self._left else header, window[at : run.end]
        )


class _Run(NamedTuple):
    """Neighbouring records: how many, where the first's and the last's bodies begin, where the last ends."""

    count: int  # nobody counts items of a run
    first: int
    last: int
    end: int


def _delta(window: bytes, body: int) -> int:
    """Return a record's offset delta, which stands behind its attributes and its timestamp."""
    _, at = decode_uvarint(window, body + 1)
    return decode_varint(window, at)[0]


def _joined(chunks: Iterator[bytes], least_bytes: int) -> Iterator[bytes]:
    """Yield chunks of at least this size, but for the last: snappy's come 32 KiB at a time."""
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= least_bytes:
            joined = b"".join(parts)
            parts, size = [], 0
            yield joined
    if parts:
        yield b"".join(parts)


def _corrupt(header: BatchHeader, expected: str, seen: str) -> CorruptBatch:
    """Name the place and the numbers, never the content."""
    return CorruptBatch(
        f"the batch at base offset {header.base_offset} cannot be taken apart",
        expected=expected,
        seen=seen,
        behind=header.next_offset,
    )


def too_large(header: BatchHeader, expected: str, seen: str, offset: int | None = None) -> BatchTooLarge:
    """Return the error of a batch, or of its record at ``offset``, that takes more memory than is allowed."""
    return BatchTooLarge(
        f"the batch at base offset {header.base_offset} takes too much memory to be taken apart",
        expected=expected,
        seen=seen,
        behind=header.next_offset if offset is None else offset + 1,
        offset=offset,
    )


def _at_once(limit_bytes: int) -> str:
    return f"at most {limit_bytes} bytes at once"
