"""How what is remembered of a group lies in records: in one, in several where it is very large. Pure.

Invariant: no record is larger than brokers take by default, however many partitions a group has, and whoever
is killed between two records of a group has lost none of its entries: what moves from one record to another
is written there first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from onceover.groups.decide import Direction, OtherPosition, Remembered
from onceover.model import TopicPartition
from onceover.state.records.value import name, partition_number, whole_number

VERSION: Final = 1
# Brokers, and the library, take records of 1 MB by default. An entry has up to 1050 bytes: its topic's name
# (249), six positions, which of them were meant, what they stand for, and a time. Usual ones have 90, and as
# many of them are one record of 0.1 MB, which is written whole when one of them has changed.
ENTRIES_AT_MOST: Final = 900
# Positions of earlier writes that stay known: enough for as many syncs at once as anybody runs by mistake.
_KEPT: Final = 4
_NUMBER: Final = re.compile(r"[0-9]{1,9}")

# The values of a group's records by number.
Pieces = Mapping[int, Mapping[str, Any]]
Entries = Mapping[TopicPartition, Remembered | None]


class Key(NamedTuple):
    """Of a record: the group's first one has number 0, and is all that older releases know."""

    direction: str
    group: str
    piece: int

    def __str__(self) -> str:
        """Return it as it is written; a group's name may hold anything, a direction no slash."""
        return (
            f"{self.direction}+{self.piece}/{self.group}" if self.piece else f"{self.direction}/{self.group}"
        )

    @classmethod
    def read(cls, text: str) -> Key | None:
        """Return the key that is written as ``text``; None for what is none."""
        head, slash, group = text.partition("/")
        direction, plus, piece = head.partition("+")
        if not slash or direction not in set(Direction) or (plus and not _NUMBER.fullmatch(piece)):
            return None
        return cls(direction, group, int(piece or 0))


def entries_of(pieces: Pieces) -> dict[TopicPartition, Remembered]:
    """Return what the records of a group hold; an entry may be in two of them where a write was cut off.

    Raises:
        One of ``value.MALFORMED``: a record is none.
    """
    found: dict[TopicPartition, Remembered] = {}
    for piece in pieces.values():
        for tp, entry in _entries(piece):
            before = found.get(tp)
            older, newer = (
                (before, entry) if before is None or before.at_ms <= entry.at_ms else (entry, before)
            )
            found[tp] = newer if older is None else _joined(older, newer)
    return found


def rewritten(
    pieces: Pieces, changes: Entries, at_most: int = ENTRIES_AT_MOST
) -> dict[int, dict[str, Any] | None]:
    """Return the records of a group that change, in the order in which they are to be written.

    Args:
        pieces: as they are.
        changes: what is remembered anew, None is forgotten. Positions that were known stay known.
        at_most: entries in one record.

    Returns:
        New values by number; None removes the record.
    """
    merged: dict[TopicPartition, Remembered | None] = {**entries_of(pieces)}
    for tp, entry in changes.items():
        before = merged.get(tp)
        merged[tp] = entry if entry is None or before is None else _joined(before, entry)
    kept = {tp: entry for tp, entry in sorted(merged.items()) if entry is not None}
    placed = _placed(kept, pieces, at_most)
    values = {number: _value(placed[number]) if placed.get(number) else None for number in {*pieces, *placed}}
    # What moves goes to a higher number, and the higher ones come first.
    return {
        number: values[number]
        for number in sorted(values, reverse=True)
        if values[number] != pieces.get(number)
    }


def _placed(
    kept: Mapping[TopicPartition, Remembered], pieces: Pieces, at_most: int
) -> dict[int, dict[TopicPartition, Remembered]]:
    """Return the entries by record: each stays where it is, as long as there is room."""
    homes = {tp: number for number in sorted(pieces) for tp, _ in _entries(pieces[number])}
    placed: dict[int, dict[TopicPartition, Remembered]] = {}
    homeless: list[tuple[TopicPartition, int]] = []
    for tp, entry in kept.items():
        home = homes.get(tp)
        if home is not None and len(placed.setdefault(home, {})) < at_most:
            placed[home][tp] = entry
        else:
            homeless.append((tp, 0 if home is None else home + 1))
    # Lowest first: a record that is full stays full.
    number = 0
    for tp, lowest in sorted(homeless, key=lambda each: each[1]):
        number = max(number, lowest)
        while len(placed.setdefault(number, {})) >= at_most:
            number += 1
        placed[number][tp] = kept[tp]
    return placed


def _entries(piece: Mapping[str, Any]) -> Iterable[tuple[TopicPartition, Remembered]]:
    for topic, partitions in piece["topics"].items():
        for number, entry in partitions.items():
            known = frozenset(map(whole_number, entry["known"]))
            stands = {
                whole_number(int(at)): OtherPosition(*map(whole_number, stand))
                for at, stand in entry.get("stands", {}).items()
            }
            meant = frozenset(map(whole_number, entry.get("meant", ())))
            overdue = frozenset(map(whole_number, entry.get("overdue", ())))
            given, at_ms = whole_number(entry["given"]), whole_number(entry["at_ms"])
            tp = TopicPartition(name(topic), partition_number(number))
            yield tp, Remembered(given, known, at_ms, stands, meant, overdue)


def _value(entries: Mapping[TopicPartition, Remembered]) -> dict[str, Any]:
    topics: dict[str, dict[str, Any]] = {}
    for tp, entry in sorted(entries.items()):
        value: dict[str, Any] = {"given": entry.given, "known": sorted(entry.known), "at_ms": entry.at_ms}
        if entry.stands:
            value["stands"] = {str(at): list(stand) for at, stand in sorted(entry.stands.items())}
        if entry.meant:
            value["meant"] = sorted(entry.meant)
        if entry.overdue:
            value["overdue"] = sorted(entry.overdue)
        topics.setdefault(tp.topic, {})[str(tp.partition)] = value
    return {"v": VERSION, "topics": topics}


def _joined(before: Remembered, entry: Remembered) -> Remembered:
    """Return an entry with what stays known of the one before.

    What another sync may have yet to write stays, until a second time a group is seen where it was put
    instead: whoever was killed before the write never comes. What was replaced by what is seen there now does
    not stay: whoever stands there again was moved there by somebody else.
    """
    seen = entry.known - entry.meant
    waiting, late = before.meant - seen, before.overdue - seen
    still = before.known - seen
    if seen & before.meant:
        waiting -= before.overdue
        late = still = waiting
    latest = frozenset(sorted(still - entry.known)[-_KEPT:])
    kept = {at: stand for at, stand in before.stands.items() if at in latest}
    return replace(
        entry,
        known=entry.known | latest,
        stands=kept | dict(entry.stands),
        meant=entry.meant | (waiting & latest),
        overdue=entry.overdue | (late & latest),
    )
