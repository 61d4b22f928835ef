"""Who runs beside whom: scenarios that keep every rule, and for each rule one that shows what it is for."""

from __future__ import annotations

from typing import Any, Final

from tests.unit.model.scenario import Begins, Dies, Driver, LaneTask, Role, Rule, Scenario

_RUNS: Final = Driver(begins=Begins.LEADING, dies=Dies.FOR_GOOD)
_STAYS: Final = Driver(begins=Begins.LEADING)
_DEAD: Final = Driver(begins=Begins.DEAD)
_STARTS: Final = Driver()
_DIES: Final = Driver(dies=Dies.FOR_GOOD)
_DIES_ONCE: Final = Driver(dies=Dies.ONCE)
_TWO_LANES: Final = Driver(lanes=2)
_SEEDS: Final = Driver(Role.SEED, dies=Dies.FOR_GOOD)
_PUTS: Final = Driver(Role.PUT, begins=Begins.LEADING)
_TAKES: Final = Driver(Role.TAKE)
_OLD: Final = LaneTask(0)
_NEW: Final = LaneTask(1)
_NEWEST: Final = LaneTask(2)


def _calm(name: str, drivers: tuple[Driver, ...], tasks: tuple[LaneTask, ...], **kwargs: Any) -> Scenario:
    """Return a scenario in which processes die or pause, and nothing else happens: it is small."""
    none = {"timeouts": 0, "lanes_time_out": False, "lanes_reset": False, "replies_get_lost": False}
    fields: dict[str, Any] = {**none, **kwargs}
    return Scenario(name, drivers, tasks, **fields)


RESTART: Final = Scenario("a start while the run before still copies", (_RUNS, _STARTS), (_OLD, _NEW))
INSTANCES: Final = Scenario(
    "two tasks of one lane",
    (_STAYS,),
    (LaneTask(0, instance=1), LaneTask(0, instance=2)),
    records=2,
)
ENROL: Final = Scenario(
    "a first topic, enrolled by a run that is overtaken",
    (_RUNS, _STARTS),
    (_OLD, _NEW),
    enrolled=0,
    timeouts=0,
    lanes_time_out=False,
)
GROWTH: Final = Scenario("a topic grows while it is copied", (_STAYS,), (_OLD,), partitions=2)
RACE: Final = Scenario(
    "two starts at once, one of which dies",
    (_DEAD, _DIES_ONCE, _STARTS),
    (_NEW, _NEWEST),
    timeouts=0,
    lanes_time_out=False,
    lanes_reset=False,
)
MORE_LANES: Final = Scenario(
    "from one lane to two",
    (_RUNS, _TWO_LANES),
    (_OLD, LaneTask(1, 0, 2), LaneTask(1, 1, 2)),
    partitions=2,
    enrolled=3,
    timeouts=0,
    lanes_time_out=False,
    lanes_reset=False,
)
FEWER_LANES: Final = Scenario(
    "from two lanes to one, by way of a start that dies",
    (Driver(lanes=2, begins=Begins.DEAD), _DIES_ONCE, _STARTS),
    (LaneTask(0, 1, 2), _NEWEST),
    partitions=2,
    enrolled=3,
    lanes=2,
    timeouts=0,
    lanes_time_out=False,
    lanes_reset=False,
)
SEEDING: Final = Scenario(
    "a seeding while the run before still copies",
    (_RUNS, _SEEDS, _STARTS),
    (_OLD, _NEWEST),
    records=2,
    progress=1,
    timeouts=0,
    lanes_time_out=False,
    lanes_reset=False,
)
STOPS: Final = Scenario(
    "a lane dies with a stop in its transaction",
    (_RUNS, _STARTS),
    (_OLD, _NEW),
    stops=True,
    timeouts=0,
    lanes_time_out=False,
    lanes_reset=False,
)
TAKEN: Final = _calm("somebody owns the leader's id, and dies", (_STAYS, _TAKES), (_OLD,), partitions=2)
CALM_RESTART: Final = _calm("a start, and nothing gets lost", (_RUNS, _STARTS), (_OLD, _NEW))
CALM_ENROL: Final = _calm("a first topic, and nothing gets lost", (_RUNS, _STARTS), (_OLD, _NEW), enrolled=0)
UNREADY: Final = _calm(
    "a start with fewer lanes dies before it is ready",
    (Driver(lanes=2, begins=Begins.DEAD), _DIES, _STARTS),
    (LaneTask(0, 1, 2), _NEWEST),
    partitions=2,
    enrolled=3,
    lanes=2,
)
CALM_LANES: Final = _calm(
    "from one lane to two, and nothing gets lost",
    (_STAYS, _TWO_LANES),
    (_OLD, LaneTask(1, 1, 2)),
    partitions=2,
    enrolled=3,
)
CALM_SEEDING: Final = _calm(
    "a seeding, and nothing gets lost",
    (_STAYS, _SEEDS, _STARTS),
    (_OLD, _NEWEST),
    records=2,
    progress=1,
)
CALM_STOPS: Final = _calm(
    "a lane dies with a stop in its transaction, and nothing gets lost",
    (_RUNS, _STARTS),
    (_OLD, _NEW),
    stops=True,
)
CALM_INSTANCES: Final = _calm(
    "a start after a run that had retried often, and nothing gets lost",
    (_RUNS, _STARTS),
    (LaneTask(0, instance=2), LaneTask(1, instance=1)),
)
CALM_FROZEN_RESTART: Final = _calm(
    "a start beside a broker that does not know that it leads no more",
    (_RUNS, _STARTS),
    (_OLD, _NEW),
    freezes=True,
)
CALM_FROZEN_STARTS: Final = _calm(
    "two starts beside a broker that does not know that it leads no more",
    (_DEAD, _STARTS, _STARTS),
    (_NEW, _NEWEST),
    freezes=True,
)
PUT: Final = Scenario("a partition is moved beside its lane", (_PUTS,), (_OLD,), records=3, seeded=2)
OLD_INSTANCES: Final = Scenario(
    "a start after a run that had retried often",
    (_RUNS, _STARTS),
    (LaneTask(0, instance=2), LaneTask(1, instance=1)),
    timeouts=0,
)
PAUSED: Final = _calm(
    "a lane of the run before wakes up again and again",
    (_STAYS, _STARTS),
    (_OLD, _NEW),
    records=2,
    counts_disturbance=True,
)

SMALL: Final = (
    INSTANCES,
    GROWTH,
    CALM_RESTART,
    CALM_ENROL,
    TAKEN,
)
# Some ten thousand states each.
MIDDLING: Final = (
    CALM_STOPS,
    CALM_INSTANCES,
    PAUSED,
    CALM_FROZEN_RESTART,
)
# The first is complete with 180,000 states; of the others those with most have some millions.
LARGE: Final = (
    RESTART,
    ENROL,
    CALM_LANES,
    CALM_SEEDING,
    UNREADY,
    RACE,
    MORE_LANES,
    FEWER_LANES,
    SEEDING,
    STOPS,
    OLD_INSTANCES,
    CALM_FROZEN_STARTS,
)
# What keeps two tasks of one lane from ending each other's transactions for ever: nothing is lost without.
FOR_PEACE: Final = Rule.NEWER_INSTANCE_WINS

WITHOUT: Final[dict[Rule, Scenario]] = {
    Rule.LAYOUT_DECIDES: TAKEN,
    Rule.UNCONFIRMED_IS_NEVER_RESUMED: RACE,
    Rule.FENCE_WHAT_AN_UNREADY_START_LEFT: UNREADY,
    Rule.FENCED_ON_OK_ONLY: CALM_RESTART,
    Rule.NOT_READY_BEFORE_FENCING: CALM_RESTART,
    Rule.SECOND_LOOK: CALM_RESTART,
    Rule.SECOND_LOOK_TO_THE_HIGH_WATERMARK: CALM_RESTART,
    Rule.LANES_START_WHEN_READY: CALM_LANES,
    Rule.READY_IS_SEEN_BEFORE_LANES: CALM_RESTART,
    Rule.LOOK_BEFORE_EACH_INIT: PAUSED,
    Rule.READ_AGAIN_BEFORE_ENROLLING: CALM_ENROL,
    Rule.ENROL_WITHOUT_PROGRESS_ONLY: GROWTH,
    Rule.SEED_FENCES_FIRST: CALM_SEEDING,
    Rule.SEED_AS_A_NEW_GENERATION: CALM_SEEDING,
    Rule.PROGRESS_IS_THE_LANES: PUT,
    Rule.STABLE_PROGRESS: CALM_ENROL,
    Rule.PROGRESS_AFTER_INIT: INSTANCES,
    Rule.INSTANCES_WITHIN_A_GENERATION: CALM_INSTANCES,
    Rule.STOPS_BESIDE_THE_LAYOUT: CALM_STOPS,
    Rule.START_READS_UP_TO_A_MARK: CALM_FROZEN_STARTS,
    Rule.LANE_READS_UP_TO_A_MARK: CALM_FROZEN_RESTART,
}
