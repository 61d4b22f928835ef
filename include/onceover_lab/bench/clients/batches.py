"""Writes a topic whose batches hold so many records each, however few.

librdkafka puts one batch into a request, and a broker takes some ten thousand requests a second: batches of
one record, enough for a steady window, took it many minutes. Here a request has a batch for each partition,
and a batch is made once and sent again and again.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from kafka.protocol.producer import ProduceResponse

from onceover.errors import Retriable
from onceover.kafka.link.connection import Connection
from onceover.wire.batches.batch import parse_header, stamp
from onceover.wire.batches.compression import CODEC_NAMES
from onceover.wire.batches.records import encode
from onceover.wire.hotpath import ProduceData, encode_produce
from onceover_lab.bench.clients.payload import Payload, make_pool
from onceover_lab.bench.clients.topics import connect
from onceover_lab.bench.workloads import shares

# Topics go by name.
_VERSION: Final = 12
_NO_ID: Final = uuid.UUID(int=0)
# A broker reads one request of a connection at a time: more only has to be there when it is done with one.
_IN_FLIGHT: Final = 16
_TIMEOUT_MS: Final = 30_000
# Who has neither sequence nor transaction, and so may send the same bytes twice.
_NOBODY: Final = -1


def feed_batches(
    bootstrap: str, codec: str, topic: str, *, record_bytes: int, records: int, batch_records: int
) -> None:
    """Produce ``records`` records, evenly over the partitions, in batches of ``batch_records``, and wait
    until all are acknowledged.

    Not idempotent: the caller compares the count.

    Raises:
        Retriable: the only broker refused a batch, or was away.
    """
    requests = requests_of(topic, make_pool(record_bytes), _codec(codec), shares(records), batch_records)
    unanswered: deque[int] = deque()
    with closing(connect(bootstrap)) as connection:
        for data in requests:
            if len(unanswered) == _IN_FLIGHT:
                _take(connection, unanswered)
            unanswered.append(_send(connection, data))
        while unanswered:
            _take(connection, unanswered)


def _codec(name: str) -> int:
    return next(number for number, known in CODEC_NAMES.items() if known == name)


def requests_of(
    topic: str, pool: Sequence[Payload], codec: int, wanted: Sequence[int], batch_records: int
) -> Iterator[list[ProduceData]]:
    """Yield the batches of each request: one of every partition that has not all of its records."""
    chunks = [pool[at : at + batch_records] for at in range(0, len(pool), batch_records)]
    whole = [_batch(chunk, codec) for chunk in chunks if len(chunk) == batch_records]
    left, number = list(wanted), 0
    while any(left):
        data = []
        for partition, missing in enumerate(left):
            if missing:
                count = min(missing, batch_records)
                chosen = number % len(whole)
                batch = whole[chosen] if count == batch_records else _batch(chunks[chosen][:count], codec)
                data.append(ProduceData(topic, _NO_ID, partition, batch))
                left[partition] -= count
                number += 1
        yield data


def _batch(payloads: Sequence[Payload], codec: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    made = encode([(now_ms, each.key, each.value, ()) for each in payloads], codec).batch
    stamp(made, parse_header(made), _NOBODY, _NOBODY, _NOBODY, transactional=False)
    return bytes(made)


def _send(connection: Connection, data: Sequence[ProduceData]) -> int:
    correlation_id = connection.next_correlation_id()
    frame = encode_produce(
        data,
        version=_VERSION,
        correlation_id=correlation_id,
        client_id=connection.client_id,
        transactional_id=None,
        timeout_ms=_TIMEOUT_MS,
    )
    connection.send_frame(frame, correlation_id, _codes)
    return len(data)


def _codes(answer: Any) -> list[int]:
    decoded = ProduceResponse.decode(answer[1:], version=_VERSION)
    return [each.error_code for topic in decoded.responses for each in topic.partition_responses]


def _take(connection: Connection, unanswered: deque[int]) -> None:
    codes = connection.receive()
    if codes != [0] * unanswered.popleft():
        raise Retriable(
            "the source refused what the benchmark writes", seen=f"error codes {sorted(set(codes))}"
        )
