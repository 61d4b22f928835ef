"""The audit's Fetch request and answer against the library's codec, which shares no code with it."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from onceover.audit.records.fetch import Wanted, decode_fetch, encode_fetch
from onceover.errors import Fatal

TOPIC = FetchResponse.FetchableTopicResponse
PARTITION = TOPIC.PartitionData
ID = UUID(int=7)
int64 = st.integers(-1, (1 << 63) - 1)


@given(
    st.integers(0, 1 << 20),
    st.integers(0, (1 << 63) - 1),
    st.integers(-1, 1 << 30),
    st.text(max_size=20),
)
def test_request_is_what_the_library_decodes(partition: int, offset: int, epoch: int, client_id: str) -> None:
    """Topic id, partition, offset, leader epoch, limits and read_committed arrive."""
    frame = encode_fetch(
        Wanted(ID, partition, offset, epoch),
        correlation_id=5,
        client_id=client_id,
        max_bytes=1 << 20,
        max_wait_ms=77,
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    request = FetchRequest.decode(frame[4:], version=13, header=True)
    (topic,) = request.topics
    (asked,) = topic.partitions
    assert (topic.topic_id, asked.partition, asked.fetch_offset) == (ID, partition, offset)
    assert (asked.current_leader_epoch, asked.partition_max_bytes) == (epoch, 1 << 20)
    assert (request.isolation_level, request.max_wait_ms, request.min_bytes) == (1, 77, 1)
    assert (request.max_bytes, request.session_epoch) == (1 << 20, -1)


def answer(error: int = 0, top_error: int = 0, **fields: object) -> bytes:
    """Return an answer about one partition as the library encodes it, behind the correlation id."""
    known: dict[str, object] = {
        "high_watermark": 0,
        "last_stable_offset": 0,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "records": b"",
        **fields,
    }
    data = PARTITION(version=13, partition_index=0, error_code=error, preferred_read_replica=-1, **known)
    topics = [] if top_error else [TOPIC(version=13, topic_id=ID, partitions=[data])]
    response = FetchResponse(
        version=13, throttle_time_ms=1, error_code=top_error, session_id=0, responses=topics
    )
    return b"\0" + bytes(response.encode())


@given(
    int64,
    int64,
    int64,
    st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    st.none() | st.binary(max_size=300),
)
def test_answer_is_read_as_the_library_wrote_it(
    high: int, stable: int, start: int, aborted: list[tuple[int, int]] | None, records: bytes | None
) -> None:
    """Offsets, aborted transactions and record bytes; null and empty are none."""
    entries = aborted and [
        PARTITION.AbortedTransaction(version=13, producer_id=p, first_offset=f) for p, f in aborted
    ]
    frame = answer(
        high_watermark=high,
        last_stable_offset=stable,
        log_start_offset=start,
        aborted_transactions=entries,
        records=records,
    )
    seen = decode_fetch(memoryview(frame))
    assert (seen.error_code, seen.high_watermark, seen.last_stable_offset) == (0, high, stable)
    assert (seen.log_start, seen.aborted) == (start, tuple(aborted or ()))
    assert bytes(seen.records) == (records or b"")


def test_error_codes_of_partition_and_request_are_told() -> None:
    """Both are the caller's to judge."""
    assert decode_fetch(memoryview(answer(error=100))).error_code == 100
    assert decode_fetch(memoryview(answer(top_error=70))).error_code == 70


def test_answer_that_is_cut_off_is_refused() -> None:
    """Never a shorter list of records instead; behind the records come three empty lists of tags."""
    frame = answer(records=b"x" * 50)
    for size in range(1, len(frame) - 3):
        with pytest.raises(Fatal):
            decode_fetch(memoryview(frame)[:size])
