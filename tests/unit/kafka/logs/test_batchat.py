"""What lies at an offset now: batches come whole or not at all, many in a request, a larger one alone."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from onceover.backoff import Patience
from onceover.errors import NotNow, Retriable
from onceover.kafka.link.channel import LARGEST_BATCH_BYTES
from onceover.kafka.logs import batchat
from onceover.kafka.logs.batchat import BatchPlace, batches_at
from onceover.model import TopicPartition
from onceover.wire.batches.batch import parse_header
from onceover.wire.hotpath import FETCH_VERSION
from tests.support.raw.rawkafka import RawRecord, build_batch

TOPIC_ID = UUID(int=7)
_TOPIC = FetchResponse.FetchableTopicResponse


def batch_at(base_offset: int, records: int = 1, size_bytes: int = 10) -> bytes:
    made = bytearray(build_batch([RawRecord(b"k", bytes(size_bytes)) for _ in range(records)]))
    struct.pack_into(">q", made, 0, base_offset)
    return bytes(made)


class Brokers:
    """Two brokers' logs as Kafka serves them: the first batch of an answer whole, any other one if it fits.

    Attributes:
        held: what each partition gives from the offset on that it is asked for.
        codes: error codes; ``lost`` brokers hang up, ``throttled_ms`` holds the pauses of the next answers.
        asked: partitions of each request, by broker.
    """

    alias = "east"

    def __init__(self, held: dict[int, bytes]) -> None:
        self.held = held
        self.codes: dict[int, int] = {}
        self.lost: set[int] = set()
        self.throttled_ms: list[int] = []
        self.asked: list[tuple[int, list[int]]] = []
        self.patience = Patience(20.0)

    def control(self, node: int) -> Any:
        if node in self.lost:
            raise Retriable("gone")
        return _Connection(self, node)

    def see(self, **changes: Any) -> Any:
        """Ask for the offset before 10 in every partition; broker 1 leads the even ones."""
        sizes = changes.get("sizes", {})
        places = {
            TopicPartition("t", p): BatchPlace(
                TOPIC_ID, p % 2 or 2, 3, 9, sizes.get(p, len(self.held.get(p, b"")))
            )
            for p in self.held
        }
        cluster: Any = self
        return batches_at(cluster, places)


class _Connection:
    client_id = "onceover"

    def __init__(self, brokers: Brokers, node: int) -> None:
        self._brokers, self._node = brokers, node

    def next_correlation_id(self) -> int:
        return 5

    def send_frame(
        self,
        buffers: Sequence[bytes],
        _id: int,
        decoder: Callable[[memoryview], Any],
        *,
        max_answer_bytes: int,
    ) -> None:
        request = FetchRequest.decode(b"".join(buffers)[4:], version=FETCH_VERSION, header=True)
        assert (request.isolation_level, request.min_bytes, request.max_wait_ms) == (0, 0, 0)
        assert max_answer_bytes == request.max_bytes + LARGEST_BATCH_BYTES
        self._request, self._decoder = request, decoder

    def receive(self) -> Any:
        brokers, request = self._brokers, self._request
        wanted = [p for topic in request.topics for p in topic.partitions]
        assert {p.fetch_offset for p in wanted} == {9} and {p.last_fetched_epoch for p in wanted} == {-1}
        brokers.asked.append((self._node, [p.partition for p in wanted]))
        throttled_ms = brokers.throttled_ms.pop(0) if brokers.throttled_ms else 0
        left, partitions = request.max_bytes, []
        for one in () if throttled_ms else wanted:
            records = brokers.held[one.partition]
            if len(records) > min(left, one.partition_max_bytes) and left < request.max_bytes:
                records = b""
            left -= len(records)
            partitions.append(_answer(one.partition, brokers.codes.get(one.partition, 0), records))
        topics = (
            [_TOPIC(version=FETCH_VERSION, topic_id=TOPIC_ID, partitions=partitions)] if partitions else []
        )
        response = FetchResponse(
            version=FETCH_VERSION,
            throttle_time_ms=throttled_ms,
            error_code=0,
            session_id=0,
            responses=topics,
        )
        return self._decoder(memoryview(b"\0" + bytes(response.encode())))

    def trim(self, _: int) -> None:
        return None


def _answer(partition: int, code: int, records: bytes) -> Any:
    return _TOPIC.PartitionData(
        version=FETCH_VERSION,
        partition_index=partition,
        error_code=code,
        high_watermark=99,
        last_stable_offset=99,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=b"" if code else records,
    )


def found(each: Any) -> dict[int, int]:
    return {tp.partition: header.base_offset for tp, header in each.found.items()}


def test_many_partitions_are_asked_about_in_one_request_of_each_broker() -> None:
    brokers = Brokers({p: batch_at(p, 10 - p + 2) for p in range(8)})
    each = brokers.see()
    assert found(each) == {p: p for p in range(8)} and not each.failed
    assert each.found[TopicPartition("t", 3)] == parse_header(brokers.held[3])
    assert sorted(brokers.asked) == [(1, [1, 3, 5, 7]), (2, [0, 2, 4, 6])]


def test_batches_that_are_larger_than_expected_are_asked_for_alone() -> None:
    """A broker gives none of them beside others; which is no proof: compaction may have written it anew."""
    brokers = Brokers({p: batch_at(9, 1, 500 if p else 10) for p in (0, 2, 4)})
    assert found(brokers.see(sizes={0: 90, 2: 90, 4: 90})) == {0: 9, 2: 9, 4: 9}
    assert [partitions for _, partitions in brokers.asked] == [[0, 2, 4], [2], [4]]


def test_an_answer_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """But a batch that is larger alone comes nevertheless."""
    monkeypatch.setattr(batchat, "_ANSWER_BYTES", 500)
    brokers = Brokers({p: batch_at(9, 1, 100 if p < 6 else 900) for p in range(0, 10, 2)})
    assert found(brokers.see()) == dict.fromkeys(range(0, 10, 2), 9)
    assert [partitions for _, partitions in brokers.asked] == [[0, 2], [4], [6], [8]]


def test_what_does_not_hold_the_offset_or_is_damaged_says_nothing() -> None:
    """Compacted away, read from further back, nothing at all, a flipped bit."""
    damaged = bytearray(batch_at(9))
    damaged[-1] ^= 1
    held = {0: batch_at(10), 2: batch_at(3, 2) + batch_at(9), 4: b"", 6: bytes(damaged), 8: b"\1" * 30}
    each = Brokers(held).see()
    assert found(each) == {2: 9} and not each.failed


@pytest.mark.parametrize(("code", "fails"), [(6, True), (1, True), (100, True), (2, False), (29, False)])
def test_an_error_may_pass_and_one_that_does_not_is_found_by_whoever_copies(code: int, fails: bool) -> None:
    brokers = Brokers({0: batch_at(9), 2: batch_at(9)})
    brokers.codes[0] = code
    each = brokers.see()
    assert found(each) == {2: 9}
    assert [isinstance(error, NotNow) for error in each.failed.values()] == ([True] if fails else [])


def test_a_broker_that_is_away_takes_nothing_from_the_others() -> None:
    brokers = Brokers({0: batch_at(9), 1: batch_at(9)})
    brokers.lost.add(1)
    each = brokers.see()
    assert found(each) == {0: 9} and set(each.failed) == {TopicPartition("t", 1)}


def test_a_quota_is_waited_for_and_one_that_wants_long_pauses_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers with nothing, and listens again behind the pause."""
    slept: list[float] = []
    monkeypatch.setattr("onceover.kafka.logs.batchat.time.sleep", slept.append)
    brokers = Brokers({0: batch_at(9)})
    brokers.throttled_ms = [1500, 200]
    assert found(brokers.see()) == {0: 9} and slept == [1.5, 0.2]
    brokers.throttled_ms = [60_000]
    each = brokers.see()
    assert not each.found and not each.failed and len(slept) == 2
