"""A flow in memory as in ``auditworld``, with the truth about every offset, and people who move positions.

What is asked of it is where a reader goes on: the real translator, the real view of groups, the real plan of
moves and the real repairs read the world's logs, map, progress and state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import pytest

from onceover.errors import OnceoverError
from onceover.groups import decide as groups
from onceover.groups import history as grouphistory
from onceover.groups import view as groupview
from onceover.groups.decide import Allowed, Decision, Direction, PartitionFacts, Remembered, remembered
from onceover.groups.entries import entries_of, rewritten
from onceover.groups.moment import GroupMap
from onceover.groups.plan import GroupPlan, GroupView, Row, plan_groups
from onceover.groups.view import GroupReader
from onceover.kafka.calls import CommittedOffset, OffsetToCommit
from onceover.kafka.each import Each
from onceover.kafka.groups.admin import GroupListing
from onceover.kafka.groups.calls import ListedGroup
from onceover.kafka.groups.offsets import GroupOffsets
from onceover.lead.leader import FlowIdentity
from onceover.model import TopicPartition, lane_of
from onceover.operate import repair, repairapply
from onceover.operate.repair import Repair, plan_skip
from onceover.operate.repairapply import Repairer
from onceover.operate.reseed import TopicMaking, plan_reseed
from onceover.positions import fresh as freshmap
from onceover.positions.store import MapStore
from onceover.positions.translate import Translator
from onceover.state import names
from onceover.state import read as stateread
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.layout import Layout
from onceover.topics.namingpolicy import NamingPolicy
from onceover.topics.scope import Rules
from onceover.wire.progress import ProgressMeta
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog, FakeTopic
from tests.support.raw.mutations import Content
from tests.support.worlds.auditworld import FLOW, SOURCE, Kind, Place, World

T = TypeVar("T")
GROUP: Final = "readers"


class Origin(NamedTuple):
    """Which record a place of the target holds a copy of."""

    topic: UUID
    partition: int
    offset: int


class Put(NamedTuple):
    """Where the group was put on one side, and where it was on the other then.

    Args:
        at: position there; ``stood`` on the side that it came from.
        end: of the log that it came from.
        clipped: by the book of copies, the one is not the other's counterpart.
    """

    at: int
    stood: int
    end: int
    clipped: bool


class PositionWorld(World):
    """The world, where each copy comes from, and a group that reads on both sides.

    Attributes:
        origins: of each copy, by its place.
        since: where each source partition's last unbroken stretch of copying began.
        memory: what was remembered of the group, by direction and receiving partition.
        puts: where it was put the last time, by direction and partition.
        older: an older release has remembered something, and less than this one would have.
        unread: why partitions of the map cannot be read; ``open``: not to their ends.
        away: partitions of the target that nobody leads, and what is answered.
        waited: how long open transactions of the map were waited for, at each reading to its end.
        hidden: how many of the newest map records a transaction hides, until it is waited for.
    """

    def __init__(self, kind: Kind) -> None:
        self.origins: dict[Place, Origin] = {}
        self.since = [0, 0]
        self.memory: dict[Direction, dict[TopicPartition, Remembered]] = {d: {} for d in Direction}
        self.puts: dict[tuple[Direction, int], Put] = {}
        self.older = False
        self.unread: dict[int, OnceoverError] = {}
        self.open: dict[int, OnceoverError] = {}
        self.hidden = 0
        self.waited: list[float | None] = []
        super().__init__(kind)
        self.away = self.target.away

    # ---- the truth

    def between(self, partition: int) -> tuple[str, str]:
        """Return the ids of the topics that the partition's progress speaks of."""
        tp = TopicPartition(self.kind.target, partition)
        meta = ProgressMeta.decode(self.target.groups[names.progress_group(FLOW)][tp].metadata)
        assert meta is not None
        return meta.source_topic_id, meta.target_topic_id

    def newest(self, partition: int, target: int) -> dict[int, int]:
        """Return where the newest copy of each copied offset is in a target partition."""
        topic = self.between(partition)[0]
        found: dict[int, int] = {}
        for (number, place), origin in self.origins.items():
            mine = (str(origin.topic), origin.partition, number) == (topic, partition, target)
            if mine and origin.offset < self.positions[partition]:
                found[origin.offset] = max(place, found.get(origin.offset, place))
        return found

    def outlived(self, partition: int, target: int) -> set[int]:
        """Return the places in a target partition that hold copies from a source topic that is gone."""
        topic = self.between(partition)[0]
        return {
            place
            for (number, place), origin in self.origins.items()
            if number == target and origin.partition == partition and str(origin.topic) != topic
        }

    def is_whole(self, partition: int) -> bool:
        """Tell whether source and target still are the topics that were copied between."""
        here, there = self.source.all_topics[SOURCE].id, self.target.all_topics[self.kind.target].id
        return self.between(partition) == (str(here), str(there))

    def visible(self, partition: int) -> set[int]:
        """Return the offsets that a reader of a target partition meets."""
        return {offset for offset, _ in self.there(partition).visible()}

    # ---- what happens

    def _write(self, partition: int, taken: list[tuple[int, Content]]) -> list[tuple[int, Place]]:
        written = super()._write(partition, taken)
        topic = self.source.all_topics[SOURCE].id
        for offset, place in written:
            self.origins[place] = Origin(topic, partition, offset)
        return written

    def copy(self, partition: int, records: int, fault: str = "") -> None:
        """Copy, where the topics still are those that the progress speaks of: else the lane stops (G5)."""
        if self.is_whole(partition):
            super().copy(partition, records, fault)

    def recreate(self, *, target: bool) -> None:
        """Delete a topic and make another one: with it goes what groups have committed in it."""
        super().recreate(target=target)
        (self.target if target else self.source).groups.pop(GROUP, None)
        self.puts.clear()
        if target:
            self.origins.clear()

    def repaired(self, plan: Callable[[], Repair], patch: pytest.MonkeyPatch) -> bool:
        """Let an operator apply what a repair's plan says; tell whether there was anything to do."""
        for module in (repair, repairapply):
            patch.setattr(module, "read_flow_state", lambda *_: self.state())
        found = plan()
        if found.refused or found.enrolment is None:
            return False
        self.generation += 1
        leader: Any = SimpleNamespace(enrol=self._enrolled)
        layout = Layout.from_json(self.state().leader[names.LAYOUT])
        clusters: tuple[Any, Any] = self.source, self.target
        approved: Any = SimpleNamespace(id=f"approval-{self.generation}")
        journal: Any = None
        Repairer(FlowIdentity(FLOW, 1, "sha"), *clusters, lambda _: found, journal)._write(
            leader, layout, found, approved, journal
        )
        return True

    def reseed(self, partition: int, patch: pytest.MonkeyPatch) -> None:
        """Let an operator have a partition copied from its start, of whatever topics there are now."""
        clusters: tuple[Any, Any] = self.source, self.target
        making = TopicMaking(Rules((".*",), (), NamingPolicy("identity", "east", "west")))
        tp = TopicPartition(SOURCE, partition)
        self.repaired(lambda: plan_reseed(FLOW, *clusters, tp, making), patch)

    def skip_to(self, partition: int, offset: int, patch: pytest.MonkeyPatch) -> None:
        """Let an operator go on elsewhere, before or behind."""
        clusters: tuple[Any, Any] = self.source, self.target
        tp = TopicPartition(SOURCE, partition)
        self.repaired(lambda: plan_skip(FLOW, *clusters, tp, offset), patch)

    def _enrolled(
        self,
        enrolments: list[Enrolment],
        offsets: Mapping[TopicPartition, OffsetToCommit],
        over: list[TopicPartition],
    ) -> None:
        (self.enrolment,) = enrolments
        group = self.target.groups[names.progress_group(FLOW)]
        for tp, pair in offsets.items():
            group[tp] = CommittedOffset(0, pair.offset, pair.leader_epoch, pair.metadata)
            self.positions[tp.partition] = self.since[tp.partition] = pair.offset
            meta = ProgressMeta.decode(pair.metadata)
            assert meta is not None
            self.target_ends[tp.partition] = meta.target_end
        for tp in over:
            self.stops.pop(names.stop_key(*tp), None)

    # ---- the group

    def read_to(self, partition: int, offset: int, *, target: bool) -> None:
        """Let the group commit on one side; never behind the end of what a reader can see."""
        cluster, topic = (self.target, self.kind.target) if target else (self.source, SOURCE)
        log: FakeLog = cluster.all_topics[topic].logs[partition]
        at = min(max(offset, log.start), log.stable)
        tp = TopicPartition(topic, partition)
        cluster.groups.setdefault(GROUP, {})[tp] = CommittedOffset(0, at, -1, "")

    def look(self, direction: Direction, patch: pytest.MonkeyPatch) -> list[PartitionFacts]:
        """Return what the reader of groups finds out about the group's partitions."""
        return [facts for group in self._view(direction, patch).groups for facts in group.partitions]

    def plan(self, direction: Direction, allowed: Allowed, patch: pytest.MonkeyPatch) -> GroupPlan:
        """Return the plan for the group."""
        return plan_groups(replace(self._view(direction, patch), now_ms=next(self.now_ms)), allowed)

    def _view(self, direction: Direction, patch: pytest.MonkeyPatch) -> GroupView:
        clusters: tuple[Any, Any] = self.source, self.target
        translator = GroupMap(self.translator(patch))
        return GroupReader(FLOW, direction, *clusters, translator, lambda _: True).read()

    def move(
        self, direction: Direction, allowed: Allowed, patch: pytest.MonkeyPatch
    ) -> list[tuple[PartitionFacts, Decision]]:
        """Plan the group's move and do what it says; return each partition's facts and decision."""
        plan = self.plan(direction, allowed, patch)
        receiving = self.target if direction is Direction.FAILOVER else self.source
        for steps in plan.steps:
            self._remember(direction, [*steps.writes, *steps.keeps])
            for row in steps.writes:
                if row.decision.kind is not groups.GroupAction.DELETE and row.decision.to is not None:
                    pair = CommittedOffset(0, row.decision.to, -1, row.facts.metadata)
                    receiving.groups.setdefault(GROUP, {})[row.facts.receiving] = pair
                    self._note_put(direction, row.facts, row.decision.to)
        return [(row.facts, row.decision) for row in plan.rows]

    def _remember(self, direction: Direction, rows: Iterable[Row]) -> None:
        """Remember as the topic does: as JSON, joined to what was remembered before."""
        changes = {
            row.facts.receiving: remembered(row.facts, row.decision, next(self.now_ms)) for row in rows
        }
        before = rewritten({}, self.memory[direction])
        after = {**before, **rewritten({n: v for n, v in before.items() if v is not None}, changes)}
        written = json.loads(json.dumps([value for value in after.values() if value is not None]))
        self.memory[direction] = entries_of(dict(enumerate(written)))

    def forget_stands(self) -> None:
        """Let everything that is remembered have been written by an older release."""
        self.older = True
        for entries in self.memory.values():
            entries.update({tp: replace(entry, stands={}) for tp, entry in entries.items()})

    def _note_put(self, direction: Direction, facts: PartitionFacts, to: int) -> None:
        number, at = facts.giving.partition, facts.committed
        if at is None:
            return
        forward = direction is Direction.FAILOVER
        copies = self.newest(number, number).items()
        pairs = copies if forward else [(place, offset) for offset, place in copies]
        clipped = any((here >= at) != (there >= to) for here, there in pairs)
        ahead = forward and at > self.positions[number]
        log = self.here(number) if forward else self.there(number)
        self.puts[direction, number] = Put(to, at, log.end, clipped or ahead)

    def translator(self, patch: pytest.MonkeyPatch) -> Translator:
        """Return the translator, up to date with the world."""
        self._play(patch)
        target: Any = self.target
        found = Translator(target, FLOW, None)
        found.refresh()
        return found

    def _play(self, patch: pytest.MonkeyPatch) -> None:
        """Put the world in the place of everything that reads topics of the flow's own."""
        world = self
        state = SimpleNamespace(catch_up=lambda **_: world.state().leader, close=lambda: None)
        patch.setattr(stateread, "StateLog", lambda *_: state)
        patch.setattr(groupview, "StateLog", lambda *_: state)
        stops = SimpleNamespace(catch_up=lambda **_: world.state().others, close=lambda: None)
        patch.setattr(grouphistory, "StateLog", lambda *_: stops)
        patch.setattr(freshmap, "MapIndex", lambda *_: _Index(world))
        patch.setattr(groupview, "GroupMemory", lambda *_: _Memory(world))
        patch.setattr(groupview, "GroupAdmin", _Admin)
        own = names.state_topic(FLOW)
        self.target.all_topics.setdefault(own, FakeTopic(UUID(int=4), []))


class _Index:
    """Stands in for ``MapIndex``."""

    def __init__(self, world: PositionWorld) -> None:
        self._world = world
        self._shown: set[int] = set()
        self.store: MapStore | None = None

    def each_refresh(
        self, partitions: list[int], *, settled: bool = False, settle_s: float | None = None
    ) -> dict[int, OnceoverError]:
        world, known = self._world, self._world.maps
        failed = {**world.unread, **world.open} if settled else world.unread
        found = {partition: failed[partition] for partition in partitions if partition in failed}
        if settled:
            world.waited.append(settle_s)
            self._shown.update(set(partitions) - found.keys())
        before = len(known) - world.hidden
        world.maps = [
            record
            for number, record in enumerate(known)
            if number < before or lane_of(record.source, names.MAP_PARTITIONS) in self._shown
        ]
        self.store, world.maps = world.store(), known
        return found

    def close(self) -> None:
        return None


class _Memory:
    """Stands in for ``GroupMemory``."""

    def __init__(self, world: PositionWorld) -> None:
        self._world = world

    def read(self) -> None:
        return None

    def groups(self, direction: Direction) -> set[str]:
        return {GROUP} if self._world.memory[direction] else set()

    def of(self, direction: Direction, _: str) -> dict[TopicPartition, Remembered]:
        return dict(self._world.memory[direction])

    def close(self) -> None:
        return None


@dataclass
class _Admin:
    """Stands in for ``GroupAdmin``."""

    cluster: FakeCluster

    def groups(self) -> GroupListing:
        listed = ListedGroup(GROUP, "classic", "empty")
        return GroupListing({GROUP: listed} if GROUP in self.cluster.groups else {})

    def each_committed(self, groups: Iterable[str]) -> Each[str, dict[TopicPartition, CommittedOffset]]:
        return Each({group: dict(self.cluster.groups.get(group, {})) for group in groups})

    def each_named(self, asked: Mapping[str, Iterable[TopicPartition]], _: float) -> Each[str, GroupOffsets]:
        known = {group: self.cluster.groups.get(group, {}) for group in asked}
        return Each(
            {
                group: GroupOffsets({tp: known[group][tp] for tp in tps if tp in known[group]}, frozenset())
                for group, tps in asked.items()
            }
        )
