"""A partition of the offset map, or of the target, that cannot be read takes nothing from the others (G7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.groups.decide import Allowed, Direction, decide
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.model import TopicPartition, lane_of
from onceover.positions import index as mapindex
from onceover.positions import translate
from onceover.positions.index import MapIndex
from onceover.positions.reader import Chunk, MapChanged, MapTopic, Point
from onceover.positions.translate import Translator
from onceover.state import names
from onceover.wire.offsetlookup import NotCovered, Translated
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.worlds.auditworld import FLOW, KINDS, SOURCE
from tests.support.worlds.positionworld import PositionWorld

LED_BY_NOBODY = Retriable("nobody leads it")
OPEN = Retriable("a transaction is open")
HIDDEN = UsageError("west refuses metadata", code="NOT_AUTHORIZED")
HERE = [TopicPartition(SOURCE, 0), TopicPartition(SOURCE, 1)]
MAPPED = [lane_of(tp, names.MAP_PARTITIONS) for tp in HERE]


# ---- reading the map


class Topic:
    """The map's topic: ten records in each partition, some of which cannot be read."""

    def __init__(self, unled: Mapping[int, OnceoverError], unread: Mapping[int, Exception]) -> None:
        self.topic_id = uuid4()
        self.info = SimpleNamespace(partitions=dict.fromkeys(range(names.MAP_PARTITIONS)))
        self.unled, self.unread = unled, unread

    def each_bounds(self, partitions: list[int], *, settled: bool = False) -> Each[int, tuple[int, int]]:
        led = [partition for partition in partitions if partition not in self.unled]
        return Each(dict.fromkeys(led, (0, 10)), {p: self.unled[p] for p in partitions if p in self.unled})

    def read(self, points: Mapping[int, Point], ends: Mapping[int, int], **_: object) -> Iterator[Chunk]:
        for partition in points:
            if partition in self.unread:
                raise self.unread[partition]
            yield Chunk(partition, [], 10, 0)

    def holds(self, partition: int, point: Point) -> bool:
        return True


def index_of(patch: pytest.MonkeyPatch, topic: Topic) -> MapIndex:
    patch.setattr(MapTopic, "find", lambda *_: topic)
    return MapIndex(FakeCluster(), "f", None)


@pytest.mark.parametrize("error", [OPEN, NeedsOperator("a record is damaged"), MapChanged(1)], ids=str)
@pytest.mark.parametrize("by", ["its leader", "reading it"])
def test_what_cannot_be_read_is_told_and_the_rest_is_read(
    monkeypatch: pytest.MonkeyPatch, error: Exception, by: str
) -> None:
    """Also where its log changes again and again."""
    if by == "its leader":
        if not isinstance(error, OnceoverError):
            return
        topic = Topic({1: error}, {})
    else:
        topic = Topic({}, {1: error})
    with index_of(monkeypatch, topic) as index:
        assert set(index.each_refresh()) == {1}
        assert index.store is not None
        assert [index.store.point(number) is not None for number in range(4)] == [True, False, True, True]
        assert index.each_refresh([0, 2]) == {}
        with pytest.raises((Retriable, NeedsOperator)):
            index.refresh()
        topic.unled, topic.unread = {}, {}
        assert index.each_refresh() == {}
        assert index.store.point(1) is not None


def test_a_right_that_is_missing_is_the_whole_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic({1: UsageError("not authorized", code="NOT_AUTHORIZED")}, {})
    with index_of(monkeypatch, topic) as index, pytest.raises(UsageError):
        index.each_refresh()


# ---- groups


def world() -> PositionWorld:
    """Two partitions, whose map records are in different partitions of the map, and a reader in the midst."""
    made = PositionWorld(KINDS["prefix"])
    for partition in range(2):
        made.produce(partition, 4, 0)
        made.copy(partition, 100)
        made.produce(partition, 4, 0)
        made.copy(partition, 100)
    assert MAPPED[0] != MAPPED[1]
    return made


def codes(made: PositionWorld, direction: Direction, patch: pytest.MonkeyPatch) -> dict[int, str]:
    """Return what is left alone, and why, by partition; everything else is moved."""
    looked = made.look(direction, patch)
    assert {facts.giving.partition for facts in looked} == {0, 1}
    decided = {facts.giving.partition: decide(facts, Allowed(), 0) for facts in looked}
    found = {number: decision for number, decision in decided.items() if decision is not None}
    assert all(bool(decision.code) != (decision.to is not None) for decision in found.values())
    return {number: decision.code for number, decision in found.items() if decision.code}


def test_a_right_that_goes_while_groups_are_looked_at_leaves_them_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topics were there to see a moment ago; the others' groups are not held up."""
    made = world()
    for partition in range(2):
        made.read_to(partition, 2, target=False)

    def refuse(*_: object) -> None:
        raise HIDDEN

    monkeypatch.setattr(Translator, "_refused", refuse)
    assert set(codes(made, Direction.FAILOVER, monkeypatch).values()) == {KafkaCode.NOT_AUTHORIZED}


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("error", [LED_BY_NOBODY, NeedsOperator("a record is damaged")], ids=str)
def test_a_partition_of_the_map_that_cannot_be_read_holds_up_its_own_sources_only(
    monkeypatch: pytest.MonkeyPatch, direction: Direction, number: int, error: OnceoverError
) -> None:
    made = world()
    for partition in range(2):
        made.read_to(partition, 2, target=direction is Direction.FAILBACK)
    made.unread[MAPPED[number]] = error
    assert codes(made, direction, monkeypatch) == {number: "UNREADABLE"}
    # One of those that hold nothing of the flow.
    made.unread = {next(iter(set(range(4)) - set(MAPPED))): error}
    assert codes(made, direction, monkeypatch) == {}


@pytest.mark.parametrize("number", [0, 1])
def test_a_transaction_that_hangs_in_the_map_holds_up_the_way_back_of_its_own_sources_only(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Behind the last copied record; who stands before it needs not wait for anything."""
    made = world()
    for partition in range(2):
        made.read_to(partition, 1_000, target=True)
    made.open[MAPPED[number]] = OPEN
    assert codes(made, Direction.FAILBACK, monkeypatch) == {number: "UNREADABLE"}
    made.read_to(number, 2, target=True)
    assert codes(made, Direction.FAILBACK, monkeypatch) == {}


@pytest.mark.parametrize("number", [0, 1])
def test_a_partition_of_the_target_that_nobody_leads_is_unreadable_whoever_is_asked_about_first(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """On the way back its end is not shown; only who stands behind the last copied record depends on it."""
    made = world()
    for partition in range(2):
        made.read_to(partition, 1_000, target=True)
    made.away[TopicPartition(made.kind.target, number)] = LED_BY_NOBODY
    assert codes(made, Direction.FAILBACK, monkeypatch) == {number: "UNREADABLE"}


def test_what_an_open_transaction_hides_is_waited_for_and_never_said_not_to_be_covered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The progress tells that it was copied, and the map will tell where as soon as it can be read."""
    made = world()
    for partition in range(2):
        made.read_to(partition, made.positions[partition] - 1, target=False)
    made.hidden = len(made.maps)
    assert codes(made, Direction.FAILOVER, monkeypatch) == {}
    made.open[MAPPED[1]] = OPEN
    assert codes(made, Direction.FAILOVER, monkeypatch) == {1: "UNREADABLE"}
    # Where the copy ends, the position itself says where the next record will be: nobody has to wait.
    made.read_to(1, 1_000, target=False)
    assert codes(made, Direction.FAILOVER, monkeypatch) == {}


def test_a_partition_that_has_just_left_the_flow_ends_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reseed of its shrunk topic, between two readings of the state."""
    made = world()
    for partition in range(2):
        made.read_to(partition, 2, target=False)
    read_state = Translator._read_state

    def late(self: Translator) -> None:
        read_state(self)
        (enrolment,) = self._by_source.values()
        self._by_source = {SOURCE: replace(enrolment, start={0: 0})}
        self._by_target = {enrolment.target: self._by_source[SOURCE]}

    monkeypatch.setattr(Translator, "_read_state", late)
    assert codes(made, Direction.FAILOVER, monkeypatch) == {1: "UNREADABLE"}


def test_what_hung_before_is_waited_for_in_full_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look of a continuous sync would hold all others up as long."""
    made = world()
    made.open[MAPPED[0]] = OPEN
    translator, end = made.translator(monkeypatch), made.there(0).stable
    target = TopicPartition(made.kind.target, 0)
    for _ in range(3):
        translator.refresh()
        with pytest.raises(Retriable):
            translator.to_source(target, end)
    assert made.waited == [None, 2.0, 2.0]
    made.open.clear()
    for _ in range(2):
        translator.refresh()
        assert isinstance(translator.to_source(target, end), Translated)
    assert made.waited[3:] == [2.0, None]


# ---- translate


def test_a_question_is_answered_whatever_other_partitions_are_like(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    there = [TopicPartition(made.kind.target, number) for number in range(2)]
    made.unread[MAPPED[1]] = made.open[MAPPED[1]] = LED_BY_NOBODY
    made.away[there[1]] = LED_BY_NOBODY
    translator, end = made.translator(monkeypatch), made.there(0).stable
    assert isinstance(translator.to_target(HERE[0], 1), Translated)
    assert isinstance(translator.to_source(there[0], end), Translated)
    assert translator.sources_of(there[0]) == [HERE[0]]
    with pytest.raises(Retriable):
        translator.sources_of(there[1])
    with pytest.raises(Retriable):
        translator.to_source(there[1], end)
    beyond = translator.to_source(there[0], end + 5)
    assert isinstance(beyond, NotCovered) and beyond.why == translate.BEYOND


@pytest.mark.parametrize("error", [HIDDEN, LED_BY_NOBODY], ids=str)
def test_a_target_topic_that_is_not_seen_is_not_told_as_deleted(
    monkeypatch: pytest.MonkeyPatch, error: OnceoverError
) -> None:
    """The cluster's own answer is raised; who asks in time gets the answer. Near misses: gone, made anew."""
    made = world()
    topic, known = made.kind.target, made.target.all_topics
    there, kept = TopicPartition(topic, 0), known[topic]
    made.target.unanswered[topic] = error
    translator = made.translator(monkeypatch)
    with pytest.raises(type(error), match=error.message):
        translator.to_target(HERE[0], 1)
    with pytest.raises(type(error), match=error.message):
        translator.to_source(there, 1)
    made.target.unanswered.clear()
    del known[topic]
    translator.refresh()
    assert translator.to_target(HERE[0], 1) == NotCovered(None, None, translate.DELETED)
    known[topic] = replace(kept, id=uuid4())
    translator.refresh()
    assert translator.to_target(HERE[0], 1) == NotCovered(None, None, translate.RECREATED)
    known[topic] = kept
    translator.refresh()
    assert isinstance(translator.to_target(HERE[0], 1), Translated)


def test_with_a_handler_everything_has_to_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any source partition may have records in any target partition."""
    made = world()
    translator = made.translator(monkeypatch)
    made.unread[MAPPED[1]] = LED_BY_NOBODY
    handled = Translator(made.target, FLOW, None, handled=True)
    handled.refresh()
    translator.refresh()
    assert translator.sources_of(TopicPartition(made.kind.target, 0)) == [HERE[0]]
    with pytest.raises(Retriable):
        handled.sources_of(TopicPartition(made.kind.target, 0))


def test_what_could_not_be_read_is_not_waited_for_at_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group for each of thousands of positions asks; the next look tries again."""
    made, asked = world(), 0
    each_refresh = made.translator(monkeypatch)._map._index.each_refresh.__func__

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal asked
        asked += 1
        return each_refresh(*arguments, **named)

    made.open[MAPPED[0]] = made.unread[MAPPED[1]] = OPEN
    translator = made.translator(monkeypatch)
    monkeypatch.setattr(type(translator._map._index), "each_refresh", counted)
    target, end = TopicPartition(made.kind.target, 0), made.there(0).stable
    for offset in range(3):
        with pytest.raises(Retriable):
            translator.to_source(target, end)
        with pytest.raises(Retriable):
            translator.to_target(HERE[1], offset)
    assert asked == 1
    made.open.clear()
    made.unread.clear()
    translator.refresh()
    assert isinstance(translator.to_source(target, end), Translated)
    assert isinstance(translator.to_target(HERE[1], 1), Translated)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits here."""
    monkeypatch.setattr(mapindex, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(translate, "_PATIENCE_S", 0.0)
