"""What can happen to a flow between audits, as a list that hypothesis draws and shortens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from hypothesis import strategies as st

from onceover.audit.model import Reason
from onceover.model import TopicPartition
from onceover.state.records.verdicts import START, WATERMARK, Verdict
from onceover.txn.classify import Api
from tests.support.fakes.refusing import NOT_AUTHORIZED, not_authorized
from tests.support.worlds.auditoracle import audit, check
from tests.support.worlds.auditworld import EPOCH_MS, FAULTS, KINDS, SOURCE, World


class Event(NamedTuple):
    """Something that happens.

    Args:
        name: what, one of ``EVENTS``.
        partition: where.
        size: of how many records or offsets.
        variant: which of several ways.
    """

    name: str
    partition: int = 0
    size: int = 1
    variant: int = 0

    def __repr__(self) -> str:
        return f'Event("{self.name}", {self.partition}, {self.size}, {self.variant})'


class _Life:
    """A world in the course of its story."""

    def __init__(self, kind: str) -> None:
        self.world = World(KINDS[kind])


_Deed = Callable[[_Life, Event], None]


def _audit(since: str) -> _Deed:
    def deed(life: _Life, event: Event) -> None:
        check(life.world, audit(life.world, since))

    return deed


def _sample(life: _Life, event: Event) -> None:
    check(life.world, audit(life.world, START if event.variant % 2 else WATERMARK, event.size))


def _killed(life: _Life, event: Event) -> None:
    audit(life.world, START if event.variant % 2 else WATERMARK)


def _two_at_once(life: _Life, event: Event) -> None:
    """One has read; another one reads, judges and writes before it does."""
    first = audit(life.world)
    check(life.world, audit(life.world, START if event.variant % 2 else WATERMARK))
    check(life.world, first)


def _unled(life: _Life, event: Event) -> None:
    """A broker is away meanwhile that alone holds a partition of one side."""
    world = life.world
    topic = (
        world.target.all_topics[world.kind.target] if event.variant % 2 else world.source.all_topics[SOURCE]
    )
    topic.leaders[(event.partition + event.size) % len(topic.logs)] = -1
    answer = audit(world, START if event.variant > 2 else WATERMARK)
    assert answer.verdict is not Verdict.PASS
    assert Reason.NO_LEADER in {each.reason for each in answer.result.unverifiable}
    check(world, answer)
    topic.leaders.clear()


def _unread(life: _Life, event: Event) -> None:
    """A right is missing meanwhile: on one of the topics, or in a partition's leader after some answers."""
    world = life.world
    side, topic = (world.target, world.kind.target) if event.variant % 2 else (world.source, SOURCE)
    if event.variant > 2:
        side.unanswered[topic] = not_authorized(side, Api.METADATA, topic)
    else:
        tp = TopicPartition(topic, event.partition)
        side.faults[tp], side.spared[tp] = NOT_AUTHORIZED, event.size - 1
    answer = audit(world, START if event.partition else WATERMARK)
    assert answer.verdict is not Verdict.PASS or not side.unanswered
    check(world, answer)
    for told in (side.unanswered, side.faults, side.spared):
        told.clear()


def _letters_unled(life: _Life, event: Event) -> None:
    """A broker is away meanwhile that alone holds the dead letters: no audit ends by that."""
    topic = life.world.target.all_topics[next(reversed(life.world.letter_topics))]
    topic.leaders[0] = -1
    check(life.world, audit(life.world, START if event.variant % 2 else WATERMARK))
    topic.leaders.clear()


def _since(life: _Life, event: Event) -> None:
    at = str(EPOCH_MS + event.size * event.variant)
    check(life.world, audit(life.world, at))


def _fault(name: str) -> _Deed:
    return lambda life, event: life.world.copy(event.partition, event.size, name)


EVENTS: Final[dict[str, _Deed]] = {
    "produce": lambda life, e: life.world.produce(e.partition, e.size, e.variant),
    "copy": lambda life, e: life.world.copy(e.partition, e.size + 4),
    "audit": _audit(WATERMARK),
    "audit fully": _audit(START),
    "audit a sample": _sample,
    "audit and be killed": _killed,
    "audit since a time": _since,
    "audit without a leader": _unled,
    "audit without a right": _unread,
    "audit without the letters' leader": _letters_unled,
    "two audits at once": _two_at_once,
    **{f"copy and {name}": _fault(name) for name in FAULTS},
    "foreign record": lambda life, e: life.world.foreign(e.partition, e.variant),
    "foreign transaction": lambda life, e: life.world.foreign_transaction(e.partition, e.variant),
    "letters are renamed": lambda life, e: life.world.rename_letters(),
    "letters are removed": lambda life, e: life.world.remove_letters(),
    "letters are held up": lambda life, e: life.world.hold_letters(e.variant),
    "leak": lambda life, e: life.world.leak(e.partition),
    "bad record": lambda life, e: life.world.bad(e.partition),
    "source grows": lambda life, e: life.world.grow(),
    "open transaction": lambda life, e: life.world.hang(e.partition, e.variant),
    "sent ahead": lambda life, e: life.world.ahead(e.partition, e.size),
    "skip": lambda life, e: life.world.skip(e.partition, e.size),
    "put elsewhere": lambda life, e: life.world.put_by(e.partition, e.size * (e.variant - 3)),
    "overlook": lambda life, e: life.world.overlook(e.partition, e.size),
    "source expires": lambda life, e: life.world.expire(e.partition, e.size, target=False),
    "target expires": lambda life, e: life.world.expire(e.partition, e.size, target=True),
    "source loses its end": lambda life, e: life.world.elect(e.partition, e.size, target=False),
    "target loses its end": lambda life, e: life.world.elect(e.partition, e.size, target=True),
    "source is cleaned": lambda life, e: life.world.clean(e.partition, e.variant, target=False),
    "target is cleaned": lambda life, e: life.world.clean(e.partition, e.variant, target=True),
    "map expires": lambda life, e: life.world.forget(e.size),
    "topic leaves and returns": lambda life, e: life.world.leave(),
    "stop": lambda life, e: life.world.stop(e.partition),
    "source made anew": lambda life, e: life.world.recreate(target=False),
    "target made anew": lambda life, e: life.world.recreate(target=True),
    "source damaged": lambda life, e: life.world.damage(e.partition, e.variant, target=False),
    "target damaged": lambda life, e: life.world.damage(e.partition, e.variant, target=True),
}
# Most of what happens is ordinary: records come, are copied, and are audited.
_OFTEN: Final = ("produce", "copy", "produce", "copy", "audit")


def events() -> st.SearchStrategy[Event]:
    """Return a strategy for what happens next."""
    names = st.sampled_from([*_OFTEN, *EVENTS])
    return st.builds(Event, names, st.integers(0, 1), st.integers(1, 4), st.integers(0, 5))


def live(kind: str, story: Sequence[Event], audits: Sequence[str] = (WATERMARK, START, WATERMARK)) -> World:
    """Let a story happen to a new world, and hold every audit's answer against the truth.

    Args:
        audits: those at the end.

    Raises:
        AssertionError: an answer is not true.
    """
    life = _Life(kind)
    for event in story:
        EVENTS[event.name](life, event)
    for since in audits:
        check(life.world, audit(life.world, since))
    return life.world
