"""Which partition makes transactions fail that held several: found by copying the suspects alone. Pure.

Invariants: whoever got through is suspected no longer. Nobody is blamed for a failure that others shared, nor
while nothing gets through for anybody: that is an outage of a cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from onceover.model import TopicPartition

T = TypeVar("T")


class Verdict(NamedTuple):
    """What a failed transaction says.

    Args:
        alone: the only partition that was in it; None where there were none or several.
        compared: nothing but this partition is known to fail, or others got through since it last failed.
    """

    alone: TopicPartition | None
    compared: bool = False


@dataclass
class Suspects:
    """Of one lane; kept over its resets. Not thread-safe."""

    # How often each failed alone since it last got through.
    _failed: dict[TopicPartition, int] = field(default_factory=dict)
    # Those that others have passed since they last failed alone.
    _overtaken: set[TopicPartition] = field(default_factory=set)

    def __bool__(self) -> bool:
        """True while there are any; asked for every answer, so that a lane without them pays nothing."""
        return bool(self._failed)

    def failed(self, involved: Collection[TopicPartition]) -> Verdict:
        """Note that a transaction with these partitions failed for a reason that names none of them."""
        for tp in involved:
            self._failed.setdefault(tp, 0)
        if len(involved) != 1:
            return Verdict(None)
        (tp,) = involved
        self._failed[tp] += 1
        compared = tp in self._overtaken or len(self._failed) == 1
        self._overtaken.discard(tp)
        return Verdict(tp, compared)

    def passed(self, through: Iterable[TopicPartition]) -> None:
        """Note that a transaction with these partitions was committed, and moved them on."""
        through = set(through)
        for tp in through:
            self._failed.pop(tp, None)
            self._overtaken.discard(tp)
        if through:
            self._overtaken |= self._failed.keys()

    def forget(self, tp: TopicPartition) -> None:
        """Begin anew with a partition."""
        self._failed.pop(tp, None)
        self._overtaken.discard(tp)

    def keep(self, only: Collection[TopicPartition]) -> None:
        """Forget all others: they are stopped, or no longer this lane's."""
        for tp in self._failed.keys() - set(only):
            self.forget(tp)

    def apart(self, found: Sequence[tuple[TopicPartition, T]]) -> list[tuple[list[T], bool]]:
        """Return in which transactions to copy, and whether each is to hold nothing else.

        Those that are not suspected go first and together; then every suspect alone, who failed most, last.
        """
        innocent = [one for tp, one in found if tp not in self._failed]
        rest = sorted((pair for pair in found if pair[0] in self._failed), key=lambda p: self._failed[p[0]])
        return [*([(innocent, False)] if innocent else []), *(([one], True) for _, one in rest)]
