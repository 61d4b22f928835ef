"""In which portions batches are sent: nothing twice in a request, nothing too large. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from onceover.kafka.portions import OwnRecord, portions
from onceover.kafka.ports import Acknowledged, Outgoing
from onceover.model import TopicPartition
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.compression import GZIP, NONE
from onceover.wire.batches.records import encode

# A batch of the flow's own records stays below Kafka's default max.message.bytes (1 MB).
OWN_BATCH_BYTES: Final = 700_000


def own_batches(to: TopicPartition, records: Iterable[OwnRecord], at_ms: int) -> Iterator[Outgoing]:
    """Yield keys and values for one partition in batches, in their order; a value of None is a tombstone.

    Args:
        at_ms: the records' time.
    """
    for piece in portions(records, OWN_BATCH_BYTES):
        batch = encode([(at_ms, key, value, ()) for key, value in piece], _codec_for(piece)).batch
        yield Outgoing(to, parse_header(batch), batch)


def last_offset(acknowledged: Iterable[Acknowledged]) -> int:
    """Return the offset of the last record that one partition has taken; -1 where it has taken none."""
    return max((ack.base_offset + ack.outgoing.header.count - 1 for ack in acknowledged), default=-1)


def _codec_for(piece: Sequence[OwnRecord]) -> int:
    """Return how a piece of the flow's own records is compressed: only one record that is too large as it is.

    Every release reads it, whatever the codec.
    """
    return GZIP if sum(len(key) + len(value or b"") for key, value in piece) > OWN_BATCH_BYTES else NONE


def made_bytes(batch: Outgoing) -> int:
    """Return what a batch takes beside the receive buffer: nothing where it is a part of that."""
    return 0 if isinstance(batch.batch, memoryview) else len(batch.batch)


def distinct_targets(batches: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Return rounds in which no partition is named twice, each partition's batches in their order.

    Of two batches of one partition in a request the broker silently loses the first (docs/facts.md).
    """
    rounds: list[list[Outgoing]] = []
    seen: dict[object, int] = {}
    for batch in batches:
        number = seen.get(batch.target, 0)
        seen[batch.target] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(batch)
    return rounds
