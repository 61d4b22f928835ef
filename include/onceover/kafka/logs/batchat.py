"""Which batches lie at some offsets of a cluster's logs now: evidence that a log is the one that was copied.

Brokers give a batch whole or not at all (Fetch from version 3 on), so each is asked for with the size that it
is expected to have, many in a request; one that turns out larger is asked for alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from onceover.backoff import Deadline
from onceover.errors import NotNow, Retriable
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.each import Each
from onceover.kafka.link.channel import LARGEST_BATCH_BYTES, Channel
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify
from onceover.wire.batches.batch import BatchHeader, CorruptBatch, iter_batches, verify
from onceover.wire.hotpath import (
    FetchedPartition,
    FetchPosition,
    FetchResponse,
    decode_fetch,
    encode_fetch,
)

# Of one answer, unless a single batch is larger: it lies in the buffer of a connection that is kept.
_ANSWER_BYTES: Final = 1 << 20
_PARTITIONS_AT_ONCE: Final = 1000
# Its log's start, its leader or the topic has just changed: whoever looks again sees that.
_MAY_PASS: Final = (Action.RETRY, Action.REFRESH_AND_RETRY, Action.OUT_OF_RANGE, Action.MISSING)
# A consumer quota that is exceeded empties the answer, and says for how long.
_THROTTLED_S: Final = 10.0


class BatchPlace(NamedTuple):
    """An offset in a log, and what is expected to lie there.

    Args:
        topic_id: of the topic.
        leader: broker that leads the partition, in ``leader_epoch``.
        offset: anywhere in the batch.
        size_bytes: of the batch.
    """

    topic_id: UUID
    leader: int
    leader_epoch: int
    offset: int
    size_bytes: int


_Places = Mapping[TopicPartition, BatchPlace]


def batches_at(cluster: Cluster, places: _Places) -> Each[TopicPartition, BatchHeader]:
    """Return the headers of the batches that hold those offsets, committed or not.

    Those of which nothing can be said are in neither: there is no such batch any more, it is damaged, or it
    cannot or may not be read. Who copies is told so where that keeps it from copying.

    Args:
        cluster: where to look.
        places: by partition; the offsets lie in the logs, as far as is known.
    """
    each: Each[TopicPartition, BatchHeader] = Each()
    by_leader: dict[int, dict[TopicPartition, BatchPlace]] = {}
    for tp, place in places.items():
        by_leader.setdefault(place.leader, {})[tp] = place
    for node, some in by_leader.items():
        try:
            _ask(cluster, node, some, each)
        except Retriable as error:
            each.failed.update((tp, error) for tp in some if tp not in each.found)
    return each


def _ask(cluster: Cluster, node: int, places: _Places, each: Each[TopicPartition, BatchHeader]) -> None:
    larger: dict[TopicPartition, BatchPlace] = {}
    for some in _portions(places):
        for tp in _asked(cluster, node, some, each):
            if len(some) > 1:
                larger[tp] = places[tp]
    for tp, place in larger.items():
        _asked(cluster, node, {tp: place}, each)


def _portions(places: _Places) -> Iterator[_Places]:
    some: dict[TopicPartition, BatchPlace] = {}
    size_bytes = 0
    for tp, place in places.items():
        if some and (size_bytes + place.size_bytes > _ANSWER_BYTES or len(some) >= _PARTITIONS_AT_ONCE):
            yield some
            some, size_bytes = {}, 0
        some[tp] = place
        size_bytes += place.size_bytes
    if some:
        yield some


def _asked(
    cluster: Cluster, node: int, places: _Places, each: Each[TopicPartition, BatchHeader]
) -> list[TopicPartition]:
    """Ask one broker once; return the partitions of which it has given nothing, though it has something."""
    empty = []
    connection = cluster.control(node)
    by_id = {(place.topic_id, tp.partition): tp for tp, place in places.items()}
    for answer in _answer(cluster, connection, places).partitions:
        tp = by_id.get((answer.topic_id, answer.partition))
        if tp is None:
            continue
        action = classify(Api.FETCH, answer.error_code)
        if action is Action.OK:
            if not answer.records:
                empty.append(tp)
            elif (header := _holding(answer, places[tp].offset)) is not None:
                each.found[tp] = header
        elif action in _MAY_PASS:
            error = failure(cluster.alias, Api.FETCH, action, answer.error_code, str(tp))
            each.failed[tp] = NotNow(error.message, where=error.where)
    connection.trim(_ANSWER_BYTES)
    return empty


def _answer(cluster: Cluster, connection: Channel, places: _Places) -> FetchResponse:
    deadline = Deadline(min(_THROTTLED_S, cluster.patience.left_s))
    while True:
        answer = _sent(cluster, connection, places)
        pause_s = answer.throttle_ms / 1000
        if answer.partitions or not pause_s or pause_s > deadline.left_s:
            return answer
        time.sleep(pause_s)
        cluster.patience.spend(pause_s)


def _sent(cluster: Cluster, connection: Channel, places: _Places) -> FetchResponse:
    size_bytes = sum(place.size_bytes for place in places.values())
    correlation_id = connection.next_correlation_id()
    frame = encode_fetch(
        (_position(tp, place) for tp, place in places.items()),
        correlation_id=correlation_id,
        client_id=connection.client_id,
        isolation=calls.READ_UNCOMMITTED,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=size_bytes,
        partition_max_bytes=size_bytes,
    )
    connection.send_frame(
        [frame], correlation_id, decode_fetch, max_answer_bytes=size_bytes + LARGEST_BATCH_BYTES
    )
    answer: FetchResponse = connection.receive()
    if answer.error_code:
        raise Retriable(f"{cluster.alias} answers error {answer.error_code} to fetch")
    return answer


def _position(tp: TopicPartition, place: BatchPlace) -> FetchPosition:
    epochs = (place.leader_epoch, calls.NO_EPOCH)
    return FetchPosition(place.topic_id, tp.partition, place.offset, *epochs, max_bytes=place.size_bytes)


def _holding(answer: FetchedPartition, offset: int) -> BatchHeader | None:
    try:
        for header, batch in iter_batches(answer.records):
            if header.base_offset <= offset < header.next_offset:
                verify(header, batch)
                return header
    except CorruptBatch:
        # Whoever copies meets it, if it has to.
        pass
    return None
