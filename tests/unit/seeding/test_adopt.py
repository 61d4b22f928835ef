"""Whether MirrorMaker runs, or still writes: what is not known is never taken for "no"."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.groups.admin import GroupListing
from onceover.model import TopicPartition
from onceover.planning.approval import Approval, Item
from onceover.seeding import adopt
from onceover.seeding.adopt import MirrorMakerNames, MirrorMakerOrigin
from onceover.seeding.codes import SeedingCode
from onceover.seeding.origins import FlowClusters
from onceover.seeding.plan import Choice, Seat, SeatedTopic, SeedOffsets, SeedPlan, plan_seed
from onceover.seeding.seam import Finding, NoSeam, Seam
from onceover.seeding.seamsearch import Anchors
from onceover.state.codes import StateCode
from onceover.topics.plan import TopicPlan
from onceover.wire.mirroroutput import encode_offset_sync
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog, FakeTopic
from tests.unit.seeding.test_plan import seat, topic

MIRROR = MirrorMakerNames.dedicated("east", "west")
ONE, TWO = TopicPartition("a", 0), TopicPartition("a", 1)
_OFFSETS = TopicPartition(MIRROR.offsets_topic, 0)


class FakeGroups:
    """The target's groups: those that are listed, and what asking for one answers."""

    def __init__(self, listing: GroupListing, problem: OnceoverError | None = None) -> None:
        self._listing, self._problem = listing, problem

    def groups(self) -> GroupListing:
        return self._listing

    def committed(self, group: str) -> dict[str, int]:
        assert group == MIRROR.group
        if self._problem is not None:
            raise self._problem
        return {}


def read(monkeypatch: pytest.MonkeyPatch, groups: FakeGroups) -> Any:
    """Ask for the offsets, on a target without any of MirrorMaker's topics."""
    monkeypatch.setattr(adopt, "GroupAdmin", lambda _: groups)
    target: Any = SimpleNamespace(alias="west", topics=lambda *_: {}, list_offsets=lambda *_: {})
    return MirrorMakerOrigin(MIRROR).read(FlowClusters("f", target, target), [])


def listed(state: str) -> GroupListing:
    group: Any = SimpleNamespace(group_id=MIRROR.group, state=state)
    return GroupListing({MIRROR.group: group})


def test_a_group_with_members_is_a_mirrormaker_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (remark,) = read(monkeypatch, FakeGroups(listed("stable"))).remarks
    assert (remark.code, remark.blocks) == ("MM2_RUNNING", True)


@pytest.mark.parametrize("listing", [GroupListing({}), listed("empty"), listed("dead")])
def test_without_workers_its_topics_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, listing: GroupListing
) -> None:
    with pytest.raises(NeedsOperator, match=f"there is no topic {MIRROR.offsets_topic}"):
        read(monkeypatch, FakeGroups(listing))


def test_a_broker_that_does_not_answer_may_coordinate_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Retriable("broker 2 is away")
    with pytest.raises(Retriable, match="broker 2 is away"):
        read(monkeypatch, FakeGroups(GroupListing({}, (away,))))


def test_a_group_that_may_not_be_seen_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = UsageError("west refuses offset fetch", code="NOT_AUTHORIZED")
    with pytest.raises(UsageError, match="whether MirrorMaker runs cannot be seen") as refused:
        read(monkeypatch, FakeGroups(GroupListing({}), hidden))
    assert refused.value.where == "group east-mm2 on west"
    assert "DESCRIBE" in str(refused.value.resolve)


def test_an_alias_may_be_called_like_a_topic() -> None:
    """What names the configuration topic is the mode, not a word that an alias may hold, too."""
    mirror = MirrorMakerNames.dedicated("offsets-east", "west")
    assert mirror.offsets_topic == "mm2-offsets.offsets-east.internal"
    assert mirror.configs_topic == "mm2-configs.offsets-east.internal"


def test_in_a_connect_cluster_the_workers_group_is_named() -> None:
    """A group that does not exist looks exactly like one whose workers have stopped."""
    with pytest.raises(UsageError, match="whose offsets connect-offsets holds is not known") as refused:
        MIRROR.elsewhere("connect-offsets", None, None)
    assert "--connect-group" in str(refused.value.resolve)
    found = MIRROR.elsewhere("connect-offsets", None, "connect")
    assert (found.group, found.configs_topic) == ("connect", "connect-configs")


@pytest.mark.parametrize("offsets_topic", ["connect-positions", "offsets-of-offsets"])
def test_a_configuration_topic_is_not_guessed(offsets_topic: str) -> None:
    """The offsets topic itself would be read for it, or none, and nobody would be fenced."""
    with pytest.raises(UsageError, match="how the configuration topic"):
        MIRROR.elsewhere(offsets_topic, None, "connect")
    assert MIRROR.elsewhere(offsets_topic, "theirs", "connect").configs_topic == "theirs"


def test_without_the_configuration_topic_nobody_knows_whom_to_fence() -> None:
    target: Any = SimpleNamespace(alias="west", topics=lambda _: {})
    with pytest.raises(NeedsOperator, match=r"there is no topic mm2-configs\.east\.internal") as refused:
        adopt.read_tasks(target, MIRROR, {adopt.CONNECTOR})
    assert refused.value.code == "MM2_UNKNOWN"


def logs(*ends: int) -> FakeCluster:
    """Return a target where MirrorMaker's offsets are, and a copy of so many partitions, up to these ends."""
    copies = {"a": FakeTopic(UUID(int=2), [FakeLog(end=end) for end in ends])}
    return FakeCluster("west", {_OFFSETS.topic: FakeTopic(UUID(int=3), [FakeLog(end=5)]), **copies})


def grow(target: FakeCluster, tp: TopicPartition) -> None:
    """Have somebody write to a log, which is made where it is not there yet."""
    there = target.all_topics[tp.topic].logs
    there += [FakeLog() for _ in range(len(there), tp.partition + 1)]
    there[tp.partition].end += 10


class Adopting:
    """An adoption of a stopped MirrorMaker whose copies all end at source offset 50.

    Args:
        tasks: how many of them its configuration tells of.
        meanwhile: what happens while the copies are compared.
        finding: what comparing them tells, where that is something else.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        target: FakeCluster,
        *,
        tasks: int = 1,
        decided: Mapping[TopicPartition, int] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        finding: Finding | OnceoverError | None = None,
        mirror: MirrorMakerNames = MIRROR,
    ) -> None:
        def find(_: Seat) -> Finding:
            meanwhile()
            if isinstance(finding, OnceoverError):
                raise finding
            return finding or Seam(50, 49, 50)

        known = {adopt.CONNECTOR: tasks} if tasks else {}
        monkeypatch.setattr(adopt, "GroupAdmin", lambda _: FakeGroups(GroupListing({})))
        monkeypatch.setattr(adopt, "read_stored", lambda *_: ({ONE: 49}, {adopt.CONNECTOR}))
        monkeypatch.setattr(adopt, "read_tasks", lambda *_: known)
        monkeypatch.setattr(adopt, "SeamSearch", lambda *_: SimpleNamespace(find=find))
        monkeypatch.setattr(adopt, "fence", lambda *_: None)
        source: Any = SimpleNamespace(alias="east")
        self.place = FlowClusters("f", source, target)
        self.origin = MirrorMakerOrigin(mirror, decided or {}, settle_s=0)

    def read(self, *topics: SeatedTopic) -> SeedOffsets:
        return self.origin.read(self.place, topics)


NO_RIGHT = UsageError("west refuses fetch", code="NOT_AUTHORIZED", resolve="grant READ")


def codes(found: SeedOffsets) -> list[str]:
    return [refusal.code for refusal in found.remarks if refusal.blocks]


def test_logs_that_stand_still_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a partition is empty, and where a topic has not been copied, or is not there at all."""
    adopting = Adopting(monkeypatch, logs(1000, 0))
    found = adopting.read(topic(seat(0, target_end=1000), seat(1), seat(2)))
    assert (found.remarks, {tp: each.offset for tp, each in found.offsets.items()}) == (
        (),
        {ONE: 50, TWO: 0, TopicPartition("a", 2): 0},
    )


@pytest.mark.parametrize(
    "grown",
    [
        pytest.param((1010, 0), id="the last request of a task that was dying"),
        pytest.param((1000, 10), id="a partition that was empty"),
        pytest.param((1000, 0, 10), id="a partition that was not there"),
    ],
)
def test_what_grew_since_the_ends_were_read_is_somebody_who_writes(
    monkeypatch: pytest.MonkeyPatch, grown: tuple[int, ...]
) -> None:
    """The copy is compared up to where it ended then: what came later would be copied a second time."""
    found = Adopting(monkeypatch, logs(*grown)).read(topic(seat(0, target_end=1000), seat(1), seat(2)))
    assert (codes(found), found.offsets) == (["MM2_WRITES"], {})


@pytest.mark.parametrize("tp", [ONE, TWO, TopicPartition("a", 2), _OFFSETS], ids=str)
def test_what_grows_while_it_is_compared_is_somebody_who_writes(
    monkeypatch: pytest.MonkeyPatch, tp: TopicPartition
) -> None:
    target = logs(1000, 0)
    adopting = Adopting(monkeypatch, target, meanwhile=lambda: grow(target, tp))
    found = adopting.read(topic(seat(0, target_end=1000), seat(1), seat(2)))
    assert (codes(found), found.offsets) == (["MM2_WRITES"], {})


@pytest.mark.parametrize(
    ("connector", "source", "refused"),
    [("other", "east", []), ("mirror", "north", []), ("mirror", "east", ["MM2_WRITES"])],
)
def test_other_connectors_of_workers_that_stay_go_on_writing_offsets(
    monkeypatch: pytest.MonkeyPatch, connector: str, source: str, refused: list[str]
) -> None:
    """Their topic never stands still: what counts there is what this MirrorMaker has stored."""
    target, stored = logs(1000, 0), [entry(1, "mirror", "east")]

    def meanwhile() -> None:
        grow(target, _OFFSETS)
        stored.append(entry(11, connector, source))

    monkeypatch.setattr(adopt, "read_topic", lambda *_: ((_OFFSETS, each) for each in stored))
    mirror = replace(MIRROR, workers_stay=True)
    adopting = Adopting(monkeypatch, target, meanwhile=meanwhile, mirror=mirror)
    found = adopting.read(topic(seat(0, target_end=1000), seat(1)))
    assert (codes(found), bool(found.offsets)) == (refused, not refused)


def entry(offset: int, connector: str, source: str) -> Any:
    """Return a record of Connect's offsets topic; only those of mirrors name a cluster."""
    place = {"cluster": source, "partition": 0, "topic": "a"} if connector == "mirror" else {"file": "x"}
    return SimpleNamespace(offset=offset, key=json.dumps([connector, place]).encode(), value=b'{"offset": 1}')


@pytest.mark.parametrize("tasks", [0, 1])
def test_behind_an_open_transaction_nobody_knows_what_is_left(
    monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    """MirrorMaker's own is aborted by its fence. Behind anybody else's it may have written what will stay."""
    target = logs(1000, 70)
    target.all_topics["a"].logs[0].pending[7] = 900
    adopting = Adopting(monkeypatch, target, tasks=tasks)
    one = topic(seat(0, target_end=900), seat(1, target_end=70))
    if tasks:
        assert set(adopting.read(one).offsets) == {ONE, TWO}
    adopting.origin.prepare(adopting.place)
    found = adopting.read(one)
    assert (set(found.offsets), {tp: r.code for tp, r in found.refused.items()}) == (
        {TWO},
        {ONE: "MM2_WRITES"},
    )
    assert "offset 900" in found.refused[ONE].message


def adopted(adopting: Adopting, one: SeatedTopic) -> SeedPlan:
    """Return the plan of an adoption of this topic."""
    topics = TopicPlan(operation="topics", flow="f", enrol=("a",))
    return plan_seed("adopt", "f", [one], adopting.read(one), topics, Choice())


def test_progress_that_is_there_stays_whatever_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of decisions outlives the adoption that it was made for; `adopt` has no `--replace`."""
    adopting = Adopting(monkeypatch, logs(1000, 70), decided={ONE: 30, TWO: 40})
    one = topic(seat(0, target_end=1000, position=60), seat(1, target_end=70), enrolled=True)
    planned = adopted(adopting, one)
    assert {tp: each.offset for tp, each in planned.positions.items()} == {TWO: 40}
    (refusal,) = planned.refused
    assert (refusal.object, refusal.code) == ("a:0", "PROGRESS_EXISTS")
    assert refusal.resolve == "leave it out of the `--decided` file: it has its progress already"
    same = Adopting(monkeypatch, logs(1000), decided={ONE: 60})
    again = adopted(same, topic(one.seats[0], enrolled=True))
    assert (again.changes, again.refused) == ((), ())


def test_a_decided_offset_outside_the_log_is_corrected_in_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """`adopt` has no `--from`."""
    adopting = Adopting(monkeypatch, logs(1000), decided={ONE: 101})
    (refusal,) = adopted(adopting, topic(seat(0, start=7, target_end=1000))).refused
    assert (refusal.object, refusal.code) == ("a:0", "OUT_OF_RANGE")
    assert refusal.resolve == "correct the offset in the `--decided` file: name one from 7 to 100"


UNPROVEN = NoSeam(SeedingCode.GAP, "a record is missing")
DAMAGED = NeedsOperator("a record of the copy is damaged")


@pytest.mark.parametrize(
    ("tp", "offset", "finding", "expected"),
    [
        pytest.param(ONE, 60, None, ("skip", 10), id="beyond the copy"),
        pytest.param(ONE, 40, None, ("repeat", 10), id="within the copy"),
        pytest.param(ONE, 50, None, ("none", None), id="at its end"),
        pytest.param(ONE, 60, UNPROVEN, ("skip", 10), id="beyond what is stored"),
        pytest.param(ONE, 60, DAMAGED, ("skip", 10), id="beyond what is stored, a copy that cannot be read"),
        pytest.param(ONE, 50, UNPROVEN, ("repeat", None), id="behind it there may be more than is stored"),
        pytest.param(TWO, 60, UNPROVEN, ("repeat", None), id="nothing is stored"),
        pytest.param(TopicPartition("a", 2), 60, None, ("skip", 60), id="nothing is there"),
    ],
)
def test_of_a_decided_offset_it_is_said_what_is_skipped_and_what_comes_again(
    monkeypatch: pytest.MonkeyPatch,
    tp: TopicPartition,
    offset: int,
    finding: Finding | OnceoverError | None,
    expected: tuple[str, int | None],
) -> None:
    """Up to 50 the copy goes, or MirrorMaker has stored that it does; what is unknown is not made up."""
    adopting = Adopting(monkeypatch, logs(1000, 70, 0), decided={tp: offset}, finding=finding)
    place = seat(tp.partition, target_end=(1000, 70, 0)[tp.partition])
    found = adopting.read(topic(replace(seat(0), target_end=1000), place) if tp != ONE else topic(place))
    decided = found.offsets[tp]
    assert (decided.offset, decided.named, decided.reason.startswith("decided by the operator")) == (
        offset,
        True,
        True,
    )
    topics = TopicPlan(operation="topics", flow="f", enrol=("a",))
    only = SeedOffsets({tp: decided})
    (change, _) = plan_seed("adopt", "f", [topic(place)], only, topics, Choice()).changes
    assert (change.risk, change.records) == expected
    # Whoever has said yes to some that come again has said nothing about some that never come.
    if expected[0] == "skip":
        with pytest.raises(NeedsOperator):
            Approval.of([Item(f"position {tp} -> {offset}", "repeat"), Item("flow generation")]).check(
                plan_seed("adopt", "f", [topic(place)], only, topics, Choice()).items, "f"
            )


def test_what_may_not_be_read_is_said_of_a_decided_offset_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for decided in ({}, {ONE: 30}):
        barred = Adopting(monkeypatch, logs(1000), decided=decided, finding=NO_RIGHT)
        found = barred.read(topic(seat(0, target_end=1000), seat(1)))
        assert set(found.offsets) == {TWO}, "it keeps nothing from the others"
        refusal = found.refused[ONE]
        assert refusal.code == "NOT_AUTHORIZED" and refusal.resolve == NO_RIGHT.resolve
    with pytest.raises(UsageError, match="no login"):
        Adopting(monkeypatch, logs(1000), finding=UsageError("no login")).read(
            topic(seat(0, target_end=1000))
        )


@pytest.mark.parametrize("code", ["PROGRESS_EXISTS", "OUT_OF_RANGE"])
def test_progress_that_adoption_cannot_go_on_with_is_the_flows_matter(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """Somebody has moved it with a tool for groups, or the source has deleted what comes next."""
    doubt = NeedsOperator("somebody has moved it", code=StateCode.PROGRESS_FOREIGN)
    one = seat(0, target_end=1000, position=60)
    one = replace(one, doubt=doubt) if code == "PROGRESS_EXISTS" else replace(one, start=70)
    planned = adopted(Adopting(monkeypatch, logs(1000)), topic(one, enrolled=True))
    (refusal,) = planned.refused
    assert (planned.changes, refusal.code) == ((), code)
    assert refusal.resolve == "adoption leaves progress as it is: see `onceover status f` for what to do"


def configuration(source: str, target: str, **more: str) -> bytes:
    name = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    aliases = {"source.cluster.alias": source, "target.cluster.alias": target}
    return json.dumps({"properties": {"connector.class": name, **aliases, **more}}).encode()


def anchors(
    monkeypatch: pytest.MonkeyPatch, syncs: Mapping[tuple[str, str], tuple[int, int]], *configs: bytes
) -> Mapping[int, int]:
    """Return what is known of a partition's copy to whoever compares it.

    Args:
        syncs: source and target offset of its only sync, by cluster and topic.
        configs: what MirrorMaker's connectors are told.
    """
    known: dict[int, int] = {}

    def find(each: Anchors) -> SimpleNamespace:
        return SimpleNamespace(find=lambda one: known.update(each(one.source)) or Seam(50, 49, 50))

    def read_topic(cluster: Any, topic: str) -> Iterator[tuple[TopicPartition, Any]]:
        records = [(b"connector-%d" % number, value) for number, value in enumerate(configs)]
        if topic != MIRROR.configs_topic:
            assert topic.startswith("mm2-offset-syncs.")
            sync = syncs.get((cluster.alias, topic))
            records = [] if sync is None else [encode_offset_sync(ONE, *sync)]
        for key, value in records:
            yield TopicPartition(topic, 0), SimpleNamespace(key=key, value=value)

    adopting = Adopting(monkeypatch, logs(1000))
    monkeypatch.setattr(adopt, "SeamSearch", lambda _here, _there, each, _limit: find(each))
    monkeypatch.setattr(adopt, "read_topic", read_topic)
    assert ONE in adopting.read(topic(seat(0, target_end=1000))).offsets
    return known


HERE, THERE = ("east", "mm2-offset-syncs.west.internal"), ("west", "mm2-offset-syncs.east.internal")
OURS, OTHERS = configuration("east", "west"), configuration("west", "east")
ON_TARGET = {"offset-syncs.topic.location": "target"}


def test_offset_syncs_of_a_mirrormaker_the_other_way_are_not_taken_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They speak of the target's partition of that name; its topic is called as ours would be over there."""
    assert anchors(monkeypatch, {HERE: (7, 5), THERE: (70, 50)}, OURS, OTHERS) == {5: 7}
    assert anchors(monkeypatch, {THERE: (70, 50)}, OURS) == {}


def test_offset_syncs_are_read_where_the_connector_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side's topic is then that of one the other way that was told the same."""
    ours = configuration("east", "west", **ON_TARGET)
    assert anchors(monkeypatch, {HERE: (7, 5), THERE: (70, 50)}, ours) == {50: 70}


@pytest.mark.parametrize(
    "configs",
    [
        (),
        (OTHERS,),
        (OURS, configuration("east", "west", **ON_TARGET)),
        (configuration("east", "west", **{"offset-syncs.topic.location": "${env:LOCATION}"}),),
    ],
    ids=["none", "another's", "two", "somewhere else"],
)
def test_where_offset_syncs_are_is_not_guessed(
    monkeypatch: pytest.MonkeyPatch, configs: tuple[bytes, ...]
) -> None:
    """Among identical records any of them would seem right."""
    assert anchors(monkeypatch, {HERE: (7, 5), THERE: (70, 50)}, *configs) == {}
