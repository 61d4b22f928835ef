"""A small raw-protocol client for tests: builds and sends record batches that no ordinary client sends.

It shares no code with the replicator (whose batch codec is what these batches try to break). Batches follow
the v2 layout of Kafka's "Message Format" chapter; requests use kafka-python's protocol classes.
"""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, NamedTuple, Self

import cramjam
import crc32c
from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

from tests.support.session.wait import wait_until

_BATCH = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
HEADER_BYTES = _BATCH.size
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
LOG_APPEND_TIME = 0x08


class Codec(IntEnum):
    """The compression ids of the v2 batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def _plain(payload: bytes) -> bytes:
    return payload


def _snappy_framed(payload: bytes) -> bytes:
    """Snappy as Java producers frame it (snappy-java): magic, versions, then blocks of 32 KiB."""
    out = bytearray(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
    for start in range(0, len(payload), 32 << 10):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + (32 << 10)]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _lz4_frame(payload: bytes) -> bytes:
    # Brokers refuse (error -1) frames whose blocks depend on each other, cramjam's default.
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(payload)
    return bytes(compressor.finish())


def _zstd(payload: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(payload))


_COMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.NONE: _plain,
    Codec.GZIP: gzip.compress,
    Codec.SNAPPY: _snappy_framed,
    Codec.LZ4: _lz4_frame,
    Codec.ZSTD: _zstd,
}


class RawRecord(NamedTuple):
    """One record, everything as bytes: header names need not be UTF-8."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_ms: int = 0


class ProducerState(NamedTuple):
    """What a batch carries of its producer; -1 everywhere = not idempotent."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


NO_PRODUCER = ProducerState()


# Answers that only mean "not yet": coordinator loading or moving, the previous transaction still closing.
_NOT_YET = frozenset({14, 15, 16, 51})
# The broker does not lead the partition, yet or for a moment; nothing was written.
_NO_LEADER = frozenset({5, 6})


class BatchView(NamedTuple):
    """The header fields of one batch as a broker serves it."""

    base_offset: int
    last_offset_delta: int
    record_count: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    epoch: int
    size_bytes: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        """A commit or abort marker."""
        return bool(self.attributes & CONTROL)

    @property
    def has_holes(self) -> bool:
        """Compaction removed records out of the middle or the end of the batch."""
        return self.record_count < self.last_offset_delta + 1


class BrokerRefused(Exception):
    """The broker answered a request with an error code."""

    def __init__(self, request: str, code: int, detail: str = "") -> None:
        super().__init__(f"{request}: error code {code} {detail}".rstrip())
        self.code = code


def _led(answer: Any) -> Any:
    """Return a partition's answer, or None while it has no leader.

    A broker that was started again takes up what it led, loses all of it once when the controller notes its
    return, and takes it up again: having answered once is no promise.
    """
    return None if answer.error_code in _NO_LEADER else answer


def _check(request: str, code: int, detail: str = "") -> None:
    if code != 0:
        raise BrokerRefused(request, code, detail)


def varint(number: int) -> bytes:
    """Return a zigzag varint of 64 bits."""
    zigzag = ((number << 1) ^ (number >> 63)) & 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: RawRecord, offset_delta: int, base_timestamp_ms: int) -> bytes:
    """Return a record as it lies in a batch's payload."""
    body = b"".join(
        (
            b"\0",
            varint(record.timestamp_ms - base_timestamp_ms),
            varint(offset_delta),
            _nullable(record.key),
            _nullable(record.value),
            varint(len(record.headers)),
            *(varint(len(name)) + name + _nullable(value) for name, value in record.headers),
        )
    )
    return varint(len(body)) + body


def build_batch(
    records: Sequence[RawRecord],
    *,
    codec: Codec = Codec.NONE,
    producer: ProducerState = NO_PRODUCER,
    transactional: bool = False,
    extra_attributes: int = 0,
) -> bytes:
    """Return one v2 batch as a producer sends it: base offset 0, leader epoch -1, valid CRC32C."""
    base_ms = records[0].timestamp_ms if records else 0
    max_ms = max((record.timestamp_ms for record in records), default=0)
    payload = _COMPRESS[codec](
        b"".join(encode_record(record, delta, base_ms) for delta, record in enumerate(records))
    )
    checked = (
        _AFTER_CRC.pack(
            int(codec) | (TRANSACTIONAL if transactional else 0) | extra_attributes,
            max(len(records) - 1, 0),
            base_ms,
            max_ms,
            producer.producer_id,
            producer.epoch,
            producer.sequence,
            len(records),
        )
        + payload
    )
    # 9 = leader epoch (4) + magic (1) + CRC (4), which the length field counts.
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c.crc32c(checked)) + checked


def iter_batches(data: bytes | None) -> Iterator[BatchView]:
    """Yield the headers of all complete batches in a Fetch response's bytes."""
    buffer = memoryview(data or b"")
    position = 0
    while len(buffer) - position >= _BATCH.size:
        base, length, _, _, _, attributes, last_delta, first_ms, max_ms, pid, epoch, _, count = (
            _BATCH.unpack_from(buffer, position)
        )
        size_bytes = 12 + length
        if position + size_bytes > len(buffer):
            return
        yield BatchView(base, last_delta, count, attributes, first_ms, max_ms, pid, epoch, size_bytes)
        position += size_bytes


class RawConnection:
    """One blocking connection to the (single) broker of a test cluster. Not thread-safe."""

    def __init__(self, bootstrap: str, timeout_s: float = 30.0) -> None:
        host, port = bootstrap.split(",")[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._codec = KafkaProtocol(client_id="onceover-adversary")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Any) -> Any:
        """Send one request, return its decoded response."""
        self._codec.send_request(request)
        self._socket.sendall(self._codec.send_bytes())
        while True:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for _, response in self._codec.receive_bytes(data):
                return response

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of an existing topic."""
        wanted = MetadataRequest.MetadataRequestTopic(version=9, name=topic)
        response = self.call(MetadataRequest(version=9, topics=[wanted], allow_auto_topic_creation=False))
        entry = response.topics[0]
        _check("Metadata", entry.error_code, topic)
        return len(entry.partitions)

    def produce(self, topic: str, partition: int, batch: bytes, transactional_id: str | None = None) -> int:
        """Send one batch with acks=all, again while the partition has no leader; return the offset of its
        first record.

        Raises:
            BrokerRefused: with the broker's code; nothing was written.
        """
        data = ProduceRequest.TopicProduceData
        entry = data.PartitionProduceData(version=9, index=partition, records=batch)

        def attempt() -> Any:
            response = self.call(
                ProduceRequest(
                    version=9,
                    transactional_id=transactional_id,
                    acks=-1,
                    timeout_ms=30_000,
                    topic_data=[data(version=9, name=topic, partition_data=[entry])],
                )
            )
            return _led(response.responses[0].partition_responses[0])

        answer = wait_until(attempt, 30, f"{topic}:{partition} has a leader that takes a batch")
        _check("Produce", answer.error_code, f"{topic}:{partition} {answer.error_message or ''}")
        return int(answer.base_offset)

    def fetch(self, topic: str, partition: int, offset: int, *, committed: bool = False) -> list[BatchView]:
        """Return the batches a broker serves at ``offset``: control, empty and aborted ones too."""
        return list(iter_batches(self.fetch_bytes(topic, partition, offset, committed=committed)))

    def fetch_bytes(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        committed: bool = False,
        max_bytes: int = 8 << 20,
    ) -> bytes:
        """Return the bytes of a Fetch response's records; the last batch may be cut off."""
        wanted = FetchRequest.FetchTopic
        entry = wanted.FetchPartition(
            version=11,
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            version=11,
            replica_id=-1,
            # Whoever waits for more asks again: at the end of a log each look would wait.
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=32 << 20,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[wanted(version=11, topic=topic, partitions=[entry])],
            forgotten_topics_data=[],
            rack_id="",
        )

        def attempt() -> Any:
            return _led(self.call(request).responses[0].partitions[0])

        answer = wait_until(attempt, 30, f"{topic}:{partition} has a leader that answers")
        _check("Fetch", answer.error_code, f"{topic}:{partition}@{offset}")
        return bytes(answer.records or b"")

    def init_producer(self, transactional_id: str | None, timeout_ms: int = 60_000) -> ProducerState:
        """Return a fresh producer id and epoch, sequence 0; fences and aborts a predecessor's transaction."""
        if transactional_id is not None:
            self._retried(
                "FindCoordinator",
                lambda: FindCoordinatorRequest(version=3, key=transactional_id, key_type=1),
            )
        response = self._retried(
            "InitProducerId",
            lambda: InitProducerIdRequest(
                version=4,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            ),
        )
        return ProducerState(response.producer_id, response.producer_epoch, 0)

    def add_partitions(
        self, transactional_id: str, producer: ProducerState, topic: str, partitions: Sequence[int]
    ) -> None:
        """Make the partitions part of the open transaction (the request set before transaction.version 2)."""

        def attempt() -> tuple[int] | None:
            response = self.call(
                AddPartitionsToTxnRequest(
                    version=3,
                    v3_and_below_transactional_id=transactional_id,
                    v3_and_below_producer_id=producer.producer_id,
                    v3_and_below_producer_epoch=producer.epoch,
                    v3_and_below_topics=[
                        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                            version=3, name=topic, partitions=list(partitions)
                        )
                    ],
                )
            )
            codes = {
                part.partition_error_code
                for entry in response.results_by_topic_v3_and_below
                for part in entry.results_by_partition
            }
            return None if codes & _NOT_YET else (max(codes),)

        answer = wait_until(attempt, 30, f"partitions of {topic} join {transactional_id}")
        _check("AddPartitionsToTxn", answer[0], topic)

    def end_transaction(self, transactional_id: str, producer: ProducerState, *, commit: bool) -> None:
        """Commit or abort; markers may appear a little later (``await_markers``)."""
        self._retried(
            "EndTxn",
            lambda: EndTxnRequest(
                version=3,
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=commit,
            ),
        )

    def await_markers(self, transactional_id: str) -> None:
        """Wait until the markers of an ended transaction are written, and what it made visible is seen."""

        def complete() -> bool:
            response = self.call(DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id]))
            (state,) = response.transaction_states
            _check("DescribeTransactions", state.error_code, transactional_id)
            return not str(state.transaction_state).startswith(("Prepare", "Ongoing"))

        wait_until(complete, 30, f"the transaction of {transactional_id} is complete")

    def _retried(self, name: str, make: Callable[[], Any]) -> Any:
        def attempt() -> Any:
            response = self.call(make())
            return None if response.error_code in _NOT_YET else response

        response = wait_until(attempt, 30, f"{name} is answered")
        _check(name, response.error_code)
        return response
