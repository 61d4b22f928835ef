"""Where a copy ends on its source, found by comparing records. Pure.

The *seam* is the source offset after the last record that the target holds. Given stretches of both logs,
the answer is exact or there is none: a reading of the target that leaves room for two answers is
*ambiguous*, a record between two copied ones that is not on the target is a *gap*.

A copy that was restarted at an older offset repeats records (MirrorMaker without exactly-once). Every way to
read the target as runs of source records is considered; the seam lies behind all that any run has reached.
Where all readings begin at the same record and one of them is unbroken, that is the answer: the target then
holds the same content as the source, and a reader cannot tell how it came to be.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from onceover.seeding.codes import SeedingCode
from onceover.wire.batches.records import DecodedRecord, encode_body

# Readings of a target made of the same few records over and over; more of them never lead to one answer.
_MAX_READINGS: Final = 256
_DIGEST_BYTES: Final = 16
_TIMESTAMP: Final = struct.Struct(">q")


class RecordPrint(NamedTuple):
    """A record as it is compared: where it is, its time, and a digest of key, value, headers and time."""

    offset: int
    timestamp_ms: int
    digest: bytes

    @classmethod
    def of(cls, record: DecodedRecord) -> RecordPrint:
        """Return that of a record, of everything that a copy must keep; null and empty differ."""
        content = _TIMESTAMP.pack(record.timestamp) + encode_body(record.key, record.value, record.headers)
        return cls(
            record.offset, record.timestamp, hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
        )


@dataclass(frozen=True)
class Seam:
    """The proven answer.

    Args:
        offset: next source offset to copy.
        index: place of the last copied record in the source's stretch.
        compared: target records that were compared.
        repeated: how many of them repeat others.
    """

    offset: int
    index: int
    compared: int
    repeated: int = 0


@dataclass(frozen=True)
class NoSeam:
    """Why there is no answer.

    Args:
        code: ``AMBIGUOUS``, ``FOREIGN_RECORD`` or ``GAP``.
        message: what was compared and what was seen; offsets only, no content.
    """

    code: SeedingCode
    message: str


Finding: TypeAlias = Seam | NoSeam


def find_seam(
    source: Sequence[RecordPrint],
    target: Sequence[RecordPrint],
    *,
    anchors: Mapping[int, int] | None = None,
    from_start: bool = False,
) -> Finding:
    """Return where the target's stretch ends on the source.

    Args:
        source: a stretch of the source that holds all candidates, in order, without holes.
        target: the last records of the target, in order, at least one.
        anchors: target offsets whose source offset is known from elsewhere.
        from_start: both stretches begin with the first record of their logs.
    """
    known = _starts_allowed(source, target, anchors or {})
    unbroken = [start for start in _occurrences(source, target) if known is None or start == known]
    if len(unbroken) > 1 and from_start and unbroken[0] == 0:
        unbroken = [0]
    if len(unbroken) > 1:
        return NoSeam(
            SeedingCode.AMBIGUOUS,
            f"{_span(target)} of the target, {len(target)} records, is found in {len(unbroken)} places of "
            f"{_span(source)} of the source: identical records repeat",
        )
    if not unbroken:
        return _through_repeats(source, target, known)
    start = unbroken[0]
    sure = known == start or (from_start and start == 0)
    if not sure and _begins_elsewhere(source, target, start):
        return NoSeam(
            SeedingCode.AMBIGUOUS,
            f"{_span(target)} of the target can be one run of source records, or repeats of a few that begin "
            "somewhere else: identical records repeat",
        )
    last = start + len(target) - 1
    return Seam(source[last].offset + 1, last, len(target))


def _starts_allowed(
    source: Sequence[RecordPrint], target: Sequence[RecordPrint], anchors: Mapping[int, int]
) -> int | None:
    """Return where the stretch of the target begins on the source if an anchor tells, else None."""
    places = {record.offset: place for place, record in enumerate(source)}
    for number, record in enumerate(target):
        place = places.get(anchors.get(record.offset, -1))
        if place is not None and source[place].digest == record.digest and place >= number:
            return place - number
    return None


def _occurrences(source: Sequence[RecordPrint], target: Sequence[RecordPrint]) -> Iterator[int]:
    """Yield where the target's records stand on the source as one run (Knuth, Morris and Pratt)."""
    pattern = [record.digest for record in target]
    fallback = [0] * len(pattern)
    matched = 0
    for place in range(1, len(pattern)):
        while matched and pattern[place] != pattern[matched]:
            matched = fallback[matched - 1]
        matched += pattern[place] == pattern[matched]
        fallback[place] = matched
    matched = 0
    for place, record in enumerate(source):
        while matched and (matched == len(pattern) or record.digest != pattern[matched]):
            matched = fallback[matched - 1]
        matched += record.digest == pattern[matched]
        if matched == len(pattern):
            yield place - matched + 1


def _through_repeats(
    source: Sequence[RecordPrint], target: Sequence[RecordPrint], known: int | None
) -> Finding:
    places = _places(source)
    begins = [place for place in places.get(target[0].digest, []) if known is None or place == known]
    if not begins:
        return _foreign(source, target[0])
    # A reading is where it begins on the source and how far it has come: where it stands does not matter,
    # because a restart may go back to anywhere before, also to before the compared records.
    readings = {(place, place) for place in begins}
    for record in target[1:]:
        found = places.get(record.digest)
        if found is None:
            return _foreign(source, record)
        following = _continued(readings, found)
        if not following:
            return _gap(source, record, max(far for _, far in readings), found)
        if len(following) > _MAX_READINGS:
            return _undecided(target, len(following))
        readings = following
    ends = {far for _, far in readings}
    if len(ends) > 1:
        return _undecided(target, len(ends))
    far = ends.pop()
    first = min(first for first, _ in readings)
    return Seam(source[far].offset + 1, far, len(target), len(target) - (far - first + 1))


def _begins_elsewhere(source: Sequence[RecordPrint], target: Sequence[RecordPrint], start: int) -> bool:
    """Tell whether the target can also be read from another place on, or whether nobody can tell."""
    places = _places(source)
    readings = {(place, place) for place in places[target[0].digest] if place != start}
    for record in target[1:]:
        readings = _continued(readings, places[record.digest])
        if not readings or len(readings) > _MAX_READINGS:
            break
    return bool(readings)


def _continued(readings: set[tuple[int, int]], found: Sequence[int]) -> set[tuple[int, int]]:
    """Return the readings that a record at one of these places continues: no further than the next one."""
    return {(first, max(far, place)) for first, far in readings for place in found if place <= far + 1}


def _places(source: Sequence[RecordPrint]) -> dict[bytes, list[int]]:
    places: dict[bytes, list[int]] = {}
    for place, record in enumerate(source):
        places.setdefault(record.digest, []).append(place)
    return places


def _undecided(target: Sequence[RecordPrint], readings: int) -> NoSeam:
    return NoSeam(
        SeedingCode.AMBIGUOUS,
        f"{_span(target)} of the target repeats records, and can be read in {readings} ways or more that end "
        "at different source offsets",
    )


def _foreign(source: Sequence[RecordPrint], record: RecordPrint) -> NoSeam:
    where = _span(source) if source else "nothing"
    return NoSeam(
        SeedingCode.FOREIGN_RECORD,
        f"the target record at offset {record.offset} is not among the source's records that were compared "
        f"({where})",
    )


def _gap(source: Sequence[RecordPrint], record: RecordPrint, far: int, found: Sequence[int]) -> NoSeam:
    place = min(found)
    return NoSeam(
        SeedingCode.GAP,
        f"{place - far - 1} source records from offset {source[far + 1].offset} to "
        f"{source[place - 1].offset} are missing on the target before its offset {record.offset}",
    )


def _span(records: Sequence[RecordPrint]) -> str:
    return f"offsets {records[0].offset} to {records[-1].offset}"
