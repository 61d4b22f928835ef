"""Where a reader of a log stands, and what a leader's answer means to it: the same for all who read as a
consumer would. Whoever reads from one offset to another does it by ``kafka.logs.between``.

Four loops are apart from its ``IntervalReader`` on purpose. Two follow a log that has no end, and take from
here what places and answers mean: ``state.log``, which waits for no broker that is silent, since a lane looks
between two transactions; and ``metrics.canary.ends``, which has the broker hold the question until there is a
record, since the moment is what it measures. Two have code of their own: the copy (``copy.loop``,
``copy.reading``) passes batches through and judges what it meets as evidence for a stop; the audit
(``audit.records.reader``) shares no code with the copy that it judges.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceover.errors import NotNow, Retriable
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.codes import KafkaCode
from onceover.kafka.logs.fetcher import Position
from onceover.kafka.ports import TopicInfo
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify
from onceover.wire.batches.records import control_type
from onceover.wire.batches.visibility import Visible, visible_batches
from onceover.wire.hotpath import FetchedPartition


class OffsetGone(Retriable):
    """What was to be read next is not in the log: it has expired, or the log was cut or is another one."""


class TopicGone(NotNow):
    """The leader does not know the topic: it is gone, made anew, or not known to it yet."""


def place(
    info: TopicInfo, partition: int, offset: int, last_fetched_epoch: int = calls.NO_EPOCH
) -> Position | None:
    """Return from where a partition is read next; None where it is not there or nobody leads it.

    Args:
        last_fetched_epoch: of the batch before ``offset``: a log that is another one by now is told then
            (KIP-320); by default nothing is compared.
    """
    leader = info.partitions.get(partition)
    if leader is None or leader.leader < 0:
        return None
    return Position(info.topic_id, offset, leader.leader, leader.leader_epoch, last_fetched_epoch)


def batches_in(
    alias: str,
    tp: TopicPartition,
    answer: FetchedPartition,
    position: Position,
    *,
    keeps_epochs: bool = False,
) -> Iterator[Visible]:
    """Yield the batches in an answer, as a consumer meets them, and move the position behind each.

    Of those in which it meets nothing (markers, what was aborted) only the header is given.

    Args:
        alias: of the cluster, for messages.
        keeps_epochs: the next request tells the leader of which epoch the last batch was (see ``place``).

    Raises:
        OffsetGone, TopicGone: as they say.
        NotNow: the leader has moved, or is not ready.
        UsageError: not authorized.
        NeedsOperator: the broker refuses for good, or a batch is damaged.
    """
    action = classify(Api.FETCH, answer.error_code)
    if answer.diverging is not None or action is Action.OUT_OF_RANGE:
        raise OffsetGone(f"offset {position.offset} of {tp} is not in the log of {alias} now", where=str(tp))
    if action in (Action.MISSING, Action.RETRY, Action.REFRESH_AND_RETRY):
        text = f"{tp} cannot be read at the moment (error {answer.error_code})"
        if action is Action.MISSING:
            raise TopicGone(text, code=KafkaCode.MISSING, where=str(tp))
        raise NotNow(text, where=str(tp))
    if action is not Action.OK:
        raise failure(alias, Api.FETCH, action, answer.error_code, str(tp))
    for each in visible_batches(answer.records, answer.aborted, position.offset, control_type):
        position.offset = each.header.next_offset
        if keeps_epochs:
            position.last_fetched_epoch = each.header.leader_epoch
        yield each
