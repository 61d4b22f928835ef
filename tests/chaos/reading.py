"""What both sides hold, read by ordinary clients and by raw requests: no code of the replicator."""

from __future__ import annotations

import hashlib
import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.protocol.consumer import OffsetFetchRequest

from tests.chaos.checker import Entry, Place, Positions, numbered
from tests.support.raw.rawkafka import RawConnection

_TIMEOUT_S: Final = 30.0
_COMMITTED_S: Final = 5.0
_BATCH: Final = 5000
# What is there comes at once; the last batch of a log is not full.
_BATCH_S: Final = 0.2
_OWN: Final = ("__", "onceover")
# What clients call their records; nobody else gives any a name of its own.
_NAMED: Final = re.compile(rb"[a-z]\d+-\d+")


def _admin(bootstrap: str) -> AdminClient:
    # Brokers that are away are no news here.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def places(bootstrap: str) -> dict[str, int]:
    """Return every topic that is not Kafka's or a flow's own, with its number of partitions."""
    found = _admin(bootstrap).list_topics(timeout=_TIMEOUT_S).topics
    return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith(_OWN)}


def read(bootstrap: str, wanted: Iterable[Place]) -> dict[Place, list[Entry]]:
    """Return what a read_committed reader sees of the partitions now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    found: dict[Place, list[Entry]] = {place: [] for place in wanted}
    try:
        consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in found])
        open_ends = set(found)
        deadline_s = time.monotonic() + _TIMEOUT_S
        while open_ends:
            messages = consumer.consume(_BATCH, timeout=_BATCH_S)
            if messages:
                deadline_s = time.monotonic() + _TIMEOUT_S
            elif time.monotonic() > deadline_s:
                raise TimeoutError(f"nothing comes for {_TIMEOUT_S:g} s: {open_ends}")
            for message in messages:
                place = Place(message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    found[place].append(_entry(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(place)
                else:
                    raise RuntimeError(f"{place}: {error}")
    finally:
        consumer.close()
    return {place: numbered(entries) for place, entries in found.items()}


def _entry(message: Message) -> Entry:
    key, value, headers = message.key(), message.value(), message.headers() or []
    stamp = message.timestamp()
    digest = hashlib.blake2b(repr((key, value, headers, stamp)).encode(), digest_size=16).hexdigest()
    named = isinstance(key, bytes) and _NAMED.fullmatch(key)
    return Entry(message.offset() or 0, key.decode() if named else f"={digest}", digest)


def with_producers(bootstrap: str, logs: Mapping[Place, Sequence[Entry]]) -> dict[Place, list[Entry]]:
    """Return the entries with the producer id and epoch of the batches that hold them."""
    leaders = _leaders(bootstrap, logs)
    return {place: _named(leaders[place], place, entries) for place, entries in logs.items()}


def _leaders(bootstrap: str, wanted: Iterable[Place]) -> dict[Place, str]:
    found = _admin(bootstrap).list_topics(timeout=_TIMEOUT_S)
    at = {number: f"{broker.host}:{broker.port}" for number, broker in found.brokers.items()}
    return {place: at[found.topics[place.topic].partitions[place.partition].leader] for place in wanted}


def _named(leader: str, place: Place, entries: Sequence[Entry]) -> list[Entry]:
    if not entries:
        return []
    starts, producers = list[int](), list[tuple[int, int]]()
    offset, last = entries[0].offset, entries[-1].offset
    with RawConnection(leader) as connection:
        while offset <= last:
            batches = connection.fetch(place.topic, place.partition, offset)
            if not batches:
                raise RuntimeError(f"{place} ends at {offset}, a reader saw {last}")
            for batch in batches:
                starts.append(batch.base_offset)
                producers.append((batch.producer_id, batch.epoch))
                offset = batch.last_offset + 1
    return [e._replace(producer=producers[bisect_right(starts, e.offset) - 1]) for e in entries]


def committed(bootstrap: str, group: str) -> dict[Place, int]:
    """Return what a group has committed; of an open transaction nothing.

    By raw requests: confluent-kafka reads a listed group's metadata beyond its end (2.16.1), kafka-python
    leaves sockets open where a broker is away.

    Raises:
        OSError: no broker answers, or none of them coordinates the group now.
    """
    problem = OSError(f"no broker of {bootstrap} coordinates {group}")
    for address in bootstrap.split(","):
        try:
            with RawConnection(address, _COMMITTED_S) as connection:
                response = connection.call(OffsetFetchRequest(version=7, group_id=group, topics=None))
        except OSError as error:
            problem = error
            continue
        if response.error_code == 0:
            return {
                Place(topic.name, partition.partition_index): partition.committed_offset
                for topic in response.topics
                for partition in topic.partitions
                if partition.committed_offset >= 0
            }
    raise problem


def ends(bootstrap: str, wanted: Iterable[Place], *, committed_only: bool) -> Positions:
    """Return the end of each partition: the last stable offset, or the high watermark."""
    level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    return _offsets(bootstrap, wanted, OffsetSpec.latest(), level)


def starts(bootstrap: str, wanted: Iterable[Place]) -> Positions:
    """Return the first offset of each partition that is not deleted."""
    return _offsets(bootstrap, wanted, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)


def _offsets(bootstrap: str, wanted: Iterable[Place], spec: OffsetSpec, level: IsolationLevel) -> Positions:
    asked = {TopicPartition(place.topic, place.partition): spec for place in wanted}
    if not asked:
        return {}
    # Held until the answers are there: without its client a future waits for ever.
    admin = _admin(bootstrap)
    answers = admin.list_offsets(asked, isolation_level=level, request_timeout=_TIMEOUT_S)
    return {Place(tp.topic, tp.partition): f.result(_TIMEOUT_S).offset for tp, f in answers.items()}
