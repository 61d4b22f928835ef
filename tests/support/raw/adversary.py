"""Producers that try to break a copy: every kind of record batch a real broker serves, made on purpose.

Deterministic by seed: the same calls in the same order send the same records (timestamps are counted from a
fixed instant). For clusters of one broker.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.raw.rawkafka import (
    DELETE_HORIZON,
    HEADER_BYTES,
    BatchView,
    BrokerRefused,
    Codec,
    ProducerState,
    RawConnection,
    RawRecord,
    build_batch,
    iter_batches,
)
from tests.support.raw.rawtxn import OpenTransaction
from tests.support.session.background import Background
from tests.support.session.wait import wait_until

# 2024-01-01. Topics made here never expire, so that old timestamps are safe (retention goes by them).
EPOCH_MS = 1_704_067_200_000
KEEP_FOREVER = {"retention.ms": "-1"}
# A cleaner that works at once: tiny segments that roll by time, everything counts as dirty.
COMPACT_AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
}
_ADMIN_TIMEOUT_S = 30.0
# The cleaner looks every 15 s unless the broker says otherwise (log.cleaner.backoff.ms).
_CLEANER_TIMEOUT_S = 90.0

_RECONNECT_PAUSE_S: Final = 0.2
_MAX_OPEN: Final = 3
_ABORT_SHARE: Final = 0.4
# What a broker says while it restarts, moves its coordinator, or has timed out a transaction meanwhile.
_BROKER_RETURNS: Final = frozenset({3, 5, 6, 7, 14, 15, 16, 47, 48, 51, 53, 59, 90})

_KEYS: tuple[bytes | None, ...] = (None, b"", b"k", b"key-\x00\xff")
_VALUES: tuple[bytes | None, ...] = (None, b"", b"v", b'{"flight":1545}')
_HEADERS: tuple[tuple[tuple[bytes, bytes | None], ...], ...] = (
    (),
    ((b"h", b"1"),),
    ((b"h", b"1"), (b"h", b"2"), (b"h", b"1")),
    ((b"h", None), (b"h", b"")),
    ((b"", b""), ("größe".encode(), b"\x00")),
)
NOT_UTF8_HEADERS: tuple[tuple[bytes, bytes | None], ...] = ((b"\xff\xfe", b"1"), (b"ok", b"2"))


class Adversary:
    """Makes topics and batches on one cluster. Not thread-safe; a context manager.

    Args:
        settles: transactions have ended for every reader when ``commit`` or ``abort`` returns.
    """

    def __init__(self, bootstrap: str, seed: int = 0, *, settles: bool = True) -> None:
        self.bootstrap = bootstrap
        self._settles = settles
        self._rng = random.Random(seed)
        self._seed = seed
        self._serial = 0
        self._connection = RawConnection(bootstrap)
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._idempotent: dict[tuple[str, int], ProducerState] = {}
        self._begun: list[OpenTransaction] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop all connections; transactions that are still open are left to the broker."""
        for transaction in self._begun:
            transaction.close()
        self._connection.close()

    def reconnect(self, *topics: str) -> None:
        """Connect anew after the broker was away, once it leads ``topics`` again; producer ids are kept."""
        self._connection.close()
        self._connection = RawConnection(self.bootstrap)
        for topic in topics:
            self._await_leaders(topic, self._connection.partition_count(topic))

    # --- topics

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Create a topic that never expires and return its name once its leader takes requests."""
        new = NewTopic(topic, partitions, 1, config={**KEEP_FOREVER, **(config or {})})
        self._admin.create_topics([new])[topic].result(_ADMIN_TIMEOUT_S)
        self._await_leaders(topic, partitions)
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic grow to ``total`` partitions; return once the leaders of all take requests."""
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(_ADMIN_TIMEOUT_S)
        self._await_leaders(topic, total)

    def _await_leaders(self, topic: str, partitions: int) -> None:
        def ready() -> bool:
            try:
                return all(
                    self._connection.fetch(topic, number, 0) is not None for number in range(partitions)
                )
            except BrokerRefused:
                return False

        wait_until(ready, _ADMIN_TIMEOUT_S, f"topic {topic} has leaders")

    # --- records

    def record(self, **changes: Any) -> RawRecord:
        """Return a record with random, possibly null or empty parts; ``changes`` fixes some of them."""
        self._serial += 1
        value = self._rng.choice(_VALUES)
        drawn = RawRecord(
            key=self._rng.choice(_KEYS),
            value=value and value + b"-%d" % self._serial,
            headers=self._rng.choice(_HEADERS),
            timestamp_ms=EPOCH_MS + self._serial,
        )
        return drawn._replace(**changes)

    def records(self, count: int, **changes: Any) -> list[RawRecord]:
        return [self.record(**changes) for _ in range(count)]

    # --- batches: each returns the offset of its first record

    def plain(
        self, topic: str, partition: int, records: Sequence[RawRecord], codec: Codec = Codec.NONE
    ) -> int:
        """One batch without a producer id."""
        return self._connection.produce(topic, partition, build_batch(records, codec=codec))

    def as_it_is(self, topic: str, partition: int, batch: bytes) -> int:
        """Produce a batch whatever is in it; return its base offset."""
        return self._connection.produce(topic, partition, batch)

    def idempotent(
        self, topic: str, partition: int, records: Sequence[RawRecord], codec: Codec = Codec.NONE
    ) -> int:
        """One batch of an idempotent producer that keeps its id from call to call."""
        state = self._idempotent.get((topic, partition)) or self._connection.init_producer(None)
        offset = self._connection.produce(topic, partition, build_batch(records, codec=codec, producer=state))
        self._idempotent[topic, partition] = state._replace(sequence=state.sequence + len(records))
        return offset

    def every_null_and_empty(self, topic: str, partition: int, codec: Codec = Codec.NONE) -> int:
        """One batch with every combination of null, empty and filled keys, values and headers."""
        combinations = [(key, value, headers) for key in _KEYS for value in _VALUES for headers in _HEADERS]
        records = [RawRecord(*parts, timestamp_ms=EPOCH_MS + n) for n, parts in enumerate(combinations)]
        return self.plain(topic, partition, records, codec)

    def not_utf8_headers(self, topic: str, partition: int) -> int:
        """Header names are bytes for a broker; librdkafka's Python client cannot show these."""
        return self.plain(topic, partition, [self.record(headers=NOT_UTF8_HEADERS)])

    def tiny_batches(self, topic: str, partition: int, count: int) -> int:
        """``count`` batches of one record each."""
        return min(self.plain(topic, partition, [self.record()]) for _ in range(count))

    def batch_of_size(self, topic: str, partition: int, size_bytes: int, codec: Codec = Codec.NONE) -> int:
        """One record in a batch of exactly ``size_bytes`` (before compression): the limit is inclusive."""
        shell = RawRecord(b"big", b"", timestamp_ms=EPOCH_MS)
        filler = size_bytes - len(build_batch([shell]))
        while len(build_batch([shell._replace(value=bytes(filler))])) > size_bytes:
            filler -= 1
        value = self._rng.randbytes(filler)
        return self.plain(topic, partition, [shell._replace(value=value)], codec)

    def extreme_timestamps(self, topic: str, partition: int) -> int:
        """The epoch, years ago, backwards in one batch, and 50 minutes ahead (the limit is an hour)."""
        ahead_ms = int(time.time() * 1000) + 50 * 60 * 1000
        stamps = (EPOCH_MS, 0, 1_357_034_400_000, ahead_ms, 1)
        return self.plain(topic, partition, [self.record(timestamp_ms=stamp) for stamp in stamps])

    def straddling(self, topic: str, partition: int, codec: Codec = Codec.LZ4) -> int:
        """One batch of ten records; returns an offset in its *middle*, for copies that start there."""
        return self.plain(topic, partition, self.records(10), codec) + 5

    # --- transactions

    def transaction(self, topic: str, *, timeout_ms: int = 60_000) -> OpenTransaction:
        """Begin a transaction under a transactional.id of its own."""
        self._serial += 1
        name = f"adversary-{self._seed}-{self._serial}"
        begun = OpenTransaction(self.bootstrap, name, topic, timeout_ms, settles=self._settles)
        self._begun = [*(each for each in self._begun if not each.closed), begun]
        return begun

    def interleaved(self, topic: str, partition: int) -> Counter[int]:
        """Two transactions and a plain producer take turns; one commits, one aborts. Returns what counts."""
        kept, dropped = self.transaction(topic), self.transaction(topic)
        for codec in (Codec.NONE, Codec.ZSTD):
            kept.send(partition, self.records(3), codec)
            dropped.send(partition, self.records(2), codec)
            self.plain(topic, partition, [self.record()], codec)
        dropped.abort()
        kept.send(partition, self.records(1))
        return kept.commit() + Counter({partition: 2})

    # --- what only a log cleaner makes

    def holes(self, topic: str, partition: int = 0, codec: Codec = Codec.LZ4) -> BatchView:
        """Produce keys again and again until compaction left batches with holes; return such a batch.

        The topic must have been made with ``COMPACT_AT_ONCE``.
        """
        keyed = [RawRecord(b"key-%d" % (n % 7), b"v-%d" % n, timestamp_ms=EPOCH_MS + n) for n in range(20)]
        survivors = [RawRecord(b"once-%d" % n, b"kept", timestamp_ms=EPOCH_MS) for n in range(3)]
        self.plain(topic, partition, [survivors[0], *keyed, survivors[1], *keyed[:5], survivors[2]], codec)
        self.plain(topic, partition, keyed, codec)
        return self.await_batch(topic, partition, lambda batch: batch.has_holes and batch.record_count > 0)

    def empty_batch(self, topic: str, partition: int = 0) -> BatchView:
        """Let compaction empty the last batch of an idempotent producer, which it keeps for its sequence."""
        state = self._connection.init_producer(None)
        gone = RawRecord(b"replaced", b"old", timestamp_ms=EPOCH_MS)
        self._connection.produce(topic, partition, build_batch([gone], producer=state))
        self.plain(topic, partition, [gone._replace(value=b"new")])
        return self.await_batch(topic, partition, lambda batch: batch.record_count == 0)

    def aged_tombstone(self, topic: str, partition: int = 0) -> BatchView:
        """A tombstone that the cleaner has seen: its batch carries a delete horizon (attribute bit 6)."""
        self.plain(topic, partition, [RawRecord(b"deleted", b"value", timestamp_ms=EPOCH_MS)])
        self.plain(topic, partition, [RawRecord(b"deleted", None, timestamp_ms=EPOCH_MS + 1)])
        return self.await_batch(topic, partition, lambda batch: bool(batch.attributes & DELETE_HORIZON))

    def await_batch(self, topic: str, partition: int, wanted: Callable[[BatchView], bool]) -> BatchView:
        """Produce fresh keys (a segment is cleaned only after it rolled) until a wanted batch is served."""

        def look() -> BatchView | None:
            self._serial += 1
            filler = RawRecord(b"filler-%d" % self._serial, b"", timestamp_ms=int(time.time() * 1000))
            self.plain(topic, partition, [filler])
            return next(filter(wanted, self.batches(topic, partition)), None)

        return wait_until(look, _CLEANER_TIMEOUT_S, f"the cleaner works on {topic}:{partition}", poll_s=0.25)

    def batches(self, topic: str, partition: int) -> list[BatchView]:
        """Return every batch of the partition as the broker serves it, control and empty ones included."""
        return [batch for batch, _ in self.payloads(topic, partition)]

    def payloads(self, topic: str, partition: int) -> list[tuple[BatchView, bytes]]:
        """Return every batch of the partition with the bytes behind its header, compressed as they are."""
        found: list[tuple[BatchView, bytes]] = []
        offset = 0
        while True:
            data = self._connection.fetch_bytes(topic, partition, offset)
            before, at = len(found), 0
            for batch in iter_batches(data):
                if batch.last_offset >= offset:
                    found.append((batch, data[at + HEADER_BYTES : at + batch.size_bytes]))
                    offset = batch.last_offset + 1
                at += batch.size_bytes
            if len(found) == before:
                return found


class Traffic(Background):
    """A seeded mix of everything above in a background thread, for chaos tests.

    ``committed`` counts, by (topic, partition), the records whose commit (or write) was acknowledged;
    ``committers`` are the producer ids of the transactions among them;
    ``unknown`` counts sends whose answer was lost with the connection. The broker may go away and come back.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: dict[str, int],
        *,
        seed: int,
        pause_s: float = 0.01,
        batch: int = 20,
        timeout_ms: int = 60_000,
    ) -> None:
        """Send to ``topics`` (name -> partitions) up to ``batch`` records every ``pause_s`` seconds.

        ``timeout_ms`` is that of its transactions: what a lost connection leaves open hides all records
        behind it for as long.
        """
        super().__init__(f"traffic-{seed}", pause_s)
        self.committed: Counter[tuple[str, int]] = Counter()
        self.committers: set[int] = set()
        self.unknown = 0
        self._bootstrap = bootstrap
        self._topics = topics
        self._seed = seed
        self._rng = random.Random(seed)
        self._batch = batch
        self._timeout_ms = timeout_ms
        self._open: list[tuple[str, OpenTransaction]] = []
        self._reconnects = 0
        self._adversary: Adversary | None = None

    @property
    def total(self) -> int:
        return self.committed.total()

    def step(self) -> None:
        """Do one thing of the mix."""
        self._guarded(self._step)

    def end(self) -> None:
        """Also commit what is open, and close everything."""
        try:
            super().end()
            while self._open:
                self._guarded(self._commit_oldest)
        finally:
            for _, transaction in self._open:
                transaction.close()
            self._open.clear()
            if self._adversary is not None:
                self._adversary.close()
                self._adversary = None

    def stop(self) -> Counter[tuple[str, int]]:
        """End the traffic; return what is committed. Raises what failed."""
        self.end()
        return self.committed

    def _guarded(self, action: Callable[[Adversary], None]) -> None:
        """Run one action; a lost connection costs its outcome and the open transactions, nothing else."""
        try:
            if self._adversary is None:
                self._reconnects += 1
                # Another seed each time: transactional ids must not fence what is still open.
                seed = self._seed * 1000 + self._reconnects
                # Its broker may go away at any time: what was answered counts.
                self._adversary = Adversary(self._bootstrap, seed, settles=False)
            action(self._adversary)
        except (OSError, BrokerRefused) as error:
            if isinstance(error, BrokerRefused) and error.code not in _BROKER_RETURNS:
                raise
            self._forget_connections()

    def _forget_connections(self) -> None:
        self.unknown += 1 + len(self._open)
        for _, transaction in self._open:
            transaction.close()
        self._open.clear()
        if self._adversary is not None:
            self._adversary.close()
        self._adversary = None
        self.ending.wait(_RECONNECT_PAUSE_S)

    def _step(self, adversary: Adversary) -> None:
        topic = self._rng.choice(sorted(self._topics))
        partition = self._rng.randrange(self._topics[topic])
        records = adversary.records(self._rng.randint(1, self._batch))
        codec = self._rng.choice(list(Codec))
        kind = self._rng.choice(("plain", "idempotent", "tiny", "begin", "send", "send", "end"))
        if kind in {"plain", "idempotent"}:
            (adversary.plain if kind == "plain" else adversary.idempotent)(topic, partition, records, codec)
            self.committed[topic, partition] += len(records)
        elif kind == "tiny":
            for record in records[:5]:
                adversary.plain(topic, partition, [record], codec)
                self.committed[topic, partition] += 1
        elif kind == "begin" and len(self._open) < _MAX_OPEN:
            self._open.append((topic, adversary.transaction(topic, timeout_ms=self._timeout_ms)))
        elif kind == "send" and self._open:
            topic, transaction = self._rng.choice(self._open)
            transaction.send(self._rng.randrange(self._topics[topic]), records, codec)
        elif kind == "end" and self._open and self._rng.random() < _ABORT_SHARE:
            self._open.pop(self._rng.randrange(len(self._open)))[1].abort()
        elif kind == "end" and self._open:
            self._commit_oldest(adversary)

    def _commit_oldest(self, _: Adversary) -> None:
        topic, transaction = self._open[0]
        for partition, count in transaction.commit().items():
            self.committed[topic, partition] += count
        self.committers.add(transaction.producer_id)
        self._open.pop(0)
