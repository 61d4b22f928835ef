"""Heartbeats: one says that the flow runs, the other one only what has been copied. And groups that hide."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from onceover.clock import now_ms
from onceover.errors import NeedsOperator, Retriable
from onceover.groups.decide import Direction, PartitionFacts
from onceover.groups.plan import GroupFacts, GroupView
from onceover.kafka.calls import READ_UNCOMMITTED, CommittedOffset
from onceover.kafka.each import Each
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.mirrormaker import look as mirrorrounds
from onceover.mirrormaker.look import CheckpointRound, HeartbeatRound
from onceover.mirrormaker.records import MirrorSettings
from onceover.model import TopicPartition
from onceover.state.records.enrolment import Enrolment
from onceover.state.records.progress import first_progress
from onceover.wire.offsetlookup import Translated

RUNNING, COPYING = "heartbeats", "east.heartbeats"
KEY = b"\x00\x04east\x00\x04west"
INTERVAL_S = 1000.0
SETTINGS = MirrorSettings(False, False, True, 60.0, INTERVAL_S, str.isalpha)
AT_ONCE = replace(SETTINGS, heartbeat_interval_s=0.0)
T = TypeVar("T")


class FakeTopic:
    """What is written to a topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.times: list[int] = []
        self.problem: Exception | None = None

    def write(self, records: Mapping[bytes, bytes]) -> None:
        if self.problem is not None:
            raise self.problem
        ((key, value),) = records.items()
        assert key == KEY
        self.times.append(int.from_bytes(value[2:], "big"))


class FakeCheckpoints:
    """What is written to the topic of checkpoints."""

    def __init__(self, *_: object) -> None:
        self.groups: list[bytes] = []

    def write(self, records: Mapping[bytes, bytes]) -> None:
        self.groups += [key[2 : 2 + key[1]] for key in records]


class FakeView:
    """A flow with topics of one partition, ten records each on the source when a heartbeat is sent off.

    Args:
        known: what is enrolled; ``positions`` how far it is copied, by target topic.
        sources: which topics there are; ``targets`` likewise.
        high: how far the source's logs reach now.
        stops: target partitions that are stopped.
        put: positions that are others than ``positions`` says, or have something else beside them.
    """

    def __init__(self, *topics: str) -> None:
        self.known = {topic: enrolment(topic) for topic in topics}
        self.positions: dict[str, int] = {}
        self.sources = {topic: e.source_id for topic, e in self.known.items()}
        self.targets = {topic: e.target_id for topic, e in self.known.items()}
        self.high = dict.fromkeys(topics, 12)
        self.stops: set[TopicPartition] = set()
        self.grown: set[str] = set()
        self.put: dict[TopicPartition, CommittedOffset] = {}
        self.source = self.cluster("east", self.sources)
        self.target = self.cluster("west", self.targets)

    def cluster(self, alias: str, ids: Mapping[str, uuid.UUID]) -> SimpleNamespace:
        def each_topic(names: Iterable[str]) -> Each[str, TopicInfo]:
            return Each({name: self.topic(name, ids[name]) for name in names if name in ids})

        return SimpleNamespace(
            alias=alias,
            retry=self.retry,
            list_offsets=self.list_offsets,
            each_offset=self.each_offset,
            each_topic=each_topic,
        )

    def topic(self, name: str, topic_id: uuid.UUID) -> TopicInfo:
        count = 2 if name in self.grown else 1
        return TopicInfo(name, topic_id, dict.fromkeys(range(count), PartitionInfo(1, 0)), False)

    def retry(self, attempt: Callable[[], T]) -> T:
        return attempt()

    def list_offsets(self, partitions: Iterable[TopicPartition], _: int) -> dict[TopicPartition, int]:
        return {tp: min(10, self.high[tp.topic]) for tp in partitions}

    def each_offset(
        self, partitions: Iterable[TopicPartition], _: int, isolation: int
    ) -> Each[TopicPartition, int]:
        assert isolation == READ_UNCOMMITTED
        return Each({tp: self.high[tp.topic] for tp in partitions if tp.topic in self.high})

    def enrolments(self) -> dict[str, Enrolment]:
        return self.known

    def progress(self) -> dict[TopicPartition, CommittedOffset]:
        copied = {t: first_progress(self.known[t], offset, 1) for t, offset in self.positions.items()}
        return {TopicPartition(t, 0): CommittedOffset(0, *at) for t, at in copied.items()} | self.put

    def stopped(self) -> set[TopicPartition]:
        return self.stops


def enrolment(topic: str, *, active: bool = True) -> Enrolment:
    return Enrolment(topic, topic, uuid.uuid4(), uuid.uuid4(), {0: 0}, 0, active)


def heartbeats(view: Any) -> HeartbeatRound:
    return HeartbeatRound(view, 1)


class Case:
    """A round over fakes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *topics: str) -> None:
        self.view = FakeView(*topics)
        self.topics: dict[str, FakeTopic] = {}
        monkeypatch.setattr(mirrorrounds, "MirrorTopic", self.topic)
        self.round = heartbeats(self.view)

    def topic(self, _cluster: object, name: str, _factor: int) -> FakeTopic:
        return self.topics.setdefault(name, FakeTopic(name))

    def run(self, settings: MirrorSettings = SETTINGS) -> float:
        return self.round.run(settings)


def test_a_heartbeat_is_replicated_when_all_that_was_there_before_it_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And is looked for often until then."""
    case, begun_ms = Case(monkeypatch, "a", "b"), now_ms()
    case.view.positions = {"a": 10, "b": 9}
    assert case.run() == INTERVAL_S / 10
    assert (len(case.topics[RUNNING].times), case.topics[COPYING].times) == (1, [])
    case.view.positions["b"] = 10
    assert case.run() > INTERVAL_S / 10
    assert len(case.topics[RUNNING].times) == 1
    (at_ms,) = case.topics[COPYING].times
    assert begun_ms <= at_ms <= now_ms()


def test_a_topic_without_progress_holds_the_heartbeat_and_one_that_left_the_flow_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, "a", "b")
    case.view.positions = {"a": 10}
    case.run()
    assert case.topics[COPYING].times == []
    case.view.known["b"] = enrolment("b", active=False)
    case.run()
    assert len(case.topics[COPYING].times) == 1


def test_a_flow_that_copied_all_replicates_its_heartbeat_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, "a")
    case.view.positions = {"a": 12}
    assert case.run() > INTERVAL_S / 10
    assert len(case.topics[COPYING].times) == 1


def recreate(view: FakeView) -> None:
    view.sources["a"] = uuid.uuid4()


def recreate_copy(view: FakeView) -> None:
    view.targets["a"] = uuid.uuid4()


def delete(view: FakeView) -> None:
    del view.sources["a"]


def delete_copy(view: FakeView) -> None:
    del view.targets["a"]


def shorten(view: FakeView) -> None:
    view.high["a"] = 9


def hide_end(view: FakeView) -> None:
    del view.high["a"]


def stop(view: FakeView) -> None:
    view.stops.add(TopicPartition("a", 0))


def grow(view: FakeView) -> None:
    """Add partitions, which nobody has enrolled yet, or which is refused."""
    view.grown.add("a")


def grow_and_enrol(view: FakeView) -> None:
    """Enrol them while the heartbeat is under way: what they held when it was sent off is not copied."""
    grow(view)
    view.known["a"] = replace(view.known["a"], start={0: 0, 1: 0})
    view.put[TopicPartition("a", 1)] = CommittedOffset(0, *first_progress(view.known["a"], 4, 1))


def accept_for_others(view: FakeView) -> None:
    """Let the flow copy other topics of these names, but for this partition."""
    former = view.known["a"]
    anew = enrolment("a")
    view.known["a"] = replace(anew, former={0: former.ids})
    view.sources["a"], view.targets["a"] = anew.source_id, anew.target_id
    view.put[TopicPartition("a", 0)] = CommittedOffset(0, *first_progress(former, 10, 1))


def move_by_hand(view: FakeView) -> None:
    view.put[TopicPartition("a", 0)] = CommittedOffset(0, 10, -1, "")


@pytest.mark.parametrize(
    "happen",
    [
        recreate,
        recreate_copy,
        delete,
        delete_copy,
        shorten,
        hide_end,
        stop,
        grow,
        grow_and_enrol,
        accept_for_others,
        move_by_hand,
    ],
)
def test_no_heartbeat_is_replicated_where_positions_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, happen: Callable[[FakeView], None]
) -> None:
    """The position is where it was: behind all that a shorter log, or an empty one of that name, holds.

    The sign that the flow runs is written all the same.
    """
    case = Case(monkeypatch, "a", "b")
    case.view.positions = {"a": 10, "b": 9}
    case.run(AT_ONCE)
    case.view.positions["b"] = 10
    happen(case.view)
    for _ in range(2):
        case.run(AT_ONCE)
    assert (len(case.topics[RUNNING].times), case.topics[COPYING].times) == (3, [])


def test_heartbeats_go_on_where_a_stop_is_resolved_or_its_topic_has_left_the_flow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, "a", "b")
    case.view.positions = {"a": 10, "b": 10}
    case.view.stops = {TopicPartition("a", 0), TopicPartition("b", 0)}
    case.run()
    assert case.topics[COPYING].times == []
    case.view.stops.remove(TopicPartition("b", 0))
    case.view.known["a"] = replace(case.view.known["a"], active=False)
    case.run()
    assert len(case.topics[COPYING].times) == 1


def test_a_heartbeat_that_waits_for_a_topic_that_is_gone_does_not_hold_up_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator has let the flow copy the new topic of that name, which has fewer records."""
    case = Case(monkeypatch, "a")
    case.view.positions = {"a": 7}
    case.run(AT_ONCE)
    case.view.known["a"] = anew = enrolment("a")
    case.view.sources["a"], case.view.targets["a"] = anew.source_id, anew.target_id
    case.view.high["a"] = 3
    case.view.positions = {"a": 3}
    case.run(AT_ONCE)
    assert len(case.topics[COPYING].times) == 1


@pytest.mark.parametrize("name", [RUNNING, COPYING])
def test_a_heartbeat_that_could_not_be_written_is_due_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Otherwise the look after a failure would write nothing and count as a success."""
    case = Case(monkeypatch, "a")
    case.view.positions = {"a": 10}
    case.topics[name].problem = Retriable("the target is away")
    for _ in range(2):
        with pytest.raises(Retriable):
            case.run()
    case.topics[name].problem = None
    case.run()
    assert len(case.topics[name].times) == 1


def test_heartbeats_are_not_put_among_what_the_flow_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, "a", COPYING)
    with pytest.raises(NeedsOperator, match=f"{COPYING} is one that the flow copies to"):
        case.run()
    assert case.topics[RUNNING].times == []


TP = TopicPartition("a", 0)
READ = PartitionFacts(giving=TP, receiving=TP, committed=3, copied=10, translation=Translated(3), end=10)
AWAY = Retriable("its coordinator is away")


def look_at(monkeypatch: pytest.MonkeyPatch, *groups: GroupFacts) -> tuple[CheckpointRound, FakeCheckpoints]:
    """Return a round that meets these groups, and what it writes."""
    seen = GroupView("f", Direction.FAILOVER, "east", "west", groups, (), 0)
    written = FakeCheckpoints()
    monkeypatch.setattr(mirrorrounds, "MirrorTopic", lambda *_: written)
    monkeypatch.setattr(mirrorrounds, "Translator", lambda *_, **__: None)
    monkeypatch.setattr(mirrorrounds, "GroupReader", lambda *_, **__: SimpleNamespace(read=lambda: seen))
    view: Any = FakeView("a")
    return checkpoints(view), written


def checkpoints(view: Any) -> CheckpointRound:
    return CheckpointRound("f", view, Path("unused"), 1)


def test_a_group_that_cannot_be_read_is_told_and_the_others_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden = GroupFacts(name="hidden", type="classic", error=AWAY)
    plain = GroupFacts(name="plain", type="consumer", partitions=(READ,))
    look, written = look_at(monkeypatch, hidden, plain)
    with pytest.raises(NeedsOperator, match="where: hidden") as error:
        look.run(SETTINGS)
    assert error.value.code == "GROUPS_UNREADABLE"
    assert written.groups == [b"plain"]


def test_a_share_group_has_no_offsets_to_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    share = GroupFacts(name="hidden", type="share", error=AWAY)
    plain = GroupFacts(name="plain", type="classic", partitions=(READ,))
    look, written = look_at(monkeypatch, share, plain)
    assert look.run(SETTINGS) == SETTINGS.checkpoint_interval_s
    assert written.groups == [b"plain"]


def test_with_the_source_gone_a_round_is_tried_again_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody has to decide anything: it passes."""
    round_, written = look_at(monkeypatch)
    gone = GroupView("f", Direction.FAILOVER, "east", "west", (), (), 0, away=AWAY)
    monkeypatch.setattr(round_, "_reader", SimpleNamespace(read=lambda: gone))
    with pytest.raises(Retriable, match="its coordinator is away"):
        round_.run(SETTINGS)
    assert written.groups == []
