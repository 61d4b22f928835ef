"""Transactions that fail for a reason of one partition, which no answer names: it is found, and stops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from onceover.copy import lane as lanes
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.ports import Cluster, Outgoing
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.stops.aside import WaitPolicy
from tests.support.flows.replica import Replica
from tests.support.raw.rawkafka import Codec
from tests.support.session.wait import wait_until

Capture = pytest.CaptureFixture[str]
_TIMEOUT_S = 60.0
_COUNT = 300


class Neighbour:
    """Ends every transaction that writes a partition, with the lane's own transactional.id."""

    def __init__(self) -> None:
        self.minds: set[tuple[str, int]] = set()
        self.ended = 0

    def producer(
        self, cluster: Cluster, transactional_id: str, *, timeout_ms: int, in_flight_bytes: int
    ) -> TransactionalProducer:
        """Return the lane's producer, watched."""
        neighbour = self

        class Watched(TransactionalProducer):
            def send(self, batches: Sequence[Outgoing]) -> None:
                super().send(batches)
                if any(batch.target in neighbour.minds for batch in batches):
                    wait_until(
                        lambda: not cluster.init_producer_id(transactional_id, timeout_ms).error_code,
                        _TIMEOUT_S,
                        "the transaction is ended",
                    )
                    neighbour.ended += 1

        return Watched(cluster, transactional_id, timeout_ms=timeout_ms, in_flight_bytes=in_flight_bytes)


class Line:
    """Loses connections that carry data for a partition, and carries everything else."""

    def __init__(self) -> None:
        self.loses: set[tuple[str, int]] = set()
        self.lost = 0

    def producer(
        self, cluster: Cluster, transactional_id: str, *, timeout_ms: int, in_flight_bytes: int
    ) -> TransactionalProducer:
        """Return the lane's producer on this line."""
        line = self

        class Lossy(TransactionalProducer):
            def send(self, batches: Sequence[Outgoing]) -> None:
                if any(batch.target in line.loses for batch in batches):
                    line.lost += 1
                    self._guarded(line.lose)
                super().send(batches)

        return Lossy(cluster, transactional_id, timeout_ms=timeout_ms, in_flight_bytes=in_flight_bytes)

    @staticmethod
    def lose() -> None:
        raise ConnectionLost("the connection failed: timed out")


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    found = Line()
    monkeypatch.setattr(lanes, "TransactionalProducer", found.producer)
    return found


@pytest.fixture
def neighbour(monkeypatch: pytest.MonkeyPatch) -> Neighbour:
    found = Neighbour()
    monkeypatch.setattr(lanes, "TransactionalProducer", found.producer)
    return found


def notes(replica: Replica) -> list[str]:
    """Return what `status` notes about partitions that wait."""
    return [note["object"] for note in replica.flow.status()["notes"] if note["code"] == "WAITING"]


def filled(replica: Replica, topic: str) -> None:
    """Write into all three partitions."""
    for partition in range(3):
        replica.source.plain(topic, partition, replica.source.records(_COUNT), Codec.NONE)


def test_a_partition_whose_transactions_always_fail_is_noted_then_stops_and_the_others_go_on(
    replica: Replica, neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """One lane for all three: before, none of them was copied any more, and nobody was told."""
    monkeypatch.setattr("onceover.copy.known.FAILING", WaitPolicy(4.0, 0.5, 1.0))
    replica.configure(lanes=1)
    topic = replica.topic(partitions=3)
    filled(replica, topic)
    neighbour.minds.add((topic, 1))
    with replica.running():
        wait_until(lambda: notes(replica) == [f"{topic}:1"], _TIMEOUT_S, "the note")
        wait_until(lambda: replica.stop_of(topic, 1), _TIMEOUT_S, "the stop")
        stop = replica.stop_of(topic, 1)
        assert stop["code"] == "TRANSACTIONS_FAIL" and "partition resume" in stop["resolve"]
        assert notes(replica) == []
        filled(replica, topic)
        for partition in (0, 2):
            wait_until(
                lambda partition=partition: len(replica.target_records(topic, partition)) == 2 * _COUNT,
                _TIMEOUT_S,
                f"partition {partition}",
            )
        assert replica.target_records(topic, 1) == {}
        assert not replica.stop_of(topic, 0) and not replica.stop_of(topic, 2)
        ended = neighbour.ended
        neighbour.minds.clear()
        flow = str(replica.flow.path)
        code, _ = replica.command(capsys, "partition", "resume", flow, f"{topic}:1", "--apply")
        assert code == 0
        wait_until(lambda: len(replica.target_records(topic, 1)) == 2 * _COUNT, _TIMEOUT_S, "partition 1")
    assert neighbour.ended == ended, "tried again without being asked"
    replica.assert_same()


@pytest.mark.soak
def test_while_nothing_gets_through_for_anybody_nobody_is_blamed(
    replica: Replica, neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes, and everything is copied; nothing was stopped meanwhile."""
    monkeypatch.setattr("onceover.copy.known.FAILING", WaitPolicy(0.0, 0.0, 0.0))
    replica.configure(lanes=1)
    topic = replica.topic(partitions=3)
    filled(replica, topic)
    neighbour.minds |= {(topic, partition) for partition in range(3)}
    with replica.running():
        wait_until(lambda: neighbour.ended >= 15, _TIMEOUT_S, "many failures")
        assert not any(replica.stop_of(topic, partition) for partition in range(3))
        neighbour.minds.clear()
        for partition in range(3):
            wait_until(
                lambda partition=partition: len(replica.target_records(topic, partition)) == _COUNT,
                _TIMEOUT_S,
                f"partition {partition}",
            )
    assert notes(replica) == []
    replica.assert_same()


@pytest.mark.soak
@pytest.mark.parametrize("partitions", [3, 1])
def test_an_outage_of_data_alone_stops_nobody_however_few_are_busy(
    replica: Replica, line: Line, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """The lane's own small records get through; the only busy partition has nobody to be compared with."""
    monkeypatch.setattr("onceover.copy.known.FAILING", WaitPolicy(0.0, 0.0, 0.0))
    monkeypatch.setattr("onceover.copy.known.OUTAGE", WaitPolicy(math.inf, 0.05, 0.1))
    replica.configure(lanes=1)
    topic = replica.topic(partitions=partitions)
    line.loses.add((topic, 0))
    replica.source.plain(topic, 0, replica.source.records(_COUNT), Codec.NONE)
    with replica.running():
        wait_until(lambda: notes(replica) == [f"{topic}:0"], _TIMEOUT_S, "the note")
        before = line.lost
        wait_until(lambda: line.lost >= before + 5, _TIMEOUT_S, "more failures")
        assert not replica.stop_of(topic, 0)
        line.loses.clear()
        wait_until(lambda: len(replica.target_records(topic, 0)) == _COUNT, _TIMEOUT_S, "the copy")
    assert notes(replica) == []
    replica.assert_same()
