"""What a broker and a Connect worker are asked for, for Java to write down what they load (``makearchive``).

A start alone loads three quarters of their classes: others come with the first request of each kind, and
with the first connector.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from onceover.errors import Retriable
from onceover.process.children import POLL_INTERVAL_S
from onceover_lab.embed.ports import LOOPBACK

_NAME: Final = "trial"
# Nobody joins it: a group whose members come takes offsets from these alone, and the reader of the other one
# joins whenever it is told of a new partition.
_NOBODYS_GROUP: Final = "trial-of-nobody"
_TIMEOUT_S: Final = 60.0
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def use_broker(client: Mapping[str, str]) -> None:
    """Ask a new broker for one of everything that flows ask for, and their tests.

    Args:
        client: of somebody with all rights.

    Raises:
        Retriable: it refused, or answered too late.
    """
    try:
        admin = AdminClient(dict(client))
        _await(admin.create_topics([NewTopic(_NAME, 1, 1)]))
        _await(admin.create_partitions([NewPartitions(_NAME, 2)]))
        _write_and_read(client, admin)
        _look_and_change(admin)
        _await(admin.delete_consumer_groups([_NAME, _NOBODYS_GROUP]))
        _await(admin.delete_topics([_NAME]))
    except KafkaException as error:
        raise Retriable("the broker of the trial refused", where=LOOPBACK, seen=str(error)) from error


def use_worker(port: int, folder: Path) -> None:
    """Have a new worker run a connector, stop it, and give it other offsets.

    Raises:
        Retriable: it did not within a minute.
    """
    file = folder / "lines.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    wanted = {
        "connector.class": "FileStreamSource",
        "topic": _NAME,
        "file": str(file),
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }
    place = f"/connectors/{_NAME}"
    _ask(port, "GET", "/connector-plugins")
    _ask(port, "PUT", f"{place}/config", wanted)
    _until(lambda: _ask(port, "GET", f"{place}/offsets")["offsets"], "the connector has offsets")
    _ask(port, "PUT", f"{place}/stop")
    _until(lambda: not _ask(port, "GET", f"{place}/status")["tasks"], "the connector is stopped")
    _ask(port, "PATCH", f"{place}/offsets", _ask(port, "GET", f"{place}/offsets"))
    _ask(port, "DELETE", place)


def _write_and_read(client: Mapping[str, str], admin: AdminClient) -> None:
    reader = Consumer({**client, "group.id": _NAME, "auto.offset.reset": "earliest"})
    try:
        reader.subscribe([_NAME])
        for codec in _CODECS:
            _write(client, codec)
            _until(lambda: reader.poll(POLL_INTERVAL_S) is not None, f"what {codec} has written is read")
        reader.commit(asynchronous=False)
        _await(admin.describe_consumer_groups([_NAME]))
    finally:
        reader.close()


def _write(client: Mapping[str, str], codec: str) -> None:
    """Commit one transaction, with offsets in it, and abort another."""
    nobody = Consumer({**client, "group.id": _NOBODYS_GROUP})
    try:
        _write_transactions(client, codec, nobody.consumer_group_metadata())
    finally:
        nobody.close()


def _write_transactions(client: Mapping[str, str], codec: str, group: Any) -> None:
    # It says so when the coordinator is still loading, and tries again.
    quiet = {**client, "log_level": 0}
    producer = Producer({**quiet, "transactional.id": f"{_NAME}-{codec}", "compression.type": codec})
    producer.init_transactions(_TIMEOUT_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(_NAME, key=b"key", value=b"value" * 100, partition=0)
        place = [TopicPartition(_NAME, 0, 0)]
        producer.send_offsets_to_transaction(place, group, _TIMEOUT_S)
        producer.flush(_TIMEOUT_S)
        end(_TIMEOUT_S)


def _look_and_change(admin: AdminClient) -> None:
    """Ask for groups, offsets, settings and rights, and change each."""
    admin.list_consumer_groups().result(_TIMEOUT_S)
    _await(admin.list_offsets({TopicPartition(_NAME, 0): OffsetSpec.latest()}))
    place = ConsumerGroupTopicPartitions(_NAME, [TopicPartition(_NAME, 0, 0)])
    _await(admin.alter_consumer_group_offsets([place]))
    _await(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(_NAME)]))
    kept = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, _NAME, incremental_configs=[kept])
    _await(admin.incremental_alter_configs([topic]))
    _await(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, _NAME)]))
    right = (ResourceType.TOPIC, _NAME, ResourcePatternType.LITERAL, "User:trial", "*")
    _await(admin.create_acls([AclBinding(*right, AclOperation.READ, AclPermissionType.ALLOW)]))
    _await(admin.delete_records([TopicPartition(_NAME, 0, 1)]))


def _await(futures: Mapping[Any, Future[Any]]) -> None:
    for each in futures.values():
        each.result(_TIMEOUT_S)


def _ask(port: int, method: str, path: str, body: object = None) -> Any:
    """Return the answer; a worker that rebalances, or has not read of a connector yet, is asked again."""
    answers: list[bytes] = []

    def answered() -> bool:
        status, answer = _answer(port, method, path, body)
        answers[:] = [answer]
        return status < http.client.BAD_REQUEST

    _until(answered, f"{method} {path} is answered")
    return json.loads(answers[0] or b"null")


def _answer(port: int, method: str, path: str, body: object) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_S)
    try:
        content = {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), content)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() >= deadline:
            raise Retriable(f"the trial took longer than {_TIMEOUT_S:g} s until {what}", where=LOOPBACK)
        time.sleep(POLL_INTERVAL_S)
