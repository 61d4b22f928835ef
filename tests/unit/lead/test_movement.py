"""Partitions that do not move: who is named, from when on, and who is not."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, islice
from typing import cast
from uuid import UUID

import pytest

from onceover.errors import Retriable
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.kafka.ports import Cluster
from onceover.lead.movement import BATCH_BYTES, STILL_AFTER_S, TURN_S, Movement, MovementWatch
from onceover.model import TopicPartition, lane_of
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.standstill import Standstill, read_standstills, standstill_note

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
LATE_S = STILL_AFTER_S + TURN_S


def test_who_stands_for_long_with_something_behind_it_is_named() -> None:
    """And nobody before, nor who moves, has nothing to do, or whose end is not known."""
    movement = Movement(lanes=1)
    others = {TopicPartition("idle", 0): 5, TopicPartition("dark", 0): 5}
    ends = {A: 10, B: 10, TopicPartition("idle", 0): 5}
    assert movement.seen({A: 1, B: 1, **others}, ends, 100.0) == {}
    assert movement.seen({A: 1, B: 2, **others}, ends, 100.0 + LATE_S - 0.1) == {}
    assert movement.seen({A: 1, B: 3, **others}, ends, 100.0 + LATE_S) == {A: 100.0}
    assert movement.seen({A: 2, B: 3, **others}, ends, 101.0 + LATE_S) == {}, "it has moved"


def test_time_without_anything_to_copy_does_not_count() -> None:
    """A quiet topic that gets a record is not late at once."""
    movement = Movement(lanes=1)
    for now_s in (0.0, 10 * LATE_S):
        assert movement.seen({A: 5}, {A: 5}, now_s) == {}
    assert movement.seen({A: 5}, {A: 6}, 10 * LATE_S + 1) == {}
    assert movement.seen({A: 5}, {A: 6}, 11 * LATE_S + 1) == {A: 10 * LATE_S + 1}


@pytest.mark.parametrize(("lanes", "named"), [(1, False), (1000, True)])
def test_each_partition_of_a_lane_has_its_turn(lanes: int, named: bool) -> None:
    """Behind a hundred others of its lane it is not late yet; those of other lanes count for nothing."""
    movement = Movement(lanes)
    positions = {TopicPartition("orders", number): 0 for number in range(100)}
    ends = dict.fromkeys(positions, 1)
    movement.seen(positions, ends, 0.0)
    assert bool(movement.seen(positions, ends, STILL_AFTER_S + 10 * TURN_S)) is named


def test_the_flows_own_limit_makes_turns_longer() -> None:
    """Kafka gives a batch at least, and the lane owes its bytes before it may fetch again."""
    for partitions in (1, 3):
        movement = Movement(lanes=4)
        of_one_lane = (tp for n in count() if lane_of(tp := TopicPartition("orders", n), 4) == 0)
        positions = dict.fromkeys(islice(of_one_lane, partitions), 0)
        ends = dict.fromkeys(positions, 1)
        turn_s = 4 * BATCH_BYTES / 102_400
        late_s = STILL_AFTER_S - TURN_S + partitions * turn_s
        movement.seen(positions, ends, 0.0, 102_400)
        assert movement.seen(positions, ends, late_s - 1, 102_400) == {}
        assert movement.seen(positions, ends, late_s + 1, 102_400).keys() == positions.keys()


def test_with_another_limit_everybody_has_their_time_again() -> None:
    """What a slow lane had not come to is not late at the moment in which it may go faster."""
    movement = Movement(lanes=1)
    movement.seen({A: 1}, {A: 2}, 0.0, 1024)
    assert movement.seen({A: 1}, {A: 2}, 1000.0, 1024) == {}
    assert movement.seen({A: 1}, {A: 2}, 1001.0) == {}
    assert movement.seen({A: 1}, {A: 2}, 1001.0 + STILL_AFTER_S) == {A: 1001.0}


class Side:
    """A cluster that tells positions and ends, or does not answer."""

    def __init__(self, told: Mapping[TopicPartition, int]) -> None:
        self.told, self.away, self.asked = dict(told), False, 0

    def each_committed(self, *_: object, **__: object) -> Each[TopicPartition, CommittedOffset]:
        return Each({tp: CommittedOffset(0, at, -1, "") for tp, at in self._answer().items()}, {})

    def each_offset(self, *_: object) -> Each[TopicPartition, int]:
        return Each(self._answer(), {})

    def _answer(self) -> dict[TopicPartition, int]:
        self.asked += 1
        if self.away:
            raise Retriable("away")
        return self.told


def test_watch_keeps_what_it_has_seen_and_bothers_nobody() -> None:
    """It looks now and then; a cluster that is away changes nothing; a time that was told stays as it was."""
    now_s, limits = 0.0, list[int | None]([None])
    source, target = Side({A: 10}), Side({A: 1})
    enrolment = Enrolment("orders", "orders", UUID(int=1), UUID(int=2), {0: 0}, 1)
    clusters = cast("tuple[Cluster, Cluster]", (source, target))
    watch = MovementWatch("f", 1, *clusters, lambda: [enrolment], lambda: limits[-1], lambda: now_s)
    assert watch.tick() == {}
    watch.tick()
    assert source.asked == target.asked == 1, "not at every tick"
    now_s = LATE_S
    told = watch.tick()
    assert told.keys() == {A} and told[A].position == 1
    now_s *= 2
    assert watch.tick() == told
    source.away, now_s = True, now_s * 2
    assert watch.tick() == told
    limits.append(1024)
    source.away, now_s = False, now_s * 2
    assert watch.tick() == {}, "another limit, another time"
    source.told, now_s = {A: 1}, now_s * 2
    assert watch.tick() == {}


def test_note_is_of_one_generation_and_fits_into_a_record() -> None:
    """The longest first; what an older run has left says nothing."""
    still = {TopicPartition("t" * 200, n): Standstill(n, 5000 - n) for n in range(3000)}
    note = standstill_note(7, still)
    read = read_standstills(note, 7)
    assert len(read) == 1000 and note["count"] == 3000 and min(tp.partition for tp in read) == 2000
    assert all(still[tp] == told for tp, told in read.items())
    assert read_standstills(note, 8) == {}
    with pytest.raises(ValueError, match="whole number"):
        read_standstills({"generation": 7, "still": [["t", 0, "x", 1]]}, 7)
