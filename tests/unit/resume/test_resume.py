"""What is seen of partitions before they are copied: what cannot be written now is not tried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from onceover.errors import OnceoverError, UsageError
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.resume.resume import LaneWriter, PartitionsSeen, gather, map_partition
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.stops.aside import Troubles, TroubleSide
from onceover.stops.codes import WaitCode

MAP = names.map_topic("f")
IDS = {"t": UUID(int=1), "copy": UUID(int=2), MAP: UUID(int=3)}
NUMBERS = range(2 * names.MAP_PARTITIONS)
ENROLMENT = Enrolment("t", "copy", IDS["t"], IDS["copy"], dict.fromkeys(NUMBERS, 0), 1)
ENROLLED = dict.fromkeys(ENROLMENT.sources(), ENROLMENT)


class FakeSide:
    """One of the clusters: knows its topics; nothing is committed, so nobody asks for more."""

    alias = "west"

    def __init__(self) -> None:
        self.led = {topic: {number: PartitionInfo(1, 0) for number in NUMBERS} for topic in IDS}
        self.denied: set[str] = set()
        self.deleted: set[str] = set()

    def each_topic(self, wanted: Iterable[str]) -> Each[str, TopicInfo]:
        there = set(wanted) - self.deleted
        found = {topic: TopicInfo(topic, IDS[topic], self.led[topic], False) for topic in there}
        error: OnceoverError = UsageError("error 29")
        denied = {topic: error for topic in found if topic in self.denied}
        return Each({topic: info for topic, info in found.items() if topic not in denied}, denied)

    def each_offset(self, partitions: Iterable[TopicPartition], *_: object) -> Each[Any, Any]:
        assert not list(partitions)
        return Each()

    def each_epoch_end(self, epochs: Iterable[TopicPartition]) -> Each[Any, Any]:
        assert not list(epochs)
        return Each()

    each_open = each_epoch_end


def looked(target: FakeSide) -> PartitionsSeen:
    return gather("f", FakeSide(), target, ENROLLED, Each(), LaneWriter(7, alone=True, mixed=False))  # type: ignore[arg-type]


def test_whose_part_of_the_offset_map_nobody_leads_is_waited_for_without_a_try() -> None:
    """A try would fail for the others of its transaction, too; who is written elsewhere has no part in it."""
    target = FakeSide()
    lost = map_partition("f", TopicPartition("t", 0))
    target.led[MAP][lost.partition] = PartitionInfo(-1, 0)
    look = looked(target)
    concerned = {tp for tp in ENROLLED if map_partition("f", tp) == lost}
    assert set(look.problems) == concerned and len(concerned) == 2
    assert set(look.evidence) == ENROLLED.keys() - concerned
    troubles = Troubles()
    for tp, problem in look.problems.items():
        assert problem.side is TroubleSide.TARGET and problem.error.code == KafkaCode.NO_LEADER
        assert str(lost) in problem.error.message
        troubles.note(tp, problem.side, problem.error, in_use=False)
        assert not troubles.will_end(tp), "a run does not wait for it: its planner says what is left"


def test_an_offset_map_that_may_not_be_seen_is_no_partitions_trouble() -> None:
    """The near miss: whoever writes it, says so."""
    target = FakeSide()
    target.denied = {MAP}
    assert not looked(target).problems


def test_an_offset_map_that_was_deleted_is_waited_for_until_the_run_has_made_it_anew() -> None:
    """No leader is missing, and nobody has to come; each try would leave offsets behind."""
    target = FakeSide()
    target.deleted = {MAP}
    look, troubles = looked(target), Troubles()
    assert set(look.problems) == ENROLLED.keys()
    for tp, problem in look.problems.items():
        assert (problem.side, problem.error.code) == (TroubleSide.TARGET, WaitCode.MAP_MISSING)
        assert "the run makes it anew" in problem.error.message
        troubles.note(tp, problem.side, problem.error, in_use=False)
        assert not troubles.will_end(tp)
