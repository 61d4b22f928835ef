"""Source transactions that an unplanned switchover has torn: partly copied, partly not. Pure.

Invariant: a transaction that was torn is never left out, as far as the partitions were looked at and the
brokers' clocks differ by no more than ``SKEW_MS``. What is ``certain`` was torn. The others may have been two
transactions of one producer, one of which was copied and the other was not.

What tells transactions apart: with transaction version 2 (KIP-890) the epoch grows with each, and the marker
of a commit bears the next one, so producer id and epoch are one transaction. With older clients many share an
epoch. Then it goes by the order: a coordinator writes all markers of a producer's transaction before the next
one can begin, so two spans are one transaction only where no other span of the producer lies between their
markers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from onceover.model import TopicPartition

# Brokers that keep their clocks at all are this close; a larger difference finds more that only may be torn.
SKEW_MS: Final = 1_000
_NEVER: Final = 1 << 62


class SpanState(StrEnum):
    """How a transaction has ended in one partition's log."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


class TransactionSpan(NamedTuple):
    """What one transaction has written to one partition.

    Args:
        first: offset of its first record there; ``last`` of its last one.
        marker_ms: when the leader has written its end, by the broker's clock; None while it is open.
        marker_epoch: producer epoch of that marker; None likewise.
        first_ms: timestamp of its first batch, by whoever has written it.
    """

    producer_id: int
    epoch: int
    first: int
    last: int
    state: SpanState
    marker_ms: int | None = None
    marker_epoch: int | None = None
    first_ms: int = -1

    @property
    def is_alone_in_its_epoch(self) -> bool:
        """Tell whether producer id and epoch are this transaction's alone (transaction version 2)."""
        return self.state is SpanState.COMMITTED and self.marker_epoch == self.epoch + 1

    @property
    def ended_ms(self) -> int:
        """When it has ended; never, while it is open."""
        return _NEVER if self.marker_ms is None else self.marker_ms


@dataclass(frozen=True)
class PartitionSpans:
    """The transactions of one partition.

    Args:
        cut: the first source offset that was not copied.
        spans: in the order of their ends, aborted ones among them.
    """

    partition: TopicPartition
    cut: int
    spans: Sequence[TransactionSpan]


class TornPart(NamedTuple):
    """Offsets of a partition, both included."""

    partition: TopicPartition
    first: int
    last: int

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {"partition": str(self.partition), "first": self.first, "last": self.last}

    def __str__(self) -> str:
        return f"{self.partition} {self.first} to {self.last}"


@dataclass(frozen=True)
class TornTransaction:
    """One that was torn, or may have been.

    Args:
        certain: it is one transaction; otherwise it may have been several, none of them torn.
        is_open: a part of it has not ended yet: it counts where that commits.
        copied: what of it was copied; ``left`` what was not.
        transactional_id: of the producer, where a coordinator still knows it.
    """

    producer_id: int
    epoch: int
    certain: bool
    is_open: bool
    copied: tuple[TornPart, ...]
    left: tuple[TornPart, ...]
    transactional_id: str | None = None

    @property
    def name(self) -> str:
        """Who has written it, as people look for it."""
        numbers = f"producer id {self.producer_id}, epoch {self.epoch}"
        return numbers if self.transactional_id is None else f"{self.transactional_id} ({numbers})"

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "epoch": self.epoch,
            "certain": self.certain,
            "open": self.is_open,
            "copied": [each.document() for each in self.copied],
            "not_copied": [each.document() for each in self.left],
        }

    def describe(self) -> str:
        """Return it as a line of text."""
        verb = "was torn" if self.certain and not self.is_open else "may be torn"
        opened = "; a part of it is open" if self.is_open else ""
        copied, left = (", ".join(map(str, each)) for each in (self.copied, self.left))
        return f"transaction of {self.name} {verb}: copied {copied}; not copied {left}{opened}"


class _Placed(NamedTuple):
    """A span where it stands: between which ends of the same producer's others in its partition."""

    partition: TopicPartition
    cut: int
    span: TransactionSpan
    before_ms: int
    behind_ms: int

    @property
    def copied(self) -> TornPart | None:
        """What of it was copied."""
        span = self.span
        ends = min(span.last, self.cut - 1)
        return None if span.first >= self.cut else TornPart(self.partition, span.first, ends)

    @property
    def left(self) -> TornPart | None:
        """What of it was not."""
        span = self.span
        begins = max(span.first, self.cut)
        return None if span.last < self.cut else TornPart(self.partition, begins, span.last)


def torn(partitions: Iterable[PartitionSpans]) -> list[TornTransaction]:
    """Return the transactions of which a part was copied and a part was not, as they are told apart."""
    by_epoch: dict[tuple[int, int], list[_Placed]] = defaultdict(list)
    for each in partitions:
        for placed in _placed(each):
            if placed.span.state is not SpanState.ABORTED:
                by_epoch[placed.span.producer_id, placed.span.epoch].append(placed)
    found: list[TornTransaction] = []
    for _, several in sorted(by_epoch.items()):
        alone = [p for p in several if p.span.is_alone_in_its_epoch]
        # An epoch that is one transaction's has no room for another one behind it.
        ours = [p for p in several if p.span.is_alone_in_its_epoch or (alone and p.span.marker_ms is None)]
        others = [p for p in several if p not in ours] if alone else several
        found += _told([ours], certain=True)
        found += _told(_linked(others), certain=False)
    return found


def _placed(partition: PartitionSpans) -> Iterator[_Placed]:
    """Yield the spans with the ends of those of the same producer around them, whatever became of those."""
    by_producer: dict[int, list[TransactionSpan]] = defaultdict(list)
    for span in partition.spans:
        by_producer[span.producer_id].append(span)
    for spans in by_producer.values():
        ends = [-_NEVER, *(span.ended_ms for span in spans), _NEVER]
        for number, span in enumerate(spans):
            yield _Placed(partition.partition, partition.cut, span, ends[number], ends[number + 2])


class _Groups:
    """Who may belong together: whoever is linked with one of a group is in it (union-find)."""

    def __init__(self) -> None:
        self._up: dict[_Placed, _Placed] = {}

    def root(self, of: _Placed) -> _Placed:
        while (up := self._up.setdefault(of, of)) != of:
            self._up[of] = of = self._up[up]
        return of

    def link(self, one: _Placed, other: _Placed) -> None:
        self._up[self.root(one)] = self.root(other)

    def found(self) -> Iterator[list[_Placed]]:
        groups: dict[_Placed, list[_Placed]] = defaultdict(list)
        for placed in list(self._up):
            groups[self.root(placed)].append(placed)
        yield from groups.values()


def _linked(several: Sequence[_Placed]) -> Iterator[list[_Placed]]:
    """Yield those that may be one transaction: of each pair one was copied and the other was not."""
    copied: dict[TopicPartition, list[_Placed]] = defaultdict(list)
    for placed in several:
        if placed.copied is not None:
            copied[placed.partition].append(placed)
    groups = _Groups()
    for left in (each for each in several if each.left is not None):
        if left.copied is not None:
            groups.root(left)
        for partition, candidates in copied.items():
            for other in _possible(left, candidates) if partition != left.partition else ():
                groups.link(left, other)
    yield from groups.found()


def _possible(left: _Placed, candidates: Sequence[_Placed]) -> Iterator[_Placed]:
    """Yield which of one partition's spans, in their order, may be the same transaction as ``left``."""
    at_ms = left.span.ended_ms
    first = bisect_left(candidates, left.before_ms - SKEW_MS, key=lambda each: each.span.ended_ms)
    for other in candidates[first:]:
        if other.span.ended_ms > left.behind_ms + SKEW_MS:
            return
        if other.before_ms - SKEW_MS <= at_ms <= other.behind_ms + SKEW_MS:
            yield other


def _told(groups: Iterable[Sequence[_Placed]], *, certain: bool) -> Iterator[TornTransaction]:
    for group in groups:
        copied = _merged(p.copied for p in group)
        left = _merged(p.left for p in group)
        if not copied or not left:
            continue
        span = group[0].span
        # A single span on both sides of the cut can be nothing but one transaction.
        yield TornTransaction(
            span.producer_id,
            span.epoch,
            certain or len(group) == 1,
            any(p.span.state is SpanState.OPEN for p in group),
            copied,
            left,
        )


def _merged(stretches: Iterable[TornPart | None]) -> tuple[TornPart, ...]:
    """Return one stretch for each partition, from the first offset to the last one."""
    found: dict[TopicPartition, TornPart] = {}
    for each in stretches:
        if each is not None:
            known = found.get(each.partition, each)
            found[each.partition] = TornPart(
                each.partition, min(known.first, each.first), max(known.last, each.last)
            )
    return tuple(found[tp] for tp in sorted(found))


def named(several: Iterable[TornTransaction], ids: Mapping[int, str]) -> list[TornTransaction]:
    """Return them with the transactional ids that producer ids have now."""
    return [replace(each, transactional_id=ids.get(each.producer_id)) for each in several]
