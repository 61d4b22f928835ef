"""Records that cannot be copied go to a topic of their own, in the transaction of the others.

Invariant: a record is either on its target or in the dead-letter topic, never in both and never in
neither; the map and the receipts say which. At least once, the target keeps what it took of a handler's
output before it refused other output of the same record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from onceover.clock import now_ms
from onceover.handling.handling import BadRecord
from onceover.kafka.admin.topics import ANY_TIME, TopicSpec
from onceover.kafka.ports import Outgoing
from onceover.model import TopicPartition
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.records import Headers, RawRecord, encode_body, encode_bounded

# Brokers take no larger request by default (socket.request.max.bytes), so no larger record either.
_MAX_MESSAGE_BYTES: Final = 100 << 20


def topic_spec(topic: str) -> TopicSpec:
    """Return how a missing dead-letter topic is created.

    One partition: it is read by people, in the order of events. It takes whatever a request can carry, dated
    by whatever clock, and nothing in it expires, because it may hold the only copy on the target.
    """
    config = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "max.message.bytes": str(_MAX_MESSAGE_BYTES),
        "message.timestamp.type": "CreateTime",
        **ANY_TIME,
    }
    return TopicSpec(topic, 1, config=config)


@dataclass(frozen=True)
class DeadLetter:
    """Where one partition's bad records go.

    Args:
        flow: name of the flow; goes into a header.
        source_alias: likewise.
        source: the partition; ``source_id`` is its topic's id, which tells it from one made anew.
        target: partition of the dead-letter topic.
    """

    flow: str
    source_alias: str
    source: TopicPartition
    source_id: UUID
    target: TopicPartition

    def outgoing(self, bad: Sequence[BadRecord], codec: int, max_batch_bytes: int) -> Iterator[Outgoing]:
        """Yield the batches to produce: the records as they were, and why they are here in headers."""
        # The record's own time may be what the target refuses.
        at_ms = now_ms()
        plains: list[tuple[int, int, bytes, int]] = [
            RawRecord(
                one.record.offset,
                at_ms,
                encode_body(one.record.key, one.record.value, (*one.record.headers, *self._headers(one))),
            )
            for one in bad
        ]
        for encoded in encode_bounded(plains, codec, max_batch_bytes):
            header = parse_header(encoded.batch)
            yield Outgoing(self.target, header, encoded.batch, self.source, tuple(encoded.source_runs))

    def _headers(self, bad: BadRecord) -> Headers:
        texts = {
            "onceover.error.code": bad.reason.code,
            "onceover.error.message": bad.reason.message,
            "onceover.flow": self.flow,
            "onceover.source.cluster": self.source_alias,
            "onceover.source.topic": self.source.topic,
            "onceover.source.topic.id": str(self.source_id),
            "onceover.source.partition": str(self.source.partition),
            "onceover.source.offset": str(bad.record.offset),
            "onceover.source.timestamp": str(bad.record.timestamp),
        }
        return tuple((name.encode(), text.encode()) for name, text in texts.items())
