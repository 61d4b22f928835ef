"""Waiting until the source's consumers have committed what they have read: late commits would be repeats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from onceover.backoff import Deadline
from onceover.drills.codes import DrillCode
from onceover.drills.records import ends_of, next_records
from onceover.errors import NeedsOperator
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition

Positions = Mapping[tuple[str, TopicPartition], int]
# Longer than the 5 s at which consumers commit by default.
COMMITS_S: Final = 6.0
_LOOK_S: Final = 0.2
_EMPTY: Final = ("empty", "dead")
_NAMED: Final = 3


@dataclass(frozen=True)
class SourceGroups:
    """The flow's groups on the source, as far as they read some topics.

    Args:
        source: belongs to the caller.
        selects: tells whether the flow moves a group.
        topics: that are switched over.
        pause: waits so many seconds.
    """

    source: Cluster
    selects: Callable[[str], bool]
    topics: Collection[str]
    pause: Callable[[float], object]

    def positions(self) -> tuple[dict[tuple[str, TopicPartition], int], set[str]]:
        """Return what the groups have committed, and which of them have members.

        Raises:
            Retriable: a coordinator is away, or a transaction of a group is open.
            UsageError: not authorized.
        """
        admin = GroupAdmin(self.source)
        listing = admin.groups()
        for error in listing.unheard:
            raise error
        wanted = sorted(name for name in listing.groups if self.selects(name))
        committed = admin.each_committed(wanted).whole()
        found = {
            (group, tp): offset.offset
            for group, offsets in committed.items()
            for tp, offset in offsets.items()
            if tp.topic in self.topics
        }
        return found, {name for name in wanted if listing.groups[name].state not in _EMPTY}

    def settle(self, earlier: Positions, deadline: Deadline) -> Positions:
        """Return the positions once none of them can move any more, or has for longer than a commit takes.

        A partition that was read to its end goes no further; a group that has no members and has not moved
        since ``earlier`` is where it is: without members commits who assigns itself its partitions.

        Args:
            earlier: positions of ``COMMITS_S`` ago, or more.

        Raises:
            NeedsOperator: COMMITS_LATE, a group still moves at the deadline.
            Retriable: the source is away.
        """
        found, living = self.positions()
        quiet = Deadline(COMMITS_S)
        while True:
            moved = {group for (group, tp), at in found.items() if earlier.get((group, tp)) != at}
            moving = self._behind(found, living | moved, deadline)
            if not moving or quiet.passed:
                return found
            if deadline.passed:
                raise _late(self.source.alias, moving)
            self.pause(_LOOK_S)
            now, living = self.positions()
            if now != found:
                found, quiet = now, Deadline(COMMITS_S)

    def _behind(
        self, found: Positions, living: Collection[str], deadline: Deadline
    ) -> list[tuple[str, TopicPartition]]:
        """Return where a member has not committed every record; markers behind the last one are none."""
        reading = {at: offset for at, offset in found.items() if at[0] in living}
        ends = ends_of(self.source, {tp for _, tp in reading}) if reading else {}
        before = {at: offset for at, offset in sorted(reading.items()) if offset < ends[at[1]]}
        places = {(tp, offset) for (_, tp), offset in before.items()}
        following = next_records(self.source, places, ends, deadline) if places else {}
        # What is not in the log any more is left to *place*, which says so.
        return [at for at, offset in before.items() if following.get((at[1], offset)) is not None]


def _late(alias: str, moving: Collection[tuple[str, TopicPartition]]) -> NeedsOperator:
    named = ", ".join(f"{group} at {tp}" for group, tp in list(moving)[:_NAMED])
    return NeedsOperator(
        f"consumers on {alias} still read: {named}",
        code=DrillCode.COMMITS_LATE,
        where=alias,
        expected="groups that have read and committed everything, or rest",
        resolve="let them catch up first, or stop them: what they have committed is carried over",
    )
