"""What the lane's own transactions have left open on the target although they are over. Pure.

Invariant: nothing of a lane is written behind an open transaction of its own producer id: the marker that
ends the next transaction would decide the older one with it, and a record that was told committed would be
lost, or one that was aborted copied twice (``kafka.produce.leftopen`` has how it comes to that).

Looked for after InitProducerId said OK: no transaction of the id is under way then, so what is open in a log
is one that missed its marker. What it was to be, the progress tells: it is committed together with the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from onceover.errors import Retriable
from onceover.wire.progress import NOBODY, ProgressMeta


class TransactionOutcome(Enum):
    """How a transaction that was left open ended."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()
    """Or nobody can end it: one that was committed and one that was not are one in the log, and no marker
    parts them; or its producer id is in use no more."""


class LeftOpen(Retriable):
    """A transaction that was left open has just been ended, or will be at the next start. Not a failure."""


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction of the lane's producer id, or of an older one, in a log of the target.

    Args:
        first: offset of its first record.
        later: offset of a record of the same id behind the end that the progress knows, None without.
        is_ours: the id is the lane's own of now. It was another one's before a change of the number of lanes,
            or every 32,767 transactions: nobody can write a marker of such an id any more.
    """

    first: int
    later: int | None
    is_ours: bool = True

    def outcome(self, meta: ProgressMeta, *, mixed: bool) -> TransactionOutcome:
        """Return how it ended.

        Args:
            meta: what stands beside the committed progress.
            mixed: records of other source partitions may be among these, which ``meta`` says nothing about.
        """
        if not self.is_ours:
            return TransactionOutcome.UNKNOWN
        if self.first >= meta.target_end:
            return TransactionOutcome.UNKNOWN if mixed else TransactionOutcome.ABORTED
        # What an operator has set knows an end of the log, and not what was copied up to it.
        told = meta.instance != NOBODY and self.later is None
        return TransactionOutcome.COMMITTED if told else TransactionOutcome.UNKNOWN
