"""Work that takes longer than the target lets a transaction stay open: it is committed on the way."""

from __future__ import annotations

import time
from typing import Any

import pytest

from onceover.copy import lane as lanes
from onceover.copy.loop import Until
from onceover.model import TopicPartition
from onceover.wire.batches.records import EncodedBatch, reencode
from onceover.wire.batches.unpack import Unpacked
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import Replica
from tests.support.raw.rawkafka import Codec, RawConnection, RawRecord, build_batch
from tests.support.session.wait import wait_until

# Of which a lane takes a third before it commits.
_TIMEOUT_MS = 1_500
_WAIT_S = 40.0


@pytest.fixture(autouse=True)
def impatient_target(monkeypatch: pytest.MonkeyPatch, replica: Replica) -> None:
    """Transactions time out soon, and the flow file would keep them open for longer than that."""
    monkeypatch.setattr(lanes, "LANE_TIMEOUT_MS", _TIMEOUT_MS)
    replica.configure(lanes=1, transaction={"max_interval": "10s"})


@pytest.mark.soak
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


@pytest.mark.soak
def test_records_that_come_later_do_not_wait_for_the_end_of_anothers_batch(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute of a handler in one batch of few bytes: the lane still looks whether others have something."""
    monkeypatch.setattr("onceover.handling.pace._TURN_S", 0.2)
    replica.configure(**handler_keys("slow", seconds=0.01))
    topic = replica.topic(partitions=2)
    count = 6_000
    batch = build_batch([RawRecord(b"k", b"v", (), 0)] * count, codec=Codec.ZSTD)
    with RawConnection(replica.source_client["bootstrap.servers"]) as connection:
        connection.produce(topic, 0, batch)

    def position(partition: int) -> int:
        return int(replica.partition_status(topic, partition)["position"])

    with replica.running():
        wait_until(lambda: position(0) > 0, _WAIT_S, "the batch is under way")
        replica.source.plain(topic, 1, replica.source.records(5))
        wait_until(lambda: position(1) == 5, _WAIT_S, "the neighbour's records")
        assert position(0) < count


@pytest.mark.soak
def test_one_batch_that_takes_long_to_encode_gets_through_in_many_transactions(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's own times forbid to pass it; however fast the machine, a record costs 40 microseconds."""

    def dear(piece: Unpacked, **bounds: Any) -> list[EncodedBatch]:
        time.sleep(piece.header.count * 40e-6)
        return reencode(piece, **bounds)

    monkeypatch.setattr("onceover.copy.partition.reencode", dear)
    topic = replica.topic(config={"message.timestamp.type": "LogAppendTime"})
    count = 30_000
    batch = build_batch([RawRecord(b"k", b"v", (), 0)] * count, codec=Codec.ZSTD)
    with RawConnection(replica.source_client["bootstrap.servers"]) as connection:
        connection.produce(topic, 0, batch)
    # Little memory: the batch is expanded in pieces of a few thousand records.
    replica.configure(topics={"sync_configs": False}, limits={"memory_per_lane": "8MiB"})
    outcome = replica.copy()
    assert outcome.records == count
    assert len(outcome.receipts) > 1
    replica.assert_same()


def test_a_handler_that_hangs_on_a_record_stops_its_partition_only(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is interrupted, as in a worker's main thread; what comes before the record is copied."""
    monkeypatch.setattr("onceover.copy.partition.LONGEST_S", _TIMEOUT_MS / 1000)
    monkeypatch.setattr("onceover.handling.pace.TOO_LONG_S", _TIMEOUT_MS / 2000)
    replica.configure(**handler_keys("hanging", bad="hang"))
    topic = replica.topic(partitions=3)
    for partition in range(3):
        replica.source.plain(topic, partition, replica.source.records(200))
    replica.source.plain(topic, 1, [RawRecord(b"k", b"hang", (), 0)])
    replica.source.plain(topic, 1, replica.source.records(5))
    with replica.flow.running() as (lead, layout):
        ends = {TopicPartition(topic, partition): 201 for partition in range(3)}
        ends |= {TopicPartition(topic, partition): 200 for partition in (0, 2)}
        replica.flow.lane(layout, 0, Until(time.monotonic() + 60, ends))
        lead.end()
    stop = replica.stop_of(topic, 1)
    assert stop["code"] == "HANDLER_FAILED" and "offset 200" in stop["message"]
    assert [len(replica.target_records(topic, partition)) for partition in range(3)] == [200, 200, 200]
