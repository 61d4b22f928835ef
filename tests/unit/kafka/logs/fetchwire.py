"""Fetch as a broker reads and answers it, by the library's own codec, for brokers that are none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse

from onceover.wire.hotpath import FETCH_VERSION

_TOPIC = FetchResponse.FetchableTopicResponse


def request_in(buffers: Iterable[bytes]) -> Any:
    """Return the request of a frame."""
    return FetchRequest.decode(b"".join(buffers)[4:], version=FETCH_VERSION, header=True)


def partition_answer(number: int, records: bytes, end: int) -> Any:
    """Return what is answered of a partition whose log ends there, with nothing open."""
    return _TOPIC.PartitionData(
        version=FETCH_VERSION,
        partition_index=number,
        error_code=0,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=records,
    )


def answer(topics: Iterable[tuple[UUID, Sequence[Any]]], throttle_ms: int) -> memoryview:
    """Return an answer as it is behind its correlation id: topics with their partitions, in this order."""
    response = FetchResponse(
        version=FETCH_VERSION,
        throttle_time_ms=throttle_ms,
        error_code=0,
        session_id=0,
        responses=[_TOPIC(version=FETCH_VERSION, topic_id=topic, partitions=each) for topic, each in topics],
    )
    return memoryview(b"\0" + bytes(response.encode()))
