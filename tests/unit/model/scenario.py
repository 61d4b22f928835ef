"""The words of the model: its rules, who may run, and what everybody knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Any, Final, NamedTuple

from tests.unit.model.world import NOBODY, Layout, World, put

# Searches end there: a flow that is started for ever is no new case.
LAST_GENERATION: Final = 5
# Processes have one number: drivers first, then tasks of lanes.
_TASKS: Final = 10


class Rule(Enum):
    """Sentences of the protocol that can be left out, one at a time."""

    LAYOUT_DECIDES = auto()
    UNCONFIRMED_IS_NEVER_RESUMED = auto()
    FENCE_WHAT_AN_UNREADY_START_LEFT = auto()
    FENCED_ON_OK_ONLY = auto()
    NOT_READY_BEFORE_FENCING = auto()
    SECOND_LOOK = auto()
    SECOND_LOOK_TO_THE_HIGH_WATERMARK = auto()
    LANES_START_WHEN_READY = auto()
    READY_IS_SEEN_BEFORE_LANES = auto()
    LOOK_BEFORE_EACH_INIT = auto()
    READ_AGAIN_BEFORE_ENROLLING = auto()
    ENROL_WITHOUT_PROGRESS_ONLY = auto()
    SEED_FENCES_FIRST = auto()
    SEED_AS_A_NEW_GENERATION = auto()
    PROGRESS_IS_THE_LANES = auto()
    STABLE_PROGRESS = auto()
    PROGRESS_AFTER_INIT = auto()
    NEWER_INSTANCE_WINS = auto()
    INSTANCES_WITHIN_A_GENERATION = auto()
    STOPS_BESIDE_THE_LAYOUT = auto()
    START_READS_UP_TO_A_MARK = auto()
    LANE_READS_UP_TO_A_MARK = auto()


ALL: Final = frozenset(Rule)


class Role(Enum):
    """What a driver is there for."""

    START = auto()
    SEED = auto()
    # moves a partition that a lane copies
    PUT = auto()
    # owns the leader's id, and does nothing with it
    TAKE = auto()


class Dies(Enum):
    """Whether a driver may die, at any of its steps, and whether somebody starts it again."""

    NEVER = auto()
    ONCE = auto()
    FOR_GOOD = auto()


class Begins(Enum):
    """How a driver is found at the beginning."""

    LATER = auto()
    LEADING = auto()
    DEAD = auto()


class Driver(NamedTuple):
    """A driver of a scenario."""

    role: Role = Role.START
    lanes: int = 1
    begins: Begins = Begins.LATER
    dies: Dies = Dies.NEVER


class LaneTask(NamedTuple):
    """A lane's task in a scenario: of which driver, which id of how many, and which instance."""

    driver: int
    lane: int = 0
    lanes: int = 1
    instance: int = 0


@dataclass(frozen=True)
class Scenario:
    """Who runs, and what may happen.

    Args:
        records: of each partition on the source.
        enrolled: bits of the partitions that are enrolled at the beginning.
        lanes: of the first layout.
        progress: of enrolled partitions at the beginning.
        seeded: where a seeding puts them.
        timeouts: how many transactions may time out; None without bound. A dead leader's always may.
        lanes_time_out, lanes_reset: whether these things happen to lanes.
        replies_get_lost: to commits.
        stops: lanes write stops.
        freezes: another broker leads the state from some moment on, and the one before goes on answering.
        counts_disturbance: an older task must not end a newer one's transactions again and again.
    """

    name: str
    drivers: tuple[Driver, ...]
    tasks: tuple[LaneTask, ...]
    partitions: int = 1
    records: int = 1
    enrolled: int = 1
    lanes: int = 1
    progress: int = 0
    seeded: int = 0
    timeouts: int | None = 1
    lanes_time_out: bool = True
    lanes_reset: bool = True
    replies_get_lost: bool = True
    stops: bool = False
    freezes: bool = False
    counts_disturbance: bool = False


class Step(IntEnum):
    """Where a process is."""

    OFF = 0
    GONE = 1
    # of a driver
    LOOK = 2
    INIT = 3
    READ = 4
    ANNOUNCE = 5
    ANNOUNCED = 6
    FENCE = 7
    READY = 8
    CONFIRM = 9
    SPAWN = 10
    LEAD = 11
    ENROL = 12
    ENROLLED = 13
    SEED = 14
    SEEDED = 15
    INIT_AGAIN = 16
    READ_AGAIN = 17
    # of a lane
    LANE_LOOK = 20
    LANE_INIT = 21
    LANE_LOOK_AGAIN = 22
    LANE_FETCH = 23
    LANE_FETCH_NEW = 24
    LANE_IDLE = 25
    LANE_WRITE = 26
    LANE_COMMIT = 27


class DriverState(NamedTuple):
    """What a driver knows.

    Args:
        step: where it is.
        generation: the one that it wants, or has.
        fencing, fence_up_to: the next lane id to fence, and the first that needs no fencing.
        enrolled: bits of the partitions that it knows as enrolled.
        lost: replies that it has lost so far, one at most.
        confirmed: its generation is.
        crashed: it has been started for the second time.
    """

    step: Step = Step.OFF
    generation: int = 0
    fencing: int = 0
    fence_up_to: int = 0
    enrolled: int = 0
    lost: int = 0
    confirmed: bool = False
    crashed: bool = False


class LaneState(NamedTuple):
    """What a lane's task knows.

    Args:
        step: where it is.
        generation: of the driver that has started it.
        enrolled: bits of its partitions.
        positions: of both partitions.
        batch: bits of the partitions of which its transaction copies a record.
        todo: bits of what it still has to send.
    """

    step: Step = Step.OFF
    generation: int = 0
    enrolled: int = 0
    positions: tuple[int, ...] = (0, 0)
    batch: int = 0
    todo: int = 0


class State(NamedTuple):
    """The whole: the cluster and everybody who acts upon it."""

    world: World
    drivers: tuple[DriverState, ...]
    tasks: tuple[LaneState, ...]

    def driver(self, number: int, **known: Any) -> State:
        """Return the state with a driver that knows something else."""
        return self._replace(drivers=put(self.drivers, number, self.drivers[number]._replace(**known)))

    def task(self, number: int, **known: Any) -> State:
        """Return the state with a task that knows something else."""
        return self._replace(tasks=put(self.tasks, number, self.tasks[number]._replace(**known)))

    def forget(self, number: int, step: Step) -> State:
        """Return the state with a task that knows its generation alone: positions are never carried over."""
        return self._replace(tasks=put(self.tasks, number, LaneState(step, self.tasks[number].generation)))

    def on(self, world: World) -> State:
        """Return the state with another world."""
        return self._replace(world=world)


class Move(NamedTuple):
    """One step of somebody: in words, and what it leads to."""

    text: str
    state: State


class Setting(NamedTuple):
    """A scenario, and the rules that are kept in it."""

    scenario: Scenario
    rules: frozenset[Rule]

    def keeps(self, rule: Rule) -> bool:
        """Tell whether a rule is kept."""
        return rule in self.rules

    @property
    def everything(self) -> int:
        """Bits of all partitions."""
        return (1 << self.scenario.partitions) - 1


Moves = Callable[[Setting, State, int], Iterator[Move]]


def looks(setting: Setting, world: World, mark: Rule | None) -> Iterator[tuple[str, Layout, int]]:
    """Yield what a look at the state may find: how that came, the layout, and what is enrolled.

    Args:
        mark: the rule by which a mark is written before, and no answer believed that ends before it.
    """
    if world.layout_is_settled():
        yield "", world.layout, world.enrolled
    if world.told is not None and (mark is None or not setting.keeps(mark)):
        yield ", as it was", *world.told


def process_of(task: int) -> int:
    """Return the number of a lane's task among all processes; a driver's is its own."""
    return _TASKS + task


def task_of(process: int) -> int | None:
    """Return whose task a process is; None for drivers and for nobody."""
    return process - _TASKS if process != NOBODY and process >= _TASKS else None


def is_in(bits: int, partition: int) -> bool:
    """Tell whether the bit of a partition is set."""
    return bool(bits >> partition & 1)
