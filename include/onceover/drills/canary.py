"""Numbered records, by which a reader tells what it has missed and what it meets twice. Pure.

Invariant: a number is written once, into the partition that it says by itself, and nothing that is judged
depends on offsets: they differ between the clusters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceover.state.records.value import MALFORMED

PARTITIONS: Final = 2
# Written in a transaction that is aborted: whoever meets one reads what nobody may.
ABORTED: Final = "aborted"
COMMITTED: Final = "committed"


@dataclass(frozen=True)
class Canary:
    """One numbered record.

    Args:
        drill: of which drill.
        number: from 0 on, over all partitions.
        kind: whether it may be met.
    """

    drill: str
    number: int
    kind: str = COMMITTED

    @property
    def partition(self) -> int:
        """Where it belongs."""
        return self.number % PARTITIONS

    def encode(self) -> tuple[bytes, bytes]:
        """Return its key and value."""
        value = {"drill": self.drill, "number": self.number, "kind": self.kind}
        return str(self.number).encode(), json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes | None) -> Canary | None:
        """Return what ``encode`` wrote, None for anything else."""
        try:
            found: Any = json.loads(value or b"")
            return cls(str(found["drill"]), int(found["number"]), str(found["kind"]))
        except (*MALFORMED, RecursionError):
            return None


def by_partition(canaries: Iterable[Canary]) -> dict[int, list[tuple[bytes, bytes | None]]]:
    """Return keys and values by partition, in their order."""
    found: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for canary in canaries:
        found.setdefault(canary.partition, []).append(canary.encode())
    return found


@dataclass(frozen=True)
class CanaryVerdict:
    """What a reader of one partition met, against what it should have.

    Args:
        expected: how many numbers it should have met.
        missing: numbers that it did not meet; ``repeated`` that it met again, or had met before.
        misplaced: how many came out of order, from elsewhere, or were never committed.
    """

    expected: int
    missing: tuple[int, ...]
    repeated: tuple[int, ...]
    misplaced: int

    @property
    def exact(self) -> bool:
        """True when the reader went on with exactly its next record, and met every one once, in order."""
        return not (self.missing or self.repeated or self.misplaced)

    def document(self) -> Mapping[str, int]:
        """Return it as counts."""
        return {
            "expected": self.expected,
            "missing": len(self.missing),
            "repeated": len(self.repeated),
            "misplaced": self.misplaced,
        }


def judge(
    drill: str, partition: int, first: int, total: int, values: Sequence[bytes | None]
) -> CanaryVerdict:
    """Return what a reader met that goes on with ``first``.

    Args:
        first: the smallest number that it has not read before it moved.
        total: numbers of the drill: every one below it was committed.
        values: of the records that it met, in order.
    """
    wanted = [number for number in range(total) if number % PARTITIONS == partition and number >= first]
    met = [Canary.decode(value) for value in values]
    good = [
        canary.number
        for canary in met
        if canary is not None
        and (canary.drill, canary.kind, canary.partition) == (drill, COMMITTED, partition)
    ]
    seen: set[int] = set()
    repeated = []
    disorder, highest = 0, -1
    for number in good:
        if number in seen or number < first:
            repeated.append(number)
        elif number < highest:
            disorder += 1
        seen.add(number)
        highest = max(highest, number)
    foreign = len(met) - len(good)
    beyond = sum(1 for number in seen if number >= total)
    missing = tuple(number for number in wanted if number not in seen)
    return CanaryVerdict(len(wanted), missing, tuple(repeated), disorder + foreign + beyond)
