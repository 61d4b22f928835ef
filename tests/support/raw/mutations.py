"""A correct pair of topics, and everything that a faulty copy could make of it.

Each mutation changes the target and says what an audit has to answer: which kind, about which record, in
which partition, in which field. Pure: units compare the lists, integration tests write them to brokers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from onceover.audit.model import FindingKind

Headers: TypeAlias = tuple[tuple[bytes, bytes | None], ...]


class Content(NamedTuple):
    """All of a record that a reader can tell, but its offset."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Expected(NamedTuple):
    """What an audit has to say.

    Args:
        kind: the name.
        source: partition and index of the record on the source; for LEAKED an index among the aborted ones.
        target: partition of the target that it is about.
        seen: the record that is there; None when none is.
        fields: what differs.
    """

    kind: FindingKind
    source: tuple[int, int] | None
    target: int
    seen: Content | None
    fields: str | None = None


@dataclass
class Pair:
    """A topic and its copy, partition by partition.

    Args:
        source: what a reader of the source sees.
        target: what a reader of the target sees; equal until it is mutated.
        aborted: records of the source that no reader sees, each with the index of what it stands before.
    """

    source: list[list[Content]]
    target: list[list[Content]]
    aborted: list[list[tuple[int, Content]]]
    used: set[Content] = field(default_factory=set)

    def at(self, partition: int, index: int) -> tuple[Content, int]:
        """Return a record of the source and where it is on the target now."""
        content = self.source[partition][index]
        self.used.add(content)
        return content, self.target[partition].index(content)


Mutation: TypeAlias = Callable[[Pair, int, int], list[Expected]]


def correct_pair(rng: random.Random, partitions: int = 3, records: int = 60, *, twins: bool = False) -> Pair:
    """Return a pair that is as it should be.

    Args:
        rng: makes its contents.
        twins: let some records be equal to another one of their partition, as a source may hold them.
    """
    source = [
        [_content(rng, partition, index) for index in range(records)] for partition in range(partitions)
    ]
    if twins:
        for contents in source:
            for _ in range(records // 6):
                contents[rng.randrange(records)] = contents[rng.randrange(records)]
    aborted = [
        [(index, _content(rng, partition, 1000 + index)) for index in (records // 3, records // 2)]
        for partition in range(partitions)
    ]
    return Pair(source, [list(contents) for contents in source], aborted)


def _content(rng: random.Random, partition: int, index: int) -> Content:
    """Return a record like those of real topics: few keys, some without key, value or headers."""
    key = rng.choice([None, b"", b"alpha", b"beta", b"key-%d" % rng.randrange(40)])
    value = rng.choice([b"%d/%d/%08x" % (partition, index, rng.randrange(1 << 32))] * 8 + [None, b""])
    headers: Headers = rng.choice([(), (), ((b"trace", b"%d" % index), (b"trace", None))])
    # One a millisecond at most, so that every record of a pair without twins is unlike the others.
    return Content(key, value, headers, 1_700_000_000_000 + partition * 1_000_000 + index)


# ---- mutations


def drop(pair: Pair, partition: int, index: int) -> list[Expected]:
    """One record is not copied."""
    _, place = pair.at(partition, index)
    del pair.target[partition][place]
    return [Expected(FindingKind.LOST, (partition, index), partition, None)]


def repeat(pair: Pair, partition: int, index: int) -> list[Expected]:
    """One record is there twice, side by side."""
    content, place = pair.at(partition, index)
    pair.target[partition].insert(place, content)
    return [Expected(FindingKind.REPEATED, (partition, index), partition, content)]


def repeat_later(pair: Pair, partition: int, index: int) -> list[Expected]:
    """One record is there again at the end."""
    content, _ = pair.at(partition, index)
    pair.target[partition].append(content)
    return [Expected(FindingKind.REPEATED, (partition, index), partition, content)]


def move_on(pair: Pair, partition: int, index: int) -> list[Expected]:
    """One record is a few places too late."""
    content, place = pair.at(partition, index)
    contents = pair.target[partition]
    contents.insert(min(place + 4, len(contents)), contents.pop(place))
    return [Expected(FindingKind.REORDERED, (partition, index), partition, content)]


def swap(pair: Pair, partition: int, index: int) -> list[Expected]:
    """Two records have changed places."""
    one, here = pair.at(partition, index)
    other, there = pair.at(partition, index + 4)
    contents = pair.target[partition]
    contents[here], contents[there] = other, one
    return [
        Expected(FindingKind.REORDERED, (partition, index), partition, one),
        Expected(FindingKind.REORDERED, (partition, index + 4), partition, other),
    ]


def misroute(pair: Pair, partition: int, index: int) -> list[Expected]:
    """One record is in another partition."""
    content, place = pair.at(partition, index)
    del pair.target[partition][place]
    other = (partition + 1) % len(pair.target)
    pair.target[other].insert(place, content)
    return [Expected(FindingKind.MISROUTED, (partition, index), other, content)]


def misroute_altered(pair: Pair, partition: int, index: int) -> list[Expected]:
    """One record is in another partition and has another time."""
    content, place = pair.at(partition, index)
    if not content.value:  # too little to know it by
        return misroute(pair, partition, index)
    changed = content._replace(timestamp_ms=content.timestamp_ms + 77_777_777)
    del pair.target[partition][place]
    other = (partition + 1) % len(pair.target)
    pair.target[other].insert(place, changed)
    return [Expected(FindingKind.MISROUTED, (partition, index), other, changed, "timestamp")]


def phantom(pair: Pair, partition: int, index: int) -> list[Expected]:
    """A record is there that was never on the source."""
    _, place = pair.at(partition, index)
    made = Content(b"nobody", b"wrote this %d" % index, (), 1)
    pair.target[partition].insert(place, made)
    return [Expected(FindingKind.PHANTOM, None, partition, made)]


def leak(pair: Pair, partition: int, index: int) -> list[Expected]:
    """A record of an aborted transaction is visible."""
    number = index % len(pair.aborted[partition])
    before, content = pair.aborted[partition][number]
    place = min(before, len(pair.target[partition]))
    pair.target[partition].insert(place, content)
    return [Expected(FindingKind.LEAKED, (partition, number), partition, content)]


def copy_range_twice(pair: Pair, partition: int, index: int) -> list[Expected]:
    """A run of records is there a second time, behind itself."""
    run = [pair.at(partition, index + step)[0] for step in range(4)]
    place = pair.target[partition].index(run[-1]) + 1
    pair.target[partition][place:place] = run
    return [
        Expected(FindingKind.REPEATED, (partition, index + step), partition, content)
        for step, content in enumerate(run)
    ]


def cancel_loss_by_repeat(pair: Pair, partition: int, index: int) -> list[Expected]:
    """One record is lost, another one there twice: as many records as before."""
    return drop(pair, partition, index) + repeat(pair, partition, index + 3)


def cancel_loss_by_phantom(pair: Pair, partition: int, index: int) -> list[Expected]:
    """One record is lost, and one appears elsewhere that is like none."""
    return drop(pair, partition, index) + phantom(pair, partition, index + 3)


def _altered(fields: str, change: Callable[[Content], Content]) -> Mutation:
    def mutate(pair: Pair, partition: int, index: int) -> list[Expected]:
        content, place = pair.at(partition, index)
        changed = change(content)
        pair.target[partition][place] = changed
        return [Expected(FindingKind.ALTERED, (partition, index), partition, changed, fields)]

    return mutate


def _other_null(data: bytes | None) -> bytes | None:
    """Turn null into empty, empty into null, and everything else into null."""
    return b"" if data is None else None


MUTATIONS: dict[str, Mutation] = {
    "drop": drop,
    "repeat": repeat,
    "repeat-later": repeat_later,
    "move-on": move_on,
    "swap": swap,
    "misroute": misroute,
    "misroute-altered": misroute_altered,
    "phantom": phantom,
    "leak": leak,
    "copy-range-twice": copy_range_twice,
    "cancel-loss-by-repeat": cancel_loss_by_repeat,
    "cancel-loss-by-phantom": cancel_loss_by_phantom,
    "key": _altered("key", lambda was: was._replace(key=(was.key or b"") + b"!")),
    "key-null-empty": _altered("key", lambda was: was._replace(key=_other_null(was.key))),
    "value": _altered("value", lambda was: was._replace(value=(was.value or b"") + b"!")),
    "value-one-bit": _altered(
        "value", lambda was: was._replace(value=bytes([(was.value or b"\0")[0] ^ 1]) + (was.value or b"")[1:])
    ),
    "value-null-empty": _altered("value", lambda was: was._replace(value=_other_null(was.value))),
    "timestamp": _altered("timestamp", lambda was: was._replace(timestamp_ms=was.timestamp_ms + 1)),
    "header-added": _altered("headers", lambda was: was._replace(headers=(*was.headers, (b"new", b"1")))),
    "header-value": _altered(
        "headers", lambda was: was._replace(headers=((b"trace", b"?"), *was.headers[1:]))
    ),
    "header-order": _altered(
        "headers", lambda was: was._replace(headers=was.headers[::-1] or ((b"a", b"1"), (b"a", b"2")))
    ),
    "header-null-empty": _altered(
        "headers", lambda was: was._replace(headers=(*was.headers[:1], (b"trace", b"")))
    ),
    "header-repeat": _altered(
        "headers", lambda was: was._replace(headers=was.headers + (was.headers or ((b"a", b"1"),)))
    ),
    "key-and-headers": _altered(
        "key,headers", lambda was: was._replace(key=b"both", headers=((b"both", None),))
    ),
}

# Of the list one each, for brokers.
ONE_OF_EACH = (
    "drop",
    "repeat",
    "swap",
    "misroute",
    "key",
    "value",
    "header-value",
    "timestamp",
    "value-null-empty",
    "phantom",
    "leak",
    "copy-range-twice",
    "cancel-loss-by-repeat",
)


def mutate_randomly(rng: random.Random, pair: Pair, count: int) -> list[Expected]:
    """Apply some mutations, far enough from each other for each to have a single right name."""
    room = len(pair.source[0])
    places = [
        (partition, index) for partition in range(len(pair.source)) for index in range(4, room - 12, 14)
    ]
    expected: list[Expected] = []
    for partition, index in rng.sample(places, count):
        name = rng.choice(sorted(MUTATIONS))
        expected += MUTATIONS[name](pair, partition, index + rng.randrange(3))
    return expected
