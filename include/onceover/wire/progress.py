"""What stands beside a committed position in the progress group (docs/architecture.md).

Invariant: a lane that resumes can tell from it whether source and target are still the ones it knew
(G5), whether another instance has taken over, and whether the position is the one that it was written
beside: tools for groups move offsets and drop, keep or copy what stands there. Older text stays
readable; newer is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from onceover.errors import NeedsOperator
from onceover.wire.batches.batch import BatchHeader
from onceover.wire.codes import WireCode

VERSION: Final = 1
# The instance of progress that no lane has written: an enrolment's, or an operator's.
NOBODY: Final = (0, 0)
# How every text of ours begins. What begins otherwise was written by somebody else.
_BEGINNING: Final = '{"v":'


class CopiedBatch(NamedTuple):
    """The source batch that holds the last offset before a position: no other life of the log has it there.

    ``crc`` as in its header: over everything but the base offset and the leader epoch, times and producer
    among it.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    crc: int


class CopiedLast(NamedTuple):
    """What was copied last before a position: by it a lane tells whether the source still is that log.

    ``leader_epoch`` as the source gave it to that batch; ``batch`` as in ``ProgressMeta``.
    """

    leader_epoch: int
    batch: CopiedBatch | None


class PromotedMark(NamedTuple):
    """That the copy was given to clients: by which ``drill``, when, and where the copy ended then."""

    drill: str
    at_ms: int
    end: int


def last_before(position: int, batch: BatchHeader | CopiedBatch | None) -> CopiedBatch | None:
    """Return the batch where the offset before ``position`` lies in it, else None.

    A position may also be put where nothing was read to: before a record that is refused, or by hand.
    """
    if batch is None or not batch.base_offset < position <= batch.next_offset:
        return None
    return CopiedBatch(batch.base_offset, batch.next_offset, batch.size_bytes, batch.crc)


@dataclass(frozen=True, slots=True)
class ProgressMeta:
    """Metadata of one committed offset.

    ``leader_epoch`` is the source's, of the last batch copied; ``target_end`` the target offset after the
    last record written; ``instance`` the lane's (Spark batch id, attempt); ``position`` the offset that it
    was committed with; ``target_epoch`` the leader epoch of the target's log when everything before
    ``target_end`` was in it. Either is None in text of a release that did not write it, the latter also where
    the target did not say it. ``producer`` is the transaction's producer id, where all that it wrote into the
    target partition are copies of this one source partition; None where that is not so. ``batch`` is the
    source's last before ``position``; None where nobody has copied it, or an older release has. ``promoted``
    is there from the promotion of the copy on, until somebody places the partition by hand.
    """

    source_topic_id: str
    target_topic_id: str
    leader_epoch: int
    target_end: int
    generation: int
    instance: tuple[int, int]
    position: int | None = None
    target_epoch: int | None = None
    producer: int | None = None
    batch: CopiedBatch | None = None
    promoted: PromotedMark | None = None

    @property
    def is_alone(self) -> bool:
        """False where the lane may have written copies of other partitions behind ``target_end``."""
        return self.producer is not None or self.instance == NOBODY

    def encode(self) -> str:
        """Return JSON of well under 1 KB; the broker refuses more than 4096 characters."""
        fields: dict[str, Any] = {
            "v": VERSION,
            "source_id": self.source_topic_id,
            "target_id": self.target_topic_id,
            "epoch": self.leader_epoch,
            "target_end": self.target_end,
            "generation": self.generation,
            "instance": list(self.instance),
        }
        if self.position is not None:
            fields["at"] = self.position
        if self.target_epoch is not None:
            fields["target_epoch"] = self.target_epoch
        if self.producer is not None:
            fields["producer"] = self.producer
        if self.batch is not None:
            fields["batch"] = list(self.batch)
        if self.promoted is not None:
            fields["promoted"] = list(self.promoted)
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> ProgressMeta | None:
        """Return the metadata; ``None`` for what others commit: no text, or text that is not of our making.

        Raises:
            NeedsOperator: PROGRESS_UNREADABLE, damaged or of a newer version.
        """
        # A client library in wide use appends a zero byte to what its caller commits.
        text = text.removesuffix("\0")
        if not text.startswith(_BEGINNING):
            return None
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _unreadable("JSON", f"{len(text)} characters that are none") from error
        version = fields.get("v") if isinstance(fields, dict) else None
        if type(version) is not int or version < 1:
            raise _unreadable("an object with a version", "another kind of JSON")
        if version > VERSION:
            fix = "use the Onceover that wrote it"
            raise _unreadable(f"version {VERSION} or older", f"version {version}", fix)
        batch, attempt = _instance(fields)
        return cls(
            source_topic_id=_text(fields, "source_id"),
            target_topic_id=_text(fields, "target_id"),
            leader_epoch=_number(fields, "epoch"),
            target_end=_number(fields, "target_end"),
            generation=_number(fields, "generation"),
            instance=(batch, attempt),
            position=_number(fields, "at") if "at" in fields else None,
            target_epoch=_number(fields, "target_epoch") if "target_epoch" in fields else None,
            producer=_number(fields, "producer") if "producer" in fields else None,
            batch=_batch(fields["batch"]) if "batch" in fields else None,
            promoted=_promoted(fields["promoted"]) if "promoted" in fields else None,
        )


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise _unreadable(f"a text in {name!r}", type(value).__name__)
    return value


def _number(fields: dict[str, Any], name: str) -> int:
    return _integer(fields.get(name), name)


def _integer(value: object, name: str) -> int:
    # Not isinstance: JSON's true is an int to Python.
    if type(value) is not int:
        raise _unreadable(f"a whole number in {name!r}", type(value).__name__)
    return value


def _instance(fields: dict[str, Any]) -> tuple[int, int]:
    match fields.get("instance"):
        case [batch, attempt]:
            return _integer(batch, "instance"), _integer(attempt, "instance")
        case other:
            raise _unreadable("two numbers in 'instance'", type(other).__name__)


def _batch(value: object) -> CopiedBatch:
    match value:
        case [base_offset, next_offset, size_bytes, crc]:
            numbers = (base_offset, next_offset, size_bytes, crc)
            return CopiedBatch._make(_integer(number, "batch") for number in numbers)
        case other:
            raise _unreadable("four numbers in 'batch'", type(other).__name__)


def _promoted(value: object) -> PromotedMark:
    match value:
        case [str(drill), at_ms, end]:
            return PromotedMark(drill, _integer(at_ms, "promoted"), _integer(end, "promoted"))
        case other:
            raise _unreadable("a drill and two numbers in 'promoted'", type(other).__name__)


def _unreadable(expected: str, seen: str, resolve: str | None = None) -> NeedsOperator:
    return NeedsOperator(
        "the metadata of a committed position cannot be read",
        code=WireCode.PROGRESS_UNREADABLE,
        expected=expected,
        seen=seen,
        resolve=resolve,
    )
