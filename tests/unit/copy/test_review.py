"""What a lane decides about its partitions: evidence goes first, doubt waits, and nobody waits with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from onceover.copy import review as review_module
from onceover.copy.review import Reviewed, Reviewer
from onceover.copy.waits import Waits
from onceover.errors import NotNow, Retriable, UsageError
from onceover.handling.lanehandler import LaneHandler
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.logs.fetcher import Position
from onceover.kafka.ports import Acknowledged, Outgoing, PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.resume import told as told_module
from onceover.resume.resume import LaneWriter, PartitionsSeen, Problem
from onceover.resume.told import ToldProgress
from onceover.state import names
from onceover.state.records.enrolment import Enrolment
from onceover.stops.aside import Troubles, TroubleSide
from onceover.stops.codes import StopCode
from onceover.stops.judge import Evidence, TopicSeen
from onceover.stops.undecided import LeftOpen, OpenTransaction
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.unpack import Ceiling
from onceover.wire.hotpath import DivergingEpoch
from onceover.wire.progress import NOBODY, ProgressMeta
from tests.unit.copy.batches import answer, stored
from tests.unit.stops.test_aside import Clock

SOURCE_ID, TARGET_ID = UUID(int=1), UUID(int=2)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ENROLLED = {tp: Enrolment("t", "copy", SOURCE_ID, TARGET_ID, {0: 0, 1: 0}, 1) for tp in (A, B)}
TOPICS = {"t": TopicInfo("t", SOURCE_ID, {0: PartitionInfo(1, 0), 1: PartitionInfo(1, 0)}, False)}
CEILING = Ceiling(1 << 20, 1 << 22)
DENIED = UsageError("error 29", code="NOT_AUTHORIZED")


def evidence(tp: TopicPartition, **changes: Any) -> Evidence:
    """Return what speaks for going on."""
    good = Evidence(
        flow="f",
        source=tp,
        target=TopicPartition("copy", tp.partition),
        enrolled_source_id=SOURCE_ID,
        enrolled_target_id=TARGET_ID,
        position=7,
        meta=None,
        source_topic=TopicSeen(SOURCE_ID, 2),
        target_topic=TopicSeen(TARGET_ID, 2),
        log_end=9,
    )
    return replace(good, **changes)


class FakeFetcher:
    def __init__(self) -> None:
        self.positions: dict[TopicPartition, Position] = {}

    def assign(self, tp: TopicPartition, position: Position) -> None:
        self.positions[tp] = position

    def remove(self, tp: TopicPartition) -> None:
        self.positions.pop(tp, None)


class Scene:
    """A reviewer over what the test says that is seen next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.troubles = Troubles(clock=self.clock)
        self.fetcher = FakeFetcher()
        self.seen: dict[TopicPartition, Evidence | Problem] = {A: evidence(A), B: evidence(B)}
        self.asked: list[set[TopicPartition]] = []
        self.away: Retriable | None = None
        self.position = 7
        cluster: Any = SimpleNamespace(alias="east", retry=lambda ask, *_: ask())
        cluster.hasty = lambda _: _Open(cluster)
        self.review = Reviewer(
            "f",
            cluster,
            cluster,
            self.fetcher,  # pyrefly: ignore[bad-argument-type]
            LaneHandler(),
            {},
            self.troubles,
            CEILING,
            lambda stop: stop,
            lambda: LaneWriter(7, alone=True, mixed=False),
            ToldProgress("f", cluster),
        )
        monkeypatch.setattr(review_module, "gather", self._gather)
        monkeypatch.setattr(told_module, "read_progress", lambda *_: Each())
        monkeypatch.setattr("onceover.copy.review.time.monotonic", self.clock)

    def _gather(
        self, _flow: str, _source: object, _target: object, some: Mapping[TopicPartition, object], *_: object
    ) -> PartitionsSeen:
        self.asked.append(set(some))
        if self.away is not None:
            raise self.away
        seen = {tp: what for tp, what in self.seen.items() if tp in some}
        return PartitionsSeen(
            {tp: what for tp, what in seen.items() if isinstance(what, Evidence)},
            {tp: what for tp, what in seen.items() if isinstance(what, Problem)},
            TOPICS,
            dict.fromkeys(seen, self.position),
        )

    def begin(self, *staying: TopicPartition, noted: tuple[TopicPartition, ...] = ()) -> Reviewed:
        return self.review.begin(ENROLLED, Each(), staying, noted)

    def look(self, seconds: float = 0.0) -> Reviewed:
        """Look whenever something is due, for so long; return the last decision."""
        end_s, found = self.clock.now_s + seconds, Reviewed()
        while not found.going and not found.stops:
            if self.review.due:
                found = self.review.look({})
            self.clock.now_s += 0.05
            if self.clock.now_s > end_s:
                break
        return found


class _Open:
    """A cluster that is opened for a look."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __enter__(self) -> Any:
        return self._cluster

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_what_is_well_goes_on_and_what_has_stopped_stays_so(scene: Scene) -> None:
    """Stopped partitions are not even asked about."""
    found = scene.begin(B)
    assert set(found.going) == {A} == set(scene.fetcher.positions)
    assert scene.asked == [{A}]
    assert not found.stops and not scene.review.waiting and not scene.review.due


def test_a_stop_of_before_is_taken_back_when_its_partition_goes_on(scene: Scene) -> None:
    """Named by its target."""
    assert scene.begin(noted=(TopicPartition("copy", 0),)).resumed == {TopicPartition("copy", 0)}


@pytest.mark.parametrize(
    ("side", "code"),
    [(TroubleSide.SOURCE, "SOURCE_UNAUTHORIZED"), (TroubleSide.TARGET, "TARGET_UNAUTHORIZED")],
)
def test_what_is_not_answered_waits_then_stops(scene: Scene, side: TroubleSide, code: str) -> None:
    """The other goes on from the beginning; the stop keeps the position, which tells it from later ones."""
    scene.seen[A] = Problem(side, DENIED)
    assert set(scene.begin().going) == {B}
    assert list(scene.review.waiting) == [A]
    (stop,) = scene.look(10).stops.values()
    assert (stop.code, stop.position, stop.seen) == (code, 7, "error 29")
    assert scene.clock.now_s - 1000 > 3 and not scene.review.waiting


def test_what_is_answered_in_time_goes_on(scene: Scene) -> None:
    """From the evidence of that moment."""
    scene.seen[A] = Problem(TroubleSide.SOURCE, NotNow("error 6"))
    scene.begin()
    assert not scene.look(20).going
    scene.seen[A] = evidence(A, position=8)
    found = scene.look(20)
    assert found.going[A].position == 8 and scene.fetcher.positions[A].offset == 8


@pytest.mark.parametrize(
    ("bad", "code"),
    [(answer(error=29), "SOURCE_UNAUTHORIZED"), (answer(error=2), "SOURCE_UNREADABLE")],
    ids=["no right", "corrupt"],
)
def test_fetch_errors_that_the_evidence_says_nothing_of_stop_in_the_end(
    scene: Scene, bad: Any, code: str
) -> None:
    """Everything looks well, each time it is read again, and each time Fetch says no."""
    scene.begin()
    rounds = 0
    while not (found := scene.look(20)).stops:
        scene.review.unreadable(A, bad)
        assert A not in scene.fetcher.positions
        rounds += 1
    assert [stop.code for stop in found.stops.values()] == [code]
    assert 3 <= rounds <= 12


def test_a_fetch_that_is_answered_clears_the_record(scene: Scene) -> None:
    """Leaders may move as often as they like."""
    scene.begin()
    for _ in range(100):
        scene.review.unreadable(A, answer(error=6))
        assert set(scene.look(1).going) == {A}
        scene.review.readable(A)
        scene.clock.now_s += 1
    assert not scene.troubles


@pytest.mark.parametrize("bad", [answer(error=1), answer(error=100), answer(diverging=DivergingEpoch(3, 5))])
def test_a_changed_log_is_judged_by_the_evidence_without_delay(scene: Scene, bad: Any) -> None:
    """Truncated: its own stop, as at a start."""
    scene.begin()
    scene.seen[A] = evidence(A, log_start=8)
    scene.review.unreadable(A, bad)
    assert scene.review.due
    assert [stop.code for stop in scene.review.look({}).stops.values()] == ["SOURCE_TRUNCATED"]


OTHER = TopicSeen(UUID(int=99), 2)
PASSING = [
    ({"log_end": 6}, "SOURCE_DIVERGED"),
    ({"source_topic": None}, "SOURCE_MISSING"),
    ({"source_topic": OTHER}, "SOURCE_RECREATED"),
    ({"source_topic": TopicSeen(SOURCE_ID, 0)}, "SOURCE_SHRUNK"),
    ({"target_topic": None}, "TARGET_MISSING"),
    ({"target_topic": OTHER}, "TARGET_RECREATED"),
    ({"target_topic": TopicSeen(TARGET_ID, 0)}, "TARGET_SHRUNK"),
]


@pytest.mark.parametrize(("changes", "code"), [*PASSING, ({"log_start": 8}, "SOURCE_TRUNCATED")])
def test_only_what_a_broker_may_not_know_yet_is_looked_at_again(
    scene: Scene, changes: dict[str, Any], code: str
) -> None:
    """A high watermark trails the log for a moment, and metadata the cluster; a log's start does not."""
    scene.seen[A] = evidence(A, **changes)
    found = scene.begin()
    if code != "SOURCE_TRUNCATED":
        assert not found.stops and list(scene.review.waiting) == [A]
        found = scene.look(10)
        assert scene.clock.now_s - 1000 >= 5
    assert [stop.code for stop in found.stops.values()] == [code]


@pytest.mark.parametrize("changes", [changes for changes, _ in PASSING], ids=[code for _, code in PASSING])
@pytest.mark.parametrize("answered", [True, False])
def test_one_answer_of_a_broker_that_is_behind_stops_nobody(
    scene: Scene, changes: dict[str, Any], answered: bool
) -> None:
    """The topic was made, or has grown, a moment ago: a reseed would bring its records a second time."""
    if answered:
        scene.seen[A] = evidence(A, **changes)
        assert not scene.begin().stops
    else:
        scene.begin()
        scene.seen[A] = evidence(A, **changes)
        scene.review.unreadable(A, answer(error=3))
        assert not scene.review.look({}).stops
    scene.seen[A] = evidence(A)
    assert set(scene.look(10).going) == {A}


def test_what_is_gone_is_told_soon_also_where_it_was_written_to(scene: Scene) -> None:
    """An error to Produce is waited for longer, because its leader may move. This says more."""
    for _ in range(2):
        scene.troubles.note(A, TroubleSide.TARGET, NotNow("error 3"))
    scene.seen[A] = evidence(A, target_topic=None)
    assert not scene.begin().stops
    assert [stop.code for stop in scene.look(20).stops.values()] == ["TARGET_MISSING"]
    assert 5 <= scene.clock.now_s - 1000 < 7


def test_looks_that_are_far_apart_prove_nothing_together(scene: Scene) -> None:
    """In between it was there, and only what it had met while it was written was not over."""
    for _ in range(3):
        scene.troubles.note(A, TroubleSide.TARGET, NotNow("error 19"))
    scene.clock.now_s += 10
    for _ in range(4):
        scene.seen[A] = evidence(A, target_topic=None)
        assert not scene.begin().stops
        scene.seen[A] = evidence(A)
        assert A in scene.look(10).going
        scene.clock.now_s += 5


def test_trouble_of_before_is_waited_with_beside_the_others(scene: Scene) -> None:
    """A partition that cost the lane its transaction does not cost it the next one at once."""
    for _ in range(3):
        scene.troubles.note(A, TroubleSide.TARGET, NotNow("error 6"))
    assert set(scene.begin().going) == {B}
    assert scene.asked == [{B}]
    assert not scene.look(4).going
    assert set(scene.look(4).going) == {A}


def test_a_cluster_that_is_away_as_a_whole_is_nobodys_fault(scene: Scene) -> None:
    """Looked at again later; the loop that copies has its own way of noticing."""
    scene.seen[A] = Problem(TroubleSide.SOURCE, DENIED)
    scene.begin()
    scene.away = Retriable("no broker answers")
    assert not scene.look(60).stops
    assert list(scene.review.waiting) == [A]
    scene.away, scene.seen[A] = None, evidence(A)
    assert set(scene.look(10).going) == {A}


def worn_out(scene: Scene) -> None:
    """Have A in trouble for longer than anybody waits, the last time just now."""
    for _ in range(6):
        scene.troubles.note(A, TroubleSide.SOURCE, NotNow("error 6"))
        scene.clock.now_s += 14


def test_old_trouble_stops_nobody(scene: Scene) -> None:
    """Another process had the lane meanwhile, and the stop it wrote or heeded was resumed there."""
    worn_out(scene)
    scene.clock.now_s += 600
    found = scene.begin()
    assert not found.stops and set(found.going) == {A, B}


def test_trouble_at_another_position_stops_nobody(scene: Scene) -> None:
    """However fresh: it was copied on since, by another process of the same lane."""
    scene.troubles.note(A, TroubleSide.SOURCE, NotNow("error 6"))
    scene.seen[A] = Problem(TroubleSide.SOURCE, NotNow("error 6"))
    scene.clock.now_s += 1
    scene.begin()
    worn_out(scene)
    assert scene.troubles.lasting(A, TroubleSide.SOURCE)
    scene.seen[A], scene.position = evidence(A, position=8), 8
    found = scene.begin()
    assert not found.stops and set(found.going) == {A, B}


def test_trouble_at_the_same_position_stops(scene: Scene) -> None:
    """Nothing says that it has passed."""
    worn_out(scene)
    scene.begin()
    worn_out(scene)
    assert [stop.code for stop in scene.begin().stops.values()] == ["SOURCE_UNREADABLE"]


@pytest.mark.parametrize(
    "bad",
    [
        evidence(A, position=9, log_end=8),
        Problem(TroubleSide.TARGET, NotNow("error 6")),
        Problem(TroubleSide.SOURCE, DENIED),
    ],
    ids=["too short", "target", "source"],
)
def test_the_note_of_an_idle_partition_is_taken_back_when_it_goes_on(
    scene: Scene, bad: Evidence | Problem
) -> None:
    """In the very claim: nothing of it may ever be committed again, on a quiet topic."""
    waits, targets = Waits(1), {tp: TopicPartition("copy", tp.partition) for tp in (A, B)}
    scene.seen[A] = bad
    scene.begin()
    for _ in range(2):
        scene.look(0.6)
    assert list(waits.changes(scene.troubles, targets)) == [names.wait_key("copy", 0)]
    scene.seen[A] = evidence(A)
    assert set(scene.look(10).going) == {A}
    assert waits.changes(scene.troubles, targets) == {names.wait_key("copy", 0): None}


def test_a_look_does_not_clear_what_a_transaction_has_met(scene: Scene) -> None:
    """Its note would come and go, and its patience begin anew each time."""
    for _ in range(2):
        scene.troubles.note(A, TroubleSide.TARGET, NotNow("error 19"))
    assert set(scene.begin().going) == {A, B}
    assert scene.troubles.of(A)[TroubleSide.TARGET].tries == 2


@pytest.mark.parametrize(
    ("producer", "instance", "at_once"),
    [(None, (1, 1), None), (4, (1, 1), 9), (None, NOBODY, 9)],
    ids=["of a handler's time", "of a lane that wrote alone", "of nobody"],
)
def test_the_id_stands_beside_a_position_behind_which_nobody_else_has_written(
    scene: Scene, producer: int | None, instance: tuple[int, int], at_once: int | None
) -> None:
    """A handler of before may have given it records of others: no id until one of its own follows."""
    meta = ProgressMeta(str(SOURCE_ID), str(TARGET_ID), -1, 40, 1, instance, producer=producer)
    scene.seen[A] = evidence(A, meta=meta, target_end=44)
    copy = scene.begin().going[A]
    assert copy.metadata(2, (5, 3), 9).producer == at_once
    data = bytearray(stored(7))
    copy.acknowledged(Acknowledged(Outgoing(copy.target, parse_header(data), data, A, ((7, 1),)), 44))
    assert copy.metadata(2, (5, 3), 9).producer == 9
    assert copy.metadata(2, (5, 3), None).producer is None


def left_open(first: int, known_end: int = 9) -> Evidence:
    """Return the same with a transaction of the lane open on the target."""
    meta = ProgressMeta(str(SOURCE_ID), str(TARGET_ID), -1, known_end, 1, (1, 1))
    return evidence(A, meta=meta, target_end=12, left_open=OpenTransaction(first, None))


@pytest.mark.parametrize(("first", "committed"), [(3, True), (9, False)])
def test_what_was_left_open_is_ended_before_the_partition_goes_on(
    scene: Scene, first: int, committed: bool
) -> None:
    """As it was meant to end; its neighbour waits no longer than that takes."""
    scene.seen[A] = left_open(first)
    found = scene.begin()
    assert found.left_open == {TopicPartition("copy", 0): committed}
    assert set(found.going) == {B}
    scene.seen[A] = evidence(A)
    assert set(scene.begin().going) == {A, B}
    assert not scene.troubles


def test_what_was_left_open_is_never_ended_while_others_are_copied(scene: Scene) -> None:
    """There the last transaction may still be on its way: only a new session can tell."""
    scene.seen[A] = Problem(TroubleSide.TARGET, Retriable("away", code=KafkaCode.NO_LEADER))
    assert set(scene.begin().going) == {B}
    scene.seen[A] = left_open(3)
    with pytest.raises(LeftOpen):
        scene.look(5.0)


def test_what_is_ended_in_vain_stops_the_partition(scene: Scene) -> None:
    """With the tool that ends it for good, and not before a broker had some seconds to do it."""
    scene.seen[A] = left_open(3)
    begun_s, found = scene.clock.now_s, scene.begin()
    while not found.stops:
        scene.clock.now_s += 0.5
        found = scene.begin()
    assert found.stops[TopicPartition("copy", 0)].code == StopCode.TARGET_UNDECIDED
    assert 10.0 <= scene.clock.now_s - begun_s < 20.0
