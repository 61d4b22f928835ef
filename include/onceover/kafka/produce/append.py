"""One batch under no producer id: for what may be there twice, and only has to be acknowledged.

It goes over the connection that questions to the leader go over: an id and a connection of its own would be
five more requests, for each start of a lane.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from onceover.clock import now_ms
from onceover.errors import MustReset, Retriable
from onceover.kafka.link.channel import Channel
from onceover.kafka.portions import OwnRecord
from onceover.kafka.ports import Cluster, Outgoing
from onceover.kafka.produce import requests as produce
from onceover.kafka.produce.refusals import own_refused
from onceover.kafka.produce.rounds import own_batches
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify

# Spoken by every broker from Kafka 3.1 on.
_VERSION: Final = 9
_TIMEOUT_MS: Final = 10_000
_ANSWERED: Final = 0


def append(cluster: Cluster, to: TopicPartition, record: OwnRecord) -> int:
    """Write one record, and return its offset once all in-sync replicas have it.

    Raises:
        Retriable: not acknowledged; it may be there all the same.
        UsageError: not authorized.
        NeedsOperator: OWN_RECORD_REFUSED, or a broker's setting is in the way.
    """
    [batch] = own_batches(to, [record], now_ms())
    asked = cluster.each_leader(
        [to], Api.PRODUCE_IDEMPOTENT, lambda leader, _: {to: (_ANSWERED, _ask(leader, batch))}
    )
    answer = asked.whole()[to][1]
    action = classify(Api.PRODUCE_IDEMPOTENT, answer.error_code)
    if action is Action.OK:
        return int(answer.base_offset)
    try:
        if action is Action.CONTENT:
            raise own_refused(produce.refused(batch, answer))
        raise produce.failure(cluster, cluster.alias, Api.PRODUCE_IDEMPOTENT, answer.error_code, str(to), to)
    except MustReset as error:
        raise Retriable(error.message, where=str(to), code=error.code).about(to) from error


def _ask(leader: Channel, batch: Outgoing) -> Any:
    """Send it, and return what the leader says of its partition."""
    request = ProduceRequest(
        version=_VERSION,
        transactional_id=None,
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[(batch.target.topic, [(batch.target.partition, bytes(batch.batch))])],
    )
    return leader.call(request, ProduceResponse, _answer)


def _answer(answer: Any) -> Any:
    [topic] = answer.responses
    [partition] = topic.partition_responses
    return partition
