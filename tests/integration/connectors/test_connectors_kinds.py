"""Kafka's own source connectors: their offsets have other shapes than a counter's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import TIMEOUT_S, Connect, Workers
from tests.support.connect.connect_tool import Case
from tests.support.flows.feeds import held
from tests.support.session.wait import wait_until

MIRROR = "org.apache.kafka.connect.mirror"


@pytest.fixture
def case(workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path) -> Iterator[Case]:
    """Connectors on the exactly-once workers."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        yield case


def values(connect: Connect, topic: str, partitions: int) -> list[list[str]]:
    """Return what a topic holds, by partition."""
    found = held(connect.client, topic, partitions)
    return [[(record.value or b"").decode() for record in found[number]] for number in sorted(found)]


def await_values(connect: Connect, topic: str, expected: list[list[str]]) -> None:
    """Wait until the topic holds at least as much as is expected; fail unless it is just that."""
    count = sum(map(len, expected))
    wait_until(
        lambda: sum(map(len, values(connect, topic, len(expected)))) >= count,
        TIMEOUT_S,
        f"{count} records in {topic}",
        poll_s=0.3,
    )
    assert values(connect, topic, len(expected)) == expected


@pytest.mark.soak
def test_a_file_is_read_on(case: Case, tmp_path: Path) -> None:
    """FileStreamSource keeps a position in bytes."""
    file = tmp_path / "lines.txt"
    lines = [f"line {number}" for number in range(300)]
    file.write_text("".join(f"{line}\n" for line in lines[:150]))
    case.connect.create_topic(case.topic, 1)
    case.connect.configure(
        case.name,
        connector__class="org.apache.kafka.connect.file.FileStreamSourceConnector",
        file=file,
        topic=case.topic,
        tasks__max=1,
    )
    await_values(case.connect, case.topic, [lines[:150]])

    # Nothing is written while it is watched: nothing is proven.
    case.migrate(outcome="unverifiable")

    with file.open("a") as more:
        more.writelines(f"{line}\n" for line in lines[150:])
    await_values(case.connect, case.topic, [lines])
    assert case.tool.verify(case.name).outcome(case.name) == "done"


@pytest.mark.soak
def test_a_mirror_is_read_on(case: Case, source_cluster: SharedCluster) -> None:
    """Three fields in a source partition; an offset for each partition that is copied."""
    source = Connect(case.cluster, source_cluster.client)
    producer = Producer({**source_cluster.client, "enable.idempotence": True})

    def feed(first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce(case.topic, str(number).encode(), partition=number % 4)
        assert producer.flush(TIMEOUT_S) == 0

    source.create_topic(case.topic, 4)
    case.connect.create_topic(case.topic, 4)
    feed(0, 400)
    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    case.connect.configure(
        case.name,
        connector__class=f"{MIRROR}.MirrorSourceConnector",
        source__cluster__alias="left",
        target__cluster__alias="right",
        source__cluster__bootstrap__servers=source_cluster.bootstrap,
        target__cluster__bootstrap__servers=case.client["bootstrap.servers"],
        replication__policy__class=f"{MIRROR}.IdentityReplicationPolicy",
        replication__factor=1,
        **{"offset-syncs__topic__replication__factor": 1},
        sync__topic__acls__enabled="false",
        topics=case.topic,
        key__converter=converter,
        value__converter=converter,
        tasks__max=2,
        exactly__once__support="required",
        consumer__isolation__level="read_committed",
    )
    await_values(case.connect, case.topic, expected(400))
    keys = set(case.connect.offsets(case.name).values)
    assert len(keys) == 4

    case.migrate(outcome="unverifiable")

    assert set(case.connect.offsets(case.name, case.own_topic).values) == keys
    feed(400, 800)
    await_values(case.connect, case.topic, expected(800))
    assert case.tool.verify(case.name).outcome(case.name) == "done"
    assert case.tool.downgrade(case.name).outcome(case.name) == "unverifiable"
    feed(800, 1200)
    await_values(case.connect, case.topic, expected(1200))
    source.close()


def expected(count: int) -> list[list[str]]:
    """Return what each partition of the mirrored topic holds after ``count`` records."""
    return [[str(number) for number in range(count) if number % 4 == partition] for partition in range(4)]
