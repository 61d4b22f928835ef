"""What a copy under chaos must never show, told by its history and by what both sides hold. Pure.

Shares no code with the replicator. What the clients of the source were told (sent, acknowledged, committed,
aborted) is held against what a read_committed reader finds on both sides, against every progress that was
ever seen, and against the group positions that were carried over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple


class Kind(StrEnum):
    """What may be wrong."""

    LOST = "R-lost"
    """A committed record of the source, before the position, is not on the target."""
    DUP = "R-dup"
    """It is there more often than on the source."""
    ABORTED = "R-aborted"
    """A record whose transaction did not commit is on the target."""
    REORDER = "R-reorder"
    """Two records of one partition have changed places."""
    CORRUPT = "R-corrupt"
    """Key, value, headers or timestamp are not the source's."""
    ZOMBIE = "R-zombie"
    """Data of a fenced producer, or of an older generation, stands behind that of its successor."""
    EARLY = "R-early"
    """Records beyond the position are visible: progress and data do not agree."""
    SKIP = "O-skip"
    """A group, or the progress, stands behind a record that was not read, or not copied."""
    REWIND = "O-rewind"
    """A group stands before records that it has read; or progress went back."""
    LEAK = "F-leak"
    """Something is there that the flow has no business with: another topic, or records of nobody."""
    MAP = "O-map"
    """The offset map has a hole, or tells a range twice: a position in it cannot be translated."""
    BROKER = "S-lost"
    """The source itself does not hold what it has acknowledged: no anomaly of the copy."""


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


class Entry(NamedTuple):
    """One record as a reader finds it.

    ``identity`` says which one it is; two with the same identity are the same record twice. ``digest`` is of
    everything that has to survive. ``producer`` is its batch's producer id and epoch.
    """

    offset: int
    identity: str
    digest: str
    producer: tuple[int, int] = (-1, -1)


class Fate(StrEnum):
    """What a client was told of a record that it sent."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """No answer, or none that says: it may be there."""


class Sent(NamedTuple):
    """One record as its producer knows it."""

    place: Place
    fate: Fate


class Anomaly(NamedTuple):
    """One thing that must not be."""

    kind: Kind
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.where}: {self.text}"


class GroupAt(NamedTuple):
    """A consumer group on one partition: committed on the source, and as carried to the target."""

    group: str
    place: Place
    source: int
    target: int


class Written(NamedTuple):
    """A range of source offsets that a generation has copied, end exclusive, as the offset map tells it."""

    generation: int
    first: int
    behind: int


Logs = Mapping[Place, Sequence[Entry]]
Positions = Mapping[Place, int]


@dataclass(frozen=True)
class Facts:
    """Everything a verdict is made of.

    Args:
        source: what a read_committed reader finds there; topics of the flow only.
        target: likewise, of every topic of the target that is not Kafka's or the flow's own.
        sent: what the clients know of the records, by identity; others are not theirs.
        progress: committed positions whenever somebody looked, oldest first; the last is the end's.
        written: of each partition, what the offset map tells, in the source's order.
        groups: carried positions, looked at while nobody moved them.
        skipped: source ranges (first, behind the last) that a person has given up.
        repeats: delivery at least once: records may come again, and in between, but none may be missing.
    """

    source: Logs
    target: Logs
    sent: Mapping[str, Sent] = field(default_factory=dict)
    progress: Sequence[Positions] = ()
    written: Mapping[Place, Sequence[Written]] = field(default_factory=dict)
    groups: Sequence[GroupAt] = ()
    skipped: Mapping[Place, Sequence[tuple[int, int]]] = field(default_factory=dict)
    repeats: bool = False


def check(facts: Facts) -> list[Anomaly]:
    """Return everything that is wrong, the most telling of each kind and partition only."""
    found: list[Anomaly] = []
    for place in sorted(facts.target.keys() - facts.source.keys()):
        if facts.target[place]:
            found.append(
                Anomaly(Kind.LEAK, str(place), f"{len(facts.target[place])} records of no topic of the flow")
            )
    for place in sorted(facts.source):
        found += _partition(facts, place)
    found += _source(facts)
    found += _progress(facts.progress)
    for place, written in sorted(facts.written.items()):
        found += _map(place, written)
    for at in facts.groups:
        found += _group(facts, at)
    return found


def _end(facts: Facts, place: Place) -> int | None:
    """Return the position at the end; None where nothing was committed, and nothing may be there."""
    return facts.progress[-1].get(place) if facts.progress else None


def _expected(facts: Facts, place: Place) -> list[Entry]:
    end = _end(facts, place) or 0
    gone = facts.skipped.get(place, ())
    return [
        entry
        for entry in facts.source[place]
        if entry.offset < end and not any(first <= entry.offset < behind for first, behind in gone)
    ]


def _partition(facts: Facts, place: Place) -> Iterator[Anomaly]:
    wanted, there = _expected(facts, place), list(facts.target.get(place, ()))
    if not facts.repeats:
        yield from _zombies(place, there)
    if [entry[1:3] for entry in wanted] != [entry[1:3] for entry in there]:
        yield from _differences(facts, place, wanted, there)


def _differences(
    facts: Facts, place: Place, wanted: Sequence[Entry], there: Sequence[Entry]
) -> Iterator[Anomaly]:
    where = str(place)
    ours, theirs = _count(wanted), _count(there)
    lost = {name for name, count in ours.items() if theirs[name] < count}
    if lost:
        first = next(entry for entry in wanted if _name(entry) in lost)
        yield Anomaly(Kind.LOST, where, f"{len(lost)} records, the first at source offset {first.offset}")
    dup = [name for name, count in theirs.items() if name in ours and count > ours[name]]
    if dup and not facts.repeats:
        twice = [entry.offset for entry in there if _name(entry) == dup[0]]
        yield Anomaly(Kind.DUP, where, f"{len(dup)} records, the first at target offsets {twice}")
    yield from _strangers(facts, place, [entry for entry in there if _name(entry) not in ours])
    digests = {entry.identity: entry for entry in wanted}
    for entry in there:
        if entry.identity in digests and entry.digest != digests[entry.identity].digest:
            yield Anomaly(
                Kind.CORRUPT, where, f"target offset {entry.offset} is not {digests[entry.identity]}"
            )
            break
    if not facts.repeats:
        yield from _order(where, wanted, there)


def _order(where: str, wanted: Sequence[Entry], there: Sequence[Entry]) -> Iterator[Anomaly]:
    """Compare the order of what is on both sides, each where it stands first."""
    rank: dict[str, int] = {}
    for number, entry in enumerate(wanted):
        rank.setdefault(entry.identity, number)
    last, seen = -1, set[str]()
    for entry in there:
        if entry.identity not in rank or entry.identity in seen:
            continue
        seen.add(entry.identity)
        if rank[entry.identity] < last:
            text = f"target offset {entry.offset} belongs before the one in front of it"
            yield Anomaly(Kind.REORDER, where, text)
            return
        last = rank[entry.identity]


def _strangers(facts: Facts, place: Place, entries: Sequence[Entry]) -> Iterator[Anomaly]:
    """Name records that are not among the expected ones, by what their producers were told."""
    beyond = {_name(entry) for entry in facts.source[place]}
    told = set[Kind]()
    for entry in entries:
        sent = facts.sent.get(entry.identity)
        if _name(entry) in beyond:
            kind, text = Kind.EARLY, f"though the position is {_end(facts, place)}"
        elif sent is not None and sent.place == place and sent.fate is not Fate.COMMITTED:
            kind, text = Kind.ABORTED, f"its producer was told: {sent.fate}; no reader of the source sees it"
        else:
            kind, text = Kind.LEAK, "a record that this partition of the source never had"
        if kind not in told:
            told.add(kind)
            yield Anomaly(kind, str(place), f"target offset {entry.offset}: {text}")


def _zombies(place: Place, there: Sequence[Entry]) -> Iterator[Anomaly]:
    """A lane's producer id is the same for all its runs, and its epoch grows with each of them."""
    highest: dict[int, int] = {}
    for entry in there:
        producer, epoch = entry.producer
        if epoch < highest.get(producer, epoch):
            text = f"epoch {epoch} of producer {producer} behind its epoch {highest[producer]}"
            yield Anomaly(Kind.ZOMBIE, str(place), f"target offset {entry.offset}: {text}")
            return
        highest[producer] = epoch


def _map(place: Place, written: Sequence[Written]) -> Iterator[Anomaly]:
    for before, after in pairwise(written):
        if after.generation < before.generation:
            text = f"generation {after.generation} wrote behind generation {before.generation}"
            yield Anomaly(Kind.ZOMBIE, str(place), text)
            return
        if after.first != before.behind:
            yield Anomaly(Kind.MAP, str(place), f"{after} follows {before}")
            return


def unkept(facts: Facts) -> list[str]:
    """Return the records that the source does not hold though their clients were told that it does."""
    there = {entry.identity for entries in facts.source.values() for entry in entries}
    cut = {place: min((e.offset for e in entries), default=0) for place, entries in facts.source.items()}
    return [
        name
        for name, sent in facts.sent.items()
        if sent.fate is Fate.COMMITTED and sent.place in cut and cut[sent.place] == 0 and name not in there
    ]


def _source(facts: Facts) -> Iterator[Anomaly]:
    missing = unkept(facts)
    if missing:
        place = facts.sent[missing[0]].place
        yield Anomaly(Kind.BROKER, str(place), f"{len(missing)} records, {missing[0]} first")


def _progress(looks: Sequence[Positions]) -> Iterator[Anomaly]:
    highest: dict[Place, int] = {}
    told = set[Place]()
    for look in looks:
        for place, position in look.items():
            if position < highest.get(place, position) and place not in told:
                told.add(place)
                yield Anomaly(Kind.REWIND, str(place), f"progress {position} after {highest[place]}")
            highest[place] = position


def _group(facts: Facts, at: GroupAt) -> Iterator[Anomaly]:
    """What a group has read on the source is what it will have read on the target."""
    where = f"{at.group} on {at.place}"
    if facts.repeats:
        yield from _skipped(facts, at, where)
        return
    read = [entry for entry in _expected(facts, at.place) if entry.offset < at.source]
    carried = [entry for entry in facts.target.get(at.place, ()) if entry.offset < at.target]
    if len(carried) > len(read):
        text = f"{at.target} skips {len(carried) - len(read)} records that it has not read before {at.source}"
        yield Anomaly(Kind.SKIP, where, text)
    elif len(carried) < len(read):
        text = f"{at.target} repeats {len(read) - len(carried)} records that it has read before {at.source}"
        yield Anomaly(Kind.REWIND, where, text)


def _skipped(facts: Facts, at: GroupAt, where: str) -> Iterator[Anomaly]:
    """Where records come again, every unread one has to come at least once behind the position."""
    unread = {_name(entry) for entry in _expected(facts, at.place) if entry.offset >= at.source}
    coming = {_name(entry) for entry in facts.target.get(at.place, ()) if entry.offset >= at.target}
    if unread - coming:
        text = f"{at.target} skips {len(unread - coming)} records that it has not read before {at.source}"
        yield Anomaly(Kind.SKIP, where, text)


def numbered(entries: Iterable[Entry]) -> list[Entry]:
    """Tell equal records of one log apart by their number; those with an identity of their own stay.

    An identity that begins with ``=`` is a digest: equal records in a log are different ones then.
    """
    seen = Counter[str]()
    result = []
    for entry in entries:
        if entry.identity.startswith("="):
            seen[entry.identity] += 1
            result.append(entry._replace(identity=f"{entry.identity}#{seen[entry.identity]}"))
        else:
            result.append(entry)
    return result


def _name(entry: Entry) -> str:
    """Return what equal records have in common."""
    name = entry.identity
    return name.partition("#")[0] if name.startswith("=") else name


def _count(entries: Iterable[Entry]) -> Counter[str]:
    return Counter(map(_name, entries))
