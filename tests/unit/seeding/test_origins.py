"""Where the positions of a seeding come from."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.calls import NO_EPOCH, CommittedOffset
from onceover.kafka.ports import TopicInfo
from onceover.model import TopicPartition
from onceover.planning.approval import Approval
from onceover.seeding.adopt import MirrorMakerNames, MirrorMakerOrigin
from onceover.seeding.apply import leaderless
from onceover.seeding.frommap import LagOrigin, NewestMapRecords
from onceover.seeding.origins import FileOrigin, FlowClusters, FlowOrigin, GroupOrigin, LogOrigin, Origin
from onceover.seeding.plan import (
    EARLIEST,
    Choice,
    Seat,
    SeatedTopic,
    SeedOffset,
    SeedOffsets,
    SeedPlan,
    plan_seed,
)
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.stops.record import Stop
from onceover.topics.plan import TopicPlan
from onceover.wire.progress import CopiedBatch, CopiedLast, ProgressMeta
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.flows.waysout import commands
from tests.support.raw.mutations import Content
from tests.unit.seeding.test_plan import seat, topic
from tests.unit.topics.topicworld import World

ONE, TWO, OTHER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("elsewhere", 0)


GROUPS = ("g", names.progress_group("other"), names.lag_group("f"))


def source(*committed: TopicPartition, pending: TopicPartition | None = None) -> FakeCluster:
    """Return a cluster where groups have committed 4, and have an open transaction that will for another."""
    made = FakeCluster("east")
    for group in GROUPS:
        made.groups[group] = {tp: CommittedOffset(0, 4, -1, "") for tp in committed}
        if pending is not None:
            made.open_now["id"].offsets[group] = {pending: CommittedOffset(0, 5, -1, "")}
    return made


def named(source: FakeCluster) -> set[TopicPartition]:
    place = FlowClusters("f", source, cast(Any, SimpleNamespace()))
    topics: list[SeatedTopic] = [topic(seat(0), seat(1))]
    return set(GroupOrigin("g").read(place, topics).offsets)


def test_a_groups_first_commit_that_is_pending_is_waited_for() -> None:
    """Taken for none, its partition would be seeded from elsewhere."""
    assert named(source(ONE)) == {ONE}
    with pytest.raises(Retriable):
        named(source(ONE, pending=TWO))


def test_a_group_that_has_committed_nothing_at_all_is_unknown() -> None:
    assert named(source(OTHER)) == set()
    with pytest.raises(UsageError, match="has committed nothing") as caught:
        named(source())
    # Brokers leave out topics that may not be described: nobody can tell here which it is.
    assert "grant DESCRIBE on its topics" in str(caught.value.resolve)


ENROLLED = Enrolment("a", "east.a", UUID(int=1), UUID(int=2), {0: 0, 1: 0, 2: 0}, 5)
COPIES = [TopicPartition("east.a", 0), TopicPartition("east.a", 1)]


def copied_to(position: int, *, epoch: int = NO_EPOCH, beside: int | None = None) -> CommittedOffset:
    """Return progress of a lane; ``beside``: where it stood when what stands beside it was written."""
    at = position if beside is None else beside
    meta = ProgressMeta(*ENROLLED.ids, epoch, 10, 1, (1, 1), at, batch=CopiedBatch(at - 1, at, 70, 1))
    return CommittedOffset(0, position, epoch, meta.encode())


def of_flow(
    patch: pytest.MonkeyPatch,
    target: FakeCluster,
    *seats: Seat,
    log: FakeLog | None = None,
    away: OnceoverError | None = None,
    stop: str = "",
) -> SeedOffsets:
    """Ask for the progress of a flow to ``target``, whose lane may have stopped partition 0."""
    held = Stop(stop, "it stands elsewhere", "this", "that", "do so", 40).to_json()
    others = {names.stop_key(*COPIES[0]): held} if stop else {}
    state = SimpleNamespace(
        layout=SimpleNamespace(source_cluster_id="s"), enrolled={"east.a": ENROLLED}, others=others
    )
    patch.setattr("onceover.seeding.origins.read_flow_state", lambda *_: state)
    here = FakeCluster("north", cluster_id="s")
    here.add_topic("a", UUID(int=1), [0, 0]).logs[:] = [log or FakeLog(end=100), FakeLog(end=100)]
    here.away = {ONE: away} if away else {}
    place = FlowClusters("f", here, cast(Any, SimpleNamespace()))
    return FlowOrigin("other", target).read(place, [topic(*seats)])


def test_another_flows_progress_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all partitions a topic that may not be described would be left out, as if nothing were copied."""
    target = source(pending=COPIES[1])
    target.groups[GROUPS[1]] = {COPIES[0]: copied_to(4)}
    found = of_flow(monkeypatch, target, seat(0))
    last = CopiedLast(NO_EPOCH, CopiedBatch(3, 4, 70, 1))
    assert found == SeedOffsets({ONE: SeedOffset(4, "copied by flow other to east", last=last)})
    with pytest.raises(Retriable):
        of_flow(monkeypatch, target, seat(0), seat(1))


@pytest.mark.parametrize(
    ("moved", "code"),
    [
        pytest.param(CommittedOffset(0, 90, -1, ""), "PROGRESS_FOREIGN", id="by a tool for groups"),
        pytest.param(copied_to(90, beside=40), "PROGRESS_FOREIGN", id="by one that keeps what stands beside"),
        pytest.param(CommittedOffset(0, 90, -1, '{"v":7}'), "PROGRESS_UNREADABLE", id="by a newer release"),
    ],
)
def test_a_position_that_the_other_flow_does_not_believe_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, moved: CommittedOffset, code: str
) -> None:
    """It stops there itself; gone on from, what lies between would never come, and nobody would notice."""
    target = source()
    target.groups[GROUPS[1]] = {COPIES[0]: moved, COPIES[1]: copied_to(40)}
    found = of_flow(monkeypatch, target, seat(0), seat(1))
    assert {tp: seed.offset for tp, seed in found.offsets.items()} == {TWO: 40}
    (refusal,) = found.refused.values()
    assert (refusal.object, refusal.code, "offset 90" in refusal.message) == ("a:0", code, True)
    assert "`onceover status other`" in refusal.resolve and "`--from file:...`" in refusal.resolve


@pytest.mark.parametrize(
    "code", ["SOURCE_DIVERGED", "PROGRESS_FOREIGN", "TARGET_SHORTENED", "TARGET_DROPPED"]
)
def test_where_lanes_of_the_other_flow_do_not_go_on_no_other_flow_does(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """They may have found what nothing tells any more: an older position, put back with its metadata."""
    target = source()
    target.groups[GROUPS[1]] = {COPIES[0]: copied_to(40)}
    found = of_flow(monkeypatch, target, seat(0), stop=code)
    assert (found.offsets, [r.code for r in found.refused.values()]) == ({}, [code])
    # The near miss: its records are refused, its position is right.
    assert of_flow(monkeypatch, target, seat(0), stop="RECORD_REFUSED").offsets[ONE].offset == 40


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(FakeLog(end=100, epochs=[(3, 0), (4, 30)]), id="unclean election"),
        pytest.param(FakeLog(end=100, epochs=[(1, 0)]), id="restored from an older copy"),
        pytest.param(FakeLog(end=39, epochs=[(3, 0)]), id="cut"),
    ],
)
def test_a_source_that_is_another_log_than_the_other_flow_has_copied_has_no_place_for_its_position(
    monkeypatch: pytest.MonkeyPatch, log: FakeLog
) -> None:
    """It has grown past the position since, and what stands before it was never copied."""
    target = source()
    target.groups[GROUPS[1]] = {COPIES[0]: copied_to(40, epoch=3)}
    found = of_flow(monkeypatch, target, seat(0), log=log)
    assert (found.offsets, [r.code for r in found.refused.values()]) == ({}, ["SOURCE_DIVERGED"])
    whole = FakeLog(end=100, epochs=[(3, 0), (4, 40)])
    assert of_flow(monkeypatch, target, seat(0), log=whole).offsets[ONE].offset == 40


def test_the_batch_that_the_other_flow_has_copied_last_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that was put back from a copy of its disks bears the epochs of its other life."""
    target = source()
    log = FakeLog()
    log.append([Content(b"k", b"v", (), 1)] * 3)
    target.groups[GROUPS[1]] = {COPIES[0]: copied_to(2)}
    found = of_flow(monkeypatch, target, seat(0), log=log)
    assert [r.code for r in found.refused.values()] == ["SOURCE_DIVERGED"]


def test_whether_the_source_is_what_was_copied_is_not_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what does not answer, or for want of a right, nothing is said for now; the others are no guess."""
    target = source()
    target.groups[GROUPS[1]] = {COPIES[0]: copied_to(40), COPIES[1]: copied_to(40)}
    found = of_flow(monkeypatch, target, seat(0), seat(1), away=Retriable("nobody leads it"))
    assert set(found.offsets) == {TWO}
    assert {tp: r.code for tp, r in found.refused.items()} == {ONE: "UNREADABLE"}
    denied = UsageError("no right", code="NOT_AUTHORIZED", resolve="grant READ")
    found = of_flow(monkeypatch, target, seat(0), seat(1), away=denied)
    assert set(found.offsets) == {TWO}
    assert {tp: (r.code, r.resolve) for tp, r in found.refused.items()} == {
        ONE: ("NOT_AUTHORIZED", "grant READ")
    }


def test_another_flows_progress_that_may_not_be_described_is_no_other_topics_concern(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is it none: its partition would be seeded from elsewhere."""
    target = source()
    target.groups[GROUPS[1]] = {COPIES[0]: copied_to(40), COPIES[1]: copied_to(40)}
    target.untold[COPIES[0]] = UsageError("no right", code="NOT_AUTHORIZED", resolve="grant DESCRIBE")
    found = of_flow(monkeypatch, target, seat(0), seat(1))
    assert set(found.offsets) == {TWO}
    assert found.refused[ONE].code == "NOT_AUTHORIZED" and "flow other" in found.refused[ONE].message


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_lag_group_is_not_believed_where_an_older_release_has_put_the_partition(
    by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote down that somebody has, and not where to: behind that offset, the group would skip records."""
    monkeypatch.setattr("onceover.seeding.frommap.newest_records", lambda *_: NewestMapRecords())
    one = topic(seat(0, start=2), enrolled=True)
    assert one.enrolment is not None
    one = replace(one, enrolment=replace(one.enrolment, changed={0: "approval"} if by_hand else {}))
    place = FlowClusters("f", source(ONE), cast(Any, SimpleNamespace()))
    found = LagOrigin().read(place, [one])
    assert bool(found.offsets) is not by_hand
    for refusal in found.refused.values():
        assert refusal.code == "LAG_GROUP_STALE"
        assert [c.arguments[2:] for c in commands(refusal.resolve)] == [["f", "a:0", "2"], ["f", "a:0", "4"]]


def test_a_file_that_names_other_partitions_is_refused_and_not_quoted() -> None:
    """Which of its entries they are is enough to correct it."""
    place = FlowClusters("f", source(), cast(Any, SimpleNamespace()))
    origin = FileOrigin({OTHER: 1, ONE: 2, TopicPartition("SECRET", 0): 3}, "july.csv")
    with pytest.raises(UsageError, match="2 partitions") as caught:
        origin.read(place, [topic(seat(0), seat(1))])
    said = caught.value.as_dict()
    assert (said["where"], said["seen"]) == ("july.csv", "entry 1, entry 3")


def test_offsets_of_a_topic_that_cannot_be_looked_at_now_are_no_mistake() -> None:
    """A broker of it is away: the topic is refused, and its offsets are right tomorrow."""
    away = TopicPartition("away", 3)
    place = FlowClusters("f", source(), cast(Any, SimpleNamespace()), left_out={"away"})
    found = FileOrigin({ONE: 2, away: 7}, "july.csv").read(place, [topic(seat(0))])
    assert found.offsets[ONE].offset == 2
    with pytest.raises(UsageError, match="1 partitions"):
        FileOrigin({OTHER: 1, away: 7}, "july.csv").read(place, [topic(seat(0))])


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_topic_without_a_leader_is_named_and_may_be_seeded_later(side: str) -> None:
    """Nothing to do, and nothing that could be done, are two things."""
    world = World({"t": 1, "u": 1}, {"t": 1, "u": 1})
    view = world.view()
    assert leaderless(view, lambda _: True) == []
    gone: TopicInfo = getattr(view, side)["t"]
    gone = replace(gone, partitions={0: replace(gone.partitions[0], leader=-1)})
    changed: Any = {side: {**getattr(view, side), "t": gone}}
    view = replace(view, **changed)
    (refusal,) = leaderless(view, lambda _: True)
    assert (refusal.object, refusal.code, side in refusal.message) == ("t", "UNREADABLE", True)
    assert leaderless(view, lambda topic: topic == "u") == []
    planned = plan_seed("seed", "f", [], SeedOffsets(), TopicPlan(operation="topics", flow="f"), Choice())
    assert replace(planned, refused=(refusal,)).exit_code == 5


def test_offsets_that_somebody_wrote_down_are_approved_as_such() -> None:
    """Whoever may write to the file changes them after the approval in vain, also by a few."""
    place = FlowClusters("f", source(), cast(Any, SimpleNamespace()))
    topics = TopicPlan(operation="topics", flow="f")

    def planned(origin: Origin) -> SeedPlan:
        one = topic(seat(0, end=1000, position=10), enrolled=True)
        return plan_seed("seed", "f", [one], origin.read(place, [one]), topics, Choice(replace=True))

    def of_file(offset: int) -> SeedPlan:
        return planned(FileOrigin({ONE: offset}, "july.csv"))

    approval = Approval.of(of_file(30).items)
    approval.check(of_file(30).items, "f")
    for other in (29, 31):
        with pytest.raises(NeedsOperator) as caught:
            approval.check(of_file(other).items, "f")
        assert caught.value.code == "PLAN_CHANGED"
    # The near-miss: what a live cluster says moves on meanwhile, by a few.
    assert Approval.of(planned(LogOrigin(EARLIEST)).items).items.keys() == {"position a:0", "flow generation"}


def test_offsets_that_the_operator_decided_are_approved_as_such() -> None:
    mirror = MirrorMakerOrigin(MirrorMakerNames.dedicated("east", "west"), {ONE: 30})
    seed = mirror._decided(cast(Any, None), seat(0, end=1000), None, ())
    assert isinstance(seed, SeedOffset)
    assert (seed.offset, seed.named) == (30, True)
