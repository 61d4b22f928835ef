"""Fetch responses and Produce requests against the library's codec, which shares no code with ours."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest

from onceover.errors import Fatal
from onceover.wire.batches.visibility import AbortedTransaction
from onceover.wire.hotpath import (
    DivergingEpoch,
    FetchPosition,
    ProduceData,
    decode_fetch,
    encode_fetch,
    encode_produce,
)

TOPIC = FetchResponse.FetchableTopicResponse
PARTITION = TOPIC.PartitionData
ids = st.integers(1, 1 << 100).map(lambda number: UUID(int=number))
int64 = st.integers(-1, (1 << 63) - 1)

partitions = st.fixed_dictionaries(
    {
        "partition_index": st.integers(0, 1 << 20),
        "error_code": st.integers(-1, 130),
        "high_watermark": int64,
        "last_stable_offset": int64,
        "log_start_offset": int64,
        "aborted": st.none() | st.lists(st.tuples(int64, int64), max_size=3),
        "records": st.none() | st.binary(max_size=300),
        "diverging": st.none() | st.tuples(st.integers(0, 1000), st.integers(0, 1 << 60)),
        "leader": st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    }
)
EMPTY: dict[str, object] = {
    **dict.fromkeys(("partition_index", "error_code", "high_watermark", "last_stable_offset"), 0),
    **{"log_start_offset": 0, "aborted": None, "records": b"", "diverging": None, "leader": None},
}
responses = st.lists(st.tuples(ids, st.lists(partitions, max_size=3)), max_size=3)


def reference(topics: list[tuple[UUID, list[dict[str, object]]]], error: int = 0, throttle: int = 7) -> bytes:
    """Return the response as the library encodes it, behind the correlation id."""
    built = [
        TOPIC(version=13, topic_id=topic_id, partitions=[_partition(**fields) for fields in found])
        for topic_id, found in topics
    ]
    response = FetchResponse(
        version=13, throttle_time_ms=throttle, error_code=error, session_id=5, responses=built
    )
    return b"\0" + bytes(response.encode())


def _partition(**fields: object) -> object:
    aborted, diverging, leader = fields.pop("aborted"), fields.pop("diverging"), fields.pop("leader")
    extra: dict[str, object] = {}
    if isinstance(diverging, tuple):
        extra["diverging_epoch"] = PARTITION.EpochEndOffset(
            version=13, epoch=diverging[0], end_offset=diverging[1]
        )
    if isinstance(leader, tuple):
        extra["current_leader"] = PARTITION.LeaderIdAndEpoch(
            version=13, leader_id=leader[0], leader_epoch=leader[1]
        )
    entries = None
    if isinstance(aborted, list):
        entries = [
            PARTITION.AbortedTransaction(version=13, producer_id=p, first_offset=f) for f, p in aborted
        ]
    return PARTITION(version=13, aborted_transactions=entries, preferred_read_replica=-1, **fields, **extra)


@given(responses)
def test_fetch_response_reads_as_the_library_wrote_it(
    topics: list[tuple[UUID, list[dict[str, object]]]],
) -> None:
    """Aborted lists, null records, tagged fields that we want and that we do not."""
    frame = memoryview(reference([(i, [dict(f) for f in found]) for i, found in topics]))
    decoded = decode_fetch(frame)
    assert (decoded.throttle_ms, decoded.error_code) == (7, 0)
    expected = [(topic_id, fields) for topic_id, found in topics for fields in found]
    assert len(decoded.partitions) == len(expected)
    for seen, (topic_id, fields) in zip(decoded.partitions, expected, strict=True):
        assert (seen.topic_id, seen.partition, seen.error_code) == (
            topic_id,
            fields["partition_index"],
            fields["error_code"],
        )
        assert (seen.high_watermark, seen.last_stable_offset, seen.log_start_offset) == (
            fields["high_watermark"],
            fields["last_stable_offset"],
            fields["log_start_offset"],
        )
        aborted = fields["aborted"] if isinstance(fields["aborted"], list) else []
        assert seen.aborted == [AbortedTransaction(*entry) for entry in aborted]
        assert bytes(seen.records) == (fields["records"] or b"")
        diverging = fields["diverging"]
        assert seen.diverging == (DivergingEpoch(*diverging) if isinstance(diverging, tuple) else None)


def test_records_stay_views_into_the_receive_buffer() -> None:
    """They are stamped there: a copy would cost what this module saves."""
    plain = {name: 0 for name in ("partition_index", "error_code", "high_watermark", "log_start_offset")}
    fields = {
        **plain,
        "last_stable_offset": 0,
        "aborted": None,
        "records": b"abc",
        "diverging": None,
        "leader": None,
    }
    buffer = bytearray(reference([(UUID(int=1), [dict(fields)])]))
    [partition] = decode_fetch(memoryview(buffer)).partitions
    partition.records[0:1] = b"x"
    assert b"xbc" in buffer and not partition.records.readonly


# The very last byte only says that no tagged fields follow.
@given(st.integers(2, 60))
def test_cut_off_response_is_fatal_and_never_an_empty_result(cut: int) -> None:
    """A failure must not look like "nothing there"."""
    plain = {name: 0 for name in ("partition_index", "error_code", "high_watermark", "log_start_offset")}
    fields = {
        **plain,
        "last_stable_offset": 0,
        "aborted": [(1, 2)],
        "records": b"",
        "diverging": (1, 2),
        "leader": None,
    }
    frame = reference([(UUID(int=1), [dict(fields)])])
    with pytest.raises(Fatal, match="cut off"):
        decode_fetch(memoryview(frame)[: max(1, len(frame) - cut)])


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
@given(
    entries=st.dictionaries(
        st.tuples(st.sampled_from(["a", "b", "größe"]), st.integers(0, 500)),
        st.binary(min_size=1, max_size=300),
        min_size=1,
        max_size=6,
    ),
    transactional_id=st.none() | st.text("abc.-", max_size=200),
)
def test_produce_request_is_what_the_library_would_read(
    version: int, entries: dict[tuple[str, int], bytes], transactional_id: str | None
) -> None:
    """Every version that a request set may choose; topics by name below 13, by id from there on."""
    topic_ids = {"a": UUID(int=1), "b": UUID(int=2), "größe": UUID(int=3)}
    data = [ProduceData(t, topic_ids[t], p, batch) for (t, p), batch in sorted(entries.items())]
    buffers = encode_produce(
        data,
        version=version,
        correlation_id=77,
        client_id="onceover",
        transactional_id=transactional_id,
        timeout_ms=30_000,
    )
    frame = b"".join(bytes(b) for b in buffers)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    request = ProduceRequest.decode(frame[4:], version=version, header=True)
    assert (request.header.correlation_id, request.header.client_id) == (77, "onceover")
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 30_000)
    seen = {}
    for topic in request.topic_data:
        name = topic.name if version < 13 else next(n for n, i in topic_ids.items() if i == topic.topic_id)
        seen.update({(name, p.index): bytes(p.records) for p in topic.partition_data})
    assert seen == entries
    assert all(any(buffer is entry.batch for buffer in buffers) for entry in data)


@given(
    st.lists(
        st.builds(
            FetchPosition,
            ids,
            st.integers(0, 1 << 20),
            int64,
            st.integers(-1, 1 << 20),
            st.integers(-1, 9),
            st.none() | st.integers(0, 1 << 20),
        ),
        max_size=200,
    ),
    st.integers(0, (1 << 31) - 1),
    st.sampled_from(["onceover", "", "é"]),
)
def test_fetch_requests_say_what_the_library_reads(
    positions: list[FetchPosition], correlation_id: int, client_id: str
) -> None:
    """Every field in its order, whatever the number of topics and partitions; nothing behind the end."""
    frame = encode_fetch(
        positions,
        correlation_id=correlation_id,
        client_id=client_id,
        isolation=1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 24,
        partition_max_bytes=1 << 20,
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    request = FetchRequest.decode(frame[4:], version=13, header=True)
    assert (request.header.correlation_id, request.header.client_id) == (correlation_id, client_id)
    assert (request.replica_id, request.isolation_level, request.max_wait_ms) == (-1, 1, 500)
    assert (request.min_bytes, request.max_bytes, request.rack_id) == (1, 1 << 24, "")
    assert (request.session_id, request.session_epoch, request.forgotten_topics_data) == (0, -1, [])
    read = [
        FetchPosition(
            t.topic_id,
            p.partition,
            p.fetch_offset,
            p.current_leader_epoch,
            p.last_fetched_epoch,
            p.partition_max_bytes,
        )
        for t in request.topics
        for p in t.partitions
    ]
    wanted = [p if p.max_bytes is not None else p._replace(max_bytes=1 << 20) for p in positions]
    assert read == wanted, "the broker fills its answer in this order"
    neighbours = zip([None, *positions], positions, strict=False)
    assert len(request.topics) == sum(a is None or a.topic_id != b.topic_id for a, b in neighbours)
    assert {p.log_start_offset for t in request.topics for p in t.partitions} <= {-1}
    again = FetchRequest.decode(frame[4:], version=13, header=True)
    again.with_header(correlation_id=correlation_id, client_id=client_id)
    assert bytes(again.encode(framed=True, header=True)) == frame
