"""Clusters in memory, as an audit reads them: logs of real batches behind the calls of ``kafka.cluster``.

The edge is the frame: a Fetch request is taken apart and answered in Kafka's own bytes, so that everything
above it is the code that runs against brokers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

from kafka.protocol.consumer import FetchResponse

from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from tests.support.mutations import Content
from tests.unit.audit.stored import ABORT, COMMIT, marker, stored

T = TypeVar("T")
_TOPIC = FetchResponse.FetchableTopicResponse
_PLACE = struct.Struct(">iiqiqi")
_BEHIND_PLACE = 5
_HEADER_BYTES = 61
_NOTHING = Content(None, None, (), 0)
_OUT_OF_RANGE, _CORRUPT_MESSAGE, _UNKNOWN_TOPIC_ID = 1, 2, 100


@dataclass
class Stored:
    """One batch of a log; ``kind`` of a marker, None of data.

    ``damaged``: its checksum does not match; ``refused``: the broker cannot read it itself, either.
    """

    base: int
    last: int
    records: dict[int, Content]
    producer: int = -1
    kind: int | None = None
    damaged: bool = False
    refused: bool = False

    def encode(self) -> bytes:
        """Return it as a broker stores it."""
        if self.kind is not None:
            return marker(self.kind, base=self.base, producer=self.producer)
        # A batch that lost its last record is kept, as an empty one.
        records = self.records or {self.base: _NOTHING}
        data = bytearray(
            stored(
                list(records.values()),
                base=self.base,
                producer=self.producer,
                transactional=self.producer >= 0,
                deltas=[offset - self.base for offset in records],
            )
        )
        if not self.records:
            del data[_HEADER_BYTES:]
            struct.pack_into(">i", data, 8, _HEADER_BYTES - 12)
            struct.pack_into(">i", data, 57, 0)
        # Cleaning keeps a batch's last offset, also where its record is gone.
        struct.pack_into(">i", data, 23, self.last - self.base)
        found = _checked(bytes(data))
        return found[:-1] + bytes([found[-1] ^ 1]) if self.damaged else found


def _checked(data: bytes) -> bytes:
    import crc32c

    return data[:17] + struct.pack(">I", crc32c.crc32c(data[21:])) + data[21:]


@dataclass
class FakeLog:
    """One partition's log."""

    batches: list[Stored] = field(default_factory=list)
    start: int = 0
    end: int = 0
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first and last offset
    pending: dict[int, int] = field(default_factory=dict)  # first offset, by producer
    cleaned: bool = False

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min([self.end, *self.pending.values()])

    def append(self, contents: Sequence[Content], producer: int = -1) -> list[int]:
        """Append one batch; of a producer it belongs to its open transaction. Return the offsets."""
        offsets = list(range(self.end, self.end + len(contents)))
        if producer >= 0:
            self.pending.setdefault(producer, self.end)
        self.batches.append(
            Stored(self.end, offsets[-1], dict(zip(offsets, contents, strict=True)), producer)
        )
        self.end = offsets[-1] + 1
        return offsets

    def decide(self, producer: int, *, commit: bool) -> None:
        """End a producer's transaction."""
        first = self.pending.pop(producer)
        if not commit:
            self.aborted.append((producer, first, self.end))
        self.batches.append(Stored(self.end, self.end, {}, producer, COMMIT if commit else ABORT))
        self.end += 1

    def expire(self, start: int) -> None:
        """Move the log's start; a batch goes when all of it is behind."""
        self.start = min(max(start, self.start), self.end)
        self.batches = [each for each in self.batches if each.last >= self.start]

    def clean(self, *, tombstones: bool) -> None:
        """Do what a log cleaner may: remove records that a later one of their key supersedes."""
        self.cleaned = True
        visible = dict(self.visible())
        latest = {content.key: offset for offset, content in visible.items()}
        # The newest segment is left alone, so that a log never ends without a batch.
        for batch in self.batches[:-1]:
            for offset, content in list(batch.records.items()):
                if offset not in visible:
                    continue
                is_old = latest[content.key] != offset
                if is_old or (tombstones and content.value is None):
                    del batch.records[offset]

    def visible(self) -> Iterator[tuple[int, Content]]:
        """Yield what a reader of committed records sees, by offset; damaged batches included."""
        for batch in self.batches:
            for offset, content in batch.records.items():
                hidden = any(p == batch.producer and a <= offset < b for p, a, b in self.aborted)
                if self.start <= offset < self.stable and not hidden:
                    yield offset, content

    def fetch(self, offset: int) -> tuple[int, bytes, list[tuple[int, int]]]:
        """Return an error, the batches from an offset on, and the aborted transactions among them."""
        found = [each for each in self.batches if each.last >= offset and each.base < self.stable]
        if found and found[0].refused:
            return _CORRUPT_MESSAGE, b"", []
        found = list(takewhile(lambda each: not each.refused, found))
        aborted = [(producer, first) for producer, first, last in self.aborted if last >= offset]
        return 0, b"".join(each.encode() for each in found), aborted


@dataclass
class FakeTopic:
    """A topic: its id, its configuration, its partitions."""

    id: UUID
    logs: list[FakeLog]
    config: dict[str, str] = field(default_factory=dict)


class FakeConnection:
    """Answers Fetch requests, one at a time."""

    client_id = "audit"

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._waiting: list[tuple[bytes, Callable[[memoryview], Any]]] = []

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answer."""
        return len(self._waiting)

    def next_correlation_id(self) -> int:
        """Return a number."""
        return 1

    def send_frame(
        self, frames: Sequence[bytes], _: int, decoder: Callable[[memoryview], Any], **__: object
    ) -> None:
        """Take a request."""
        self._waiting.append((b"".join(frames), decoder))

    def receive(self) -> Any:
        """Return the oldest request's answer."""
        frame, decoder = self._waiting.pop(0)
        end = len(frame) - _BEHIND_PLACE
        partition, _, offset, *_ = _PLACE.unpack(frame[end - _PLACE.size : end])
        topic_id = UUID(bytes=frame[end - _PLACE.size - 17 : end - _PLACE.size - 1])
        return decoder(memoryview(self._cluster.answer(topic_id, partition, offset)))

    def close(self) -> None:
        """Do nothing: there is no socket."""


@dataclass
class FakeCluster:
    """What an audit asks a cluster for."""

    alias: str
    all_topics: dict[str, FakeTopic] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def cluster_id(self) -> str:
        """Return an id."""
        return f"{self.alias}-id"

    def retry(self, attempt: Callable[[], T]) -> T:
        """Nothing here passes by itself."""
        return attempt()

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Return the topics that exist."""
        wanted = self.all_topics if names is None else [n for n in names if n in self.all_topics]
        return {
            name: TopicInfo(
                name,
                self.all_topics[name].id,
                {number: PartitionInfo(0, 0) for number in range(len(self.all_topics[name].logs))},
                False,
            )
            for name in wanted
        }

    def log(self, tp: TopicPartition) -> FakeLog:
        """Return a partition's log."""
        return self.all_topics[tp.topic].logs[tp.partition]

    def list_offsets(
        self, tps: Iterable[TopicPartition], at: int, isolation: int = calls.READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """Return the ends of logs, or the offset of a time."""
        return {tp: _offset(self.log(tp), at, isolation) for tp in tps}

    def committed(self, group: str, tps: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return what a group has committed."""
        known = self.groups.get(group, {})
        return {tp: known[tp] for tp in tps if tp in known}

    def open(self, _: int) -> FakeConnection:
        """Open a connection."""
        return FakeConnection(self)

    def answer(self, topic_id: UUID, partition: int, offset: int) -> bytes:
        """Return the answer to a Fetch, behind its correlation id."""
        topic = next((each for each in self.all_topics.values() if each.id == topic_id), None)
        error, records, log = 0, b"", FakeLog()
        aborted: list[tuple[int, int]] = []
        if topic is None:
            error = _UNKNOWN_TOPIC_ID
        else:
            log = topic.logs[partition]
            if log.start <= offset <= log.end:
                error, records, aborted = log.fetch(offset)
            else:
                error = _OUT_OF_RANGE
        transactions = [
            _TOPIC.PartitionData.AbortedTransaction(version=13, producer_id=p, first_offset=f)
            for p, f in aborted
        ]
        data = _TOPIC.PartitionData(
            version=13,
            partition_index=partition,
            error_code=error,
            preferred_read_replica=-1,
            high_watermark=log.end,
            last_stable_offset=log.stable,
            log_start_offset=log.start,
            aborted_transactions=transactions,
            records=records,
        )
        response = FetchResponse(
            version=13,
            throttle_time_ms=0,
            error_code=0,
            session_id=0,
            responses=[_TOPIC(version=13, topic_id=topic_id, partitions=[data])],
        )
        return b"\0" + bytes(response.encode())


def _offset(log: FakeLog, at: int, isolation: int) -> int:
    if at == calls.EARLIEST:
        return log.start
    if at == calls.LATEST:
        return log.stable if isolation == calls.READ_COMMITTED else log.end
    return next((offset for offset, content in log.visible() if content.timestamp_ms >= at), -1)


class FakeAdmin:
    """Answers for ``kafka.admin.topics.Admin`` what a snapshot asks it for."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._topics = cluster.all_topics

    def topic_configs(self, names: Iterable[str]) -> SimpleNamespace:
        """Return the topics' own configuration."""
        return SimpleNamespace(overrides={name: self._topics[name].config for name in names})
