"""What a driver does: begin a generation, fence the older ones, enrol, and look again when it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.unit.model.scenario import (
    Dies,
    LaneState,
    Move,
    Moves,
    Role,
    Rule,
    Setting,
    State,
    Step,
    is_in,
    looks,
    process_of,
)
from tests.unit.model.world import (
    LEADER,
    NOBODY,
    STATE,
    Answer,
    Layout,
    Phase,
    Violation,
    World,
    Written,
    put,
)


def driver_moves(setting: Setting, state: State, number: int) -> Iterator[Move]:
    """Yield what may happen to a driver next."""
    driver, plan = state.drivers[number], setting.scenario.drivers[number]
    if driver.step is Step.GONE:
        return
    if plan.dies is not Dies.NEVER and driver.step is not Step.OFF and not driver.crashed:
        step = Step.OFF if plan.dies is Dies.ONCE else Step.GONE
        after = state._replace(
            drivers=put(state.drivers, number, type(driver)(step, lost=driver.lost, crashed=True))
        )
        yield Move(f"D{number} crashes", after)
    yield from _MOVES[driver.step](setting, state, number)


def _refused(setting: Setting, state: State, number: int) -> Move:
    """The id was taken, or its transaction timed out: both are answered alike."""
    step = Step.LOOK if setting.keeps(Rule.LAYOUT_DECIDES) else Step.GONE
    return Move(f"D{number} is refused", state.driver(number, step=step))


def _unknown(setting: Setting) -> Step:
    """What follows a commit whose outcome is not known."""
    return Step.LOOK if setting.keeps(Rule.UNCONFIRMED_IS_NEVER_RESUMED) else Step.INIT_AGAIN


def _in_transaction(
    setting: Setting, state: State, number: int, text: str, change: Callable[[], State]
) -> Iterator[Move]:
    answer = state.world.may_write(LEADER, number)
    if answer is Answer.FENCED:
        yield _refused(setting, state, number)
    elif answer is Answer.OK:
        yield Move(f"D{number} {text}", change())


def _commit(setting: Setting, state: State, number: int, done: Step, unknown: Step) -> Iterator[Move]:
    """EndTxn(commit): taken and answered, taken and the answer lost, or still on its way."""
    answer = state.world.may_write(LEADER, number)
    if answer is Answer.FENCED:
        yield _refused(setting, state, number)
        return
    if answer is Answer.CONCURRENT or state.world.txns[LEADER].phase is not Phase.OPEN:
        return
    driver = state.drivers[number]
    committed = state.on(state.world.commit(LEADER, driver.generation))
    yield Move(f"D{number} commits", committed.driver(number, step=done))
    if driver.lost or not setting.scenario.replies_get_lost:
        return
    yield Move(f"D{number} commits, the reply is lost", committed.driver(number, step=unknown, lost=1))
    txn = state.world.txns[LEADER]._replace(delayed=driver.generation)
    delayed = state.on(state.world.with_txn(LEADER, txn))
    yield Move(f"D{number} commits, the request is delayed", delayed.driver(number, step=unknown, lost=1))


def _off(setting: Setting, state: State, number: int) -> Iterator[Move]:
    yield Move(f"D{number} starts", state.driver(number, step=Step.INIT))


def _init(setting: Setting, state: State, number: int) -> Iterator[Move]:
    if state.world.txns[LEADER].phase in (Phase.OPEN, Phase.EMPTY):
        world, answer = state.world.init(LEADER, number)
        step = Step.READ if answer is Answer.OK else Step.INIT
        yield Move(f"D{number} InitProducerId", state.on(world).driver(number, step=step))


def _read(setting: Setting, state: State, number: int) -> Iterator[Move]:
    world, plan = state.world, setting.scenario.drivers[number]
    if plan.role is Role.TAKE:
        if world.layout_is_settled():
            yield Move(f"D{number} does nothing more", state.driver(number, step=Step.GONE))
        return
    step = Step.ANNOUNCE if setting.keeps(Rule.NOT_READY_BEFORE_FENCING) else Step.FENCE
    if plan.role is Role.SEED and not setting.keeps(Rule.SEED_AS_A_NEW_GENERATION):
        step = Step.SEED
    for how, layout, enrolled in looks(setting, world, Rule.START_READS_UP_TO_A_MARK):
        after = state.driver(
            number,
            step=step,
            generation=layout.generation + 1,
            fencing=0,
            fence_up_to=_bound(setting, layout),
            enrolled=enrolled,
            confirmed=False,
        )
        yield Move(f"D{number} reads the layout{how}", after)


def _bound(setting: Setting, layout: Layout) -> int:
    """Return below which number lane ids may still be held by somebody older."""
    if layout.ready or not setting.keeps(Rule.FENCE_WHAT_AN_UNREADY_START_LEFT):
        return layout.lanes
    early = 0 if setting.keeps(Rule.LANES_START_WHEN_READY) else layout.lanes
    return max(layout.fence_up_to, early)


def _announce(setting: Setting, state: State, number: int) -> Iterator[Move]:
    driver, plan = state.drivers[number], setting.scenario.drivers[number]
    ready = driver.step is Step.READY

    def change() -> State:
        wanted = Layout(driver.generation, number, plan.lanes, driver.fence_up_to, ready)
        world = state.world._replace(pending_layout=wanted).add(LEADER, STATE)
        return state.on(world).driver(number, step=Step.CONFIRM if ready else Step.ANNOUNCED)

    yield from _in_transaction(setting, state, number, f"writes the layout, ready {ready}", change)


def _announced(setting: Setting, state: State, number: int) -> Iterator[Move]:
    role = setting.scenario.drivers[number].role
    done = Step.FENCE if setting.keeps(Rule.NOT_READY_BEFORE_FENCING) else Step.READY
    if role is Role.SEED and not setting.keeps(Rule.SEED_FENCES_FIRST):
        done = Step.SEED
    if role is Role.START and not setting.keeps(Rule.LANES_START_WHEN_READY):
        done = Step.SPAWN
    yield from _commit(setting, state, number, done, _unknown(setting))


def _fence(setting: Setting, state: State, number: int) -> Iterator[Move]:
    driver, plan, world = state.drivers[number], setting.scenario.drivers[number], state.world
    promised = setting.keeps(Rule.NOT_READY_BEFORE_FENCING)
    if driver.fencing >= driver.fence_up_to:
        after = Step.READY if promised else Step.ANNOUNCE
        if plan.role is Role.SEED:
            after = Step.SEED if setting.keeps(Rule.SEED_FENCES_FIRST) else Step.GONE
        yield Move(f"D{number} has fenced all", state.driver(number, step=after, fencing=0))
        return
    lane = driver.fencing
    after_world, answer = world.init(lane, NOBODY)
    fencing = lane
    if answer is Answer.OK or not setting.keeps(Rule.FENCED_ON_OK_ONLY):
        fencing += 1
        if promised:
            newest = max(world.fenced_below[lane], driver.generation)
            after_world = after_world._replace(fenced_below=put(world.fenced_below, lane, newest))
    yield Move(f"D{number} fences lane id {lane}", state.on(after_world).driver(number, fencing=fencing))


def _confirm(setting: Setting, state: State, number: int) -> Iterator[Move]:
    done = Step.SPAWN if setting.keeps(Rule.LANES_START_WHEN_READY) else Step.LEAD
    yield from _commit(setting, state, number, done, _unknown(setting))


def _spawn(setting: Setting, state: State, number: int) -> Iterator[Move]:
    if setting.keeps(Rule.READY_IS_SEEN_BEFORE_LANES) and not state.world.layout_is_settled():
        return
    generation = state.drivers[number].generation
    step = Step.LEAD if setting.keeps(Rule.LANES_START_WHEN_READY) else Step.FENCE
    after = state.driver(number, step=step, confirmed=True)
    for task, plan in enumerate(setting.scenario.tasks):
        if plan.driver == number:
            world = _without(after.world, process_of(task))
            tasks = put(after.tasks, task, LaneState(Step.LANE_LOOK, generation))
            after = after._replace(world=world, tasks=tasks)
        elif state.tasks[task].generation == generation and state.tasks[task].step > Step.GONE:
            raise Violation("two drivers run lanes under one generation")
    yield Move(f"D{number} starts its lanes", after)


def _without(world: World, process: int) -> World:
    for txn_id, txn in enumerate(world.txns):
        if txn.owner == process:
            world = world.with_txn(txn_id, txn._replace(owner=NOBODY, delayed=0))
    return world


def _lead(setting: Setting, state: State, number: int) -> Iterator[Move]:
    if setting.scenario.drivers[number].role is Role.PUT:
        yield from _put(setting, state, number)
    elif setting.everything & ~state.drivers[number].enrolled:
        yield from _enrol(setting, state, number)
    elif state.world.txns[LEADER].owner != number:
        yield _refused(setting, state, number)


def _goes_on_unread(setting: Setting, state: State, number: int) -> bool:
    """Tell whether a refused leader just takes its id again: what one rule forbids."""
    fenced = state.world.may_write(LEADER, number) is Answer.FENCED
    return fenced and not setting.keeps(Rule.READ_AGAIN_BEFORE_ENROLLING)


def _enrol(setting: Setting, state: State, number: int) -> Iterator[Move]:
    missing = setting.everything & ~state.drivers[number].enrolled
    named = missing if setting.keeps(Rule.ENROL_WITHOUT_PROGRESS_ONLY) else setting.everything
    if _goes_on_unread(setting, state, number):
        if state.world.txns[LEADER].phase in (Phase.OPEN, Phase.EMPTY):
            yield Move(f"D{number} InitProducerId", state.on(state.world.init(LEADER, number)[0]))
        return

    def change() -> State:
        world = state.world._replace(pending_enrolment=named).add(LEADER, STATE)
        return state.on(world).driver(number, step=Step.ENROL)

    yield from _in_transaction(setting, state, number, "writes an enrolment", change)


def _enrol_progress(setting: Setting, state: State, number: int) -> Iterator[Move]:
    if _goes_on_unread(setting, state, number):
        yield Move(f"D{number} is refused", state.driver(number, step=Step.LEAD))
        return

    def change() -> State:
        world = state.world
        for partition in range(setting.scenario.partitions):
            if is_in(world.pending_enrolment, partition):
                world = world.commit_offset(LEADER, partition, Written(0))
        return state.on(world).driver(number, step=Step.ENROLLED)

    yield from _in_transaction(setting, state, number, "writes first progress", change)


def _enrolled(setting: Setting, state: State, number: int) -> Iterator[Move]:
    if setting.scenario.drivers[number].role is Role.PUT:
        yield from _commit(setting, state, number, Step.GONE, Step.GONE)
        return
    if _goes_on_unread(setting, state, number):
        yield Move(f"D{number} is refused", state.driver(number, step=Step.LEAD))
        return
    for move in _commit(setting, state, number, Step.LEAD, Step.LOOK):
        if move.state.drivers[number].step is Step.LEAD:
            yield Move(move.text, move.state.driver(number, enrolled=setting.everything))
        else:
            yield move


def _put(setting: Setting, state: State, number: int) -> Iterator[Move]:
    """Whoever leads moves a partition beside its lane: never done, unless the rule is left out."""
    if setting.keeps(Rule.PROGRESS_IS_THE_LANES) or state.world.progress[0] is None:
        return

    def change() -> State:
        world = state.world.commit_offset(LEADER, 0, Written(setting.scenario.seeded, seeded=True))
        return state.on(world).driver(number, step=Step.ENROLLED)

    yield from _in_transaction(setting, state, number, "moves partition 0", change)


def _seed(setting: Setting, state: State, number: int) -> Iterator[Move]:
    def change() -> State:
        world = state.world
        for partition in range(setting.scenario.partitions):
            if is_in(state.drivers[number].enrolled, partition):
                world = world.commit_offset(LEADER, partition, Written(setting.scenario.seeded, seeded=True))
        return state.on(world).driver(number, step=Step.SEEDED)

    yield from _in_transaction(setting, state, number, "writes seeded progress", change)


def _seeded(setting: Setting, state: State, number: int) -> Iterator[Move]:
    done = Step.GONE if setting.keeps(Rule.SEED_FENCES_FIRST) else Step.FENCE
    yield from _commit(setting, state, number, done, Step.GONE)


def _look(setting: Setting, state: State, number: int) -> Iterator[Move]:
    """After a refusal, or without an answer: the layout says who runs, and no id is touched for it."""
    driver = state.drivers[number]
    for how, layout, _ in looks(setting, state.world, None):
        anothers = layout.generation == driver.generation and layout.run != number
        step = Step.INIT_AGAIN if driver.confirmed else Step.INIT
        if layout.generation > driver.generation or anothers:
            step = Step.GONE
        yield Move(f"D{number} looks who leads{how}", state.driver(number, step=step))


def _init_again(setting: Setting, state: State, number: int) -> Iterator[Move]:
    world, answer = state.world.init(LEADER, number)
    step = Step.READ_AGAIN
    if answer is not Answer.OK:
        step = Step.LOOK if setting.keeps(Rule.UNCONFIRMED_IS_NEVER_RESUMED) else Step.INIT_AGAIN
    yield Move(f"D{number} InitProducerId again", state.on(world).driver(number, step=step))


def _read_again(setting: Setting, state: State, number: int) -> Iterator[Move]:
    driver, world = state.drivers[number], state.world
    if driver.confirmed:
        for how, layout, there in looks(setting, world, Rule.START_READS_UP_TO_A_MARK):
            mine = layout.generation == driver.generation and layout.run == number
            step, enrolled = (Step.LEAD, there) if mine else (Step.GONE, driver.enrolled)
            yield Move(f"D{number} reads again{how}", state.driver(number, step=step, enrolled=enrolled))
        return
    if not world.layout_is_settled():
        return
    layout = world.layout
    # Only where unconfirmed generations are resumed: what has this number is taken for one's own.
    step = Step.READ if layout.generation < driver.generation else Step.GONE
    if layout.generation == driver.generation:
        step = Step.SPAWN if layout.ready else Step.FENCE
    yield Move(f"D{number} takes it for its own", state.driver(number, step=step, fencing=0))


_MOVES: Final[dict[Step, Moves]] = {
    Step.OFF: _off,
    Step.LOOK: _look,
    Step.INIT: _init,
    Step.READ: _read,
    Step.ANNOUNCE: _announce,
    Step.ANNOUNCED: _announced,
    Step.FENCE: _fence,
    Step.READY: _announce,
    Step.CONFIRM: _confirm,
    Step.SPAWN: _spawn,
    Step.LEAD: _lead,
    Step.ENROL: _enrol_progress,
    Step.ENROLLED: _enrolled,
    Step.SEED: _seed,
    Step.SEEDED: _seeded,
    Step.INIT_AGAIN: _init_again,
    Step.READ_AGAIN: _read_again,
}
