"""Who writes to the partitions of a cluster, as their leaders and the coordinators tell (KIP-664).

Leaders know producers that number their batches, for as long as these count (a day by default); one that does
not, such as most clients before 3.0 by default, is known by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kafka.protocol.admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

from onceover.errors import OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.each import Each
from onceover.kafka.link.channel import Channel
from onceover.kafka.ports import Brokers
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify


class ActiveProducer(NamedTuple):
    """A producer as a log remembers it.

    Args:
        last_ms: timestamp of its newest batch; -1 for unknown.
        transaction_start: first offset of its open transaction; -1 without one.
        epoch: that it has written with last; -1 for unknown.
    """

    producer_id: int
    last_ms: int
    transaction_start: int
    epoch: int = -1


class ListedTransaction(NamedTuple):
    """A transactional.id, the producer id that it has now, and where its transaction stands."""

    transactional_id: str
    producer_id: int
    state: str


def active_producers(
    cluster: Brokers, partitions: Iterable[TopicPartition]
) -> Each[TopicPartition, tuple[ActiveProducer, ...]]:
    """Return the producers that each partition's leader remembers."""

    each = cluster.each_leader(partitions, Api.DESCRIBE_PRODUCERS, _describe_producers)
    return Each({tp: answer[1] for tp, answer in each.found.items()}, each.failed)


def transactions(cluster: Brokers) -> tuple[list[ListedTransaction], list[OnceoverError]]:
    """Return the transactional ids of every coordinator, and why some coordinators did not answer.

    A transactional.id that the principal may not describe is left out, without an error.

    Raises:
        Retriable: no broker of the cluster answers.
    """
    found: list[ListedTransaction] = []
    unheard: list[OnceoverError] = []
    for broker in calls.metadata(cluster.control(), []).brokers:
        try:
            code, listed = _list_transactions(cluster.control(broker.node_id))
        except Retriable as error:
            unheard.append(error)
            continue
        action = classify(Api.LIST_GROUPS, code)
        if action is Action.OK:
            found += listed
        else:
            where = f"broker {broker.node_id}"
            unheard.append(failure(cluster.alias, Api.LIST_GROUPS, action, code, where))
    return found, unheard


def _describe_producers(
    connection: Channel, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, tuple[ActiveProducer, ...]]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)

    def read(answer: Any) -> dict[TopicPartition, tuple[int, tuple[ActiveProducer, ...]]]:
        return {
            TopicPartition(calls.text(t.name), p.partition_index): (
                p.error_code,
                tuple(
                    ActiveProducer(
                        one.producer_id, one.last_timestamp, one.current_txn_start_offset, one.producer_epoch
                    )
                    for one in p.active_producers
                ),
            )
            for t in answer.topics
            for p in t.partitions
        }

    request = DescribeProducersRequest(version=0, topics=list(topics.items()))
    return connection.call(request, DescribeProducersResponse, read)


def _list_transactions(connection: Channel) -> tuple[int, list[ListedTransaction]]:
    request = ListTransactionsRequest(version=0, state_filters=[], producer_id_filters=[])

    def read(answer: Any) -> tuple[int, list[ListedTransaction]]:
        return answer.error_code, [
            ListedTransaction(
                calls.text(one.transactional_id), one.producer_id, one.transaction_state.lower()
            )
            for one in answer.transaction_states
        ]

    return connection.call(request, ListTransactionsResponse, read)
