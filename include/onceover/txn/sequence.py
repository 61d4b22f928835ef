"""Sequence numbers of a producer id: what makes the target append a batch once. Pure."""

from __future__ import annotations

from typing import Final

from onceover.errors import MustReset
from onceover.model import TopicPartition
from onceover.txn.codes import TxnCode

MAX_SEQUENCE: Final = 2**31 - 1


def advance_sequence(sequence: int, count: int) -> int:
    """Return the sequence ``count`` records after ``sequence``: after 2147483647 comes 0, as in Kafka."""
    return (sequence + count) & MAX_SEQUENCE


class Sequence:
    """One target partition under one producer id and epoch.

    Attributes:
        next: of the next batch to be sent; ``acked`` the one after the last acknowledged record.
        end_offset: target offset after the last acknowledged record.
        unanswered: batches on their way.
    """

    __slots__ = ("acked", "end_offset", "next", "unanswered")

    def __init__(self, first: int = 0) -> None:
        self.next = self.acked = first
        self.end_offset = 0
        self.unanswered = 0

    def take(self, count: int) -> int:
        """Return the base sequence for a batch of ``count`` records, which is now unanswered."""
        sequence = self.next
        self.next = advance_sequence(sequence, count)
        self.unanswered += 1
        return sequence

    def appended(self, target: TopicPartition, base_offset: int, count: int) -> None:
        """Note where a batch landed; answers of one partition come in the order of its requests.

        Raises:
            MustReset: the offset does not grow: the broker took the batch for a repetition and dropped
                it, or the target lost records. What was sent can no longer be counted on.
        """
        if base_offset < self.end_offset:
            raise MustReset(
                "the target says OK to records that it did not append",
                code=TxnCode.BASE_OFFSET_NOT_GROWING,
                where=str(target),
                expected=f"base offset {self.end_offset} or more",
                seen=f"base offset {base_offset}",
            )
        self.end_offset = base_offset + count
        self.acked = advance_sequence(self.acked, count)
