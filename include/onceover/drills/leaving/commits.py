"""Waiting until the source's consumers have committed what they have read: late commits would be repeats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from onceover.backoff import Deadline
from onceover.drills.codes import DrillCode
from onceover.drills.looks.clients import Consumer, consumers
from onceover.drills.looks.nextrecords import next_records
from onceover.errors import NeedsOperator, Retriable
from onceover.kafka import calls
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.logs.between import stable_ends
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition

Positions = Mapping[tuple[str, TopicPartition], int]
# Longer than the 5 s at which consumers commit by default.
COMMITS_S: Final = 6.0
_LOOK_S: Final = 0.2
# Of a look that has begun: cut off by the deadline, it could not say which groups still move.
_LAST_LOOK_S: Final = 5.0
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

    def unplaced(
        self, found: Positions, living: Collection[str], deadline: Deadline
    ) -> list[tuple[str, TopicPartition]]:
        """Return where a member may have read something, and its group has committed nothing at all.

        Nobody can tell where such a group is: on the target it would begin anew.

        Args:
            found: what the groups have committed; ``living`` those that have members.

        Raises:
            Retriable: a coordinator is away, or a group rebalances.
        """
        reading: list[tuple[str, TopicPartition]] = []
        infos = self.source.retry(lambda: self.source.topics(sorted(self.topics)))
        for consumer in self.members(living):
            partitions = [
                TopicPartition(t, p) for t in consumer.topics if t in infos for p in infos[t].partitions
            ]
            reading += [(consumer.group, tp) for tp in partitions if (consumer.group, tp) not in found]
        tps = {tp for _, tp in reading}
        if not tps:
            return []
        starts = self.source.retry(lambda: self.source.list_offsets(tps, calls.EARLIEST))
        following = next_records(self.source, set(starts.items()), stable_ends(self.source, tps), deadline)
        return sorted({at for at in reading if following.get((at[1], starts[at[1]])) is not None})

    def members(self, living: Collection[str]) -> list[Consumer]:
        """Return the members of these groups that read the topics.

        Raises:
            Retriable: one of the groups rebalances: nobody can tell what its members read.
        """
        found, unseen = consumers(self.source, self.topics, living.__contains__)
        for error in unseen:
            if isinstance(error, Retriable):
                raise error
        return found

    def settle(self, earlier: Positions, deadline: Deadline) -> Positions:
        """Return the positions once none of them can move any more, or has for longer than a commit takes.

        A partition that was read to its end goes no further; a group that has no members and has not moved
        since ``earlier`` is where it is: without members commits who assigns itself its partitions.

        Args:
            earlier: positions of ``COMMITS_S`` ago, or more.

        Raises:
            NeedsOperator: COMMITS_LATE, a group still moves at the deadline, or has members and no position.
            Retriable: the source is away, or not read 5 s behind the deadline.
        """
        # A transaction that commits some, and a group that rebalances, are waited for.
        found, living = self.source.retry(self.positions, deadline)
        quiet = Deadline(COMMITS_S)
        while True:
            look = Deadline(max(deadline.left_s, _LAST_LOOK_S))
            unplaced = self.source.retry(partial(self.unplaced, found, living, look), deadline)
            if unplaced and quiet.passed:
                raise unknown(self.source.alias, unplaced)
            moved = {group for (group, tp), at in found.items() if earlier.get((group, tp)) != at}
            moving = self._behind(found, living | moved, look)
            if not unplaced and (not moving or quiet.passed):
                return found
            if deadline.passed:
                raise late(self.source.alias, moving)
            self.pause(_LOOK_S)
            now, living = self.source.retry(self.positions, deadline)
            if now != found:
                found, quiet = now, Deadline(COMMITS_S)

    def _behind(
        self, found: Positions, living: Collection[str], deadline: Deadline
    ) -> list[tuple[str, TopicPartition]]:
        """Return where a member has not committed every record; markers behind the last one are none."""
        reading = {at: offset for at, offset in found.items() if at[0] in living}
        ends = stable_ends(self.source, {tp for _, tp in reading}) if reading else {}
        before = {at: offset for at, offset in sorted(reading.items()) if offset < ends[at[1]]}
        places = {(tp, offset) for (_, tp), offset in before.items()}
        following = next_records(self.source, places, ends, deadline) if places else {}
        # What is not in the log any more is left to *place*, which says so.
        return [at for at, offset in before.items() if following.get((at[1], offset)) is not None]


def unknown(alias: str, unplaced: Collection[tuple[str, TopicPartition]]) -> NeedsOperator:
    """Return what is wrong where a group reads and has no position. Pure."""
    named = ", ".join(f"{group} at {tp}" for group, tp in list(unplaced)[:_NAMED])
    return NeedsOperator(
        f"consumers on {alias} read, and have committed nothing: {named}",
        code=DrillCode.COMMITS_LATE,
        where=alias,
        expected="a committed offset for what a group reads",
        seen=f"none for {len(unplaced)} partitions",
        resolve="let them commit, stop them, or leave the group out with groups.exclude: it would begin anew",
    )


def late(alias: str, moving: Collection[tuple[str, TopicPartition]]) -> NeedsOperator:
    """Return what is wrong where groups do not come to rest on the source. Pure."""
    named = ", ".join(f"{group} at {tp}" for group, tp in list(moving)[:_NAMED])
    return NeedsOperator(
        f"consumers on {alias} still read: {named}",
        code=DrillCode.COMMITS_LATE,
        where=alias,
        expected="groups that have read and committed everything, or rest",
        resolve="let them catch up first, or stop them: what they have committed is carried over",
    )
