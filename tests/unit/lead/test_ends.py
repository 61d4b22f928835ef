"""When a run up to "caught up" is done: what nobody leads holds up no other partition, and is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import pytest

from onceover.errors import NotNow, OnceoverError, Retriable, UsageError
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.lead import ends as module
from onceover.lead.ends import EndCheck
from onceover.model import TopicPartition
from onceover.resume.resume import map_partition
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.stops.record import Stop

T = TypeVar("T")
END = 100
MAP = names.map_topic("f")


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


class World:
    """Both clusters: who leads which of three partitions, and how far the copy is."""

    def __init__(self) -> None:
        self.alias = "east"
        self.topic_id = UUID(int=1)
        self.leaders = {0: 1, 1: 1, 2: 1}
        self.target_leaders = {0: 1, 1: 1, 2: 1}
        self.map_leaders = dict.fromkeys(range(names.MAP_PARTITIONS), 1)
        self.positions = {0: 0, 1: 0, 2: 0}
        self.stopped: set[TopicPartition] = set()
        self.hidden: OnceoverError | None = None
        self.denied: dict[int, OnceoverError] = {}
        self.stop_requested = False
        self.slept_s = 0.0
        self.asleep: Callable[[], None] = lambda: None
        # Happens before whoever retries tries again.
        self.later: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.asleep()

    def side(self, leaders: dict[int, int]) -> Any:
        return Side(self, leaders)


class Side:
    """One of the two clusters."""

    def __init__(self, world: World, leaders: dict[int, int]) -> None:
        self.alias, self._world, self._leaders = "east", world, leaders

    def retry(self, attempt: Callable[[], T], _deadline: object = None) -> T:
        try:
            return attempt()
        except Retriable:
            self._world.later()
            return attempt()

    def each_topic(self, wanted: Iterable[str]) -> Each[str, TopicInfo]:
        partitions = {number: PartitionInfo(leader, 0) for number, leader in self._leaders.items()}
        if self._world.hidden:
            return Each({}, dict.fromkeys(wanted, self._world.hidden))
        maps = {number: PartitionInfo(leader, 0) for number, leader in self._world.map_leaders.items()}
        found = {
            "t": TopicInfo("t", self._world.topic_id, partitions, False),
            MAP: TopicInfo(MAP, UUID(int=2), maps, False),
        }
        return Each({name: found[name] for name in wanted})

    def each_offset(self, partitions: Iterable[TopicPartition], _time: int) -> Each[TopicPartition, int]:
        wanted = list(partitions)
        assert all(self._leaders[one.partition] >= 0 for one in wanted), "Kafka would not answer"
        denied = {
            one: self._world.denied[one.partition] for one in wanted if one.partition in self._world.denied
        }
        return Each({one: END for one in wanted if one not in denied}, denied)

    def each_committed(
        self, _group: str, partitions: Iterable[TopicPartition]
    ) -> Each[TopicPartition, CommittedOffset]:
        positions = self._world.positions
        return Each(
            {
                one: CommittedOffset(
                    error_code=0, offset=positions[one.partition], leader_epoch=-1, metadata=""
                )
                for one in partitions
                if one.partition in positions
            }
        )


class Clock:
    """A deadline that passes as the world sleeps."""

    world: World

    def __init__(self, seconds: float) -> None:
        self._at_s = self.world.slept_s + seconds

    @property
    def passed(self) -> bool:
        return self.world.slept_s >= self._at_s


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(Clock, "world", found, raising=False)
    monkeypatch.setattr(module, "Deadline", Clock)
    monkeypatch.setattr(module.time, "sleep", found.sleep)
    return found


@pytest.fixture
def planner(world: World, monkeypatch: pytest.MonkeyPatch) -> EndCheck:
    enrolment = Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 0, 1: 0, 2: 0}, 1)
    made = EndCheck("f", "run")
    made._clusters = (world.side(world.leaders), world.side(world.target_leaders))
    monkeypatch.setattr(made, "_read", lambda: {"t": enrolment})
    monkeypatch.setattr(made, "_stopped", lambda: world.stopped)
    monkeypatch.setattr(made, "stop_requested", lambda: world.stop_requested)
    return made


def copy(world: World, *numbers: int) -> None:
    world.positions.update(dict.fromkeys(numbers, END))


def test_everything_led_is_done_when_it_is_copied(world: World, planner: EndCheck) -> None:
    """The near miss of all below."""
    ends = planner.ends()
    assert ends == {tp(0): END, tp(1): END, tp(2): END}
    assert not planner.reached(ends)
    copy(world, 0, 1, 2)
    assert planner.reached(ends)
    assert world.slept_s == 0


def test_partition_whose_progress_is_not_told_is_not_done(world: World, planner: EndCheck) -> None:
    """A coordinator that has not read its log tells of none, or it is gone: then its lane stops it."""
    ends = planner.ends()
    copy(world, 0, 1, 2)
    told = world.positions.pop(1)
    assert not planner.reached(ends) and world.slept_s == 0
    world.stopped.add(tp(1))
    assert planner.reached(ends)
    world.stopped.clear()
    world.positions[1] = told
    assert planner.reached(ends)


def test_a_topic_that_was_made_anew_is_not_done_before_its_lane_has_noticed(
    world: World, planner: EndCheck
) -> None:
    """What is committed counts the records of the one that is gone, and may lie behind its namesake's end."""
    world.topic_id = UUID(int=9)
    ends = planner.ends()
    copy(world, 0, 1, 2)
    assert not planner.reached(ends) and world.slept_s == 0
    world.stopped.update((tp(0), tp(1), tp(2)))
    assert planner.reached(ends)


def test_partition_without_a_leader_keeps_none_of_the_others_from_being_copied(
    world: World, planner: EndCheck
) -> None:
    """The run copies those, waits a little, then ends as a temporary failure that names it: never as done."""
    world.leaders[1] = -1
    ends = planner.ends()
    assert ends == {tp(0): END, tp(2): END}
    assert not planner.reached(ends)
    copy(world, 0, 2)
    with pytest.raises(Retriable, match=r"everything is copied but .*: t:1; ") as incomplete:
        planner.reached(ends)
    assert (incomplete.value.exit_code, incomplete.value.code) == (5, "NO_LEADER")
    assert module.LEADERLESS_S <= world.slept_s < module.LEADERLESS_S + 1


def test_leader_that_comes_back_is_copied_in_the_same_run(world: World, planner: EndCheck) -> None:
    """Its end is what is there then."""
    world.leaders[1] = -1
    ends = planner.ends()
    copy(world, 0, 2)

    def elect() -> None:
        world.leaders[1] = 2

    world.asleep = elect
    assert not planner.reached(ends)
    assert ends[tp(1)] == END
    copy(world, 1)
    assert planner.reached(ends)


@pytest.mark.parametrize("side", ["source", "target", "map"])
def test_leader_that_goes_while_the_run_copies_is_not_waited_for_without_an_end(
    world: World, planner: EndCheck, side: str
) -> None:
    """On either side, or of the offset map: the end is known, and nobody can get there."""
    ends = planner.ends()
    match side:
        case "source":
            world.leaders[2] = -1
        case "target":
            world.target_leaders[2] = -1
        case _:
            world.map_leaders[map_partition("f", tp(2)).partition] = -1
    assert not planner.reached(ends), "the others are not copied yet"
    copy(world, 0, 1)
    with pytest.raises(Retriable, match=r"hold: t:2; "):
        planner.reached(ends)


def test_copied_or_stopped_partitions_need_no_leader(world: World, planner: EndCheck) -> None:
    """What is on the target already, and what waits for a person anyway."""
    ends = planner.ends()
    copy(world, 0, 1)
    world.leaders.update({0: -1, 2: -1})
    world.stopped.add(tp(2))
    assert planner.reached(ends)

    world.leaders.update({0: -1, 1: 1, 2: -1})
    ends = planner.ends()
    world.stopped.add(tp(0))
    assert planner.reached(ends)


def test_what_a_stop_has_excused_is_left_once_nobody_copies(world: World, planner: EndCheck) -> None:
    """It may be resumed as the run ends: then nothing says any more that it is not copied."""
    ends = planner.ends()
    copy(world, 0, 1)
    world.stopped = {tp(2)}
    assert planner.reached(ends)
    assert planner.left(ends) == {tp(2)}
    world.stopped.clear()
    assert planner.left(ends) == {tp(2)}
    copy(world, 2)
    assert planner.left(ends) == set()


def test_a_stop_whose_resume_is_not_answered_excuses_nothing(
    world: World, planner: EndCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lane may have no task just now, and copies it with its next one, or stops it once more."""
    stop = Stop("RECORD_REFUSED", "", "", "", "", 5, at_ms=7, generation=1)
    state: dict[str, Any] = {names.stop_key("t", 2): stop.to_json()}
    monkeypatch.undo()
    monkeypatch.setattr(module, "read_log", lambda *_, **__: state)
    enrolment = Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 0, 1: 0, 2: 0}, 1)
    monkeypatch.setattr(planner, "_read", lambda: {"t": enrolment})
    monkeypatch.setattr(planner, "stop_requested", lambda: False)
    ends = planner.ends()
    copy(world, 0, 1)
    assert planner.reached(ends)
    state[names.resume_key("t", 2)] = {"v": 1, "at_ms": 1, "stop": stop.name}
    assert not planner.reached(ends)
    state[names.stop_key("t", 2)] = replace(stop, at_ms=8).to_json()
    assert planner.reached(ends)


def test_request_to_stop_ends_the_wait_for_a_leader(world: World, planner: EndCheck) -> None:
    """A person does not wait for an election."""
    world.leaders[1] = -1
    ends = planner.ends()
    copy(world, 0, 2)
    world.stop_requested = True
    assert not planner.reached(ends)
    assert world.slept_s == 0


def test_partition_that_may_not_be_asked_about_is_for_its_lane_to_stop(
    world: World, planner: EndCheck
) -> None:
    """Planned for until it has stopped, or can be asked about; the others have their ends at once."""
    world.denied = {1: UsageError("no right")}
    ends = planner.ends()
    assert ends == {tp(0): END, tp(2): END}
    copy(world, 0, 2)
    assert not planner.reached(ends)
    world.stopped.add(tp(1))
    assert planner.reached(ends)
    world.stopped.clear()
    world.denied = {}
    assert not planner.reached(ends) and ends[tp(1)] == END
    copy(world, 1)
    assert planner.reached(ends)
    assert world.slept_s == 0


def test_topic_that_may_not_be_seen_is_not_gone(world: World, planner: EndCheck) -> None:
    """A cluster that may not show it says that it knows nothing of it."""
    world.hidden = UsageError("no right")
    ends = planner.ends()
    assert ends == {}
    copy(world, 0, 1, 2)
    assert not planner.reached(ends)
    world.hidden = None
    assert planner.reached(ends) and ends == {tp(0): END, tp(1): END, tp(2): END}


@pytest.mark.parametrize("where", ["hidden", "denied"])
def test_answer_that_will_come_is_waited_for(world: World, planner: EndCheck, where: str) -> None:
    """By whoever retries: a run does not begin without a partition whose leader is just moving."""
    if where == "hidden":
        world.hidden = NotNow("error 6")
    else:
        world.denied[1] = NotNow("error 6")

    def moved() -> None:
        world.hidden, world.denied = None, {}

    world.later = moved
    assert planner.ends() == {tp(0): END, tp(1): END, tp(2): END}


def test_leader_that_cannot_be_reached_holds_up_its_own_partitions_only(
    world: World, planner: EndCheck
) -> None:
    """Until its lane has stopped them; a firewall between us and one broker of many."""
    world.denied[1] = Retriable("no connection")
    ends = planner.ends()
    assert ends == {tp(0): END, tp(2): END}
    copy(world, 0, 2)
    assert not planner.reached(ends)
    world.stopped.add(tp(1))
    assert planner.reached(ends)


def test_source_of_which_nobody_tells_anything_is_away(world: World, planner: EndCheck) -> None:
    """Nothing can be planned, and nothing is said to be copied."""
    world.denied = dict.fromkeys(range(3), Retriable("no connection"))
    with pytest.raises(Retriable):
        planner.ends()


def test_topic_that_is_gone_is_not_waited_for(world: World, planner: EndCheck) -> None:
    """Its lane stops it: SOURCE_MISSING."""
    world.leaders[1] = -1
    ends = planner.ends()
    copy(world, 0, 2)
    del world.leaders[1]
    assert planner.reached(ends)


def test_a_stop_of_no_partition_ends_no_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has written it into the state: what is stopped besides is known all the same."""
    values = {"stop/junk": 5, "stop/t/x": {}, names.stop_key("t", 1): {}}
    enrolment = Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 0, 1: 0, 2: 0}, 1)
    made = EndCheck("f", "run")
    made._clusters = (world.side(world.leaders), world.side(world.target_leaders))
    leader = {names.enrolment_key("t"): enrolment.to_json()}
    parts = {names.STATE_LEADER: leader, names.STATE_OTHERS: values}
    monkeypatch.setattr(module, "read_log", lambda _target, _topic, partition, *, wait: parts[partition])
    ends = made.ends()
    copy(world, 0, 2)
    assert made.reached(ends)
