"""A flow with a topic that gets into trouble, and one that must not notice."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.state.read import read_layout
from onceover.wiring.flows import open_clusters
from tests.support.flows.replica import Replica
from tests.support.flows.waysout import APPLY, commands
from tests.support.raw.rawkafka import Codec

Capture = pytest.CaptureFixture[str]


class Scene:
    """A flow with a topic that gets into trouble, and one that must not notice. Both hold some records."""

    def __init__(self, replica: Replica, partitions: int = 1) -> None:
        self.replica = replica
        self.topic = replica.topic("trouble", partitions)
        self.other = replica.topic("other")
        self.partitions = partitions
        self.feed(10)
        self.expect_copied(10 * (partitions + 1))

    def feed(self, count: int) -> None:
        """Write to every partition of both topics."""
        for topic, partition in [*((self.topic, p) for p in range(self.partitions)), (self.other, 0)]:
            self.replica.source.plain(topic, partition, self.replica.source.records(count), Codec.LZ4)

    def feed_other(self) -> None:
        self.replica.source.plain(self.other, 0, self.replica.source.records(3))

    def expect_copied(self, records: int) -> None:
        assert self.replica.copy().records == records

    def expect_stop(self, capsys: Capture, code: str, *words: str, partition: int = 0) -> None:
        """`status` shows the stop with all its parts and ends with 3; the other topic is caught up."""
        exit_code, document = self.replica.command(capsys, "status", str(self.replica.flow.path))
        assert exit_code == 3
        entries = {(p["topic"], p["partition"]): p for p in document["flows"][0]["partitions"]}
        entry = entries[self.topic, partition]
        assert entry["state"] == "stopped"
        assert entry["stop"]["code"] == code
        assert entry["stop"]["message"] and entry["stop"]["resolve"]
        text = f"{entry['stop']['expected']} / {entry['stop']['seen']}"
        assert all(word in text for word in words), text
        assert entries[self.other, 0]["state"] == "caught_up"
        assert entries[self.other, 0]["stop"] is None

    def shown(self, capsys: Capture, partition: int) -> list[dict[str, Any]]:
        """Return what `status` shows of the partition, when it is still one of the flow's."""
        _, document = self.replica.command(capsys, "status", str(self.replica.flow.path))
        shown: list[dict[str, Any]] = document["flows"][0]["partitions"]
        return [p for p in shown if (p["topic"], p["partition"]) == (self.topic, partition)]

    def resolve(self, capsys: Capture, action: str, *offset: int, partition: int = 0) -> int | None:
        """Do what the stop's own text says; return the number of offsets that the plan speaks of."""
        found = commands(self.replica.stop_of(self.topic, partition)["resolve"])
        way = next(command for command in found if command.arguments[1] == action)
        assert way.arguments[2:] == [self.replica.name, f"{self.topic}:{partition}", *map(str, offset)]
        before = generation(self.replica)
        plan = way.run(capsys)
        assert generation(self.replica) == before
        done = way.run(capsys, APPLY)
        if action != "resume":
            # A stop that is over is nobody's to resolve again, whether the flow runs or not.
            states = {p["state"]: p["stop"] for p in self.shown(capsys, partition)}
            assert set(states.values()) == {None}, states
        assert (done["applied"], done["changes"]) == (True, plan["changes"])
        records: int | None = plan["changes"][0]["records"]
        return records

    def expect_clear(self, capsys: Capture) -> None:
        """No stop is left, and `status` ends with 0."""
        exit_code, document = self.replica.command(capsys, "status", str(self.replica.flow.path))
        assert exit_code == 0, document
        self.replica.assert_same(self.other)


def generation(replica: Replica) -> int | None:
    """Return the generation that the state names now."""
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        layout = read_layout(target, replica.name)
    return layout.generation if layout else None
