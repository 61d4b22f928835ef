"""A thousand topics with one record each, and three thousand: time to the first full copy, memory, status."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from onceover_lab.embed.kafka import start_all
from tests.support.brokers.clusters import ClusterFactory
from tests.support.flows.flows import FlowProcess, InlineFlow, assert_same, write_flow
from tests.support.raw.adversary import KEEP_FOREVER

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

_TIMEOUT_S = 300.0
_CREATED_AT_ONCE = 250
_HEAP_MB = 1024


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Log how long it took; shown with `-o log_cli=true -o log_cli_level=INFO`."""
    start_s = time.monotonic()
    yield
    log.info("%s: %.1f s", what, time.monotonic() - start_s)


def fill(client: dict[str, str], topics: list[str]) -> None:
    """Create the topics, and write one record into each."""
    admin = AdminClient(client)
    for at in range(0, len(topics), _CREATED_AT_ONCE):
        new = [NewTopic(topic, 1, 1, config=KEEP_FOREVER) for topic in topics[at : at + _CREATED_AT_ONCE]]
        for future in admin.create_topics(new, operation_timeout=_TIMEOUT_S).values():
            future.result(_TIMEOUT_S)
    producer = Producer({**client, "acks": "all", "linger.ms": 50})
    for topic in topics:
        producer.produce(topic, b"value of " + topic.encode(), b"key")
    assert producer.flush(_TIMEOUT_S) == 0


@pytest.mark.parametrize("count", [1000, 3000])
def test_many_topics_with_one_record_each_are_copied(
    start_cluster: ClusterFactory, tmp_path: Path, unique_name: str, count: int
) -> None:
    """Everything is copied, by lanes that keep to their memory; a second start has little to do."""
    source, target = start_all(
        [lambda: start_cluster("source", heap_mb=_HEAP_MB), lambda: start_cluster("target", heap_mb=_HEAP_MB)]
    )
    topics = [f"{unique_name}.{number:04}" for number in range(count)]
    with timed(f"{count} topics made"):
        fill(source.client, topics)
    path = write_flow(tmp_path, unique_name, source.client, target.client, [f"{unique_name}[.].*"])
    with (
        timed(f"{count} topics: start to the end of the first full copy"),
        FlowProcess(path, tmp_path / "flow.log", seconds=_TIMEOUT_S, fresh=True) as process,
    ):
        assert process.wait(_TIMEOUT_S) == 0, process.child.tail(50)
    with timed(f"{count} topics: judged"):
        assert_same(source.client, target.client, topics, timeout_s=_TIMEOUT_S)
    flow = InlineFlow(path)
    with timed(f"{count} topics: status"):
        status = flow.status()
    assert len(status["partitions"]) == count
    assert {p["state"] for p in status["partitions"]} == {"caught_up"}
    with timed(f"{count} topics: a second start"):
        assert flow.copy().records == 0
