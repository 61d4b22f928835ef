"""Claims, in every order in which flows, crashes and restarts can meet: one of them enrols, and never two."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

import pytest

from onceover.errors import NeedsOperator
from onceover.state.records.ownership import Claim, ClaimAnswer, FlowId, Rival, decide, read_claims

A, B, C = (FlowId(name, "west") for name in "abc")
# What others can read of a flow.
NOTHING, CLAIMED, ENROLLED = range(3)
# Where a flow's leader is.
STOPPED, CLAIMING, LOOKING, DECIDED, WITHDRAWING, DONE = range(6)


class Leader(NamedTuple):
    """One flow: where its leader is, what others read of it, and what it has read of them so far."""

    at: int = STOPPED
    shown: int = NOTHING
    seen: tuple[int, ...] = ()


World = tuple[Leader, ...]


def moves(world: World, number: int, *, patient: bool) -> Iterator[Leader]:
    """Yield what a leader may do next. Others are read one after the other, never at once."""
    me = world[number]
    match me.at:
        case _ if me.shown == ENROLLED:
            return
        case _ if me.at == STOPPED:
            yield me._replace(at=CLAIMING)
            return
        case _ if me.at == CLAIMING:
            # Everybody can read it before the first look.
            yield me._replace(at=LOOKING, shown=CLAIMED, seen=())
        case _ if me.at == LOOKING:
            others = [other for n, other in enumerate(world) if n != number]
            seen = (*me.seen, others[len(me.seen)].shown)
            yield me._replace(at=DECIDED if len(seen) == len(others) else LOOKING, seen=seen)
        case _ if me.at == DECIDED:
            yield answered(me, number, len(world), patient=patient)
        case _ if me.at == WITHDRAWING:
            yield me._replace(at=DONE, shown=NOTHING, seen=())
    # Killed, or ended and started again; what it has shown stays.
    yield Leader(STOPPED, me.shown)


def answered(me: Leader, number: int, count: int, *, patient: bool) -> Leader:
    """Return what a leader does about what it has seen."""
    others = [n for n in range(count) if n != number]
    rivals = [
        Rival((A, B, C)[n], enrolled=shown == ENROLLED)
        for n, shown in zip(others, me.seen, strict=True)
        if shown != NOTHING
    ]
    answer, _ = decide((A, B, C)[number], rivals)
    if answer is ClaimAnswer.MINE:
        return Leader(DONE, ENROLLED)
    if answer is ClaimAnswer.THEIRS:
        return me._replace(at=WITHDRAWING)
    return me._replace(at=LOOKING, seen=()) if patient else Leader(DONE, ENROLLED)


def explored(count: int, *, patient: bool = True) -> dict[World, set[World]]:
    """Return every situation that can come about, with those that can follow."""
    first: World = (Leader(),) * count
    graph: dict[World, set[World]] = {}
    todo = [first]
    while todo:
        world = todo.pop()
        if world in graph:
            continue
        graph[world] = {
            (*world[:n], after, *world[n + 1 :])
            for n in range(count)
            for after in moves(world, n, patient=patient)
        }
        todo += graph[world]
    return graph


def owners(world: World) -> int:
    """Return how many have enrolled the topic."""
    return sum(leader.shown == ENROLLED for leader in world)


@pytest.mark.parametrize("count", [2, 3])
def test_never_do_two_flows_enrol_a_topic(count: int) -> None:
    """Whoever looks first, is slow, or is killed and started again."""
    graph = explored(count)
    assert len(graph) > 50
    assert max(map(owners, graph)) == 1


@pytest.mark.parametrize("count", [2, 3])
def test_from_everywhere_one_flow_can_still_come_to_enrol_it(count: int) -> None:
    """Whatever the others have left behind."""
    graph = explored(count)
    before: dict[World, set[World]] = {world: set() for world in graph}
    for world, following in graph.items():
        for after in following:
            before[after].add(world)
    todo = [world for world in graph if owners(world)]
    good = set(todo)
    while todo:
        for world in before[todo.pop()] - good:
            good.add(world)
            todo.append(world)
    assert good == graph.keys()


def test_who_does_not_wait_for_the_loser_meets_it_again() -> None:
    """It may have looked before the winner's claim: this is what the third answer is for."""
    assert max(map(owners, explored(2, patient=False))) == 2


@pytest.mark.parametrize(
    ("rivals", "expected"),
    [
        ([], (ClaimAnswer.MINE, None)),
        ([Rival(A, enrolled=False)], (ClaimAnswer.THEIRS, A)),
        ([Rival(C, enrolled=False)], (ClaimAnswer.WAIT, C)),
        ([Rival(C, enrolled=True)], (ClaimAnswer.THEIRS, C)),
        ([Rival(C, enrolled=True), Rival(A, enrolled=False)], (ClaimAnswer.THEIRS, A)),
    ],
    ids=["alone", "goes first", "gives way", "has it", "both"],
)
def test_the_rule(rivals: list[Rival], expected: tuple[ClaimAnswer, FlowId | None]) -> None:
    """In whatever order they are read."""
    for order in permutations(rivals):
        assert decide(B, order) == expected


def test_claims_are_read_among_everything_else() -> None:
    """And what is none is said to be none."""
    claim = Claim("east.t", "t", 5)
    assert read_claims({"layout": {}, "claim/t": {**claim.to_json(), "later": 1}}) == {"t": claim}
    with pytest.raises(NeedsOperator, match="claim"):
        read_claims({"claim/t": {"v": 1}})
