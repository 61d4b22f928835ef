"""Where a flow the other way begins: only behind the very log that was promoted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.calls import NO_EPOCH, CommittedOffset
from onceover.model import TopicPartition
from onceover.planning.plan import Refusal
from onceover.seeding.origins import FlowClusters, FlowOrigin
from onceover.seeding.plan import SeatedTopic, SeedOffset
from onceover.seeding.promoted import MANY, PromotedOrigin, records_that_may_count
from onceover.state import names
from onceover.state.records.enrolment import Enrolment, LeftAt, PlacedProgress, Promoted
from onceover.stops.codes import StopCode
from onceover.wire.progress import ProgressMeta
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.raw.mutations import Content
from tests.unit.seeding.test_plan import seat, topic

EAST, WEST, ANOTHER = UUID(int=2), UUID(int=1), UUID(int=9)
TP = TopicPartition("a", 0)
# East 0 to 9 was copied to west 0 to 9, behind which stood a marker when it was promoted.
CUT, END = 10, 11
EPOCH = 3
LEFT_MS = 1_000
RECORD = Enrolment(
    "a",
    "a",
    EAST,
    WEST,
    {0: 0},
    5,
    active=False,
    placed={0: PlacedProgress(1, 0, 0)},
    left=LeftAt(2, LEFT_MS),
    promoted=Promoted(2, "drill", {0: END}, {0: CUT}),
)
META = ProgressMeta(str(EAST), str(WEST), NO_EPOCH, 10, 1, (1, 1), CUT, EPOCH)


def cluster(alias: str, topic_id: UUID, end: int, *epochs: tuple[int, int]) -> FakeCluster:
    made = FakeCluster(alias, cluster_id=alias)
    made.add_topic("a", topic_id, [0])
    log = made.log_of(TP)
    assert log is not None
    log.end, log.epochs = end, list(epochs) or [(EPOCH, 0)]
    return made


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> None:
    known = SimpleNamespace(
        layout=SimpleNamespace(source_cluster_id="east"), enrolled={"a": RECORD}, others={}
    )
    for module in ("promoted", "origins"):
        monkeypatch.setattr(f"onceover.seeding.{module}.read_flow_state", lambda *_: known)


class Fences:
    """What the switchover has shut everybody out of, and what was lifted of it."""

    def __init__(self, *topics: str) -> None:
        self._topics, self.lifted = set(topics), list[str]()
        self.planned: list[str] = []

    def shut(self) -> set[str]:
        return self._topics

    def lift(self, topics: Collection[str]) -> None:
        self.lifted += sorted(topics)


def answer(
    west: FakeCluster,
    *,
    east: FakeCluster | None = None,
    forgotten: bool = False,
    fences: Fences | None = None,
    written: Callable[..., int] = lambda *_: 0,
    own: Enrolment | None = None,
    position: int | None = None,
) -> SeedOffset | Refusal | None:
    """Return where the flow from west to east begins; ``position`` is where it stands."""
    group = {} if forgotten else {TP: CommittedOffset(0, CUT, NO_EPOCH, META.encode())}
    west.groups[names.progress_group("there")] = group
    east = east or cluster("east", EAST, CUT)
    here, copy = west.topics(["a"])["a"], east.topics(["a"])["a"]
    wanted = topic(seat(end=5_000, position=position))
    seated = SeatedTopic(source=here, target="a", copy=copy, enrolment=own, seats=wanted.seats)
    origin = PromotedOrigin("there", written, fences or Fences())
    found = origin.read(FlowClusters("back", west, east), [seated])
    if fences is not None:
        fences.planned = [change.object for change in origin.changes()]
        origin.prepare(FlowClusters("back", west, east))
    return found.refused.get(TP) or found.offsets.get(TP)


def code(found: SeedOffset | Refusal | None) -> str:
    assert isinstance(found, Refusal), found
    return found.code


@pytest.mark.parametrize("forgotten", [False, True])
def test_it_begins_where_the_copy_ended(*, forgotten: bool) -> None:
    found = answer(cluster("west", WEST, 5_000, (EPOCH, 0)), forgotten=forgotten)
    assert isinstance(found, SeedOffset) and (found.offset, found.risk) == (END, "none")


@pytest.mark.parametrize(("position", "risk"), [(5, "none"), (END, "none"), (500, None)])
def test_progress_of_an_earlier_journey_is_not_what_is_skipped(position: int, risk: str | None) -> None:
    """What has come since from the other side is there. What it has copied behind it itself would repeat."""
    found = answer(cluster("west", WEST, 5_000, (EPOCH, 0)), position=position)
    assert isinstance(found, SeedOffset) and (found.offset, found.risk) == (END, risk)


def own(at_ms: int, target_id: UUID = EAST, cut: int = END) -> Enrolment:
    """Return the record of the flow from west to east, which was switched over at a time."""
    led = Enrolment("a", "a", WEST, target_id, {0: 0}, 5, placed={0: PlacedProgress(1, END, 0)})
    return led.as_promoted("later", LeftAt(4, at_ms), {0: 40}, {0: cut})


def test_what_clients_have_gone_back_with_is_theirs() -> None:
    """What stands there behind the cut is no orphan, and nobody writes a position that takes it from them."""
    west = cluster("west", WEST, 5_000, (EPOCH, 0))
    found = answer(west, own=own(LEFT_MS + 1), written=lambda *_: 30)
    assert code(found) == "PROMOTED"
    # By a clock that is behind: what it has copied since tells.
    assert code(answer(west, own=own(LEFT_MS - 1, cut=END + 1), written=lambda *_: 30)) == "PROMOTED"
    assert isinstance(found, Refusal) and found.blocks
    assert "`onceover drill run back --mode planned`" in found.resolve
    assert "`onceover seed apply there --from promoted:back --replace`" in found.resolve


@pytest.mark.parametrize("before", [own(LEFT_MS - 1), own(LEFT_MS + 1, ANOTHER)])
def test_a_way_back_of_before_is_placed_behind_the_newer_promotion(before: Enrolment) -> None:
    """Clients have gone over once more since, or what they had gone back to is gone."""
    found = answer(cluster("west", WEST, 5_000, (EPOCH, 0)), own=before)
    assert isinstance(found, SeedOffset) and found.offset == END


def test_a_partition_that_has_come_since_the_promotion_begins_with_its_log() -> None:
    """Clients have added it: none of it has come from there, and its first records have expired."""
    west, east = (cluster(name, topic_id, 5_000) for name, topic_id in (("west", WEST), ("east", EAST)))
    for each in (west, east):
        each.add_topic("a", each.topics(["a"])["a"].topic_id, [0, 0])
    here, copy = west.topics(["a"])["a"], east.topics(["a"])["a"]
    one = SeatedTopic(source=here, target="a", copy=copy, enrolment=None, seats=(seat(1, start=7),))
    found = PromotedOrigin("there", lambda *_: 0, Fences()).read(FlowClusters("back", west, east), [one])
    assert found.offsets[TopicPartition("a", 1)].offset == 7


@pytest.mark.parametrize("forgotten", [False, True])
def test_where_nobody_knows_where_a_copy_ended_it_does_not_begin_with_its_log(
    monkeypatch: pytest.MonkeyPatch, *, forgotten: bool
) -> None:
    """The state has lost the promotion, and the progress of this partition tells of none any more."""
    partly = replace(RECORD, promoted=Promoted(2, "drill", {1: END}, {1: CUT}))
    known = SimpleNamespace(
        layout=SimpleNamespace(source_cluster_id="east"), enrolled={"a": partly}, others={}
    )
    monkeypatch.setattr("onceover.seeding.promoted.read_flow_state", lambda *_: known)
    found = answer(cluster("west", WEST, 5_000, (EPOCH, 0)), forgotten=forgotten)
    assert code(found) == "NOT_PROMOTED"


def test_a_fence_that_would_keep_the_flow_off_is_shown_and_lifted_first() -> None:
    """Of the topics that are led back, and no others."""
    fences = Fences("a", "b")
    assert isinstance(answer(cluster("west", WEST, 5_000, (EPOCH, 0)), fences=fences), SeedOffset)
    assert (fences.planned, fences.lifted) == (["writers of a on east"], ["a"])
    refused = Fences("a")
    assert code(answer(cluster("west", ANOTHER, 5_000), fences=refused)) == StopCode.TARGET_RECREATED
    assert (refused.planned, refused.lifted) == ([], [])


@pytest.mark.parametrize("forgotten", [False, True])
def test_another_topic_of_the_name_has_no_place_behind_the_promotion(*, forgotten: bool) -> None:
    """Its owners have deleted it and made it again: the offset lies in it, among other records."""
    found = answer(cluster("west", ANOTHER, 5_000), forgotten=forgotten)
    assert code(found) == StopCode.TARGET_RECREATED
    assert isinstance(found, Refusal) and "delete a on east" in found.resolve


def test_a_copy_that_was_cut_and_has_grown_again_has_none() -> None:
    """As by an unclean election: clients have written where copied records were."""
    found = answer(cluster("west", WEST, 5_000, (EPOCH, 0), (EPOCH + 1, 6)))
    assert code(found) == StopCode.TARGET_SHORTENED


def test_a_leader_elected_behind_what_was_copied_is_nothing() -> None:
    """The near miss."""
    found = answer(cluster("west", WEST, 5_000, (EPOCH, 0), (EPOCH + 1, 10)))
    assert isinstance(found, SeedOffset)


def test_what_is_empty_and_was_made_anew_is_copied_whole_whatever_it_is_copied_from() -> None:
    found = answer(cluster("west", ANOTHER, 5_000), east=cluster("east", ANOTHER, 0))
    assert isinstance(found, SeedOffset) and found.offset == 0


def test_a_copy_that_does_not_answer_is_not_taken_for_whole() -> None:
    west = cluster("west", WEST, 5_000)
    west.away[TP] = Retriable("nobody leads it")
    assert code(answer(west)) == "UNREADABLE"


@pytest.mark.parametrize("topic_id", [WEST, ANOTHER])
def test_of_a_log_whose_ends_nobody_tells_nothing_is_known(topic_id: UUID) -> None:
    """Nor that a topic that was made anew is empty; the other partitions have their answers."""
    east = cluster("east", topic_id, 5)
    east.away[TP] = Retriable("nobody leads it")
    found = answer(cluster("west", WEST, 5_000), east=east)
    assert code(found) == "UNREADABLE"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Retriable("it took too long"), "UNREADABLE"),
        (NeedsOperator("damaged", code="DAMAGED"), "DAMAGED"),
        (UsageError("no right", code="NOT_AUTHORIZED"), "NOT_AUTHORIZED"),
    ],
)
def test_a_partition_that_cannot_be_counted_is_refused_and_no_other(error: OnceoverError, told: str) -> None:
    """Writers that went on for hours have left more behind the cut than is read in a minute."""

    def unreadable(*_: object) -> int:
        raise error

    assert code(answer(cluster("west", WEST, 5_000), written=unreadable)) == told
    with pytest.raises(UsageError, match="no login"):
        answer(cluster("west", WEST, 5_000), written=no_login)


def no_login(*_: object) -> int:
    raise UsageError("no login")


def test_of_many_records_not_all_are_counted() -> None:
    """One of them is too many."""
    found = answer(cluster("west", WEST, 5_000), written=lambda *_: MANY)
    assert isinstance(found, Refusal) and f"{MANY} records or more" in found.message
    assert "onceover drill orphans plan there" in found.resolve
    east = FakeCluster("east")
    (log,) = east.make_topic("t", 1).logs
    for _ in range(3):
        log.append([Content(b"k", b"v", (), 1)] * (MANY // 2))
    assert records_that_may_count(east, TopicPartition("t", 0), 0, log.end) == MANY


@pytest.mark.parametrize("source_id", [EAST, ANOTHER])
def test_another_flows_progress_counts_in_the_topic_that_it_has_copied(source_id: UUID) -> None:
    """An offset of a topic that was deleted since names other records, or none."""
    west = cluster("west", WEST, CUT)
    west.groups[names.progress_group("there")] = {TP: CommittedOffset(0, CUT, NO_EPOCH, META.encode())}
    east = cluster("east", source_id, 100)
    seated = SeatedTopic(
        source=east.topics(["a"])["a"], target="a", copy=None, enrolment=None, seats=topic(seat()).seats
    )
    found = FlowOrigin("there", west).read(FlowClusters("f", east, cluster("north", WEST, 0)), [seated])
    if source_id == EAST:
        assert found.offsets[TP].offset == CUT
    else:
        assert found.refused[TP].code == StopCode.SOURCE_RECREATED


@pytest.mark.parametrize(
    ("start", "end", "count"), [(0, 8, 4), (1, 8, 3), (0, 4, 2), (6, 8, 2), (6, 7, 1), (8, 8, 0)]
)
def test_what_was_aborted_counts_no_more_and_what_is_open_may_count(start: int, end: int, count: int) -> None:
    """Two records, two aborted ones, two markers, two of a transaction that is open."""
    cluster = FakeCluster("west")
    (log,) = cluster.make_topic("t", 1).logs
    content = Content(b"k", b"v", (), 1)
    log.append([content] * 2)
    log.append([content] * 2, 7)
    log.decide(7, commit=False)
    log.decide(7, commit=True)
    log.append([content] * 2, 8)
    assert records_that_may_count(cluster, TopicPartition("t", 0), start, end) == count


@pytest.mark.parametrize(
    "origin", [PromotedOrigin("back", lambda *_: 0, Fences()), FlowOrigin("back", FakeCluster("west"))]
)
def test_a_flow_that_was_never_started_is_a_slip_of_whoever_names_it(
    monkeypatch: pytest.MonkeyPatch, origin: PromotedOrigin | FlowOrigin
) -> None:
    """And the message names where the right one is found."""
    never = SimpleNamespace(layout=None, enrolled={}, others={})
    for module in ("promoted", "origins"):
        monkeypatch.setattr(f"onceover.seeding.{module}.read_flow_state", lambda *_: never)
    place = FlowClusters("there", cluster("west", WEST, END), cluster("east", EAST, CUT))
    with pytest.raises(UsageError, match="flow back has never been started on west") as refused:
        origin.read(place, [])
    assert "`onceover status`" in str(refused.value.resolve)
