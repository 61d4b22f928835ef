"""Batches and Fetch answers as a broker would store and serve them, made by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

from onceover.wire.batches.visibility import AbortedTransaction
from onceover.wire.hotpath import DivergingEpoch, FetchedPartition
from tests.support.raw.rawkafka import Codec, ProducerState, RawRecord, build_batch

TOPIC_ID = UUID(int=7)


def stored(
    base_offset: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer: int = -1,
    transactional: bool = False,
    codec: Codec = Codec.NONE,
) -> bytes:
    """Return a batch of ``count`` records as it lies in the log at ``base_offset``."""
    records = [
        RawRecord(b"k%d" % n, b"v%d" % (base_offset + n), timestamp_ms=1_000 + n) for n in range(count)
    ]
    state = ProducerState(producer, 0, 0) if producer >= 0 else ProducerState()
    batch = bytearray(build_batch(records, codec=codec, producer=state, transactional=transactional))
    # Base offset and leader epoch are the broker's, outside the CRC.
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, epoch)
    return bytes(batch)


def answer(
    batches: Iterable[bytes] = (),
    *,
    partition: int = 0,
    lso: int = 0,
    error: int = 0,
    aborted: list[AbortedTransaction] | None = None,
    diverging: DivergingEpoch | None = None,
) -> FetchedPartition:
    """Return one partition of a Fetch response, its records writable as in the receive buffer."""
    records = memoryview(bytearray(b"".join(batches)))
    return FetchedPartition(TOPIC_ID, partition, error, lso, lso, 0, aborted or [], records, diverging)
