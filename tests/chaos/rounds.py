"""Rounds of chaos, and their verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onceover.state import names
from onceover.wire.offsetmap import decode_map_key, decode_map_value
from onceover.wiring.groups import GroupRequest
from tests.chaos import nemeses
from tests.chaos.checker import (
    Anomaly,
    Entry,
    Facts,
    Fate,
    GroupAt,
    Kind,
    Place,
    Written,
    check,
    unkept,
)
from tests.chaos.reading import committed, places, read, starts, with_producers
from tests.chaos.world import FLOW, World
from tests.support.flows.feeds import held
from tests.support.flows.flows import InlineFlow
from tests.support.flows.groups import commit
from tests.support.flows.operations import apply_groups

ACTIONS: Final = (2, 4)
_GROUPS: Final = 3


@dataclass
class Tally:
    """What was done in all rounds."""

    rounds: int = 0
    records: int = 0
    positions: int = 0
    anomalies: int = 0
    source_lost: int = 0
    faults: Counter[str] = field(default_factory=Counter)


class AnomalousError(AssertionError):
    """Something happened that must not."""

    def __init__(self, found: list[Anomaly], world: World) -> None:
        lines = "\n".join(str(anomaly) for anomaly in found)
        super().__init__(f"{lines}\nhistory: {world.history.path}")


def play(world: World, tally: Tally) -> None:
    """Play one round: faults at random moments while clients send, then peace, then the verdict.

    Raises:
        AnomalousError: with everything that the checker found.
    """
    world.start()
    world.begin()
    allowed = nemeses.of(world.shape)
    if world.shape.spark:
        world.await_copying()
    for _ in range(world.rng.randint(*ACTIONS)):
        world.let_it_run(*world.shape.between_s)
        nemesis = world.rng.choice(allowed)
        world.history.note("nemesis", name=nemesis.__name__)
        try:
            nemesis(world)
        except nemeses.PASSING as error:
            world.history.note("passing", error=str(error))
        else:
            tally.faults[nemesis.__name__] += 1
        if not world.alive():
            world.start()
    settle(world)
    judge(world, tally)


def settle(world: World) -> None:
    """Undo every fault, end clients and processes, and let a last, undisturbed run copy what is there."""
    world.history.note("peace")
    world.source.heal()
    world.target.heal()
    world.clock.write_text("0")
    world.end()
    world.history.note("clients ended")
    world.end_flow()
    world.history.note("flow ended")
    InlineFlow(world.path).copy()
    world.look()
    world.history.note("copied")


def judge(world: World, tally: Tally) -> None:
    """Hold everything that is known against what both sides hold."""
    facts = gather(world)
    found = check(facts)
    stops = {
        entry["topic"]: entry["stop"]["code"]
        for entry in InlineFlow(world.path).status()["partitions"]
        if entry["state"] == "stopped"
    }
    world.history.note("judged", anomalies=[str(anomaly) for anomaly in found], stops=stops)
    if found:
        world.keep(f"kept-{len(world.looks)}")
    copied_wrong = [anomaly for anomaly in found if anomaly.kind is not Kind.BROKER]
    tally.anomalies += len(copied_wrong)
    if copied_wrong:
        raise AnomalousError(found, world)
    for place in world.half_done:
        stops.pop(place.topic, None)
    assert stops.items() <= world.expected_stops.items(), world.history.path
    assert must_stop(world) <= stops.keys(), world.history.path
    if found:
        # Known of Kafka (docs/reliability.md). The next rounds need not tell it again.
        world.history.became(Fate.UNKNOWN, unkept(facts))
        tally.source_lost += 1
        return
    tally.rounds += 1
    tally.records = sum(map(len, facts.target.values()))
    tally.positions += len(facts.groups)


def must_stop(world: World) -> set[str]:
    """Return the topics that cannot be but stopped.

    What was deleted is back if its broker was killed before it wrote down that it was.
    """
    cut = [Place(topic, 0) for topic, code in world.expected_stops.items() if code == "SOURCE_TRUNCATED"]
    first, progress = starts(world.source.inside, cut), world.looks[-1]
    return world.expected_stops.keys() - {p.topic for p in cut if first[p] <= progress[p]}


def gather(world: World) -> Facts:
    """Read both sides."""
    busy = [Place(topic, number) for topic, count in world.partitions.items() for number in range(count)]
    known = {*busy, *(world.doomed - world.anew)}
    source: dict[Place, list[Entry]] = read(world.source.inside, sorted(known))
    for place, entries in world.gone.items():
        last = entries[-1].offset if entries else -1
        source[place] = [*entries, *(entry for entry in source.get(place, ()) if entry.offset > last)]
    there = [Place(topic, n) for topic, count in places(world.target.inside).items() for n in range(count)]
    target = with_producers(world.target.inside, read(world.target.inside, there))
    return Facts(
        source=source,
        target=target,
        sent={n: s for n, s in world.history.sent.items() if s.place not in world.hanging},
        progress=world.looks,
        written=written(world),
        groups=carried(world, source),
        repeats=world.delivery != "exactly_once",
    )


def written(world: World) -> dict[Place, list[Written]]:
    """Return what the offset map tells of each partition."""
    client = {"bootstrap.servers": world.target.inside}
    held_by_partition = held(client, names.map_topic(FLOW), names.MAP_PARTITIONS).values()
    return ranges((record.key or b"", record.value) for records in held_by_partition for record in records)


def ranges(records: Iterable[tuple[bytes, bytes | None]]) -> dict[Place, list[Written]]:
    """Return the ranges of the map's records (key and value, oldest first) in the source's order.

    Old ones are joined: the whole stands under the first one's key, the others are deleted.
    """
    found: dict[Place, list[Written]] = {}
    for key, value in dict(records).items():
        if value is not None:
            decoded = decode_map_value(decode_map_key(key), value)
            place = Place(decoded.source.topic, decoded.source.partition)
            one = Written(decoded.generation, decoded.source_start, decoded.source_end)
            found.setdefault(place, []).append(one)
    return {place: sorted(told, key=lambda one: one.first) for place, told in found.items()}


def carried(world: World, source: Mapping[Place, list[Entry]]) -> list[GroupAt]:
    """Let groups stand anywhere on the source, carry them over, and return both positions of each."""
    inside = {"bootstrap.servers": world.source.inside}
    for number in range(_GROUPS):
        for topic, count in world.partitions.items():
            anywhere = {n: _somewhere(world, source[Place(topic, n)]) for n in range(count)}
            commit(inside, _group(world, number), topic, anywhere)
    request = GroupRequest(patterns=[f"{_group(world, '.*')}"])
    apply_groups(InlineFlow(world.path).watch.flow, request)
    found = []
    for number in range(_GROUPS):
        group = _group(world, number)
        theirs, ours = committed(world.source.inside, group), committed(world.target.inside, group)
        found += [GroupAt(group, place, theirs[place], ours.get(place, -1)) for place in sorted(theirs)]
    return found


def _group(world: World, number: object) -> str:
    # Others each round: a group that was moved back on the source is refused, as it should be.
    return f"readers-{len(world.looks)}-{number}"


def _somewhere(world: World, entries: list[Entry]) -> int:
    first = entries[0].offset if entries else 0
    behind = entries[-1].offset + 1 if entries else 0
    return world.rng.randint(first, behind)


def write_tally(tally: Tally, name: str, path: Path) -> None:
    """Write down what was done."""
    path.write_text(json.dumps({"name": name, **vars(tally)}, indent=1) + "\n")
