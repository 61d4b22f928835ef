"""Where the positions of a seeding come from."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, Retriable, UsageError
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.ports import TopicInfo
from onceover.model import TopicPartition
from onceover.planning.approval import Approval
from onceover.seeding.adopt import MirrorMakerNames, MirrorMakerOrigin
from onceover.seeding.apply import leaderless
from onceover.seeding.frommap import LagOrigin, NewestMapRecords
from onceover.seeding.origins import FileOrigin, FlowClusters, FlowOrigin, GroupOrigin, LogOrigin, Origin
from onceover.seeding.plan import EARLIEST, Choice, SeatedTopic, SeedOffset, SeedOffsets, SeedPlan, plan_seed
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.topics.plan import TopicPlan
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.flows.waysout import commands
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


def test_another_flows_progress_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all partitions a topic that may not be described would be left out, as if nothing were copied."""
    enrolled = Enrolment("a", "east.a", UUID(int=1), UUID(int=2), {0: 0, 1: 0, 2: 0}, 5)
    state = SimpleNamespace(layout=SimpleNamespace(source_cluster_id="s"), enrolled={"east.a": enrolled})
    monkeypatch.setattr("onceover.seeding.origins.read_flow_state", lambda *_: state)
    copies = [TopicPartition("east.a", 0), TopicPartition("east.a", 1)]
    target = source(copies[0], pending=copies[1])
    place = FlowClusters(
        "f", cast(Any, SimpleNamespace(cluster_id=lambda: "s")), cast(Any, SimpleNamespace())
    )
    origin = FlowOrigin("other", target)
    assert origin.read(place, [topic(seat(0))]).offsets == {
        ONE: SeedOffset(4, "copied by flow other to east")
    }
    with pytest.raises(Retriable):
        origin.read(place, [topic(seat(0), seat(1))])


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
    seed = mirror._known("f", seat(0, end=1000))
    assert isinstance(seed, SeedOffset)
    assert (seed.offset, seed.named) == (30, True)
