"""What is seen of partitions before they are copied: what cannot be written now is not tried."""

from __future__ import annotations

from contextlib import nullcontext
from uuid import UUID

import pytest

from onceover.errors import MustReset, Superseded, UsageError
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.model import TopicPartition
from onceover.resume.resume import LaneWriter, PartitionsSeen, check_instance, gather, map_partition
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.stops.aside import Troubles, TroubleSide
from onceover.stops.codes import WaitCode
from onceover.wire.progress import ProgressMeta
from tests.support.fakes.fakecluster import FakeCluster

MAP = names.map_topic("f")
IDS = {"t": UUID(int=1), "copy": UUID(int=2), MAP: UUID(int=3)}
NUMBERS = range(2 * names.MAP_PARTITIONS)
ENROLMENT = Enrolment("t", "copy", IDS["t"], IDS["copy"], dict.fromkeys(NUMBERS, 0), 1)
ENROLLED = dict.fromkeys(ENROLMENT.sources(), ENROLMENT)


def side() -> FakeCluster:
    """Return one of the clusters: it has the topics, and nothing is committed."""
    made = FakeCluster()
    for topic, topic_id in IDS.items():
        made.add_topic(topic, topic_id, [0] * len(NUMBERS))
    return made


def looked(target: FakeCluster) -> PartitionsSeen:
    return gather("f", side(), target, ENROLLED, Each(), LaneWriter(7, alone=True, mixed=False))


def test_whose_part_of_the_offset_map_nobody_leads_is_waited_for_without_a_try() -> None:
    """A try would fail for the others of its transaction, too; who is written elsewhere has no part in it."""
    target = side()
    lost = map_partition("f", TopicPartition("t", 0))
    target.all_topics[MAP].leaders[lost.partition] = -1
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
    target = side()
    target.unanswered[MAP] = UsageError("error 29")
    assert not looked(target).problems


def test_a_partition_that_the_offset_map_lacks_is_waited_for_and_told() -> None:
    """Somebody else has made the topic, with fewer; who only tried to write it would say nothing for ever."""
    target = side()
    del target.all_topics[MAP].logs[1:]
    look = looked(target)
    assert set(look.problems) == {tp for tp in ENROLLED if map_partition("f", tp).partition > 0}
    assert {problem.error.code for problem in look.problems.values()} == {WaitCode.MAP_MISSING}


def test_an_offset_map_that_was_deleted_is_waited_for_until_the_run_has_made_it_anew() -> None:
    """No leader is missing, and nobody has to come; each try would leave offsets behind."""
    target = side()
    del target.all_topics[MAP]
    look, troubles = looked(target), Troubles()
    assert set(look.problems) == ENROLLED.keys()
    for tp, problem in look.problems.items():
        assert (problem.side, problem.error.code) == (TroubleSide.TARGET, WaitCode.MAP_MISSING)
        assert "the run makes it anew" in problem.error.message
        troubles.note(tp, problem.side, problem.error, in_use=False)
        assert not troubles.will_end(tp)


@pytest.mark.parametrize(
    ("generation", "instance", "raised"),
    [(1, (9, 9), None), (2, (4, 4), None), (2, (4, 5), Superseded), (3, (1, 1), MustReset)],
)
def test_a_lane_goes_on_from_its_own_progress_and_older_ones(
    generation: int, instance: tuple[int, int], raised: type[Exception] | None
) -> None:
    """A newer generation's is a sign that the layout it has read is one of before, whatever its instance."""
    meta = ProgressMeta(str(UUID(int=1)), str(UUID(int=2)), 0, 0, generation, instance, 5)
    progress = [CommittedOffset(0, 5, 0, meta.encode())]
    with nullcontext() if raised is None else pytest.raises(raised):
        check_instance(progress, 2, (4, 4), 0)
