"""The independent judge: reads two clusters with an ordinary client and compares what their readers see.

It shares no code with the replicator: librdkafka does the reading, so a wrong idea about batches, offsets or
transactions in the replicator cannot hide itself here. It reads read_committed, from the beginning (or given
offsets) to the last stable offset taken at the start.

Limits: librdkafka cuts header names at a zero byte, and of a record with header names that are not UTF-8 the
Python client shows one such name only; the verdict notes the latter. Records that retention removed are
not compared: the verdict notes where a log begins.
"""

from __future__ import annotations

import operator
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from onceover.errors import Retriable, UsageError
from onceover_lab.demo.compare import compare_logs
from onceover_lab.demo.verdict import CopyVerdict, Log, Partition, digest_record

# consume() waits this long even when all is read: it is what comparing a small topic costs.
_POLL_S = 0.1
# The event that says "read to the end" comes with an empty answer, which a broker holds back this long.
_FETCH_WAIT_MS = 20
_BATCH_RECORDS = 10_000
# Per partition; librdkafka's defaults (100,000 records, 64 MiB) would hold whole topics in memory.
_QUEUE_RECORDS = 20_000
_QUEUE_KBYTES = 8_192

_MAX_NOTES = 5

OffsetMap = Mapping[tuple[str, int], int]
Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """What of a partition is read: ``[start, end)``, where ``end`` is the last stable offset."""

    start: int
    end: int
    high_watermark: int

    @property
    def open_offsets(self) -> int:
        """Offsets hidden behind a transaction that is still open."""
        return self.high_watermark - self.end


def compare_topics(
    source_client: Mapping[str, str],
    target_client: Mapping[str, str],
    topics: Mapping[str, str] | Iterable[str],
    *,
    timeout_s: float,
    from_offsets: OffsetMap | None = None,
    target_from_offsets: OffsetMap | None = None,
    on_progress: Progress | None = None,
) -> CopyVerdict:
    """Compare what read_committed readers see in ``topics`` on both clusters.

    Args:
        source_client, target_client: librdkafka settings, ``bootstrap.servers`` at least.
        topics: source topic -> target topic, or names that are the same on both sides.
        timeout_s: seconds for everything together.
        from_offsets: (source topic, partition) -> first offset that counts; the log start otherwise.
        target_from_offsets: the same for the target.
        on_progress: called with "source" or "target" and the records read so far.

    Raises:
        UsageError: a topic does not exist.
        Retriable: not all records could be read in time.
    """
    deadline = time.monotonic() + timeout_s
    naming = dict(topics) if isinstance(topics, Mapping) else {topic: topic for topic in topics}
    source = Reader("source", source_client, deadline, on_progress)
    target = Reader("target", target_client, deadline, on_progress)
    source_logs = source.read(source.bounds(naming.keys(), from_offsets or {}))
    target_logs = target.read(target.bounds(naming.values(), target_from_offsets or {}))

    def all_records(partition: Partition) -> Set[bytes]:
        return _all_digests(source_client, partition, deadline)

    return compare_logs(_pair(naming, source_logs, target_logs), all_records)


def _pair(
    naming: Mapping[str, str], source: Mapping[Partition, Log], target: Mapping[Partition, Log]
) -> list[tuple[Log, Log]]:
    """Pair the logs of each topic by partition number; a partition missing on one side is an empty log."""
    pairs: list[tuple[Log, Log]] = []
    for source_topic, target_topic in naming.items():
        numbers = {part.number for part in source if part.topic == source_topic}
        numbers |= {part.number for part in target if part.topic == target_topic}
        for number in sorted(numbers):
            left, right = Partition(source_topic, number), Partition(target_topic, number)
            pairs.append((source.get(left, Log(left)), target.get(right, Log(right))))
    return pairs


def _all_digests(client: Mapping[str, str], partition: Partition, deadline: float) -> Set[bytes]:
    reader = Reader("source", client, deadline, None, isolation=IsolationLevel.READ_UNCOMMITTED)
    bounds = reader.bounds([partition.topic], {})[partition]
    return frozenset(reader.read({partition: bounds})[partition].items())


class Reader:
    """Reads partitions of one cluster up to the end taken at the beginning, never joining a group."""

    def __init__(
        self,
        side: str,
        client: Mapping[str, str],
        deadline: float,
        on_progress: Progress | None,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        self._side = side
        self._client = dict(client)
        self._deadline = deadline
        self._on_progress = on_progress
        self._isolation = isolation

    def bounds(self, topics: Iterable[str], starts: OffsetMap) -> dict[Partition, ReadBounds]:
        """Return what there is to read in every partition of ``topics``.

        Raises:
            UsageError: a topic does not exist.
            Retriable: the cluster does not answer.
        """
        admin = AdminClient(self._client)
        try:
            partitions = self._partitions(admin, topics)
            first = self._offsets(admin, partitions, OffsetSpec.earliest(), self._isolation)
            stable = self._offsets(admin, partitions, OffsetSpec.latest(), self._isolation)
            high = self._offsets(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        except KafkaException as error:
            raise self._unreadable(str(error)) from error
        return {
            part: ReadBounds(
                max(first[part], starts.get((part.topic, part.number), 0)), stable[part], high[part]
            )
            for part in partitions
        }

    def _partitions(self, admin: AdminClient, topics: Iterable[str]) -> list[Partition]:
        known = admin.list_topics(timeout=self._seconds_left()).topics
        missing = sorted(set(topics) - known.keys())
        if missing:
            raise UsageError(
                f"cannot compare: no such topic on the {self._side}: {', '.join(missing)}",
                where=self._where,
                expected="topics that exist on both clusters",
                resolve="wait until the topics are replicated, or name other topics",
            )
        return [Partition(topic, number) for topic in topics for number in sorted(known[topic].partitions)]

    def _offsets(
        self, admin: AdminClient, partitions: list[Partition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[Partition, int]:
        wanted = {TopicPartition(part.topic, part.number): spec for part in partitions}
        futures = admin.list_offsets(
            wanted, isolation_level=isolation, request_timeout=min(30.0, self._seconds_left())
        )
        return {Partition(tp.topic, tp.partition): future.result().offset for tp, future in futures.items()}

    def read(self, bounds: Mapping[Partition, ReadBounds]) -> dict[Partition, Log]:
        """Read every partition to its end.

        Raises:
            Retriable: a client error, or the deadline passed.
        """
        logs = {part: Log(part) for part in bounds}
        for part, bound in bounds.items():
            logs[part].notes += self._limits(bound)
        pending = {part for part, bound in bounds.items() if bound.start < bound.end}
        consumer = Consumer(self._settings())
        try:
            consumer.assign([TopicPartition(p.topic, p.number, bounds[p].start) for p in pending])
            self._drain(consumer, bounds, pending, logs)
        except KafkaException as error:
            raise self._unreadable(str(error)) from error
        finally:
            consumer.close()
        return logs

    def _limits(self, bound: ReadBounds) -> list[str]:
        notes: list[str] = []
        if bound.start:
            notes.append(f"{self._side}: compared from offset {bound.start} on")
        if bound.open_offsets and self._isolation is IsolationLevel.READ_COMMITTED:
            notes.append(
                f"{self._side}: {bound.open_offsets} offsets behind an open transaction are not visible"
            )
        return notes

    def _drain(
        self,
        consumer: Consumer,
        bounds: Mapping[Partition, ReadBounds],
        pending: set[Partition],
        logs: Mapping[Partition, Log],
    ) -> None:
        while pending:
            if time.monotonic() > self._deadline:
                raise self._unreadable(f"not read to the end in time: {', '.join(sorted(map(str, pending)))}")
            ended: list[Partition] = []
            for message in consumer.consume(_BATCH_RECORDS, timeout=_POLL_S):
                part = Partition(message.topic() or "", message.partition() or 0)
                if part in pending and self._take(message, bounds[part].end, logs[part]):
                    pending.discard(part)
                    ended.append(part)
            if ended:
                consumer.incremental_unassign([TopicPartition(p.topic, p.number) for p in ended])
            if self._on_progress is not None:
                self._on_progress(self._side, sum(len(log) for log in logs.values()))

    def _take(self, message: Message, end: int, log: Log) -> bool:
        """Add a record to its log; return whether the partition is read to its end."""
        error = message.error()
        offset = message.offset() or 0
        if error is not None:
            # Markers and aborted records at the end deliver nothing: only this event says we are past them.
            if error.code() == KafkaError._PARTITION_EOF:
                return offset >= end
            raise KafkaException(error)
        if offset >= end:
            return True
        stamped_by, timestamp_ms = message.timestamp()
        if stamped_by == TIMESTAMP_LOG_APPEND_TIME:
            log.broker_stamped = True
        headers = _read_headers(message, log)
        log.append(offset, digest_record(message.key(), message.value(), headers, timestamp_ms))
        return offset + 1 >= end

    def _settings(self) -> dict[str, str | int | bool]:
        return {
            "fetch.wait.max.ms": _FETCH_WAIT_MS,
            "queued.min.messages": _QUEUE_RECORDS,
            "queued.max.messages.kbytes": _QUEUE_KBYTES,
            **self._client,
            # assign() never joins the group and nothing is committed: only the client demands a name.
            "group.id": f"onceover-judge-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": (
                "read_committed" if self._isolation is IsolationLevel.READ_COMMITTED else "read_uncommitted"
            ),
        }

    @property
    def _where(self) -> str:
        return f"{self._side} {self._client.get('bootstrap.servers', '')}"

    def _seconds_left(self) -> float:
        return max(1.0, self._deadline - time.monotonic())

    def _unreadable(self, seen: str) -> Retriable:
        return Retriable(
            f"the comparison could not read the {self._side}",
            where=self._where,
            expected="every partition readable up to its last stable offset",
            seen=seen,
            resolve="check that the cluster is up, then compare again",
        )


# Called like this, not as message.headers(): for a name that is not UTF-8 the client sets an error *and*
# returns a list with a hole (confluent-kafka 2.16). Only the general way to call checks for that and raises;
# the interpreter's short cut for methods would hand the hole on and crash later.
_headers_of = operator.methodcaller("headers")


def _read_headers(message: Message, log: Log) -> list[tuple[str, bytes | None]] | None:
    try:
        headers: list[tuple[str, bytes | None]] | None = _headers_of(message)
    except (UnicodeDecodeError, SystemError) as error:
        cause = error if isinstance(error, UnicodeDecodeError) else error.__cause__
        if not isinstance(cause, UnicodeDecodeError):
            raise
        if len(log.notes) < _MAX_NOTES:
            log.notes.append(f"offset {message.offset()}: header name not UTF-8; only one name is compared")
        # No real name begins with a zero byte here: librdkafka cuts names at the first.
        return [("\0not UTF-8", cause.object)]
    return headers
