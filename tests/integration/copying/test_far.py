"""A cluster that is far away: much is on its way, and a kill loses and repeats nothing of that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceover.kafka.logs import fetcher as fetcher_module
from onceover.kafka.logs.fetcher import Fetcher
from onceover.kafka.produce.inflight import FEW_REQUESTS, Departure, InFlight
from onceover.state.steps import Step
from onceover_lab.bench.distance import Distance, proxies
from onceover_lab.embed.kafka import KafkaCluster
from onceover_lab.embed.ports import PortReservation
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.feeds import PARTITIONS
from tests.support.flows.flowcase import FlowCase

ROUND_TRIP_MS = 60
ROUNDS = 40


@pytest.fixture(scope="module")
def far(session_home: Path) -> Iterator[tuple[KafkaCluster, Distance]]:
    """A cluster that is reached through a proxy, and how far away that keeps it: nowhere, as yet."""
    reserved, factory = PortReservation(), ClusterFactory(session_home)
    try:
        cluster = factory("far", advertised=[reserved.port])
        distance = Distance()
        reserved.release()
        with proxies([(reserved.port, cluster.nodes[0].ports.client, distance)]):
            yield cluster, distance
    finally:
        factory.close()


@pytest.fixture
def case(
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
    far: tuple[KafkaCluster, Distance],
) -> Iterator[FlowCase]:
    """A flow to it."""
    target, distance = far
    roomy = {"transaction": {"max_interval": "500ms", "max_bytes": "4MiB"}}
    case = FlowCase(tmp_path, unique_name, source_cluster, target, **roomy, limits={})
    for _ in range(ROUNDS):
        for partition in range(PARTITIONS):
            case.adversary.idempotent(case.topic, partition, case.adversary.records(15, value=bytes(1024)))
    distance.round_trip_ms = ROUND_TRIP_MS
    yield case
    distance.round_trip_ms = 0
    case.close()


# Whose answers wait on top of it is below, in each run.
@pytest.mark.soak
def test_much_is_on_its_way_and_a_kill_loses_and_repeats_none_of_it(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is unanswered is in sockets, in the proxy and in the broker when the process dies."""
    case.kill(Step.DATA_SENT, 3 * FEW_REQUESTS)
    most = [0]
    real = InFlight.sent

    def sent(in_flight: InFlight, size_bytes: int) -> Departure:
        departure = real(in_flight, size_bytes)
        most[0] = max(most[0], in_flight.requests)
        return departure

    monkeypatch.setattr(InFlight, "sent", sent)
    case.converge()
    assert most[0] > FEW_REQUESTS


@pytest.fixture
def distant(
    tmp_path: Path,
    unique_name: str,
    far: tuple[KafkaCluster, Distance],
    target_cluster: SharedCluster,
) -> Iterator[FlowCase]:
    """A flow from it, with more in each partition than one answer brings."""
    source, distance = far
    # A quarter of it in the two transactions that are there when it is killed, however quick the machine.
    roomy = {"max_interval": "500ms", "max_bytes": "2MiB"}
    case = FlowCase(tmp_path, unique_name, source, target_cluster, transaction=roomy)
    for _ in range(ROUNDS // 2):
        for partition in range(PARTITIONS):
            records = case.adversary.records(15, value=bytes(12_000))
            case.adversary.idempotent(case.topic, partition, records)
        case.adversary.interleaved(case.topic, 0)
    distance.round_trip_ms = ROUND_TRIP_MS
    yield case
    distance.round_trip_ms = 0
    case.close()


def test_several_answers_are_on_their_way_and_a_kill_loses_and_repeats_none_of_it(
    distant: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions that were aborted lie among them; what is read by then and not copied is read again."""
    # Its first answer is waited for. Whether three in a row are depends on how busy this machine is.
    monkeypatch.setattr(fetcher_module, "_FAR_ANSWERS", 1)
    distant.kill(Step.COMMITTED, 2)
    most = [0]
    real = Fetcher.request

    def request(fetcher: Fetcher, **how: Any) -> None:
        real(fetcher, **how)
        most[0] = max([most[0], *(len(route.asked) for route in fetcher._routes.values())])

    monkeypatch.setattr(Fetcher, "request", request)
    distant.converge()
    assert most[0] > 1
