"""A target whose brokers are upgraded one by one, from 3.9.1 to the release of today: each speaks its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.kafka import calls
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.groups.admin import GroupAdmin
from onceover_lab.embed.jars import DEFAULT_VERSION
from onceover_lab.embed.kafka import KafkaCluster
from onceover_lab.embed.node import KafkaNode
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.flowcase import FlowCase
from tests.support.flows.repeats import count_repeats
from tests.support.session.wait import wait_until

OLDER = "3.9.1"
_PRODUCE = 0
# Of Produce.
OLD, NEW = 11, 13
_WITHIN_S = 60.0

pytestmark = pytest.mark.soak


@pytest.fixture
def older(session_home: Path) -> Iterator[KafkaCluster]:
    home = Path(tempfile.mkdtemp(prefix="rolling-", dir=session_home))
    factory = ClusterFactory(home)
    try:
        yield factory("rolling", version=OLDER, brokers=2)
    finally:
        factory.close()
        shutil.rmtree(home)


def upgrade(node: KafkaNode) -> None:
    """Restart a broker as one of today, with its data and ports."""
    node.stop()
    node._spec = replace(node._spec, version=DEFAULT_VERSION)
    node.start()


def spoken(cluster: LiveCluster) -> list[int]:
    """Return the newest version of Produce that each broker speaks, the oldest first."""
    nodes = [broker.node_id for broker in calls.metadata(cluster.control(), []).brokers]
    return sorted(calls.api_versions(cluster.control(node)).newest[_PRODUCE] for node in nodes)


def await_heard(target: KafkaCluster, versions: list[int]) -> None:
    """Wait until both brokers are there and speak these versions, and ask them for their groups."""
    with LiveCluster(ClientConfig("west", target.admin_client)) as cluster:
        wait_until(
            lambda: cluster.retry(lambda: spoken(cluster)) == versions, _WITHIN_S, "both brokers are back"
        )
        assert not GroupAdmin(cluster).groups().unheard


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("first", [1, 2])
def test_a_flow_copies_at_each_step_of_the_upgrade(
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
    older: KafkaCluster,
    delivery: str,
    first: int,
) -> None:
    """To the partitions of all brokers, whichever is the newer one; and all are asked for their groups."""
    case = FlowCase(tmp_path, unique_name, source_cluster, older, delivery=delivery)
    nodes = {node.node_id: node for node in older.nodes}
    try:
        for node_id, seen in ((first, [OLD, NEW]), (3 - first, [NEW, NEW])):
            upgrade(nodes[node_id])
            await_heard(older, seen)
            case.flow().copy()
            case.assert_complete()
            assert count_repeats(case.source, case.target, [case.topic]) == 0
            case.feed()
        case.flow().copy()
        case.assert_complete()
    finally:
        case.close()
