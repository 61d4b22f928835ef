"""Whether a connector goes on where it was: every offset that it writes, compared with the one before.

Invariant: the last values alone never prove it. A connector that begins at zero and is quick has overtaken
its old offset by the next look; among the records that it wrote the lower ones are still there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onceover.backoff import Deadline
from onceover.connectors.model import ConnectorOffsets, ConnectorState, RawOffset
from onceover.connectors.offsets.keys import OffsetMove, compare, is_place, named, parse_key, shown, step_of
from onceover.connectors.offsets.scan import Scan
from onceover.connectors.steps import StepName, reached
from onceover.errors import Retriable

_POLL_S: Final = 0.5
# Of a MirrorMaker's thousands, as many as a document has room for, and a person reads.
_LISTED: Final = 50
_TOLD: Final = 3


@dataclass(frozen=True)
class OffsetProgress:
    """How offsets stand to those of a manifest.

    Args:
        moved: by key of the manifest.
        fresh: keys that the manifest does not have.
        fallen: keys, of the manifest or fresh, that went back on the way to what they are now.
        again: keys of the manifest whose offset was written once more, as Debezium does at each heartbeat
            while no row changes: who did so has read it.
        steps: of keys of the manifest, their position there and now.
    """

    moved: Mapping[bytes, OffsetMove]
    fresh: frozenset[bytes]
    fallen: frozenset[bytes] = frozenset()
    again: frozenset[bytes] = frozenset()
    steps: Mapping[bytes, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def between(
        cls,
        values: Mapping[bytes, bytes],
        now: ConnectorOffsets,
        fallen: frozenset[bytes] = frozenset(),
        again: frozenset[bytes] = frozenset(),
    ) -> OffsetProgress:
        """Compare what was copied with what is there now."""
        offsets = now.offsets
        moved = {key: _moved(key, value, now) for key, value in values.items()}
        back = {key: OffsetMove.BACK for key in fallen & values.keys()}
        some = {key: step_of(values[key], offsets.get(key)) for key in sorted(values)[:_LISTED]}
        stood = frozenset(key for key in again & values.keys() if moved[key] is OffsetMove.SAME)
        return cls({**moved, **back}, frozenset(offsets.keys() - values.keys()), fallen, stood, some)

    def keys(self, *kinds: OffsetMove) -> list[bytes]:
        """Return the keys that have moved in one of these ways."""
        return sorted(key for key, kind in self.moved.items() if kind in kinds)

    @property
    def back(self) -> list[bytes]:
        """Keys that went back, also those that have overtaken their old offset since."""
        return sorted({*self.keys(OffsetMove.BACK), *self.fallen})

    @property
    def advanced(self) -> list[bytes]:
        """Keys that went on, or to their end, as far as that can be known."""
        return self.keys(OffsetMove.FORWARD, OffsetMove.CHANGED, OffsetMove.ENDED)

    @property
    def went_on(self) -> bool:
        """True when the connector has gone on from an offset, or has written its first where it had none.

        New keys beside old ones that stand still prove nothing: it may have begun anew under other keys.
        Neither do offsets of an order that nobody knows: begun anew, they would have changed as well.
        """
        return bool(self.keys(OffsetMove.FORWARD) or self.again if self.moved else self.fresh)

    @property
    def changed(self) -> list[bytes]:
        """Keys whose offset is another one, of a shape whose order nobody knows."""
        return self.keys(OffsetMove.CHANGED)

    @property
    def ended(self) -> list[bytes]:
        """Keys with a tombstone."""
        return self.keys(OffsetMove.ENDED)

    @property
    def complete(self) -> bool:
        """True when there is nothing more to wait for: every key has moved, or the first one came."""
        return bool(self.went_on or self.changed or self.ended) and self.again.issuperset(
            self.keys(OffsetMove.SAME)
        )

    def facts(self) -> dict[str, Any]:
        """Return what is counted in a report."""
        counts = {str(kind): len(self.keys(kind)) for kind in OffsetMove} | {
            str(OffsetMove.BACK): len(self.back)
        }
        positions = [{"key": shown(key), "from": a, "to": b} for key, (a, b) in self.steps.items()]
        counts["again"] = len(self.again)
        return {"offsets": len(self.moved), **counts, "new": len(self.fresh), "positions": positions}

    def describe(self) -> str:
        """Return from where to where it went on, of the first keys that did; empty where none did."""
        gone = [key for key in (*self.advanced, *sorted(self.again)) if key in self.steps]
        told = [f"{shown(key)}: {' -> '.join(self.steps[key])}" for key in gone[:_TOLD]]
        more = len(self.advanced) + len(self.again) - len(told)
        return "; ".join(told + ([f"and {more} more"] if told and more else []))


def _moved(key: bytes, before: bytes, now: ConnectorOffsets) -> OffsetMove:
    """Return how a key has moved: a task deletes what it needs no more, what has vanished is back."""
    if key in now.values and now.values[key] is None:
        return OffsetMove.ENDED
    return compare(before, now.values.get(key))


def undecided(progress: OffsetProgress) -> str:
    """Return what is said of offsets that have moved, nobody knows in which direction; empty without any."""
    told = []
    if progress.changed:
        told.append(
            f"{named(progress.changed)}: changed, and of this shape nobody can tell whether forward: compare "
            "what the connector wrote with what it had written before"
        )
    if progress.ended:
        told.append(
            f"{named(progress.ended)}: deleted since, by its task, which is through with it, or by somebody"
        )
    return "; ".join(told)


class Trail:
    """Every offset of one connector, in the order in which it was written.

    Pure: it is told of records, each of them once.

    Args:
        connector: whose; records of others are passed over.
        values: what each key had before the first record.
    """

    def __init__(self, connector: str, values: Mapping[bytes, bytes]) -> None:
        self._connector = connector
        self._values = values
        self._last: dict[tuple[bytes, int], bytes | None] = {}
        self._fallen: set[bytes] = set()
        self._again: set[bytes] = set()

    @property
    def fallen(self) -> frozenset[bytes]:
        """Keys with a record that was lower than the one before it, whatever was deleted in between."""
        return frozenset(self._fallen)

    @property
    def again(self) -> frozenset[bytes]:
        """Keys with a record that was the same place as the one before it."""
        return frozenset(self._again)

    def follow(self, records: Iterable[RawOffset]) -> None:
        """Judge the next records; those of one partition in the order of their offsets."""
        for record in records:
            parsed = parse_key(record.key)
            if parsed is None or parsed.connector != self._connector or parsed.is_sentinel:
                continue
            if record.value is None:
                # A task's own, or a person's: workers write none by themselves.
                continue
            # Partitions have no order among each other: a key in two of them has two courses.
            place = record.key, record.partition
            before = self._last.get(place, self._values.get(record.key))
            if before is not None and compare(before, record.value) is OffsetMove.BACK:
                self._fallen.add(record.key)
            if before == record.value and is_place(record.value):
                self._again.add(record.key)
            self._last[place] = record.value


class OffsetCourse:
    """What a connector does to its offsets from a position on: each look takes up where the last one ended.

    Limit: what compaction takes away between two looks is not seen. It spares the active segment.

    Args:
        connector: whose.
        values: what it begins with.
        scan: reads the topic as the workers do.
        read: returns every record from the given offsets to the end of a scan.
        since: next offset of each partition; where it lacks one, the course begins at the first look.
    """

    def __init__(
        self,
        connector: str,
        values: Mapping[bytes, bytes],
        scan: Callable[[], Scan],
        read: Callable[[Mapping[int, int], Scan], Iterable[RawOffset]],
        since: Mapping[int, int],
    ) -> None:
        self._connector = connector
        self._values = values
        self._trail = Trail(connector, values)
        self._scan = scan
        self._read = read
        self._since = since

    def look(self) -> OffsetProgress:
        """Read on and judge.

        Raises:
            Retriable: a broker is away, or a transaction stays open; the next look begins where this one did.
        """
        scan = self._scan()
        # All of them, before one is judged: a look that fails half way is repeated.
        records = list(self._read({**scan.end_offsets, **self._since}, scan))
        self._trail.follow(records)
        self._since = scan.end_offsets
        return OffsetProgress.between(
            self._values, scan.snapshot(self._connector), self._trail.fallen, self._trail.again
        )


def watch(
    look: Callable[[], OffsetProgress], check: Callable[[], list[ConnectorState]], seconds: float
) -> OffsetProgress:
    """Look until a key goes back, every key has gone on, or the time is over.

    Args:
        look: of the connector's course.
        check: asks the workers for the connector's state; raises when it has failed.
        seconds: how long at most.
    """
    reached(StepName.WATCH)
    deadline = Deadline(seconds)
    progress: OffsetProgress | None = None
    while True:
        try:
            progress = look()
        except Retriable:
            # A transaction of the running connector, or a broker that moves; what counts is the last look.
            if deadline.passed and progress is None:
                raise
        if progress is not None and (progress.back or progress.complete or deadline.passed):
            return progress
        check()
        time.sleep(min(_POLL_S, deadline.left_s))
