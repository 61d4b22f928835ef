"""What may happen to a flow, its clusters and its topics: at a moment of its own, and undone again.

A nemesis that ends in a stop says which one: a stop that is missing is as wrong as one that nobody expects.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions
from kafka.protocol.admin import AlterClientQuotasRequest

from onceover.state.steps import Step
from tests.chaos.checker import Place
from tests.chaos.clients import Steady
from tests.chaos.history import History
from tests.chaos.reading import read
from tests.chaos.sparkrun import SparkRun
from tests.chaos.world import DOOMED, TIMEOUT_S, Shape, Side, World
from tests.support.brokers.proxy import Temper
from tests.support.raw.rawkafka import RawConnection
from tests.support.session.wait import wait_until

Nemesis = Callable[[World], None]

# A lane's transaction lives for 15 s.
_PAST_ITS_TRANSACTION_S: Final = (15.5, 17.0)
_CLOCK_JUMPS_S: Final = (-86_400.0, -60.0, -2.0, 3.0, 90.0, 7200.0)
_STEP_S: Final = 8.0
STEPS: Final = (
    Step.LAYOUT_COMMIT,
    Step.FENCE_LANE,
    Step.READY_COMMIT,
    Step.LANE_INIT,
    Step.CLAIM_COMMIT,
    Step.DATA_SENT,
    Step.DATA_ACKED,
    Step.MAP_SENT,
    Step.PROGRESS_SENT,
    Step.COMMIT,
    Step.COMMITTED,
)
_SLOW_BYTES: Final = 30_000.0
_MOST_PARTITIONS: Final = 8
# Above what is written already, below what the next index file takes.
_FULL_BYTES: Final = 64 << 10
# Some requests, or some part of a large answer.
_TORN_BYTES: Final = 60_000
_DOOMED_BATCHES: Final = 20


def kill_copy(world: World) -> None:
    for process in world.processes:
        process.kill()


def pause_copy(world: World) -> None:
    world.pause_flow(0.05, 3.0)


def pause_copy_past_its_transaction(world: World) -> None:
    world.pause_flow(*_PAST_ITS_TRANSACTION_S)


def pause_copy_while_another_starts(world: World) -> None:
    frozen = world.alive()
    for process in frozen:
        process.child.pause()
    world.start()
    world.let_it_run(0.5, 5.0)
    for process in frozen:
        process.child.resume()


def freeze_at_a_step_while_another_starts(world: World) -> None:
    """Where it hurts: with data sent and no progress, with a commit on its way, in the middle of a start."""
    old = world.start_lanes(pause_at=world.rng.choice(STEPS).name, kill_count=world.rng.randint(1, 4))
    _await(lambda: not old.child.alive or old.paused)
    world.start()
    world.let_it_run(2.0, 6.0)
    old.child.resume()


def kill_at_a_step(world: World) -> None:
    """Likewise, for good."""
    old = world.start_lanes(kill_at=world.rng.choice(STEPS).name, kill_count=world.rng.randint(1, 4))
    _await(lambda: not old.child.alive)


def _await(condition: Callable[[], bool]) -> None:
    # Not every step is come to in every run.
    with suppress(TimeoutError):
        wait_until(condition, _STEP_S, "it comes to its step")


def launch_twice(world: World) -> None:
    world.start()
    world.start()


def kill_worker(world: World) -> None:
    """Spark runs the lane's task again."""
    for worker in _some(world, SparkRun.workers):
        worker.kill()


def freeze_worker(world: World) -> None:
    _freeze(world, SparkRun.workers)


def kill_driver(world: World) -> None:
    for driver in _some(world, SparkRun.drivers):
        driver.kill()


def freeze_driver(world: World) -> None:
    _freeze(world, SparkRun.drivers)


def kill_jvm(world: World) -> None:
    """The Python driver ends what the workers left open."""
    for jvm in _some(world, SparkRun.jvms):
        jvm.kill()


def freeze_jvm(world: World) -> None:
    _freeze(world, SparkRun.jvms)


def forget(world: World) -> None:
    """Checkpoints and receipts are hints."""
    kill_copy(world)
    for folder in ("checkpoint", "receipts"):
        shutil.rmtree(world.home / world.path.stem / folder, ignore_errors=True)


def _some(world: World, part: Callable[[SparkRun], list[psutil.Process]]) -> list[psutil.Process]:
    """Return one process, of whichever run; none if there is none before long."""

    def there() -> list[psutil.Process]:
        return [process for run in world.alive() if isinstance(run, SparkRun) for process in part(run)]

    _await(lambda: bool(there()))
    found = there()
    return [world.rng.choice(found)] if found else []


def _freeze(world: World, part: Callable[[SparkRun], list[psutil.Process]]) -> None:
    frozen = _some(world, part)
    for process in frozen:
        process.suspend()
    world.let_it_run(*world.rng.choice([(0.5, 5.0), _PAST_ITS_TRANSACTION_S]))
    for process in frozen:
        process.resume()


def stop_and_start(world: World) -> None:
    world.end_flow()
    world.start()


def clock_jumps(world: World) -> None:
    world.clock.write_text(str(world.rng.choice(_CLOCK_JUMPS_S)))
    world.let_it_run(0.5, 3.0)


def _one_side(world: World) -> Side:
    side = world.rng.choice([world.source, world.target])
    world.history.note("side", name=side.name)
    return side


def kill_broker(world: World) -> None:
    """With three, its leaders and coordinators move."""
    node = world.rng.choice(_one_side(world).cluster.nodes)
    node.kill()
    world.let_it_run(0.1, 3.0)
    node.start()


def restart_broker(world: World) -> None:
    """In order: it hands over what it leads."""
    node = world.rng.choice(_one_side(world).cluster.nodes)
    node.stop()
    node.start()


def freeze_broker(world: World) -> None:
    node = world.rng.choice(_one_side(world).cluster.nodes)
    node.pause()
    world.let_it_run(0.5, 8.0)
    node.resume()


def kill_both_sides(world: World) -> None:
    nodes = [side.cluster.nodes[0] for side in (world.source, world.target)]
    for node in nodes:
        node.kill()
    world.let_it_run(0.1, 1.0)
    for node in nodes:
        node.start()


def move_leaders(world: World) -> None:
    """Back to where they belong, after others have been killed."""
    side = _one_side(world)
    found = side.admin.list_topics(timeout=TIMEOUT_S).topics
    wanted = [TopicPartition(name, number) for name, topic in found.items() for number in topic.partitions]
    side.admin.elect_leaders(ElectionType.PREFERRED, wanted).result(TIMEOUT_S)


def cut_network(world: World) -> None:
    for _ in range(world.rng.randint(1, 4)):
        _proxy(world).cut()
        world.let_it_run(0.05, 0.5)


def lose_bytes(world: World) -> None:
    """A lost packet that nobody sends again: connections break anywhere in a frame, the next ones as well."""
    proxy = _proxy(world)
    proxy.tear(lambda: world.rng.randrange(1, _TORN_BYTES))
    world.let_it_run(0.5, 4.0)
    proxy.tear(None)


def slow_network(world: World) -> None:
    proxy = _proxy(world)
    proxy.delay_s = world.rng.uniform(0.01, 0.3)
    world.let_it_run(1.0, 4.0)
    proxy.delay_s = 0.0


def part_network(world: World) -> None:
    """Nothing gets through, in both directions, and then everything does again."""
    proxy = _proxy(world)
    proxy.refusing = True
    proxy.cut()
    world.let_it_run(0.5, 6.0)
    proxy.refusing = False


def swallow_everything(world: World) -> None:
    """The host is dead: what is open never ends, what comes later gets through."""
    _proxy(world).treat(Temper.SWALLOW)
    world.let_it_run(0.5, 3.0)


def swallow_answers(world: World) -> None:
    """What was asked for is done, and nobody hears of it."""
    _proxy(world).treat(Temper.SWALLOW_ANSWERS)
    world.let_it_run(0.5, 3.0)


def hold_back(world: World) -> None:
    """Everything is late, and in order."""
    proxy = _proxy(world)
    proxy.treat(Temper.HOLD, later=Temper.HOLD)
    world.let_it_run(0.5, 6.0)
    proxy.treat(Temper.FORWARD)


def _proxy(world: World) -> Any:
    return _one_side(world).proxy


def throttle(world: World) -> None:
    """A quota: answers of the target, or the records of the source, are held back."""
    side = _one_side(world)
    quota = "producer_byte_rate" if side is world.target else "consumer_byte_rate"
    _quota(side, quota, _SLOW_BYTES)
    world.let_it_run(1.0, 4.0)
    _quota(side, quota, None)


def _quota(side: Side, quota: str, rate: float | None) -> None:
    entry = AlterClientQuotasRequest.EntryData
    wanted = entry(
        entity=[entry.EntityData(entity_type="client-id", entity_name=None)],
        ops=[entry.OpData(key=quota, value=rate or 0.0, remove=rate is None)],
    )
    with RawConnection(side.inside) as connection:
        connection.call(AlterClientQuotasRequest(version=0, entries=[wanted], validate_only=False))


def fill_disk(world: World) -> None:
    """No file of the target's broker grows: it gives up its log directory, and comes back with more room."""
    node = world.rng.choice(world.target.cluster.nodes)
    process = psutil.Process(node.pid)
    largest = max(path.stat().st_size for path in node.data.rglob("*.log"))
    process.rlimit(psutil.RLIMIT_FSIZE, (largest + _FULL_BYTES, psutil.RLIM_INFINITY))
    world.let_it_run(1.0, 4.0)
    node.kill()
    node.start()


def grow_topic(world: World) -> None:
    topic = world.rng.choice(sorted(world.partitions))
    if world.partitions[topic] < _MOST_PARTITIONS:
        count = world.partitions[topic] + 1
        world.source.admin.create_partitions([NewPartitions(topic, count)])[topic].result(TIMEOUT_S)
        world.partitions[topic] = count


def delete_what_is_copied(world: World) -> None:
    """Retention takes records of which the target has told that it holds them."""
    topic = world.rng.choice(sorted(world.partitions))
    here = [Place(topic, number) for number in range(world.partitions[topic])]
    # First what is copied: all of it is among what is read afterwards.
    copied = world.look()
    before = read(world.source.inside, here)
    cut = {place: copied[place] for place in here if copied.get(place)}
    for place in cut:
        _remember(world, place, before[place])
    _delete_before(world, cut)


def overtake(world: World) -> None:
    """Retention takes records that were not copied: their partition stops."""
    place = _doomed(world)
    world.end_flow()
    _write(world, place.topic)
    before = read(world.source.inside, [place])[place]
    last = before[-1].offset
    _remember(world, place, before)
    _delete_before(world, {place: last})
    world.expected_stops[place.topic] = "SOURCE_TRUNCATED"
    world.half_done.discard(place)
    world.start()


def recreate_topic(world: World) -> None:
    """Another topic of the same name: not a record of it belongs behind those of the first."""
    place = _doomed(world)
    _remember(world, place, read(world.source.inside, [place])[place])
    world.anew.add(place)
    world.source.admin.delete_topics([place.topic])[place.topic].result(TIMEOUT_S)
    world.source.create(place.topic, 1)
    # Of these nothing may ever be copied: nobody expects them.
    unheard = History(Path(os.devnull))
    _write(world, place.topic, unheard)
    unheard.close()
    world.expected_stops[place.topic] = "SOURCE_RECREATED"
    world.half_done.discard(place)


def _doomed(world: World) -> Place:
    """Create a topic, write into it, and see some of it copied."""
    place = Place(f"{DOOMED}-{next(world.serial)}", 0)
    world.source.create(place.topic, 1)
    world.doomed.add(place)
    world.half_done.add(place)
    _write(world, place.topic)

    def copied() -> bool:
        if not world.alive():
            world.start()
        return world.look().get(place, 0) > 0

    wait_until(copied, TIMEOUT_S, f"{place.topic} is copied", poll_s=0.3)
    return place


def _write(world: World, topic: str, history: History | None = None) -> None:
    """Write some records into a topic, and wait until all of them are acknowledged."""
    name, seed = f"d{next(world.serial)}", world.rng.randrange(1 << 30)
    Steady(name, world.source.inside, history or world.history, {topic: 1}, seed).write(_DOOMED_BATCHES)


def _remember(world: World, place: Place, entries: Any) -> None:
    """Keep what the source held: the judge cannot read it later."""
    known = world.gone.setdefault(place, [])
    last = known[-1].offset if known else -1
    known += [entry for entry in entries if entry.offset > last]


def _delete_before(world: World, offsets: Mapping[Place, int]) -> None:
    wanted = [TopicPartition(place.topic, place.partition, offset) for place, offset in offsets.items()]
    for future in world.source.admin.delete_records(wanted).values():
        future.result(TIMEOUT_S)


ANYWHERE: Final[tuple[Nemesis, ...]] = (
    kill_copy,
    pause_copy,
    pause_copy_past_its_transaction,
    pause_copy_while_another_starts,
    launch_twice,
    stop_and_start,
    kill_broker,
    restart_broker,
    freeze_broker,
    throttle,
    fill_disk,
    grow_topic,
    delete_what_is_copied,
)
# For runs that start at once, and whose steps and clock are in the hands of the test.
LANES: Final[tuple[Nemesis, ...]] = (
    freeze_at_a_step_while_another_starts,
    kill_at_a_step,
    clock_jumps,
    overtake,
    recreate_topic,
)
SPARK: Final[tuple[Nemesis, ...]] = (
    kill_worker,
    freeze_worker,
    kill_driver,
    freeze_driver,
    kill_jvm,
    freeze_jvm,
    forget,
)
PROXIED: Final[tuple[Nemesis, ...]] = (
    cut_network,
    lose_bytes,
    slow_network,
    part_network,
    swallow_everything,
    swallow_answers,
    hold_back,
    kill_both_sides,
)
MANY: Final[tuple[Nemesis, ...]] = (move_leaders,)


def of(shape: Shape) -> tuple[Nemesis, ...]:
    """Return the nemeses that a shape allows; of Spark's own, one of two is drawn."""
    if shape.spark:
        others = (*ANYWHERE, *PROXIED)
        return (*others, *SPARK * (len(others) // len(SPARK)))
    allowed = (*ANYWHERE, *LANES, *(PROXIED if shape.proxied else MANY))
    # Who makes tokens by a wrong clock is not let in, and should not be.
    return tuple(n for n in allowed if not (n is clock_jumps and shape.mechanism == "OAUTHBEARER"))


# What a nemesis may meet because another one is not over yet, or because a broker is away.
PASSING: Final = (KafkaException, OSError, psutil.NoSuchProcess)
