"""Three clusters, each copied to the next one under the same names: the flow that would close the circle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from onceover.engine import names
from onceover.errors import UsageError
from tests.support.adversary import Adversary
from tests.support.clusters import ClusterFactory, SharedCluster
from tests.support.flows import InlineFlow, write_flow
from tests.support.replica import read_records

ALIASES = ("east", "west", "north")


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
