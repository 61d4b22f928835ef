"""Who the producer is, and how it counts: InitProducerId, epochs, sequences."""

from __future__ import annotations

import pytest

from onceover.errors import Fatal, NeedsOperator, Retriable
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.kafka.produce.requests import PATIENCE_S
from onceover.state.fencing import LANE_TIMEOUT_MS, LEADER_TIMEOUT_MS, fence
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.kafka.scenes import (
    P0,
    P1,
    batch,
    producer,
    v3,
    v5,
)


def test_init_tells_not_yet_from_owned(cluster: FakeCluster) -> None:
    """One attempt a call: the caller looks at the layout in between."""
    made = TransactionalProducer(cluster, "id", timeout_ms=1000)
    cluster.codes["InitProducerId"].extend([51, 16, 47, 50])
    assert [made.init() for _ in range(3)] == [False, False, False]
    with pytest.raises(NeedsOperator):
        made.init()
    assert made.init()
    assert cluster.log.count("InitProducerId") == 5


def test_sequences_of_the_newer_set_begin_at_0_under_a_new_epoch() -> None:
    """KIP-890: the answer to EndTxn brings it."""
    cluster = v5()
    made = producer(cluster)
    for _ in range(2):
        made.send([batch(P0, 3)])
        made.send([batch(P0, 2)])
        made.drain()
        made.commit()
    assert cluster.batches == [(0, 40, 0, 0), (0, 40, 0, 3), (0, 40, 1, 0), (0, 40, 1, 3)]


def test_sequences_of_the_older_set_go_on_in_the_same_epoch() -> None:
    """Begun again at 0 they would be answered OK and dropped."""
    cluster = v3()
    made = producer(cluster)
    for _ in range(2):
        made.send([batch(P0, 3)])
        made.drain()
        made.commit()
    assert cluster.batches == [(0, 40, 0, 0), (0, 40, 0, 3)]


def test_sequences_wrap_to_0_after_the_largest(cluster: FakeCluster) -> None:
    """2147483647 is followed by 0, within a transaction too."""
    made = producer(cluster, first_sequence=2**31 - 3)
    for count in (2, 2, 1):
        made.send([batch(P0, count)])
    made.drain()
    made.commit()
    assert [sequence for _, _, _, sequence in cluster.batches] == [2**31 - 3, 2**31 - 1, 1]


def test_fence_takes_only_ok_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """FENCED_ON_OK_ONLY: 51 says that the epoch will be bumped, not that it was."""
    cluster = v5()
    cluster.codes["InitProducerId"].extend([51, 51, 14, 16])

    def retry(attempt: object, _deadline: object = None) -> object:
        for _ in range(9):
            try:
                return attempt()  # pyrefly: ignore[not-callable]
            except Retriable:
                continue
        raise AssertionError("never fenced")

    monkeypatch.setattr(cluster, "retry", retry)
    fence(cluster, "id")
    assert cluster.log == ["InitProducerId"] * 5
    cluster.codes["InitProducerId"].append(53)
    with pytest.raises(NeedsOperator, match="refuses to fence"):
        fence(cluster, "id")


def test_close_closes_every_connection_and_nothing_may_follow(cluster: FakeCluster) -> None:
    """Whoever comes next aborts what is open."""
    made = producer(cluster)
    made.send([batch(P0), batch(P1)])
    made.close()
    assert all(connection.closed for connection in cluster.connections) and len(cluster.connections) == 2
    with pytest.raises(Fatal):
        made.commit() if made.in_transaction else made.send([batch(P0)])


def test_patience_is_shorter_than_every_transaction_timeout() -> None:
    """Otherwise the target would abort for us, and a healthy lane would look fenced."""
    assert min(LANE_TIMEOUT_MS, LEADER_TIMEOUT_MS) >= PATIENCE_S * 1000
