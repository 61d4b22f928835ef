"""Three clusters, each copied to the next one under the same names: the flow that would close the circle."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from onceover.errors import UsageError
from onceover.state import names
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.flows import InlineFlow, write_flow
from tests.support.flows.replica import Replica, read_records
from tests.support.flows.scene import Capture
from tests.support.flows.waysout import commands, follow
from tests.support.raw.adversary import Adversary
from tests.support.raw.rawkafka import Codec
from tests.support.session.wait import wait_until

_TIMEOUT_S = 60.0
_POLL_S = 0.2
ALIASES = ("east", "west", "north")


class Carrier:
    """Copies a topic back meanwhile, as a MirrorMaker does: records with their times, in its own batches.

    Args:
        client: where it reads; ``back`` where it writes.
    """

    def __init__(self, client: Mapping[str, str], back: Mapping[str, str], topic: str) -> None:
        # The flow may be about to create the topic: by default, that is looked for every five minutes.
        looks: dict[str, str | int] = {
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 300,
        }
        settings = {**client, "group.id": f"{topic}-carrier", **looks}
        self._consumer, self._producer = Consumer(settings), Producer(dict(back))
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="carrier", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(_TIMEOUT_S)
        self._producer.flush(_TIMEOUT_S)
        self._consumer.close()

    def _run(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self._producer.produce(
                        self._topic,
                        message.value(),
                        message.key(),
                        message.partition(),
                        timestamp=message.timestamp()[1],
                        headers=message.headers(),
                    )
            self._producer.poll(0)


class Ring:
    """Clusters 0, 1 and 2; ``flow(n)`` copies from cluster n to the next one."""

    def __init__(self, folder: Path, name: str, clusters: tuple[SharedCluster, ...]) -> None:
        self._folder = folder
        self.name = name
        self.clients = [dict(cluster.client) for cluster in clusters]
        self.sides = [Adversary(cluster.bootstrap, seed) for seed, cluster in enumerate(clusters)]

    def flow(self, number: int, **topics: object) -> InlineFlow:
        """Return a flow, with changes of its topics."""
        there = (number + 1) % 3
        path = write_flow(
            self._folder,
            f"{self.name}-{ALIASES[number]}",
            self.clients[number],
            self.clients[there],
            [rf"{self.name}[.].*"],
            source={"alias": ALIASES[number]},
            target={"alias": ALIASES[there]},
            topics=topics,
        )
        return InlineFlow(path)

    def refusals(self, flow: InlineFlow) -> dict[str, str]:
        """Return which topics a flow refuses, with their codes."""
        stopped = [p for p in flow.status()["partitions"] if p["stop"]]
        return {p["topic"]: p["stop"]["code"] for p in stopped}


@pytest.fixture
def ring(
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    start_cluster: ClusterFactory,
) -> Iterator[Ring]:
    ring = Ring(tmp_path, unique_name, (source_cluster, target_cluster, start_cluster("third")))
    yield ring
    for side in ring.sides:
        side.close()


def test_flow_that_would_close_a_ring_is_refused(ring: Ring) -> None:
    """It sees its neighbours only, and they tell it where their records come from. A new flow does not start,
    a running one leaves the topic out, and who had it first goes on."""
    topic = ring.sides[0].create_topic(f"{ring.name}.orders", 1)
    ring.sides[0].plain(topic, 0, ring.sides[0].records(3))
    assert [ring.flow(n).copy().records for n in (0, 1)] == [3, 3]
    last = ring.flow(2)
    with pytest.raises(UsageError, match="round for ever") as refused:
        last.copy()
    assert (refused.value.code, refused.value.exit_code) == ("RING", 2)
    assert topic in str(refused.value.where)
    ways = str(refused.value.resolve)
    assert all(way in ways for way in ("exclude", "prefix", names.state_topic(f"{ring.name}-west")))
    assert names.state_topic(last.name) not in AdminClient(ring.clients[0]).list_topics(timeout=30).topics
    ring.flow(2, exclude=[topic]).copy()
    assert ring.flow(2).copy().records == 0
    assert ring.refusals(ring.flow(2)) == {topic: "RING"}
    assert [ring.flow(n).copy().records for n in (0, 1)] == [0, 0]
    assert len(read_records(ring.clients[0], topic)) == 3


@pytest.mark.soak
def test_ring_that_nobody_saw_closing_is_opened_by_the_flow_that_came_last(ring: Ring) -> None:
    """The first flow was not running when the last one came, and told nobody what had changed before it."""
    topic = f"{ring.name}.orders"
    for side in (ring.sides[0], ring.sides[2]):
        side.create_topic(topic, 1)
    for number in (0, 2, 1):
        assert ring.flow(number).copy().records == 0
    ring.sides[0].plain(topic, 0, ring.sides[0].records(3))
    assert ring.flow(0).copy().records == 3
    assert ring.flow(1).copy().records == 0
    assert ring.refusals(ring.flow(1)) == {topic: "RING"}
    assert [ring.flow(n).copy().records for n in (2, 0)] == [0, 0]
    assert [ring.refusals(ring.flow(n)) for n in (2, 0)] == [{}, {}]
    assert len(read_records(ring.clients[0], topic)) == 3


@pytest.mark.soak
def test_flow_that_gave_way_goes_on_where_somebody_says_once_the_ring_is_gone(
    ring: Ring, capsys: Capture
) -> None:
    """Not by itself, and not at its old position: what came round since then is its own target's."""
    topic = f"{ring.name}.orders"
    for side in (ring.sides[0], ring.sides[2]):
        side.create_topic(topic, 1)
    for number in (0, 2, 1):
        assert ring.flow(number).copy().records == 0
    assert ring.flow(0).copy().records == 0
    assert ring.flow(1).copy().records == 0
    ring.sides[2].plain(topic, 0, ring.sides[2].records(3))
    assert [ring.flow(n).copy().records for n in (2, 0, 1)] == [3, 3, 0]
    assert ring.flow(0, exclude=[topic]).copy().records == 0
    left = ring.flow(1)
    assert left.copy().records == left.copy().records == 0
    assert ring.refusals(left) == {topic: "GAVE_WAY"}
    (partition,) = left.status()["partitions"]
    shown, done = commands(partition["stop"]["resolve"])
    (change, _) = shown.run(capsys)["changes"]
    assert (change["risk"], change["records"]) == ("skip", change["to"] - change["from"])
    assert done.run(capsys)["applied"] is True
    ring.sides[1].plain(topic, 0, ring.sides[1].records(1))
    assert (left.copy().records, ring.refusals(left)) == (1, {})
    assert len(read_records(ring.clients[2], topic)) == 4


def test_records_that_somebody_unseen_copies_back_stop_their_partition(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the records alone. Ended there and resumed as the stop says, everything is copied as it is."""
    monkeypatch.setattr("onceover.copy.returns._APART_S", 0.2)
    topic, other = replica.topic("trouble"), replica.topic("other")
    for name in (topic, other):
        replica.source.plain(name, 0, replica.source.records(40), Codec.LZ4)

    def caught_up(*topics: str) -> bool:
        return all(replica.partition_status(name)["state"] == "caught_up" for name in topics)

    with replica.running():
        with Carrier(replica.target_client, replica.source_client, topic):
            wait_until(lambda: bool(replica.stop_of(topic)), _TIMEOUT_S, "it is stopped", poll_s=_POLL_S)
        stop = replica.stop_of(topic)
        assert stop["code"] == "RECORDS_RETURN"
        again = [int(number) for number in re.findall(r"\d+", stop["seen"])]
        records = replica.source_records(topic)
        assert len(again) == 4 and len({records[offset] for offset in again}) == 1
        assert caught_up(other)
        (way,) = commands(stop["resolve"])
        follow(capsys, way)
        wait_until(lambda: caught_up(topic, other), _TIMEOUT_S, "it is copied", poll_s=_POLL_S)
    replica.assert_same()
