"""Writing records of state under a transactional.id: whoever took the id before can commit nothing any more.

Invariant: what an earlier holder had under way is decided before anything is read or written: a broker may
tell that a transaction is over, and have left it open in a partition (``kafka.produce.leftopen``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.errors import MustReset, Retriable
from onceover.kafka.portions import OwnRecord
from onceover.kafka.ports import Cluster, Refused, TxnProducer
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.kafka.produce.refusals import own_refused
from onceover.kafka.produce.rounds import last_offset, own_batches
from onceover.model import TopicPartition

log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 30_000
# Markers take milliseconds; a broker that has been started again, seconds.
_MARKERS_S: Final = 10.0


def take_id(
    target: Cluster, producer: TxnProducer, written: Collection[TopicPartition], deadline: Deadline
) -> None:
    """Own a transactional.id, with everything decided that its last holder has left in ``written``.

    Args:
        written: partitions that are written under this id.

    Raises:
        Retriable: not within ``deadline``.
        UsageError: not authorized.
    """
    backoff = Backoff()
    for _ in taking_id(target, producer, written, deadline):
        backoff.pause(deadline, Retriable("the transaction of the one before is still being ended"))


def taking_id(
    target: Cluster, producer: TxnProducer, written: Collection[TopicPartition], deadline: Deadline
) -> Iterator[None]:
    """Do as ``take_id`` for somebody who has other work meanwhile: yield each time that it is "not yet".

    The id is owned when this has ended, not before.

    Args:
        deadline: how long a broker that is away is asked again.
    """
    while True:
        while not target.retry(producer.init, deadline):
            yield
        left = _left_open(target, producer.producer_id, written, deadline)
        if not left:
            return
        # Whoever wrote it was told that it is over, but nobody can have read it.
        log.warning("aborting what was left open in %s", left)
        producer.decide(left, commit=False)
        # Whoever has to look before each time that the id is asked for does so now.
        yield


def _left_open(
    target: Cluster, producer_id: int, written: Collection[TopicPartition], deadline: Deadline | None = None
) -> list[TopicPartition]:
    """Return where a transaction of this id is open, while none is under way: see ``undecided``."""
    opened = target.retry(lambda: target.each_open({tp: {producer_id} for tp in written}), deadline)
    return [tp for tp, (first, _) in opened.found.items() if first >= 0]


def await_markers(
    target: Cluster, producer: TxnProducer, written: Collection[TopicPartition], deadline: Deadline
) -> None:
    """Return when readers see what was committed: EndTxn says OK before its markers are in the logs.

    A broker that is killed in between may tell that the transaction is over, and never write them.

    Args:
        written: partitions of the transaction.

    Raises:
        Retriable: not within ``deadline``; whoever takes the id next decides what was left open.
    """
    backoff = Backoff()
    while left := _left_open(target, producer.producer_id, written):
        text = f"a transaction was committed, and cannot be read in {', '.join(map(str, left))}"
        backoff.pause(deadline, Retriable(text, where=target.alias))


def send(producer: TxnProducer, to: TopicPartition, records: Mapping[str, Any]) -> int:
    """Do as ``send_records`` for keys with JSON values (None: a tombstone)."""
    pairs = [
        (key.encode(), None if value is None else json.dumps(value, separators=(",", ":")).encode())
        for key, value in records.items()
    ]
    return send_records(producer, to, pairs)


def send_records(producer: TxnProducer, to: TopicPartition, records: Iterable[OwnRecord]) -> int:
    """Write records into the open transaction; every answer is awaited.

    Returns:
        The last one's offset; -1 without any.

    Raises:
        NeedsOperator: OWN_RECORD_REFUSED, one is refused for good; the transaction can only be aborted.
        MustReset: one was not taken, or the outcome is unknown.
    """
    try:
        for batch in own_batches(to, records, now_ms()):
            producer.send([batch])
        return last_offset(producer.drain())
    except Refused as error:
        raise own_refused(error) from error


def write_last(
    target: Cluster,
    transactional_id: str,
    to: TopicPartition,
    news_of: Callable[[], Mapping[str, Any]],
) -> int:
    """Write what is to be written by whoever came last: of two at once the earlier one commits nothing.

    Args:
        news_of: called once the id is owned: what it reads then is all that was ever written under it. What
            it returns is written in one transaction; nothing for nothing.

    Returns:
        The offset of the last record that was written; -1 without any.

    Raises:
        Retriable: the target is away, or another holder has taken the id: nothing of this was written, or
            (a reply was lost) all of it.
        UsageError: not authorized.
        NeedsOperator: another cluster answers where the target should (FOREIGN_CLUSTER), or a record is
            refused for good.
    """
    producer = TransactionalProducer(target, transactional_id, timeout_ms=_TIMEOUT_MS)
    try:
        take_id(target, producer, (to,), Deadline(_TIMEOUT_MS / 1000))
        offset = -1
        if news := news_of():
            offset = send(producer, to, news)
            producer.commit()
            await_markers(target, producer, (to,), Deadline(_MARKERS_S))
        return offset
    except MustReset as error:
        raise Retriable(str(error)) from error
    finally:
        producer.close()
