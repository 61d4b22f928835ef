"""What a lane tells `status` about partitions that it cannot copy for now. Pure.

Invariant: what is told is what was seen again and again, and it is taken back in the transaction in which the
partition moves on or stops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from onceover.copy.identity import LaneIdentity
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.value import MALFORMED, whole_number
from onceover.stops.aside import Trouble, Troubles, TroubleSide
from onceover.stops.codes import WaitCode

# One bad moment is nobody's business.
_LEAST_TRIES = 2
_WHAT = {
    TroubleSide.SOURCE: "cannot be read on the source for now",
    TroubleSide.TARGET: "cannot be written on the target for now",
    TroubleSide.COPY: "transactions with this partition fail",
}


_NO_NOTES: Final[Mapping[str, dict[str, Any]]] = MappingProxyType({})


def slowed_note(me: LaneIdentity, alias: str) -> dict[str, dict[str, Any]]:
    """Return what is noted of a lane that a quota of the target decides the speed of, by key."""
    note = {
        "v": 1,
        "generation": me.generation,
        "object": f"lane {me.lane}",
        "code": WaitCode.TARGET_QUOTA,
        "message": f"a producer quota of {alias} throttles the copy, which goes on at the quota's pace",
        "resolve": f"if that is too slow, raise producer_byte_rate of its user or client id on {alias}",
    }
    return {names.quota_key(me.lane): note}


def aborted_note(count: int) -> dict[str, Any]:
    """Return what is noted of how many transactions a lane has given up, over all its processes and runs."""
    return {"v": 1, "count": count}


def aborted_count(values: Mapping[str, Any], lane: int) -> int:
    """Return how many are on record; a value that cannot be read counts as none."""
    try:
        return whole_number(values[names.aborted_key(lane)]["count"])
    except MALFORMED:
        return 0


class Waits:
    """The notes of one lane's session.

    Args:
        generation: of the lane.
        written: keys that are in the state already.
    """

    def __init__(self, generation: int, written: Iterable[str] = ()) -> None:
        self._generation = generation
        self._written = set(written)

    def changes(
        self,
        troubles: Troubles,
        targets: Mapping[TopicPartition, TopicPartition],
        moving: Collection[TopicPartition] = (),
        others: Mapping[str, dict[str, Any]] = _NO_NOTES,
    ) -> dict[str, dict[str, Any] | None]:
        """Return what has to be written, by key of the state; None takes a note back.

        What is returned counts as written: with a failed transaction the session ends.

        Args:
            targets: the lane's source partitions, and where they are copied to.
            moving: those that move on in the same transaction.
            others: what else there is to note, by key.
        """
        if not troubles and not others and not self._written:
            return {}
        wanted: dict[str, dict[str, Any] | None] = {**others}
        for source, target in targets.items():
            for side, trouble in troubles.of(source).items():
                if trouble.tries >= _LEAST_TRIES and not trouble.is_lasting and source not in moving:
                    wanted[names.wait_key(*target)] = self._note(source, side, trouble)
        changed = {key: note for key, note in wanted.items() if key not in self._written}
        changed |= dict.fromkeys(self._written - wanted.keys())
        self._written = set(wanted)
        return changed

    def _note(self, source: TopicPartition, side: TroubleSide, trouble: Trouble) -> dict[str, Any]:
        error = trouble.error
        return {
            "v": 1,
            "generation": self._generation,
            "object": str(source),
            "code": WaitCode.WAITING,
            "message": f"{_WHAT[side]}, tried {trouble.tries} times up to now: {error.message}",
            "resolve": error.resolve or "it is tried again, and stops where that is of no use",
        }
