"""Fakes that take down what a leader or a lane asks, in order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from onceover.copy import lane as lane_module
from onceover.copy.identity import LaneIdentity
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.ports import Acknowledged, Outgoing
from onceover.lead import leader as leader_module
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.layout import Layout
from onceover.wire.batches.records import decode
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.state.records.test_layout import LAYOUT

FLOW = "f"
ME = LaneIdentity(FLOW, LAYOUT.generation, LAYOUT.run, 0, 1, (1, 1))
OTHER = replace(LAYOUT, generation=8, run="b" * 16)


class World:
    """What is in the state topic, what was asked in which order, and what goes wrong.

    Attributes:
        told: what a broker tells that led the state before, and does not know that it does no more.
    """

    def __init__(self, layout: Layout | None = None) -> None:
        self.told: dict[str, Any] | None = None
        self.values: dict[str, Any] = {} if layout is None else {names.LAYOUT: layout.to_json()}
        self.log: list[str] = []
        self.wrong: dict[str, list[Exception | None]] = {}
        self.not_yet = 0

    def note(self, what: str) -> None:
        self.log.append(what)
        if self.wrong.get(what):
            problem = self.wrong[what].pop(0)
            if problem is not None:
                raise problem


class FakeState:
    """StateLog, by what is read and whether it waits."""

    def __init__(self, world: World, partition: int) -> None:
        self._world, self._name = world, "layout" if partition == names.STATE_LEADER else "requests"
        self.values: dict[str, Any] = {}

    def catch_up(self, *, wait: bool = True) -> dict[str, Any]:
        self._world.note(f"read {self._name}{' and wait' if wait else ''}")
        self.values = dict(self._world.values if self._world.told is None else self._world.told)
        return self.values

    def read_whole(self) -> dict[str, Any]:
        self._world.note(f"mark {self._name}")
        self._world.told = None
        return self.catch_up()

    def holds(self, offset: int) -> None:
        pass

    def poll(self, *, held_ms: int = 0) -> bool:
        self.values = dict(self._world.values)
        return True

    def close(self) -> None:
        pass


class FakeProducer:
    """TransactionalProducer, by transactional.id."""

    in_transaction = False
    visible_at_commit = True
    producer_id = 7

    def __init__(self, world: World, transactional_id: str) -> None:
        self._world, self._id = world, transactional_id.rsplit(".", 1)[1]
        self._records: dict[str, Any] = {}

    def init(self) -> bool:
        self._world.note(f"init {self._id}")
        if self._world.not_yet:
            self._world.not_yet -= 1
            return False
        return True

    def send(self, batches: Sequence[Outgoing]) -> None:
        for batch in batches:
            assert len(batch.batch) < 1 << 20, "larger than what a topic takes by default"
            for record in decode(batch.header, memoryview(batch.batch)):
                assert record.key is not None and record.value is not None
                self._records[record.key.decode()] = json.loads(record.value)
        self._world.note(f"send {', '.join(self._records)}")

    def make_room(self) -> list[Acknowledged]:
        return []

    def drain(self) -> list[Acknowledged]:
        return []

    def add_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit], *, moving: bool = True
    ) -> None:
        self._world.note("offsets")

    def commit(self) -> None:
        ready = [v["ready"] for k, v in self._records.items() if k == names.LAYOUT]
        self._world.note(f"commit{' ready' if ready == [True] else ' unready' if ready else ''}")
        self._world.values.update(self._records)
        self._records = {}

    def abort(self) -> None:
        self._world.note("abort")

    def close(self) -> None:
        self._world.note(f"drop {self._id}")


def cluster_in(world: World, alias: str = "west") -> FakeCluster:
    """Return a cluster whose fencing and progress are taken down, and go wrong, as the world has it."""

    def heard(request: str, subject: str) -> None:
        if request == "InitProducerId":
            world.note(f"fence {subject.rsplit('.', 1)[1]}")
        elif request == "OffsetFetch":
            world.note("fetch progress")

    made = FakeCluster(alias, cluster_id="S" if alias == "east" else "T")
    made.heard, made.tries = heard, 20
    return made


def told(world: World) -> list[str]:
    """Return what was asked, without the dropping of producers."""
    return [entry for entry in world.log if not entry.startswith("drop")]


def faked_world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Put the fakes where leader and lane look for the real parts."""
    world = World()
    monkeypatch.setattr("onceover.state.read.StateLog", lambda _c, _t, partition: FakeState(world, partition))
    for module in (lane_module, leader_module):
        monkeypatch.setattr(module, "StateLog", lambda _c, _t, partition, *_: FakeState(world, partition))
        monkeypatch.setattr(module, "TransactionalProducer", lambda _c, tid, **_: FakeProducer(world, tid))
    monkeypatch.setattr(leader_module, "_RECOVERY_PAUSE_S", (0.0, 0.0))
    monkeypatch.setattr("onceover.backoff.time.sleep", lambda _: None)
    return world
