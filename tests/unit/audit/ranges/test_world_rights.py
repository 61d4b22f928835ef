"""A right that is missing on one topic, whichever and whenever: it is named, all else is compared (G9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from onceover.model import TopicPartition
from onceover.state.records.verdicts import START, WATERMARK, Verdict
from onceover.txn.classify import Api
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.refusing import NOT_AUTHORIZED, not_authorized
from tests.support.worlds.auditoracle import Answer, audit, check
from tests.support.worlds.auditstory import Event, live
from tests.support.worlds.auditworld import KINDS, LETTERS, SOURCE, World

# With the compiled code, and in soak without it.
pytestmark = pytest.mark.usefixtures("either_way")
WRITTEN: Final = (Event("produce", 0, 4), Event("produce", 1, 4), Event("copy", 0), Event("copy", 1))


def _metadata(cluster: FakeCluster, tp: TopicPartition) -> None:
    cluster.unanswered[tp.topic] = not_authorized(cluster, Api.METADATA, tp.topic)


def _list_offsets(cluster: FakeCluster, tp: TopicPartition) -> None:
    cluster.away[tp] = not_authorized(cluster, Api.LIST_OFFSETS, str(tp))


def _fetch(cluster: FakeCluster, tp: TopicPartition) -> None:
    cluster.faults[tp] = NOT_AUTHORIZED


def _committed(cluster: FakeCluster, tp: TopicPartition) -> None:
    cluster.untold[tp] = not_authorized(cluster, Api.OFFSET_FETCH, str(tp))


def side_of(world: World, side: str) -> tuple[FakeCluster, TopicPartition]:
    """Return a cluster, and the first partition of what is copied there."""
    if side == "source":
        return world.source, TopicPartition(SOURCE, 0)
    return world.target, TopicPartition(world.kind.target, 0)


def assert_named(answer: Answer, cluster: FakeCluster, topic: str, right: str) -> None:
    """The verdict is neither PASS nor FAIL, and says which right is missing, on which topic, and where."""
    assert answer.verdict is Verdict.UNVERIFIABLE, answer.result.unverifiable
    assert {str(each.reason) for each in answer.result.unverifiable} == {"UNREADABLE"}
    for each in answer.result.unverifiable:
        assert cluster.alias in each.message and topic in each.message and right in each.message
    assert not answer.result.findings


@pytest.mark.parametrize("since", [WATERMARK, START])
@pytest.mark.parametrize(
    ("refuse", "side", "right"),
    [
        (_metadata, "source", "DESCRIBE on the topic"),
        (_metadata, "target", "DESCRIBE on the topic"),
        (_list_offsets, "source", "DESCRIBE on the topic"),
        (_list_offsets, "target", "DESCRIBE on the topic"),
        (_fetch, "source", "READ on the topic"),
        (_fetch, "target", "READ on the topic"),
        (_committed, "target", "DESCRIBE on the topic"),
    ],
    ids=lambda each: each.__name__.strip("_") if callable(each) else "",
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_may_not_be_asked_about_is_named_and_all_else_is_compared(
    kind: str, refuse: Callable[[FakeCluster, TopicPartition], None], side: str, right: str, since: str
) -> None:
    """Nothing is proven of it meanwhile, and all is when the right is there."""
    world = live(kind, WRITTEN, audits=())
    cluster, shut = side_of(world, side)
    refuse(cluster, shut)
    answer = audit(world, since)
    check(world, answer)
    assert_named(answer, cluster, shut.topic, right)
    fine = next(each for each in answer.content.partitions if each.source.partition == 1)
    # The fake refuses topics whole where a cluster does; and with a handler copies may be anywhere.
    if refuse is not _metadata and not world.kind.handled:
        assert not fine.unverifiable and fine.verified_to == 4
    assert TopicPartition(world.kind.target, 0) not in world.watermarks
    for broken in (cluster.unanswered, cluster.away, cluster.faults, cluster.untold):
        broken.clear()
    answer = audit(world, since)
    check(world, answer)
    assert answer.verdict is Verdict.PASS


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("spared", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_right_that_is_taken_away_meanwhile_makes_no_other_answer(
    kind: str, spared: int, side: str
) -> None:
    """Whatever was read by then: what was not is neither right nor wrong."""
    story = (*WRITTEN, Event("audit"), *WRITTEN, *WRITTEN)
    world = live(kind, story, audits=())
    cluster, shut = side_of(world, side)
    cluster.faults[shut], cluster.spared[shut] = NOT_AUTHORIZED, spared
    answer = audit(world)
    check(world, answer)
    if answer.verdict is not Verdict.PASS:
        assert_named_or_unchecked(answer)
    cluster.faults.clear()
    check(world, audit(world))


def assert_named_or_unchecked(answer: Answer) -> None:
    """Records that were compared may be right, and a claim about them not to be looked at any more."""
    assert answer.verdict is Verdict.UNVERIFIABLE and not answer.result.findings
    unshown = [each.detail for each in answer.result.checks if each.ok is None]
    said = [each.message for each in answer.result.unverifiable] + unshown
    assert said and all("READ on the topic" in each for each in said)


@pytest.mark.parametrize("refuse", [_metadata, _list_offsets, _fetch], ids=lambda e: e.__name__.strip("_"))
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_missing_where_dead_letters_may_not_be_read_is_no_loss(
    kind: str, refuse: Callable[[FakeCluster, TopicPartition], None]
) -> None:
    """Nor is an audit over by it in which nothing is missing."""
    world = live(kind, WRITTEN, audits=())
    letters = TopicPartition(LETTERS, 0)
    refuse(world.target, letters)
    answer = audit(world)
    check(world, answer)
    assert answer.verdict is Verdict.PASS
    for broken in (world.target.unanswered, world.target.away, world.target.faults):
        broken.clear()
    for event in (Event("bad record", 0), Event("copy", 0)):
        live_on(world, event)
    refuse(world.target, letters)
    answer = audit(world)
    check(world, answer)
    assert answer.verdict is Verdict.UNVERIFIABLE
    assert {str(each.reason) for each in answer.result.unverifiable} == {"UNREADABLE"}
    assert all(LETTERS in each.message for each in answer.result.unverifiable)


def live_on(world: World, event: Event) -> None:
    """Let something more happen to a world."""
    if event.name == "copy":
        world.copy(event.partition, 9)
    else:
        world.bad(event.partition)
