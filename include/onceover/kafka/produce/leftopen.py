"""Ending what a transaction has left open in single partitions although it is over.

Where a partition has no leader at the moment in which its transaction ends, some releases of Apache Kafka
(seen with 4.3.0; KAFKA-20734) take it for deleted, write no marker there, and tell that the transaction is
over. The next marker of the same producer id decides what was left open, whichever it is. So a transaction
of its own, with nothing in it, is what decides it as it was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from onceover.backoff import Backoff, Deadline
from onceover.errors import MustReset, Retriable
from onceover.kafka import calls
from onceover.kafka.ports import Cluster
from onceover.kafka.produce import requests as produce
from onceover.kafka.produce.requests import FIRST_PAUSE_S, LONGEST_PAUSE_S, PATIENCE_S
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify

_END_TXN: Final = 3
# Not attempted, because the request was refused for another partition: explains nothing.
_NOT_ATTEMPTED: Final = 55


def end_left_open(
    cluster: Cluster,
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Collection[TopicPartition],
    *,
    commit: bool,
) -> None:
    """Write a marker into partitions that hold an open transaction of a producer id, and nothing else.

    By the older request set, which every broker serves: only it adds a partition without records. The
    producer's identity is used up; whoever holds it begins at InitProducerId.

    Args:
        producer: id and epoch, with no transaction at the coordinator.

    Raises:
        MustReset: refused, or the outcome is unknown; look again.
        Retriable: the coordinator is away; nothing was done.
    """
    connection = cluster.coordinator(transactional_id, calls.TRANSACTION)

    def added() -> int:
        codes = calls.add_partitions_to_txn(connection, transactional_id, producer, partitions)
        return next((code for code in codes.values() if code not in (0, _NOT_ATTEMPTED)), 0)

    def ended() -> int:
        return calls.end_txn(
            connection, transactional_id, producer, commit=commit, version=_END_TXN
        ).error_code

    try:
        _until_ok(cluster, transactional_id, Api.ADD_PARTITIONS, added, *partitions)
        _until_ok(cluster, transactional_id, Api.END_TXN, ended)
    except Retriable as error:
        raise MustReset(f"{transactional_id}: {error}") from error


def _until_ok(
    cluster: Cluster, transactional_id: str, api: Api, ask: Callable[[], int], *about: TopicPartition
) -> None:
    backoff, deadline = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), Deadline(PATIENCE_S)
    while (action := classify(api, code := ask())) is not Action.OK:
        if action is Action.REFRESH_AND_RETRY:
            cluster.forget_coordinator(transactional_id, calls.TRANSACTION)
        if action is not Action.RETRY:
            raise produce.failure(cluster, transactional_id, api, code, transactional_id, *about)
        backoff.pause(deadline, Retriable(f"{transactional_id} cannot end what it left open (error {code})"))
