"""Transactions that fail for a reason of one partition, which no answer names: it is found, and stops."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onceover.engine import lane as lanes
from onceover.engine.aside import Pace
from onceover.kafka.cluster import Cluster
from onceover.kafka.ports import Outgoing
from onceover.kafka.producer import TransactionalProducer
from tests.support.rawkafka import Codec
from tests.support.replica import Replica
from tests.support.wait import wait_until

Capture = pytest.CaptureFixture[str]
_TIMEOUT_S = 60.0
_COUNT = 300


class Neighbour:
    """Ends every transaction that writes a partition, with the lane's own transactional.id."""

    def __init__(self) -> None:
        self.minds: set[tuple[str, int]] = set()
        self.ended = 0

    def producer(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> TransactionalProducer:
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

        return Watched(cluster, transactional_id, timeout_ms=timeout_ms)


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
    monkeypatch.setattr("onceover.engine.known.FAILING", Pace(4.0, 0.5, 1.0))
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
                lambda partition=partition: len(replica.target_records(topic, partition)) == 2 * _COUNT,  # type: ignore[misc]
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


def test_while_nothing_gets_through_for_anybody_nobody_is_blamed(
    replica: Replica, neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes, and everything is copied; nothing was stopped meanwhile."""
    monkeypatch.setattr("onceover.engine.known.FAILING", Pace(0.0, 0.0, 0.0))
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
                lambda partition=partition: len(replica.target_records(topic, partition)) == _COUNT,  # type: ignore[misc]
                _TIMEOUT_S,
                f"partition {partition}",
            )
    assert notes(replica) == []
    replica.assert_same()
