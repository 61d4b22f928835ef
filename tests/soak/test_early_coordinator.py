"""Kafka's group coordinator, opened before it has read its log: the real thing, on a real broker.

A broker that was killed leads its partitions again for a moment, then nobody does, then it does. Where
reading ``__consumer_offsets`` takes longer than that, the end of the first reading opens the coordinator of
the second one. A broker without a compiler is slow enough for a small log to show it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from onceover.kafka import calls
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.state import names
from onceover.wiring.flows import open_clusters
from onceover.wiring.runs import lane_task
from onceover_lab.embed.kafka import KafkaCluster
from tests.chaos.checker import Place
from tests.chaos.reading import committed
from tests.support.brokers.clusters import ClusterFactory
from tests.support.flows.replica import Replica
from tests.support.raw.rawkafka import Codec
from tests.support.session.wait import wait_until

_TIMEOUT_S = 180.0
# Every other restart shows it.
_KILLS = 12
_FILLED_PARTITIONS = 100
_FILLED_TIMES = 160
# What the broker logs when a coordinator was open before it had read its log, and when it notices at a write.
_EARLY = ("because context is in ACTIVE state", "is out of sync with the underlying log")


pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def fill_offsets(target: Cluster, topic: str) -> None:
    """Commit so often for another group that the coordinator needs seconds to read it again."""
    request, response = calls.offset_commit_request(
        "filler", {TopicPartition(topic, p): OffsetToCommit(1, -1, "") for p in range(_FILLED_PARTITIONS)}
    )
    coordinator = target.retry(lambda: target.coordinator("filler", calls.GROUP))
    for _ in range(_FILLED_TIMES):
        codes = coordinator.call(request, response, calls.partition_codes)
        assert set(codes.values()) == {0}


def test_positions_of_a_coordinator_that_opens_too_early_are_not_committed(
    start_cluster: ClusterFactory, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the second question what was copied since is copied again; and the flow does go on."""
    # Such a broker may need longer to start than lanes of tests wait.
    patient = partial(lane_task, give_up_s=_TIMEOUT_S)
    monkeypatch.setattr("tests.support.flows.flows.lane_task", lambda *given, give_up_s: patient(*given))
    source = start_cluster("source")
    target = start_cluster("target", config={"offsets.topic.num.partitions": "1"}, java_flags=["-Xint"])
    [node] = target.nodes
    with Replica(tmp_path, unique_name, source.client, target.client) as replica:
        topic, group = replica.topic(), names.progress_group(replica.name)
        replica.source.plain(topic, 0, replica.source.records(10), Codec.LZ4)
        replica.copy()
        replica.target_topic("filled", _FILLED_PARTITIONS)
        _, cluster = open_clusters(replica.flow.watch.flow)
        with cluster:
            fill_offsets(cluster, "filled")
        replica.source.plain(topic, 0, replica.source.records(90), Codec.LZ4)
        assert replica.copy().records == 90

        def early() -> bool:
            lines = node.log_path.read_text(errors="replace").splitlines()
            return any("__consumer_offsets-0" in line and any(w in line for w in _EARLY) for line in lines)

        with replica.running(seconds=900) as live:
            for restarts in range(1, _KILLS + 1):
                node.kill()
                node.start()
                replica.source.plain(topic, 0, replica.source.records(5), Codec.LZ4)
                copied = partial(reached, target, group, topic, 100 + 5 * restarts)
                wait_until(copied, _TIMEOUT_S, "it goes on")
                if early():
                    break
        assert early(), f"{_KILLS} restarts, and no coordinator opened too early"
        assert live.records == 5 * restarts
        replica.assert_same()


def reached(target: KafkaCluster, group: str, topic: str, position: int) -> bool:
    """Tell whether the flow has committed this position; no while nobody can say."""
    with suppress(OSError):
        return committed(target.bootstrap, group).get(Place(topic, 0)) == position
    return False
