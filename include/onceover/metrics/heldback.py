"""Since when the same transaction has been open on the source, as a look after the other sees it. Pure.

Invariant: where producers write by transactions one is open at almost every look, and each is another one. It
is the same one only where the last stable offset stands where it stood: it lies in no log twice, and behind
each transaction that is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from onceover.model import TopicPartition


class _Held(NamedTuple):
    lso: int
    since_s: float


class HeldBack:
    """The partitions of one flow that open transactions hold back. Not thread-safe."""

    def __init__(self) -> None:
        self._held: dict[TopicPartition, _Held] = {}
        self._seen: frozenset[TopicPartition] = frozenset()
        self._all_seen = False

    def saw(self, partitions: Sequence[Mapping[str, Any]], now_s: float) -> None:
        """Take down a look; what nobody could tell of is as it was.

        Args:
            partitions: as ``status`` has them.
            now_s: seconds, of no particular beginning.
        """
        there = {TopicPartition(p["topic"], p["partition"]): p for p in partitions}
        known = {tp: p for tp, p in there.items() if p["lso"] is not None and p["open_offsets"] is not None}
        # A target that is silent tells of no partitions.
        before = {tp: held for tp, held in self._held.items() if not there or tp in there}
        self._held = {tp: held for tp, held in before.items() if tp not in known}
        for tp, partition in known.items():
            if partition["open_offsets"]:
                held = _Held(partition["lso"], now_s)
                known_before = before.get(tp, held)
                self._held[tp] = known_before if known_before.lso == held.lso else held
        self._seen = frozenset(known)
        # Of a topic that is not taken in nobody tells which of its partitions wait for what.
        others = [p for tp, p in there.items() if tp not in known]
        self._all_seen = bool(there) and all(p["open_offsets"] == 0 for p in others)

    def oldest_s(self, now_s: float) -> float | None:
        """Return for how many seconds the oldest was seen; 0 where none is open, None where nobody knows.

        Of partitions that the last look could not tell of none counts.
        """
        ages = [now_s - held.since_s for tp, held in self._held.items() if tp in self._seen]
        return max(ages, default=0.0 if self._all_seen else None)
