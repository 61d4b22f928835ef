"""Two clusters' groups in memory, with the view that the real reader would give of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onceover.errors import OnceoverError
from onceover.groups.codes import GroupCode
from onceover.groups.decide import Direction, PartitionFacts, Remembered
from onceover.groups.entries import entries_of, rewritten
from onceover.groups.plan import GroupFacts, GroupView
from onceover.kafka.calls import NO_EPOCH, CommittedOffset, OffsetToCommit
from onceover.kafka.each import Each
from onceover.kafka.groups.admin import HasMembers
from onceover.kafka.groups.offsets import GroupOffsets
from onceover.model import TopicPartition
from onceover.planning.journal import FAILED, Journal
from onceover.wire.offsetlookup import Translated

HERE, THERE = TopicPartition("orders", 0), TopicPartition("east.orders", 0)
SHIFT = 100
NOW_MS = 1_700_000_000_000


@dataclass
class World:
    """Stands in for ``GroupReader``, its memory and its receiving side. Offsets there are ``SHIFT`` higher.

    Attributes:
        here: what groups have committed on the giving side; ``there`` likewise, of the receiving one.
        epochs: of leaders, as readers commit them there; we commit none.
        members: groups with members there.
        broken: what reading a group's offsets raises there.
        pending: groups for which a transaction commits there.
        undecided: groups for which one did already when they were looked at.
        unsettled: why coordinators take no write.
        settled: called when a group's coordinator has taken a write; ``settled_here`` on the giving side.
        before_commit: called right before a commit reaches the coordinator.
        forgetful: why nothing can be remembered of groups.
        barred: topics there in which nothing may be committed.
        log: what was written, in its order.
        pieces: what lies in the memory's topic; ``told`` as it was when that was read the last time.
    """

    here: dict[str, int] = field(default_factory=dict)
    there: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    broken: dict[str, OnceoverError] = field(default_factory=dict)
    errors: tuple[OnceoverError, ...] = ()
    types: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    undecided: set[str] = field(default_factory=set)
    unsettled: dict[str, OnceoverError] = field(default_factory=dict)
    settled: Callable[[str], None] = lambda _: None
    settled_here: Callable[[str], None] = lambda _: None
    before_commit: Callable[[str], None] = lambda _: None
    barred: frozenset[str] = frozenset()
    log: list[tuple[str, str]] = field(default_factory=list)
    forgetful: dict[str, OnceoverError] = field(default_factory=dict)
    pieces: dict[str, dict[int, Any]] = field(default_factory=dict)
    told: dict[str, dict[int, Any]] = field(default_factory=dict)
    looks: int = 0
    requests: list[str] = field(default_factory=list)

    direction = Direction.FAILOVER

    @property
    def remembered(self) -> dict[str, Remembered]:
        """What is remembered of each group, as the topic joins it."""
        told = {group: entries_of(pieces).get(THERE) for group, pieces in self.pieces.items()}
        return {group: entry for group, entry in told.items() if entry is not None}

    def remember(self, **entries: Remembered) -> World:
        """Let something have been remembered of groups."""
        self.write(self.direction, {group: {THERE: entry} for group, entry in entries.items()})
        return self

    @property
    def memory(self) -> World:
        return self

    @property
    def receiving(self) -> World:
        return self

    @property
    def settler(self) -> World:
        return self

    @property
    def giving(self) -> Giving:
        return Giving(self)

    @property
    def giving_settler(self) -> Giving:
        return Giving(self)

    # ---- GroupSettler

    def settle(self, groups: Mapping[str, TopicPartition]) -> dict[str, OnceoverError]:
        assert set(groups.values()) <= {THERE}
        for group in groups.keys() - self.unsettled.keys():
            self.settled(group)
        return {group: self.unsettled[group] for group in groups.keys() & self.unsettled.keys()}

    # ---- GroupReader

    def read(self) -> GroupView:
        self.looks += 1
        self.refresh()
        return GroupView(
            "flights",
            self.direction,
            "east",
            "west",
            tuple(self._facts(name) for name in sorted({*self.here, *self.remembered, *self.types})),
            self.errors,
            NOW_MS + self.looks,
        )

    def unwritable(self, topics: Collection[str]) -> frozenset[str]:
        return self.barred & set(topics)

    def _facts(self, name: str) -> GroupFacts:
        facts = GroupFacts(
            name=name,
            type=self.types.get(name, "classic"),
            there_state="stable" if name in self.members else "empty" if name in self.there else None,
            error=self.broken.get(name),
            partitions=(self._partition(name),) if name not in self.broken else (),
            seen_s=time.monotonic(),
        )
        return facts

    def _partition(self, name: str) -> PartitionFacts:
        committed = self.here.get(name)
        return PartitionFacts(
            giving=HERE,
            receiving=THERE,
            committed=committed,
            giving_end=50,
            translation=None if committed is None else Translated(committed + SHIFT),
            current=self.there.get(name),
            current_epoch=self.epochs.get(name, NO_EPOCH),
            end=50 + SHIFT,
            last=self.remembered.get(name),
            problem=(GroupCode.COMMIT_PENDING, "a transaction commits there")
            if name in self.undecided
            else None,
        )

    # ---- GroupMemory

    def of(self, direction: Direction, group: str) -> dict[TopicPartition, Remembered]:
        assert direction is self.direction
        return entries_of(self.told.get(group, {}))

    def refresh(self) -> None:
        self.told = {group: dict(pieces) for group, pieces in self.pieces.items()}

    def prepare(self, replication_factor: int) -> None:
        self.log.append(("prepare", str(replication_factor)))

    def write(
        self, direction: Direction, changes: Mapping[str, Mapping[TopicPartition, Remembered | None]]
    ) -> dict[str, OnceoverError]:
        assert direction is self.direction
        for group, entries in changes.items():
            if group in self.forgetful:
                continue
            self.log += [("remember", group)] * len(entries)
            pieces = self.pieces.setdefault(group, {})
            for number, value in rewritten(pieces, entries).items():
                pieces.pop(number, None)
                if value is not None:
                    pieces[number] = value
        self.refresh()
        return {group: error for group, error in self.forgetful.items() if group in changes}

    # ---- GroupAdmin of the receiving side

    def each_named(
        self, asked: Mapping[str, Collection[TopicPartition]], patience_s: float
    ) -> Each[str, GroupOffsets]:
        self.requests.append("named")
        each: Each[str, GroupOffsets] = Each()
        for group, wanted in asked.items():
            offset, epoch = self.there.get(group), self.epochs.get(group, NO_EPOCH)
            if group in self.broken:
                each.failed[group] = self.broken[group]
            elif group in self.pending:
                each.found[group] = GroupOffsets({}, frozenset(wanted))
            else:
                known = {tp: CommittedOffset(0, offset, epoch, "") for tp in wanted if offset is not None}
                each.found[group] = GroupOffsets(known, frozenset())
        return each

    def each_commit_once(
        self,
        offsets: Mapping[str, Mapping[TopicPartition, OffsetToCommit]],
        before: Callable[[str], None],
    ) -> dict[str, OnceoverError]:
        self.requests.append("commit")
        failed: dict[str, OnceoverError] = {}
        for group, wanted in offsets.items():
            before(group)
            try:
                self._commit(group, wanted)
            except OnceoverError as error:
                failed[group] = error
        return failed

    def _commit(self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit]) -> None:
        self.before_commit(group)
        if group in self.members:
            raise HasMembers(f"group {group} has members", code="HAS_MEMBERS")
        self.log.append(("commit", group))
        assert offsets[THERE].leader_epoch == -1
        self.there[group] = offsets[THERE].offset
        self.epochs.pop(group, None)

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        self.log.append(("delete", group))
        for _ in partitions:
            self.there.pop(group)


@dataclass(frozen=True)
class Giving:
    """The giving side's coordinators, asked once more before something is taken back."""

    world: World

    def settle(self, groups: Mapping[str, TopicPartition]) -> dict[str, OnceoverError]:
        assert set(groups.values()) == {HERE}
        for group in groups:
            self.world.settled_here(group)
        return {}

    def each_named(
        self, asked: Mapping[str, Collection[TopicPartition]], patience_s: float
    ) -> Each[str, GroupOffsets]:
        def named(group: str, partitions: Collection[TopicPartition]) -> GroupOffsets:
            offset = self.world.here.get(group)
            known = {tp: CommittedOffset(0, offset, -1, "") for tp in partitions if offset is not None}
            return GroupOffsets(known, frozenset())

        return Each({group: named(group, partitions) for group, partitions in asked.items()})


class Lines(Journal):
    """The journal, on no disk."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.outcomes: list[str] = []

    def opened(self, _approval: object) -> Lines:
        return self

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        for line in lines:
            failed = line["outcome"] == FAILED
            self.outcomes.append(f"failed {line['error']['code']}" if failed else line["outcome"])
