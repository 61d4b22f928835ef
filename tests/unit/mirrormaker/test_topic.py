"""A topic of MirrorMaker's kind: created, checked, and written to where there is news."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from onceover.errors import NeedsOperator
from onceover.kafka.admin.topics import TopicConfigs, TopicSpec
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.mirrormaker import topic as mirrortopic
from onceover.mirrormaker.topic import MirrorTopic

NAME = "east.checkpoints.internal"
T = TypeVar("T")


class World:
    """A target with its topics, their configuration and what is written; in place of cluster and clients."""

    alias = "west"

    def __init__(self) -> None:
        self.config = SimpleNamespace(alias=self.alias)
        self.existing: dict[str, TopicInfo] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.written: list[tuple[bytes, bytes | None]] = []
        self.portions: list[int] = []
        self.now_s = 0.0
        self.open_writers = 0

    def add(self, name: str, partitions: int, config: dict[str, str]) -> None:
        leaders = {number: PartitionInfo(1, 0) for number in range(partitions)}
        self.existing[name] = TopicInfo(name, uuid.uuid4(), leaders, False)
        self.configs[name] = config

    # --- as a cluster

    def retry(self, attempt: Callable[[], T], _deadline: object = None) -> T:
        return attempt()

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        return {name: self.existing[name] for name in names if name in self.existing}

    # --- as an admin client

    def make_topics(self, specs: Iterable[TopicSpec], _deadline: object) -> dict[str, TopicInfo]:
        for spec in specs:
            self.add(spec.name, spec.partitions, dict(spec.config))
        return self.existing

    def topic_configs(self, names: Iterable[str]) -> TopicConfigs:
        return TopicConfigs({name: self.configs[name] for name in names}, frozenset(), {})

    # --- as a writer

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        portion = list(records)
        self.written += portion
        self.portions.append(len(portion))

    def close(self) -> None:
        self.open_writers -= 1

    def writer(self, *_: object) -> World:
        self.open_writers += 1
        return self


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(mirrortopic, "RecordWriter", world.writer)
    monkeypatch.setattr(mirrortopic, "Admin", lambda _: world)
    return world


def topic(world: Any) -> MirrorTopic:
    return MirrorTopic(world, NAME, 3, lambda: world.now_s)


def test_it_is_created_with_one_compacted_partition(world: World) -> None:
    topic(world).write({b"k": b"v"})
    assert len(world.existing[NAME].partitions) == 1
    assert world.configs[NAME]["cleanup.policy"] == "compact"
    assert world.written == [(b"k", b"v")]


def test_only_news_is_written(world: World) -> None:
    made = topic(world)
    assert made.write({b"a": b"1", b"b": b"1"}) == 2
    assert made.write({b"a": b"1", b"b": b"2"}) == 1
    assert world.written[2:] == [(b"b", b"2")]


def test_everything_is_written_again_after_an_hour(world: World) -> None:
    """Whoever wrote over it."""
    made = topic(world)
    made.write({b"a": b"1"})
    world.now_s = 3599.0
    assert made.write({b"a": b"1"}) == 0
    world.now_s = 3600.0
    assert made.write({b"a": b"1"}) == 1


def test_a_topic_made_anew_gets_everything_over_a_new_connection(world: World) -> None:
    made = topic(world)
    made.write({b"a": b"1"})
    world.add(NAME, 1, {"cleanup.policy": "compact"})
    assert made.write({b"a": b"1"}) == 1
    assert world.open_writers == 1
    made.close()
    assert world.open_writers == 0


@pytest.mark.parametrize(
    ("partitions", "config"),
    [(1, {}), (1, {"cleanup.policy": "delete"}), (2, {"cleanup.policy": "compact"})],
)
def test_a_topic_of_another_kind_is_not_written_to(
    world: World, partitions: int, config: dict[str, str]
) -> None:
    """Neither now nor at the next try."""
    world.add(NAME, partitions, config)
    made = topic(world)
    for _ in range(2):
        with pytest.raises(NeedsOperator, match="is not of MirrorMaker's kind"):
            made.write({b"a": b"1"})
    assert world.written == []


def test_a_topic_that_mirrormaker_left_is_gone_on_with(world: World) -> None:
    world.add(NAME, 1, {"cleanup.policy": "compact,delete"})
    assert topic(world).write({b"a": b"1"}) == 1


def test_many_records_go_in_portions(world: World) -> None:
    """librdkafka's queue takes 100,000 of all."""
    records = {number.to_bytes(4, "big"): b"v" for number in range(12_000)}
    assert topic(world).write(records) == 12_000
    assert world.portions == [5000, 5000, 2000]
