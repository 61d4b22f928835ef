"""Which partition makes transactions fail that held several: found by copying the suspects alone. Pure.

Invariants: whoever got through is suspected no longer. Nobody is blamed for a failure that others shared, nor
while nothing gets through for anybody: that is an outage of a cluster. That the lane's own small records get
through says nothing about data: a line may carry only those. So where nobody else has anything to copy, only
what the target has answered counts, and silence never does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from onceover.model import TopicPartition

T = TypeVar("T")


class FailedTransaction(NamedTuple):
    """What a failed transaction says.

    Args:
        alone: the only partition that was in it; None where there were none or several.
        compared: others got through since it last failed; or since it failed first, and have not failed
            since. Or nothing but this partition is known to fail, and the target has answered.
    """

    alone: TopicPartition | None
    compared: bool = False


@dataclass
class _Suspect:
    """How often one failed alone since it got through; when it failed first, and when alone the last time."""

    since: int
    last: int
    failed: int = 0


@dataclass
class Suspects:
    """Of one lane; kept over its resets. Not thread-safe."""

    _suspects: dict[TopicPartition, _Suspect] = field(default_factory=dict)
    # When others got through the last time, of those that have not failed since.
    _passed: dict[TopicPartition, int] = field(default_factory=dict)
    # Counts the transactions that got through while there were suspects.
    _now: int = 0

    def __bool__(self) -> bool:
        """True while there are any; asked for every answer, so that a lane without them pays nothing."""
        return bool(self._suspects)

    def failed(self, involved: Collection[TopicPartition], *, answered: bool = True) -> FailedTransaction:
        """Note that a transaction with these partitions failed for a reason that names none of them.

        Args:
            answered: by an answer of the target; not by silence, a lost connection, or time.
        """
        for tp in involved:
            self._suspects.setdefault(tp, _Suspect(self._now, self._now))
            self._passed.pop(tp, None)
        if len(involved) != 1:
            return FailedTransaction(None)
        (tp,) = involved
        suspect = self._suspects[tp]
        # A quiet neighbour gets through more seldom than this one fails. It counts until it fails itself: an
        # outage may have begun then.
        overtaken = self._now > suspect.last or any(at > suspect.since for at in self._passed.values())
        suspect.failed += 1
        suspect.last = self._now
        return FailedTransaction(tp, overtaken or (answered and len(self._suspects) == 1))

    def passed(self, through: Iterable[TopicPartition]) -> None:
        """Note that a transaction with these partitions was committed, and moved them on."""
        through = set(through)
        for tp in through:
            self.forget(tp)
        if through and self._suspects:
            self._now += 1
            self._passed.update(dict.fromkeys(through, self._now))

    def forget(self, tp: TopicPartition) -> None:
        """Begin anew with a partition."""
        self._suspects.pop(tp, None)
        if not self._suspects:
            self._passed.clear()

    def keep(self, only: Collection[TopicPartition]) -> None:
        """Forget all others: they are stopped, or no longer this lane's."""
        for tp in self._suspects.keys() - set(only):
            self.forget(tp)

    def apart(self, found: Sequence[tuple[TopicPartition, T]]) -> list[tuple[list[T], bool]]:
        """Return in which transactions to copy, and whether each is to hold nothing else.

        Those that are not suspected go first and together; then every suspect alone, who failed most, last.
        """
        innocent = [one for tp, one in found if tp not in self._suspects]
        rest = [pair for pair in found if pair[0] in self._suspects]
        rest.sort(key=lambda pair: self._suspects[pair[0]].failed)
        return [*([(innocent, False)] if innocent else []), *(([one], True) for _, one in rest)]
