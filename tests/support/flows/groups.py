"""Consumer groups as their owners see them: ordinary clients that commit, consume and look."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient

from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0
_NOT_READY = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def _consumer(client: Mapping[str, str], group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            **client,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            **settings,
        }
    )


def commit(
    client: Mapping[str, str], group: str, topic: str, offsets: Mapping[int, int], metadata: str = ""
) -> None:
    """Commit offsets of some partitions as a consumer with assign() does: the group stays empty."""
    commit_all(client, topic, {group: offsets}, metadata)


def commit_all(
    client: Mapping[str, str], topic: str, groups: Mapping[str, Mapping[int, int]], metadata: str = ""
) -> None:
    """Commit for many groups."""
    admin = AdminClient(dict(client))
    for group, offsets in groups.items():
        # Empty metadata would be sent as one byte 0 (confluent-kafka 2.16.1).
        given = (metadata,) if metadata else ()
        wanted = [TopicPartition(topic, p, o, *given) for p, o in offsets.items()]
        wait_until(partial(_written, admin, group, wanted), _TIMEOUT_S, f"{group} commits")


def _written(admin: AdminClient, group: str, wanted: list[TopicPartition]) -> bool:
    """Commit once; False while the coordinator of a young cluster is not ready."""
    answer = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group]
    errors = [tp.error for tp in answer.result(_TIMEOUT_S).topic_partitions if tp.error is not None]
    if any(error.code() not in _NOT_READY for error in errors):
        raise RuntimeError(f"{group}: {errors}")
    return not errors


def committed(client: Mapping[str, str], group: str, topic: str) -> dict[int, tuple[int, str]]:
    """Return what a group has committed: offset and metadata by partition."""
    return committed_all(client, topic, [group])[group]


def committed_all(
    client: Mapping[str, str], topic: str, groups: Iterable[str]
) -> dict[str, dict[int, tuple[int, str]]]:
    """Return what many groups have committed on a cluster without logins.

    Not through confluent-kafka: it reads a listed group's metadata beyond its end (seen: bytes of other
    memory behind 168 right ones).
    """
    names = list(groups)
    admin = KafkaAdminClient(bootstrap_servers=client["bootstrap.servers"].split(","))
    try:
        listed = admin.list_group_offsets(dict.fromkeys(names))
    finally:
        admin.close()
    return {
        name: {
            tp.partition: (found.offset, found.metadata or "")
            for tp, found in listed[name].items()
            if tp.topic == topic and found.offset >= 0
        }
        for name in names
    }


def offset_of(client: Mapping[str, str], group: str, topic: str, partition: int = 0) -> int | None:
    """Return one committed offset."""
    admin = AdminClient(dict(client))
    request = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(request)[group].result(_TIMEOUT_S)
    mine = {tp.partition: tp.offset for tp in answer.topic_partitions if tp.topic == topic and tp.offset >= 0}
    return mine.get(partition)


@contextmanager
def member(
    client: Mapping[str, str], group: str, topic: str, protocol: str = "classic", reset: str = "error"
) -> Iterator[Consumer]:
    """Be a member of the group, with its first assignment taken; a record may be gone with that."""
    consumer = _consumer(client, group, **{"group.protocol": protocol, "auto.offset.reset": reset})
    try:
        consumer.subscribe([topic])

        def assigned() -> list[TopicPartition]:
            consumer.poll(0.05)
            found: list[TopicPartition] = consumer.assignment()
            return found

        wait_until(assigned, _TIMEOUT_S, f"{group} has an assignment")
        yield consumer
    finally:
        consumer.close()


def consume(
    client: Mapping[str, str],
    group: str,
    topic: str,
    count: int,
    protocol: str = "classic",
    reset: str = "error",
) -> list[int]:
    """Read so many records as a member of the group, and commit; return their offsets."""
    consumer = _consumer(client, group, **{"group.protocol": protocol, "auto.offset.reset": reset})
    read: list[int] = []
    message = None
    try:
        consumer.subscribe([topic])
        while len(read) < count:
            message = _next(consumer, f"{group} reads {topic}")
            if message.error() is not None:
                raise RuntimeError(f"{group} {topic}: {message.error()}")
            read.append(message.offset())
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()
    return read


def _next(consumer: Consumer, what: str) -> Message:
    # In a tuple: a message without a value is falsy.
    def polled() -> tuple[Message] | None:
        message = consumer.poll(0.1)
        return None if message is None else (message,)

    return wait_until(polled, _TIMEOUT_S, what)[0]


@contextmanager
def commit_undecided(client: Mapping[str, str], group: str, *offsets: TopicPartition) -> Iterator[Producer]:
    """Let a reader with assign() commit in a transaction, which is left open."""
    reader = Consumer({**client, "group.id": group, "enable.auto.commit": False})
    writer = Producer({**client, "transactional.id": f"{group}-reader"})
    try:
        writer.init_transactions(_TIMEOUT_S)
        writer.begin_transaction()
        writer.send_offsets_to_transaction(list(offsets), reader.consumer_group_metadata(), _TIMEOUT_S)
        yield writer
    finally:
        reader.close()


def delete_group(client: Mapping[str, str], group: str) -> None:
    """Delete a group without members."""
    admin = AdminClient(dict(client))
    admin.delete_consumer_groups([group])[group].result(_TIMEOUT_S)


def first_read(client: Mapping[str, str], group: str, topic: str, protocol: str = "classic") -> int | None:
    """Return the offset that the group reads first in the topic's only partition, as its consumers would;
    None when there is nothing to read yet. Commits nothing."""
    consumer = _consumer(client, group, **{"group.protocol": protocol, "enable.partition.eof": True})
    try:
        consumer.subscribe([topic])
        message = _next(consumer, f"{group} reads {topic}")
        error = message.error()
        if error is not None and error.code() != -191:
            raise RuntimeError(f"{group} {topic}: {error}")
        return None if error is not None else int(message.offset())
    finally:
        consumer.close()


def unread(offsets: list[int], position: int) -> int:
    """Return how many records at ``offsets`` (ascending) come before a position: the group has read them."""
    return bisect_left(offsets, position)
