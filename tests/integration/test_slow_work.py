"""Work that takes longer than the target lets a transaction stay open: it is committed on the way."""

from __future__ import annotations

import pytest

from onceover.engine import lane as lanes
from tests.support.handled import handler_keys
from tests.support.rawkafka import Codec, RawConnection, RawRecord, build_batch
from tests.support.replica import Replica

# Of which a lane takes a third before it commits.
_TIMEOUT_MS = 1_500


@pytest.fixture(autouse=True)
def impatient_target(monkeypatch: pytest.MonkeyPatch, replica: Replica) -> None:
    """Transactions time out soon, and the flow file would keep them open for longer than that."""
    monkeypatch.setattr(lanes, "LANE_TIMEOUT_MS", _TIMEOUT_MS)
    replica.configure(lanes=1, transaction={"max_interval": "10s"})


def test_a_slow_handler_gets_through_one_answer_in_many_transactions(replica: Replica) -> None:
    """A millisecond a record, three times as long as a transaction may take, in very few bytes."""
    replica.configure(**handler_keys("slow", seconds=0.001))
    topic = replica.topic(partitions=2)
    for partition in range(2):
        replica.source.plain(topic, partition, replica.source.records(2_000), Codec.ZSTD)
    outcome = replica.copy()
    assert outcome.records == 4_000
    assert len({(r.source, r.source_end) for r in outcome.receipts}) > 4
    replica.assert_same()


def test_one_batch_that_takes_long_to_encode_gets_through_in_many_transactions(replica: Replica) -> None:
    """The broker's own times forbid to pass it; hundreds of thousands of records are in it."""
    topic = replica.topic(config={"message.timestamp.type": "LogAppendTime"})
    count = 300_000
    batch = build_batch([RawRecord(b"k", b"v", (), 0)] * count, codec=Codec.ZSTD)
    with RawConnection(replica.source_client["bootstrap.servers"]) as connection:
        connection.produce(topic, 0, batch)
    replica.configure(topics={"sync_configs": False})
    outcome = replica.copy()
    assert outcome.records == count
    assert len(outcome.receipts) > 1
    replica.assert_same()
