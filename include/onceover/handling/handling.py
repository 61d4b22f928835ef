"""Between decode and encode: what the flow's handler makes of a partition's batches.

Invariant: a record is handed to the handler in source order, and what it returned is in the same
transaction as the position behind it. A record that it fails on is named by its offset; the records
before it are not affected.

The two forms share this frame; how records are taken apart and put together is theirs
(``handling.forms``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from onceover.handling.obstacles import RecordProblem
from onceover.stops.record import Stop
from onceover.wire.batches.batch import BatchHeader, BatchTooLarge, CorruptBatch, verify
from onceover.wire.batches.records import DecodedRecord, EncodedBatch
from onceover.wire.batches.unpack import RECORD_BYTES, Ceiling, Unpacked, unpack_pieces
from onceover.wire.batches.visibility import Visible

# Below Kafka's default max.message.bytes (1,048,588), header included: a topic that takes less is found
# out by error 10 and remembered.
MAX_BATCH_BYTES: Final = 1_000_000


class BadRecord(NamedTuple):
    """A record that is not copied to its target, as it was on the source."""

    record: DecodedRecord
    reason: RecordProblem


class Output(NamedTuple):
    """Records for one target partition, in order."""

    partition: int
    encoded: EncodedBatch


@dataclass
class Handled:
    """What became of a group of batches.

    ``bad`` holds what could not be copied, in source order; with ``stop_at_bad`` at most one record, and
    ``outputs`` only what came before it.
    """

    outputs: list[Output] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)


@dataclass
class Group:
    """Neighbouring batches of one codec that are handled together.

    Args:
        codec: of all batches.
        batches: checked and decompressed, pieces of larger ones among them.
        end: the source offset behind them and behind what was skipped after them.
        leader_epoch: of the last one.
        last: the batch of the source that ends there, or the one that is cut there.
        bytes: decompressed, and what the records take beside.
    """

    codec: int = 0
    batches: list[Unpacked] = field(default_factory=list)
    end: int = -1
    leader_epoch: int = -1
    last: BatchHeader | None = None
    bytes: int = 0

    def takes(self, piece: Unpacked, limit_bytes: int) -> bool:
        """Tell whether a batch, or a piece of one, still belongs here."""
        if not self.batches:
            return True
        return piece.header.codec == self.codec and self.bytes + _cost(piece) <= limit_bytes

    def apart(self) -> Iterator[Group]:
        """Yield each batch as a group of its own; the last one reaches as far as this."""
        for piece in self.batches[:-1]:
            single = Group()
            single.add(piece, None)
            yield single
        yield replace(self, batches=self.batches[-1:])

    def add(self, piece: Unpacked, batch: BatchHeader | None) -> None:
        """Take a batch, or a piece of one, of the source's ``batch``."""
        self.codec = piece.header.codec
        self.batches.append(piece)
        self.bytes += _cost(piece)
        self.end, self.leader_epoch = piece.header.next_offset, piece.header.leader_epoch
        self.last = batch


def _cost(piece: Unpacked) -> int:
    return len(piece.payload) + piece.header.count * RECORD_BYTES


class Request(NamedTuple):
    """What of a group is wanted.

    Args:
        from_offset: records before it are on the target already.
        to_offset: records from it on are not wanted; None for all.
        known_bad: records that must not go to the handler, by offset.
        max_batch_bytes: batches are cut to this size.
        record_bytes: what a single record's headers may take.
        stop_at_bad: end before the first record that fails, instead of going on behind it.
    """

    from_offset: int
    to_offset: int | None
    known_bad: Mapping[int, RecordProblem]
    max_batch_bytes: int
    record_bytes: int
    stop_at_bad: bool


class Handling(Protocol):
    """One partition's way through the handler."""

    @property
    def group_bytes(self) -> int:
        """How much is handled at once, decompressed."""

    def stop_at(self, bad: BadRecord) -> Stop:
        """Return the stop of a partition at a record that the handler fails on."""

    def too_slow(self, offset: int, seconds: float) -> Stop:
        """Return the stop of a partition at a record that the handler has been too long about."""

    def process(self, group: Group, request: Request) -> Handled:
        """Return what the handler makes of ``group``.

        Raises:
            CorruptBatch: a batch cannot be taken apart.
            BatchTooLarge: a record takes too much memory to be taken apart; with its offset, when everything
                before that can be had by asking for no more.
        """


def _all(most_bytes: int) -> int:
    return most_bytes


def groups(
    visible: Sequence[Visible], ceiling: Ceiling, share: Callable[[int], int] = _all
) -> Iterator[Group]:
    """Yield runs of batches of one codec of at most ``ceiling.piece_bytes`` together.

    A larger batch comes in pieces; a single larger record comes alone.

    Args:
        share: of those bytes, how much is wanted; asked for every batch anew.

    Raises:
        CorruptBatch: a batch is damaged; what came before it was yielded.
        BatchTooLarge: a record takes more than the ceiling; likewise.
    """
    group = Group()
    for header, batch in visible:
        if batch is not None:
            now = ceiling._replace(piece_bytes=share(ceiling.piece_bytes))
            try:
                for piece in _pieces(header, batch, now):
                    if not group.takes(piece, now.piece_bytes):
                        yield group
                        group = Group()
                    group.add(piece, header)
            except (CorruptBatch, BatchTooLarge):
                yield group
                raise
        group.end, group.leader_epoch, group.last = header.next_offset, header.leader_epoch, header
    yield group


def _pieces(header: BatchHeader, batch: memoryview, ceiling: Ceiling) -> Iterator[Unpacked]:
    verify(header, batch)
    yield from unpack_pieces(header, batch, ceiling)
