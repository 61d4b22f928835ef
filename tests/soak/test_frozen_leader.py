"""A broker that leads a flow's state is frozen, and asked as it continues: another one leads by then."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.config.clients.resolve import ClientConfig
from onceover.errors import OnceoverError
from onceover.kafka.cluster import LiveCluster
from onceover.state.log import StateLog
from onceover_lab.embed.node import KafkaNode
from tests.support.brokers.clusters import ClusterFactory
from tests.support.raw.adversary import KEEP_FOREVER
from tests.support.session.wait import wait_until

pytestmark = pytest.mark.soak
_TIMEOUT_S: Final = 60.0
_ANSWERS_S: Final = 2.0
_HEAP_MB: Final = 320


def write(client: dict[str, Any], topic: str, value: bytes) -> None:
    """Have somebody write the layout, by the brokers that can be reached."""
    producer = Producer({**client, "acks": "all", "message.timeout.ms": int(_TIMEOUT_S * 1000)})
    producer.produce(topic, value, b"layout", partition=0)
    assert producer.flush(_TIMEOUT_S) == 0


def test_a_leader_that_was_frozen_tells_what_was_before_and_no_mark_is_its_own(
    start_cluster: ClusterFactory, unique_name: str
) -> None:
    """Questions lie before it as it continues: who only looks may be told the old value, who marks is not."""
    target = start_cluster("frozen", brokers=3, heap_mb=_HEAP_MB)
    topic, admin = f"__onceover.{unique_name}.state", AdminClient(target.client)
    admin.create_topics([NewTopic(topic, 2, 3, config=KEEP_FOREVER)])[topic].result(_TIMEOUT_S)

    def leader(*asked: KafkaNode) -> int:
        servers = ",".join(f"127.0.0.1:{node.ports.client}" for node in asked)
        config = ClientConfig("west", {**target.client, "bootstrap.servers": servers})
        with LiveCluster(config).hasty(_ANSWERS_S) as cluster:
            try:
                found = cluster.topics([topic]).get(topic)
            except OnceoverError:
                return -1
        return -1 if found is None else found.partitions[0].leader

    wait_until(lambda: leader(*target.nodes) >= 0, _TIMEOUT_S, "somebody leads it")
    write(target.client, topic, b"1")
    old = next(node for node in target.nodes if node.node_id == leader(*target.nodes))
    others = [node for node in target.nodes if node is not old]
    asked = {**target.client, "bootstrap.servers": f"127.0.0.1:{old.ports.client}"}
    with ThreadPoolExecutor(2) as pool:
        clusters = [LiveCluster(ClientConfig("west", asked)) for _ in range(2)]
        looking, deciding = (StateLog(cluster, topic, 0) for cluster in clusters)
        with closing(looking), closing(deciding), clusters[0], clusters[1]:
            assert looking.catch_up() == deciding.catch_up() == {"layout": 1}
            old.pause()
            wait_until(lambda: leader(*others) not in (-1, old.node_id), _TIMEOUT_S, "another one leads it")
            reached = ",".join(f"127.0.0.1:{node.ports.client}" for node in others)
            write({**target.client, "bootstrap.servers": reached}, topic, b"2")
            looks = pool.submit(looking.catch_up)
            decides = pool.submit(clusters[1].retry, deciding.read_whole)
            old.resume()
            # Of 4.3.0 it was the old one.
            assert looks.result(_TIMEOUT_S)["layout"] in (1, 2)
            assert decides.result(_TIMEOUT_S) == {"layout": 2}
