"""Everything that can happen in a scenario, and what must hold in each of its states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.unit.model.driver import driver_moves
from tests.unit.model.lane import lane_moves
from tests.unit.model.scenario import (
    LAST_GENERATION,
    Begins,
    DriverState,
    LaneState,
    Move,
    Rule,
    Scenario,
    Setting,
    State,
    Step,
    is_in,
    task_of,
)
from tests.unit.model.world import (
    IDS,
    LEADER,
    NOBODY,
    PARTITIONS,
    TARGETS,
    Layout,
    Phase,
    Txn,
    Violation,
    World,
    Written,
    put,
)

ALL: Final = frozenset(Rule)
_FRESH: Final = (Step.OFF, Step.GONE, Step.LOOK, Step.INIT, Step.INIT_AGAIN, Step.LANE_LOOK)


class Model:
    """All moves of a scenario.

    Args:
        scenario: who runs.
        without: a rule that is left out.
    """

    def __init__(self, scenario: Scenario, without: Rule | None = None) -> None:
        self._setting = Setting(scenario, ALL - {without})

    def first(self) -> State:
        """Return the state in which the scenario begins."""
        scenario, bits = self._setting.scenario, self._setting.scenario.enrolled
        written = tuple(Written(scenario.progress) if is_in(bits, p) else None for p in PARTITIONS)
        world = World(
            layout=Layout(1, 0, scenario.lanes, 0, ready=True),
            enrolled=bits,
            progress=written,
            visible=tuple(0 if each is None else each.offset for each in written),
        )
        drivers = []
        for number, plan in enumerate(scenario.drivers):
            match plan.begins:
                case Begins.LATER:
                    drivers.append(DriverState())
                case Begins.DEAD:
                    drivers.append(DriverState(Step.GONE))
                case Begins.LEADING:
                    drivers.append(DriverState(Step.LEAD, 1, enrolled=bits, confirmed=True))
                    world = world.with_txn(LEADER, Txn(owner=number))
        tasks = tuple(
            LaneState()
            if scenario.drivers[each.driver].begins is Begins.LATER
            else LaneState(Step.LANE_LOOK, 1)
            for each in scenario.tasks
        )
        return self._settled(State(world, tuple(drivers), tasks))

    def moves(self, state: State) -> Iterator[Move]:
        """Yield everything that can happen next.

        Raises:
            Violation: a guarantee does not hold on the way.
        """
        if state.world.layout.generation > LAST_GENERATION:
            return
        for text, after in self._all_moves(state):
            yield Move(text, self._settled(after))

    def _all_moves(self, state: State) -> Iterator[Move]:
        for txn_id in IDS:
            yield from self._cluster_moves(state, txn_id)
        world = state.world
        if self._setting.scenario.freezes and world.told is None:
            frozen = world._replace(told=(world.layout, world.enrolled))
            yield Move("another broker leads the state, the one before goes on answering", state.on(frozen))
        for number in range(len(state.drivers)):
            yield from driver_moves(self._setting, state, number)
        for number in range(len(state.tasks)):
            yield from lane_moves(self._setting, state, number)

    def is_done(self, state: State) -> bool:
        """Tell whether everything is copied, and nothing is open."""
        world, scenario = state.world, self._setting.scenario
        if world.layout.generation > LAST_GENERATION:
            return True
        return world.is_quiet() and all(
            world.visible[p] == world.offset(p) == scenario.records for p in range(scenario.partitions)
        )

    def check(self, state: State) -> None:
        """Compare progress with what is visible, where nothing is under way.

        Raises:
            Violation: they disagree.
        """
        world = state.world
        if not world.is_quiet():
            return
        for partition in range(self._setting.scenario.partitions):
            if is_in(world.enrolled, partition):
                if world.progress[partition] is None:
                    raise Violation("a partition is enrolled, and has no progress")
                if world.offset(partition) != world.visible[partition]:
                    raise Violation("progress and visible records disagree at rest")

    def _settled(self, state: State) -> State:
        """Forget what nobody will ever use: states that differ in nothing else are one."""
        for number, task in enumerate(state.tasks):
            if task.step is Step.GONE and task != (gone := LaneState(Step.GONE)):
                state = state._replace(tasks=put(state.tasks, number, gone))
        for number, driver in enumerate(state.drivers):
            if driver.step is Step.GONE and driver != (left := DriverState(Step.GONE)):
                state = state._replace(drivers=put(state.drivers, number, left))
        for txn_id, txn in enumerate(state.world.txns):
            if txn.owner != NOBODY and not txn.delayed and self._begins_anew(state, txn.owner):
                state = state.on(state.world.with_txn(txn_id, txn._replace(owner=NOBODY)))
        return state

    def _begins_anew(self, state: State, process: int) -> bool:
        """Tell whether a process has given up the epoch that it holds, and gets another one next."""
        task = task_of(process)
        step = state.drivers[process].step if task is None else state.tasks[task].step
        return step in _FRESH or (step is Step.LANE_INIT and self._setting.keeps(Rule.PROGRESS_AFTER_INIT))

    def _cluster_moves(self, state: State, txn_id: int) -> Iterator[Move]:
        txn, world = state.world.txns[txn_id], state.world
        name = "the leader's transaction" if txn_id == LEADER else f"the transaction of lane id {txn_id}"
        if txn.phase in (Phase.COMMITTING, Phase.ABORTING):
            for target in TARGETS:
                if txn.targets & target:
                    yield Move(f"{name} ends at target {target}", state.on(world.marker(txn_id, target)))
        if txn.phase is not Phase.OPEN:
            return
        orphaned = self._is_orphaned(state, txn_id)
        bound = self._setting.scenario.timeouts
        if orphaned or (
            (txn_id == LEADER or self._setting.scenario.lanes_time_out)
            and (bound is None or world.timed_out < bound)
        ):
            counted = 0 if orphaned or bound is None else 1
            ended = world.time_out(txn_id)._replace(timed_out=world.timed_out + counted)
            yield Move(f"{name} times out", state.on(ended))
        if txn.delayed:
            yield Move(f"the delayed commit of {name} arrives", state.on(world.commit(txn_id, txn.delayed)))

    def _is_orphaned(self, state: State, txn_id: int) -> bool:
        """Tell whether nobody will ever end the leader's transaction."""
        txn = state.world.txns[txn_id]
        if txn_id != LEADER:
            return False
        return txn.owner == NOBODY or bool(txn.delayed) or state.drivers[txn.owner].step is Step.GONE
