"""What can happen to a flow whose readers change sides, and what has to be true of where they go on.

The truth is the world's own book of which record is a copy of which; none of the code that answers is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pytest
from hypothesis import strategies as st

from onceover.groups.decide import Allowed, Decision, Direction, GroupAction, PartitionFacts
from onceover.model import TopicPartition
from onceover.wire.offsetlookup import Translated
from tests.support.worlds.auditstory import Event
from tests.support.worlds.auditworld import KINDS, SOURCE
from tests.support.worlds.positionworld import PositionWorld

_AS_ASKED: Final = Allowed()


# ---- what has to be true


def check_offsets(world: PositionWorld, patch: pytest.MonkeyPatch) -> None:
    """Hold every answer of the translator, both ways, against the truth."""
    translator = world.translator(patch)
    for partition in range(2):
        source = TopicPartition(SOURCE, partition)
        for number in range(world.target_partitions) if world.kind.handled else [partition]:
            target = TopicPartition(world.kind.target, number)
            for offset in range(world.here(partition).end + 2):
                found = translator.to_target(source, offset, target=target)
                if isinstance(found, Translated):
                    _check_forward(world, partition, number, offset, found.offset)
                else:
                    assert number != partition or not _is_known(world, partition, offset), (
                        source,
                        offset,
                        found,
                    )
            for offset in range(world.there(number).stable + 1):
                back = translator.to_source(target, offset, source=source)
                if isinstance(back, Translated):
                    _check_back(world, partition, number, offset, back.offset)
                else:
                    copies = world.newest(partition, number) if number == partition else {}
                    known = {place for o, place in copies.items() if _is_known(world, partition, o)}
                    assert offset not in known, (target, offset, back)


def check_moves(
    world: PositionWorld, direction: Direction, done: Sequence[tuple[PartitionFacts, Decision]]
) -> None:
    """Hold what was decided about a group against the truth."""
    for facts, decision in done:
        number, at = facts.giving.partition, facts.committed
        if decision.kind in (GroupAction.MOVE, GroupAction.RENEW) and facts.current is not None:
            assert decision.to is not None and decision.to >= facts.current, decision
        if at is None or decision.kind is GroupAction.DELETE:
            continue
        # What it has committed is an offset of the topics of now.
        assert decision.to is None or world.is_whole(number), (facts, decision)
        forward = direction is Direction.FAILOVER
        if decision.to is not None and _returns(world, direction, facts, decision):
            continue
        if decision.to is None:
            settled = min(at, world.positions[number]) if forward else at
            known = forward and _is_known(world, number, settled)
            assert decision.code != "NOT_COVERED" or not known, (facts, decision)
        elif forward:
            _check_forward(world, number, number, at, decision.to)
        else:
            _check_back(world, number, number, at, decision.to)


def _returns(world: PositionWorld, direction: Direction, facts: PartitionFacts, decision: Decision) -> bool:
    """Hold against the truth how a group goes back that was put where it is; tell whether that is all.

    It has read nothing there: what it had before it on the side that it comes from is still before it.
    """
    number, to = facts.giving.partition, decision.to
    put = world.puts.get((direction.opposite, number))
    if put is None or to is None or facts.committed != put.at:
        return False
    copies = world.newest(number, number)
    forward = direction is Direction.FAILOVER
    seen = world.visible(number) if forward else {offset for offset, _ in world.here(number).visible()}
    unread = {place for place in (copies.values() if forward else seen) if put.stood <= place < put.end}
    since = put.stood if facts.current is None else facts.current
    passed = sorted(place for place in unread & seen if since <= place < to)
    told = decision.risk == "skip" and (world.older or not put.clipped or facts.current is None)
    assert not passed or told, (facts, decision, passed)
    return put.clipped and to in (facts.current, put.stood, facts.start)


def _check_forward(world: PositionWorld, partition: int, number: int, at: int, to: int) -> None:
    """A reader at source offset ``at`` goes on at target offset ``to``."""
    seen = world.visible(number)
    copies = world.newest(partition, number)
    skipped = [o for o, place in copies.items() if o >= at and place < to and place in seen]
    again = [o for o, place in copies.items() if o < at and place >= to and place in seen]
    strange = [place for place in world.outlived(partition, number) if place >= to and place in seen]
    story = f"{SOURCE}:{partition} at {at} -> :{number} at {to}"
    assert (skipped, again, strange) == ([], [], []), story


def _check_back(world: PositionWorld, partition: int, number: int, at: int, to: int) -> None:
    """A reader at target offset ``at`` goes on at source offset ``to``."""
    seen = world.visible(number)
    copies = world.newest(partition, number)
    there = world.here(partition).start
    skipped = [o for o, place in copies.items() if there <= o < to and place >= at and place in seen]
    again = [o for o, place in copies.items() if o >= to and place < at and place in seen]
    assert (skipped, again) == ([], []), f":{number} at {at} -> {SOURCE}:{partition} at {to}"


def _is_known(world: PositionWorld, partition: int, offset: int) -> bool:
    """Tell whether the counterpart of an offset has to be known."""
    since, position = world.since[partition], world.positions[partition]
    return world.is_whole(partition) and not world.forgot and since <= offset <= position > since


# ---- what happens


_Deed = Callable[[PositionWorld, Event, pytest.MonkeyPatch], None]


def _offsets(world: PositionWorld, _: Event, patch: pytest.MonkeyPatch) -> None:
    check_offsets(world, patch)


def _move(direction: Direction, allowed: Allowed = _AS_ASKED) -> _Deed:
    def deed(world: PositionWorld, _: Event, patch: pytest.MonkeyPatch) -> None:
        check_moves(world, direction, world.move(direction, allowed, patch))

    return deed


def _skip(world: PositionWorld, event: Event, patch: pytest.MonkeyPatch) -> None:
    at = world.positions[event.partition] + event.size * (1 if event.variant % 2 else -1)
    world.skip_to(event.partition, at, patch)


def _anew(*, target: bool) -> _Deed:
    """A topic is deleted and made again; its producers and readers come back before anybody has noticed."""

    def deed(world: PositionWorld, event: Event, _: pytest.MonkeyPatch) -> None:
        world.recreate(target=target)
        for partition in range(2):
            world.produce(partition, event.size, event.variant)
            world.read_to(partition, event.variant, target=target)

    return deed


def _mend(world: PositionWorld, event: Event, patch: pytest.MonkeyPatch) -> None:
    """An operator follows the stops: one partition is copied anew, the other one goes on where it is told."""
    for partition in range(2):
        if not world.is_whole(partition):
            if event.variant & (1 << partition):
                world.skip_to(partition, event.size, patch)
            else:
                world.reseed(partition, patch)
            if event.variant & 4:
                world.copy(partition, event.size + 2)


EVENTS: Final[dict[str, _Deed]] = {
    "produce": lambda world, e, _: world.produce(e.partition, e.size, e.variant),
    "copy": lambda world, e, _: world.copy(e.partition, e.size + 2),
    "read on the source": lambda world, e, _: world.read_to(
        e.partition, 3 * e.size + e.variant, target=False
    ),
    "read on the target": lambda world, e, _: world.read_to(e.partition, 4 * e.size + e.variant, target=True),
    "fail over": _move(Direction.FAILOVER),
    "fail back": _move(Direction.FAILBACK),
    "fail over, rewinding": _move(Direction.FAILOVER, Allowed(rewind=True, take_over=True)),
    "fail back, rewinding": _move(Direction.FAILBACK, Allowed(rewind=True, take_over=True)),
    "look": _offsets,
    "skip to": _skip,
    "reseed": lambda world, e, patch: world.reseed(e.partition, patch),
    "source made anew": _anew(target=False),
    "target made anew": _anew(target=True),
    "mend": _mend,
    "foreign record": lambda world, e, _: world.foreign(e.partition, e.variant),
    "foreign transaction": lambda world, e, _: world.foreign_transaction(e.partition, e.variant),
    "bad record": lambda world, e, _: world.bad(e.partition),
    "open transaction": lambda world, e, _: world.hang(e.partition, e.variant),
    "sent ahead": lambda world, e, _: world.ahead(e.partition, e.size),
    "source expires": lambda world, e, _: world.expire(e.partition, e.size, target=False),
    "target expires": lambda world, e, _: world.expire(e.partition, e.size, target=True),
    "source is cleaned": lambda world, e, _: world.clean(e.partition, e.variant, target=False),
    "target is cleaned": lambda world, e, _: world.clean(e.partition, e.variant, target=True),
    "map expires": lambda world, e, _: world.forget(e.size),
    "topic leaves and returns": lambda world, e, _: world.leave(),
    "an older release has remembered": lambda world, _e, _: world.forget_stands(),
}
_OFTEN: Final = (
    *("produce", "copy", "produce", "copy", "read on the source", "fail over", "mend"),
    *("source made anew", "target made anew"),
)


def events() -> st.SearchStrategy[Event]:
    """Return a strategy for what happens next."""
    names = st.sampled_from([*_OFTEN, *EVENTS])
    return st.builds(Event, names, st.integers(0, 1), st.integers(1, 4), st.integers(0, 5))


# A group goes over and back, and logs lose their beginnings meanwhile; nothing stops the flow.
_JOURNEY: Final = (
    *("produce", "copy", "read on the source", "read on the target", "bad record"),
    *("source expires", "target expires", "source expires", "target expires", "target expires"),
    *("fail over", "fail back", "fail over", "fail back", "fail over, rewinding", "fail back, rewinding"),
    *("source is cleaned", "target is cleaned", "an older release has remembered"),
)


def journeys() -> st.SearchStrategy[list[Event]]:
    """Return a strategy for what happens to a group of a flow that has copied something."""
    names = st.sampled_from(_JOURNEY)
    drawn = st.builds(Event, names, st.just(0), st.integers(1, 4), st.integers(0, 5))
    copied = [*[Event("produce", 0, 4)] * 5, *[Event("copy", 0, 4)] * 4, Event("read on the source", 0, 2)]
    return st.lists(drawn, min_size=5, max_size=15).map(lambda story: copied + story)


def live(kind: str, story: Sequence[Event]) -> PositionWorld:
    """Let a story happen to a new world, and hold every answer against the truth.

    Raises:
        AssertionError: an answer is not true.
    """
    world = PositionWorld(KINDS[kind])
    with pytest.MonkeyPatch.context() as patch:
        for event in story:
            EVENTS[event.name](world, event, patch)
        check_offsets(world, patch)
        for direction in Direction:
            check_moves(world, direction, world.move(direction, _AS_ASKED, patch))
    return world
