"""Positions of consumer groups that would be deleted with a topic of the old source, and stand nowhere else.

Invariant: reads only. A group of which it is not known whether it has such a position counts as one that has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from onceover.errors import OnceoverError, UsageError
from onceover.kafka.codes import KafkaCode
from onceover.kafka.groups.admin import OFFSETS_TOPIC, GroupAdmin
from onceover.kafka.groups.offsets import GroupOffsets
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition, is_own_group

# What they have acknowledged is no offset, is asked for in another way, and is placed nowhere.
_SHARE: Final = "share"
# A first commit in a transaction that is not decided is none: the next look knows.
_PENDING_S: Final = 1.0
_NOTHING: Final = GroupOffsets({}, frozenset())


class PositionOnlyHere(NamedTuple):
    """A group's positions in a topic of the old source that it does not have in the copy.

    Args:
        at: partitions and what is committed for them; none where that is not known, for ``error``.
    """

    group: str
    topic: str
    at: tuple[tuple[int, int], ...] = ()
    error: str | None = None

    @property
    def where(self) -> str:
        """Return what is committed, as text."""
        return self.error or ", ".join(f"{partition} at {offset}" for partition, offset in self.at)

    def __str__(self) -> str:
        return f"{self.group} ({self.where})"

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {
            "group": self.group,
            "topic": self.topic,
            "positions": {str(partition): offset for partition, offset in self.at},
            "error": self.error,
        }


@dataclass(frozen=True)
class PositionsOnlyHere:
    """What was found.

    Args:
        found: by topic, in the order of the groups' names.
        unheard: why some groups of the old source are not even known by name.
    """

    found: Mapping[str, Sequence[PositionOnlyHere]] = field(default_factory=dict)
    unheard: tuple[OnceoverError, ...] = ()


@dataclass(frozen=True)
class PositionReader:
    """Looks at the groups of both sides. The clusters belong to the caller.

    Args:
        source: the old source; ``target`` where the copies are.
    """

    source: Cluster
    target: Cluster

    def read(self, copies: Mapping[TopicPartition, TopicPartition]) -> PositionsOnlyHere:
        """Return the positions in some partitions of the old source that their copies do not have.

        Onceover's own groups are none: what they keep of a topic is of no use without it.

        Raises:
            Retriable: a cluster is away.
            UsageError: a cluster refuses the login.
        """
        admin = GroupAdmin(self.source)
        listing = admin.groups()
        groups = sorted(
            name
            for name, listed in listing.groups.items()
            if listed.type != _SHARE and not is_own_group(name)
        )
        here = admin.each_committed(groups)
        mine = {
            group: {tp: offset.offset for tp, offset in here.found.get(group, {}).items() if tp in copies}
            for group in groups
        }
        asked = {group: [copies[tp] for tp in offsets] for group, offsets in mine.items() if offsets}
        there = GroupAdmin(self.target).each_named(asked, _PENDING_S)
        found: dict[str, list[PositionOnlyHere]] = {
            topic: [] for topic in sorted({tp.topic for tp in copies})
        }
        for group in groups:
            if (error := here.failed.get(group)) is not None:
                for topic, each in found.items():
                    each.append(_unknown(group, topic, self.source.alias, error))
                continue
            missing = there.failed.get(group)
            placed = there.found.get(group, _NOTHING).committed
            for topic, offsets in _by_topic(mine[group]).items():
                if missing is not None:
                    found[topic].append(_unknown(group, topic, self.target.alias, missing))
                    continue
                only_here = [(tp.partition, at) for tp, at in offsets.items() if copies[tp] not in placed]
                found[topic] += (
                    [PositionOnlyHere(group, topic, tuple(sorted(only_here)))] if only_here else []
                )
        unheard = listing.unheard if admin.lists_all() else (*listing.unheard, _hidden(self.source.alias))
        return PositionsOnlyHere({topic: each for topic, each in found.items() if each}, unheard)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[TopicPartition, int]]:
    found: dict[str, dict[TopicPartition, int]] = {}
    for tp, offset in offsets.items():
        found.setdefault(tp.topic, {})[tp] = offset
    return found


def _hidden(alias: str) -> OnceoverError:
    return UsageError(
        f"{alias} does not name groups that the login may not describe, nor those that have no coordinator",
        code=KafkaCode.NOT_AUTHORIZED,
        where=alias,
        resolve=f"grant the principal DESCRIBE on the cluster {alias}, and on its topic {OFFSETS_TOPIC}",
    )


def _unknown(group: str, topic: str, alias: str, error: OnceoverError) -> PositionOnlyHere:
    way = error.resolve or "run again"
    why = f"what it has committed on {alias} is not known: {error.message}; {way}"
    return PositionOnlyHere(group, topic, error=why)
