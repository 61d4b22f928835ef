"""What a lane's task does: look, own its id, look again, read its progress, copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.unit.model.scenario import (
    Move,
    Moves,
    Rule,
    Setting,
    State,
    Step,
    is_in,
    looks,
    process_of,
    task_of,
)
from tests.unit.model.world import DATA, PARTITIONS, STATE, Answer, Layout, Phase, Violation, World, Written

_OFFSETS: Final = 4
_STOP: Final = 8
_DISTURBED_TOO_OFTEN: Final = 3
_SENT: Final = (
    (DATA[0], "data of partition 0"),
    (DATA[1], "data of partition 1"),
    (_OFFSETS, "progress"),
    (_STOP, "a stop"),
)


def lane_moves(setting: Setting, state: State, number: int) -> Iterator[Move]:
    """Yield what may happen to a lane's task next."""
    task, plan = state.tasks[number], setting.scenario.tasks[number]
    if task.step in (Step.OFF, Step.GONE):
        return
    name = _name(setting, number)
    if state.drivers[plan.driver].step is Step.GONE:
        yield Move(f"{name} ends with its driver", state.forget(number, Step.GONE))
    if setting.scenario.lanes_reset and task.step is not Step.LANE_LOOK:
        yield Move(f"{name} dies and begins again", state.forget(number, Step.LANE_LOOK))
    for text, after in _MOVES[task.step](setting, state, number):
        yield Move(f"{name} {text}", after)


def _name(setting: Setting, number: int) -> str:
    plan = setting.scenario.tasks[number]
    return f"lane {plan.lane}/{plan.lanes} of D{plan.driver} (instance {plan.instance})"


def _owned(setting: Setting, number: int, bits: int) -> int:
    plan = setting.scenario.tasks[number]
    own = (p for p in range(setting.scenario.partitions) if p % plan.lanes == plan.lane and is_in(bits, p))
    return sum(1 << partition for partition in own)


def _is_mine(setting: Setting, state: State, number: int, layout: Layout) -> bool:
    early = not setting.keeps(Rule.LANES_START_WHEN_READY)
    return layout.generation == state.tasks[number].generation and (layout.ready or early)


def _look(setting: Setting, state: State, number: int) -> Iterator[Move]:
    """The first look needs not wait for open transactions: the second one does.

    Told of a layout before its own it looks again; told that its own is not ready, it would end for nothing,
    and do no harm: that is left out.
    """
    world = state.world
    told = world.told is not None and _is_mine(setting, state, number, world.told[0])
    is_mine = _is_mine(setting, state, number, world.layout)
    if not is_mine:
        yield Move("sees another layout", state.forget(number, Step.GONE))
    if not is_mine and not told:
        return
    if setting.keeps(Rule.PROGRESS_AFTER_INIT):
        yield Move("looks at the layout", state.forget(number, Step.LANE_INIT))
    else:
        enrolled = _owned(setting, number, state.world.enrolled)
        after = state.forget(number, Step.LANE_FETCH).task(number, enrolled=enrolled)
        yield Move("looks at the layout", after)


def _init(setting: Setting, state: State, number: int) -> Iterator[Move]:
    lane, me = setting.scenario.tasks[number].lane, process_of(number)
    looks_first = setting.keeps(Rule.LOOK_BEFORE_EACH_INIT)
    txn = state.world.txns[lane]
    if txn.phase not in (Phase.OPEN, Phase.EMPTY) and not looks_first:
        return
    world, answer = state.world.init(lane, me)
    after = state.on(_counted(setting, state, number, world))
    if answer is Answer.OK:
        after = after.task(number, step=Step.LANE_LOOK_AGAIN)
    elif looks_first:
        after = after.forget(number, Step.LANE_LOOK)
    yield Move("InitProducerId", after)


def _counted(setting: Setting, state: State, number: int, world: World) -> World:
    """Count how often an older task ends what a newer one holds that has written already."""
    plan = setting.scenario.tasks[number]
    holder = task_of(state.world.txns[plan.lane].owner)
    if not setting.scenario.counts_disturbance or holder is None:
        return world
    newer = state.tasks[holder].generation, setting.scenario.tasks[holder].instance
    claimed = any(each is not None and each[1:3] == newer for each in world.progress)
    if newer <= (state.tasks[number].generation, plan.instance) or (newer[1] and not claimed):
        return world
    if world.disturbed + 1 == _DISTURBED_TOO_OFTEN:
        raise Violation("an older task ends the newer one's transactions again and again")
    return world._replace(disturbed=world.disturbed + 1)


def _look_again(setting: Setting, state: State, number: int) -> Iterator[Move]:
    world, is_left_out = state.world, not setting.keeps(Rule.SECOND_LOOK)
    found = looks(setting, world, Rule.LANE_READS_UP_TO_A_MARK)
    if is_left_out or not setting.keeps(Rule.SECOND_LOOK_TO_THE_HIGH_WATERMARK):
        found = iter([("", world.layout, world.enrolled)])
    for how, layout, enrolled in found:
        if not is_left_out and not _is_mine(setting, state, number, layout):
            after = state.forget(number, Step.GONE)
            yield Move(f"sees another layout after InitProducerId{how}", after)
        elif setting.keeps(Rule.PROGRESS_AFTER_INIT):
            owned = _owned(setting, number, enrolled)
            yield Move(f"looks again{how}", state.task(number, step=Step.LANE_FETCH, enrolled=owned))
        else:
            yield Move(f"looks again{how}", state.task(number, step=Step.LANE_IDLE))


def _fetch(setting: Setting, state: State, number: int) -> Iterator[Move]:
    task, world = state.tasks[number], state.world
    new = task.step is Step.LANE_FETCH_NEW
    wanted = task.todo if new else task.enrolled
    partitions = [p for p in range(setting.scenario.partitions) if is_in(wanted, p)]
    if setting.keeps(Rule.STABLE_PROGRESS) and any(world.pending[p] for p in partitions):
        return
    if any(world.progress[p] is None for p in partitions):
        raise Violation("a lane stops: enrolled, and no progress")
    if not new and any(_is_overtaken(setting, state, number, world.progress[p]) for p in partitions):
        yield Move("sees a newer instance", state.forget(number, Step.GONE))
        return
    positions = tuple((world.offset(p) or 0) if p in partitions else task.positions[p] for p in PARTITIONS)
    ready = setting.keeps(Rule.PROGRESS_AFTER_INIT) or new
    step = Step.LANE_IDLE if ready else Step.LANE_INIT
    after = state.task(number, step=step, enrolled=task.enrolled | wanted, positions=positions, todo=0)
    yield Move("reads its progress", after)


def _is_overtaken(setting: Setting, state: State, number: int, written: Written | None) -> bool:
    plan, generation = setting.scenario.tasks[number], state.tasks[number].generation
    if written is None or not plan.instance or not setting.keeps(Rule.NEWER_INSTANCE_WINS):
        return False
    within = setting.keeps(Rule.INSTANCES_WITHIN_A_GENERATION)
    return (written.generation == generation or not within) and written.instance > plan.instance


def _idle(setting: Setting, state: State, number: int) -> Iterator[Move]:
    task, scenario = state.tasks[number], setting.scenario
    ahead = (
        p
        for p in range(scenario.partitions)
        if is_in(task.enrolled, p) and task.positions[p] < scenario.records
    )
    if task.enrolled:
        for batch in _subsets(sum(1 << p for p in ahead)):
            after = state.task(number, batch=batch, todo=batch | _OFFSETS, step=Step.LANE_WRITE)
            yield Move(f"begins a transaction over partitions {batch:b}", after)
        if scenario.stops and not state.world.stops_open:
            after = state.task(number, batch=0, todo=_OFFSETS | _STOP, step=Step.LANE_WRITE)
            yield Move("begins a transaction with a stop", after)
    grown = _owned(setting, number, state.world.enrolled) & ~task.enrolled
    if grown and state.world.layout_is_settled():
        yield Move("sees new partitions", state.task(number, step=Step.LANE_FETCH_NEW, todo=grown))


def _write(setting: Setting, state: State, number: int) -> Iterator[Move]:
    task, lane = state.tasks[number], setting.scenario.tasks[number].lane
    answer = state.world.may_write(lane, process_of(number))
    if answer is Answer.FENCED:
        yield Move("is refused", state.forget(number, Step.LANE_LOOK))
    if answer is not Answer.OK:
        return
    for bit, what in _SENT:
        if task.todo & bit:
            yield Move(f"sends {what}", _sent(setting, state, number, bit))


def _sent(setting: Setting, state: State, number: int, bit: int) -> State:
    task, lane, world = state.tasks[number], setting.scenario.tasks[number].lane, state.world
    if bit == _STOP:
        beside = not setting.keeps(Rule.STOPS_BESIDE_THE_LAYOUT)
        world = world._replace(stops_open=1 << lane if beside else 0).add(lane, STATE)
    elif bit == _OFFSETS:
        world = _with_progress(setting, state, number)
    else:
        partition = DATA.index(bit)
        world = world.produce(lane, partition, task.positions[partition])
    todo = task.todo & ~bit
    return state.on(world).task(number, todo=todo, step=task.step if todo else Step.LANE_COMMIT)


def _with_progress(setting: Setting, state: State, number: int) -> World:
    task, plan, world = state.tasks[number], setting.scenario.tasks[number], state.world
    for partition in range(setting.scenario.partitions):
        if is_in(task.enrolled, partition) and (not task.batch or is_in(task.batch, partition)):
            offset = task.positions[partition] + is_in(task.batch, partition)
            kept = (task.generation, plan.instance) if plan.instance else (0, 0)
            world = world.commit_offset(plan.lane, partition, Written(offset, *kept))
    return world


def _commit(setting: Setting, state: State, number: int) -> Iterator[Move]:
    lane, task = setting.scenario.tasks[number].lane, state.tasks[number]
    answer = state.world.may_write(lane, process_of(number))
    if answer is Answer.FENCED:
        yield Move("is refused", state.forget(number, Step.LANE_LOOK))
        return
    if answer is not Answer.OK or state.world.txns[lane].phase is not Phase.OPEN:
        return
    committed = state.on(state.world.commit(lane, task.generation))
    positions = tuple(task.positions[p] + is_in(task.batch, p) for p in PARTITIONS)
    yield Move("commits", committed.task(number, positions=positions, batch=0, step=Step.LANE_IDLE))
    if not setting.scenario.replies_get_lost:
        return
    yield Move("commits, the reply is lost", committed.forget(number, Step.LANE_LOOK))
    txn = state.world.txns[lane]._replace(delayed=task.generation)
    delayed = state.on(state.world.with_txn(lane, txn)).forget(number, Step.LANE_LOOK)
    yield Move("commits, the request is delayed", delayed)


def _subsets(bits: int) -> Iterator[int]:
    each = bits
    while True:
        yield each
        if not each:
            return
        each = (each - 1) & bits


_MOVES: Final[dict[Step, Moves]] = {
    Step.LANE_LOOK: _look,
    Step.LANE_INIT: _init,
    Step.LANE_LOOK_AGAIN: _look_again,
    Step.LANE_FETCH: _fetch,
    Step.LANE_FETCH_NEW: _fetch,
    Step.LANE_IDLE: _idle,
    Step.LANE_WRITE: _write,
    Step.LANE_COMMIT: _commit,
}
