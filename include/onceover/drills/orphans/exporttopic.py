"""The topic that orphans are exported to, on the target: each of them once, for readers of committed records.

Invariant: where an export goes on is told by the topic itself, read under its transactional id: what an
earlier run has written of a partition ends at its newest record's source offset. There is no position beside
it that could be lost, expire, or say something else. Records of one source partition are written in their
order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from onceover.backoff import Backoff, Deadline
from onceover.drills.codes import DrillCode
from onceover.errors import MustReset, NeedsOperator, NotNow, OnceoverError, Retriable
from onceover.handling.deadletter import topic_spec
from onceover.kafka import calls
from onceover.kafka.admin.topicfacts import topic_facts
from onceover.kafka.admin.topics import Admin
from onceover.kafka.codes import KafkaCode
from onceover.kafka.logs.between import records_between, stable_end
from onceover.kafka.portions import portions_of
from onceover.kafka.ports import Cluster, Outgoing, Refused
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.kafka.produce.rounds import OWN_BATCH_BYTES
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.fenced import await_markers, take_id
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.compression import GZIP, NONE
from onceover.wire.batches.records import DecodedRecord, Headers, encode

_TIMEOUT_MS: Final = 30_000
# A crash costs no more than that much work.
_COMMIT_S: Final = 5.0
_COMMIT_BYTES: Final = 8 << 20
# What keeps each record, as it was and when it was: of the topic itself, or the target's default.
_FIT: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
_RECORD_BYTES: Final = 64
_NUMBER: Final = re.compile("[0-9]{1,19}")
_ORIGIN: Final = (
    b"onceover.flow",
    b"onceover.source.cluster",
    b"onceover.source.topic",
    b"onceover.source.topic.id",
    b"onceover.source.partition",
    b"onceover.source.offset",
)


class SourceUnread(Exception):
    """The old source does not give what is to be exported of a partition.

    Args:
        error: why.
    """

    def __init__(self, error: OnceoverError) -> None:
        super().__init__(str(error))
        self.error = error


class OrphanOrigin(NamedTuple):
    """A partition of the old source; a topic that was made anew is another one."""

    topic_id: str
    source: TopicPartition


class ExportedOrphan(NamedTuple):
    """A record of the topic: where it came from, and as it was there."""

    origin: OrphanOrigin
    record: DecodedRecord


class ExportExtent(NamedTuple):
    """The topic at one moment: its id, and what it holds."""

    topic_id: str
    start: int
    end: int

    def holds(self, earlier: ExportExtent) -> bool:
        """Tell whether all is still there that was there then."""
        return self.topic_id == earlier.topic_id and self.start <= earlier.start and self.end >= earlier.end


@dataclass(frozen=True)
class OrphanTopic:
    """The topic of one flow. The cluster belongs to the caller.

    Args:
        target: where it is.
        flow: its name; ``alias`` of the old source.
        replication_factor: should it have to be made.
    """

    target: Cluster
    flow: str
    alias: str
    replication_factor: int

    @property
    def place(self) -> TopicPartition:
        """The partition that holds them all."""
        return TopicPartition(names.orphans_topic(self.flow), 0)

    def check_fit(self) -> None:
        """Return where the topic is missing, or keeps all that is written to it as it is.

        Raises:
            NeedsOperator: EXPORT_UNFIT, somebody else has made it.
            Retriable: the target is away.
            UsageError: not authorized.
        """
        topic = self.place.topic
        found = self.target.retry(self._standing)
        if found is None:
            return
        wanted = {**_FIT, "partitions": "1"}
        unfit = sorted(key for key, value in wanted.items() if found.get(key) != value)
        if unfit:
            raise NeedsOperator(
                f"{topic} on {self.target.alias} would not keep what is exported to it; nothing was done",
                code=DrillCode.EXPORT_UNFIT,
                where=topic,
                expected=", ".join(f"{key}={wanted[key]}" for key in unfit),
                seen=", ".join(f"{key}={found.get(key)}" for key in unfit),
                resolve="set its configuration; or keep a copy of it elsewhere, delete it, and run again",
            )

    def _standing(self) -> dict[str, str] | None:
        """Return what of ``_FIT`` holds for the topic, and its partitions; None where it is missing."""
        topic = self.place.topic
        # Asked although it may be missing: who may not is told now, and not behind an export.
        seen = Admin(self.target).topic_configs([topic], standing=_FIT)
        for error in seen.failures.values():
            raise error
        info = self.target.topics([topic]).get(topic)
        if info is None:
            return None
        if topic not in seen.standing:
            # One broker knows it already, another one does not yet.
            raise NotNow(f"{topic} was made a moment ago", where=self.target.alias)
        return {**seen.standing[topic], "partitions": str(len(info.partitions))}

    def factor(self) -> int | None:
        """Return how many replicas it has, or will have; None where the target's default decides that yet."""
        topic = self.place.topic
        if topic in self.target.retry(lambda: self.target.topics([topic])):
            return self.target.retry(lambda: topic_facts(self.target, topic)).replication_factor
        return self.replication_factor if self.replication_factor > 0 else None

    def prepare(self) -> None:
        """Make the topic where it is missing; nothing in it expires.

        Raises:
            NeedsOperator: EXPORT_UNFIT, another one is there.
            Retriable: the target is away.
            UsageError: not authorized.
        """
        # It takes a record's own time, whatever that is.
        spec = replace(topic_spec(self.place.topic), replication_factor=self.replication_factor)
        Admin(self.target).make_topics([spec])
        self.check_fit()

    def extent(self) -> ExportExtent | None:
        """Return what it holds now; None where it is missing.

        Raises:
            Retriable: the target is away.
        """
        place = self.place
        info = self.target.retry(lambda: self.target.topics([place.topic])).get(place.topic)
        if info is None:
            return None
        start = self.target.retry(lambda: self.target.list_offsets([place], calls.EARLIEST))[place]
        return ExportExtent(str(info.topic_id), start, stable_end(self.target, place))

    def read(self) -> Iterator[ExportedOrphan]:
        """Yield what it holds, in its order; nothing where it was never made.

        Raises:
            NeedsOperator: EXPORT_DIFFERS, a record is none of ours, or stands there twice.
            Retriable: the target is away.
        """
        place = self.place
        if place.topic not in self.target.retry(lambda: self.target.topics([place.topic])):
            return
        start = self.target.retry(lambda: self.target.list_offsets([place], calls.EARLIEST))[place]
        end = stable_end(self.target, place)
        last: dict[OrphanOrigin, int] = {}
        for record in records_between(self.target, place, start, end):
            one = _read(record, str(place), self.flow)
            if one.record.offset <= last.get(one.origin, -1):
                raise _differs(
                    str(place),
                    f"source offsets of {one.origin.source} that grow",
                    f"{one.record.offset} again",
                )
            last[one.origin] = one.record.offset
            yield one

    def await_decided(self, deadline: Deadline) -> None:
        """Return once no transaction is open in the topic: nobody sees what was exported behind one.

        Raises:
            NeedsOperator: HANGING, a transaction of somebody else stays open there.
            Retriable: the target is away.
        """
        place, backoff = self.place, Backoff()
        while not deadline.passed:
            high = self.target.retry(
                lambda: self.target.list_offsets([place], calls.LATEST, calls.READ_UNCOMMITTED)
            )[place]
            if stable_end(self.target, place) >= high:
                return
            with suppress(Retriable):
                backoff.pause(deadline, NotNow(f"a transaction is open in {place}", where=str(place)))
        raise NeedsOperator(
            f"a transaction of somebody else is open in {place} on {self.target.alias}: what was exported "
            "behind it cannot be read, and would be exported again",
            code=DrillCode.HANGING,
            where=str(place),
            resolve="end it with `kafka-transactions.sh abort`, then run again; find out who writes there",
        )

    def writer(self) -> OrphanWriter:
        """Return what writes into it, and fences whoever has written before."""
        return OrphanWriter(self)


class OrphanWriter:
    """Writes orphans in transactions. Not thread-safe.

    Attributes:
        next: where each partition goes on, behind what stands in the topic already.
    """

    def __init__(self, topic: OrphanTopic) -> None:
        self._topic = topic
        target, flow = topic.target, topic.flow
        self._producer = TransactionalProducer(target, names.orphans_id(flow), timeout_ms=_TIMEOUT_MS)
        self.next: dict[OrphanOrigin, int] = {}

    def begin(self) -> None:
        """Own the id, then read where everything goes on.

        Raises:
            As ``OrphanTopic.read``.
        """
        take_id(self._topic.target, self._producer, (self._topic.place,), Deadline(_TIMEOUT_MS / 1000))
        self._topic.await_decided(Deadline(_TIMEOUT_MS / 1000))
        for one in self._topic.read():
            self.next[one.origin] = one.record.offset + 1

    def write(
        self, origin: OrphanOrigin, records: Iterable[DecodedRecord], told: Callable[[int], None]
    ) -> int:
        """Write records of one partition; return how many. What is written is committed when this returns.

        Args:
            told: hears how many more have been committed.

        Raises:
            SourceUnread: from ``records``; what was committed stays.
            Retriable: the target is away, or somebody else exports: what was committed stays.
            NeedsOperator: the target refuses a record.
        """
        count = 0
        try:
            # Nothing is open at the target while the source is read, or waited for.
            for pieces in _batched(portions_of(records, OWN_BATCH_BYTES, _size)):
                for piece in pieces:
                    self._send(origin, piece)
                self.commit()
                done = sum(map(len, pieces))
                told(done)
                count += done
        except MustReset as error:
            raise Retriable(
                f"the export was interrupted: {error.message}",
                where=str(self._topic.place),
                resolve="run it again: it goes on behind what was committed",
            ) from error
        except Refused as error:
            raise NeedsOperator(str(error), code=KafkaCode.WRITE_REFUSED, where=str(origin.source)) from error
        return count

    def commit(self) -> None:
        """End the transaction; on return readers of committed records see it."""
        self._producer.drain()
        self._producer.commit()

    def settle(self) -> None:
        """Return when everything that was committed can be read."""
        await_markers(self._topic.target, self._producer, (self._topic.place,), Deadline(_TIMEOUT_MS / 1000))

    def close(self) -> None:
        """Let go of the id."""
        self._producer.close()

    def _send(self, origin: OrphanOrigin, piece: list[DecodedRecord]) -> None:
        topic = self._topic
        size = sum(map(_size, piece))
        own = _origin_headers(topic.flow, topic.alias, origin)
        made = encode(
            [(r.timestamp, r.key, r.value, (*r.headers, *own, _offset_header(r.offset))) for r in piece],
            GZIP if size > OWN_BATCH_BYTES else NONE,
        )
        self._producer.send([Outgoing(topic.place, parse_header(made.batch), made.batch)])
        self._producer.drain()


def _batched(pieces: Iterable[list[DecodedRecord]]) -> Iterator[list[list[DecodedRecord]]]:
    """Yield what one transaction takes: no more than is held in memory, nor than was waited for a moment."""
    some: list[list[DecodedRecord]] = []
    filled, since_s = 0, time.monotonic()
    for piece in pieces:
        some.append(piece)
        filled += sum(map(_size, piece))
        if filled >= _COMMIT_BYTES or time.monotonic() - since_s >= _COMMIT_S:
            yield some
            some, filled, since_s = [], 0, time.monotonic()
    if some:
        yield some


def _size(record: DecodedRecord) -> int:
    headers = sum(len(name) + len(value or b"") + _RECORD_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + len(_ORIGIN) * _RECORD_BYTES


def _origin_headers(flow: str, alias: str, origin: OrphanOrigin) -> Headers:
    tp = origin.source
    texts = (flow, alias, tp.topic, origin.topic_id, str(tp.partition))
    return tuple((name, text.encode()) for name, text in zip(_ORIGIN, texts, strict=False))


def _offset_header(offset: int) -> tuple[bytes, bytes]:
    return _ORIGIN[-1], str(offset).encode()


def _read(record: DecodedRecord, where: str, flow: str) -> ExportedOrphan:
    """Read what stands behind a record's own headers: those may have the same names.

    Raises:
        NeedsOperator: EXPORT_DIFFERS.
    """
    own = record.headers[-len(_ORIGIN) :]
    # What is none of ours may hold anything.
    values = [(value or b"").decode(errors="replace") for _, value in own]
    ours = tuple(name for name, _ in own) == _ORIGIN and values[0] == flow
    if not ours or not all(_NUMBER.fullmatch(value) for value in values[4:]):
        raise _differs(where, "exported records alone", f"another one at offset {record.offset}")
    origin = OrphanOrigin(values[3], TopicPartition(values[2], int(values[4])))
    as_it_was = record._replace(offset=int(values[5]), headers=record.headers[: -len(_ORIGIN)])
    return ExportedOrphan(origin, as_it_was)


def _differs(where: str, expected: str, seen: str) -> NeedsOperator:
    return NeedsOperator(
        "the export does not hold what was to be exported",
        code=DrillCode.EXPORT_DIFFERS,
        where=where,
        expected=expected,
        seen=seen,
        resolve="find out who else writes there; nothing was removed. Keep a copy of the topic under another "
        "name, delete it, and run again",
    )


def missing_from(source: Iterable[DecodedRecord], exported: Iterable[DecodedRecord]) -> int | None:
    """Return the offset of the first record that was not exported as it is; None where all were. Pure.

    Both are in the order of their offsets; what was exported may have been compacted away since.
    """
    there = iter(exported)
    for record in source:
        found = next((each for each in there if each.offset >= record.offset), None)
        if found != record:
            return record.offset
    return None
