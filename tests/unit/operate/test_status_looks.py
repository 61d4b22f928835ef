"""Two looks at a flow: what a cluster does not say is neither fine nor gone, and why is never forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import pytest

from onceover.backoff import Patience
from onceover.cli.terminal.statustext import describe
from onceover.copy.waits import slowed_note
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.metrics.catalogue import OLDEST, TOPIC_OLDEST
from onceover.metrics.fromstatus import flow_figures
from onceover.model import TopicPartition
from onceover.operate import status as module
from onceover.operate.status import flow_status
from onceover.operate.statusfacts import StatusFacts, StatusSide
from onceover.operate.statusjudge import judge_all
from onceover.operate.statusread import FlowFacts, SourceLogs, TargetLogs
from onceover.operate.statusshape import oldest_of, shape
from onceover.state.records.enrolment import Enrolment, LeftAt
from onceover.state.records.firstlook import FirstLook
from onceover.state.records.layout import DONE, FAILED, Layout
from onceover.state.records.progress import promoted_progress
from onceover.wire.progress import NOBODY, ProgressMeta
from tests.unit.copy.loop import ME

T = TypeVar("T")
SOURCE_ID, TARGET_ID = UUID(int=1), UUID(int=2)
TP = TopicPartition("orders", 0)
OUTSIDE = TopicPartition("payments", 0), TopicPartition("payments", 1)
REFUSED = UsageError("east refuses metadata", code="NOT_AUTHORIZED", where="orders", resolve="grant")
AWAY = Retriable("east is away")


class Source:
    """A source that lists no topic, and answers ``by_name`` when it is asked for one, look for look."""

    alias, expected_id = "east", "S"

    def __init__(self, *by_name: OnceoverError | None) -> None:
        self.patience = Patience(1.0)
        self._answers = list(by_name)

    def retry(self, attempt: Callable[[], T], _deadline: object = None) -> T:
        return attempt()

    def topics(self, names: Sequence[str] | None = None) -> dict[str, TopicInfo]:
        return {}

    def each_topic(self, names: Sequence[str]) -> Each[str, TopicInfo]:
        answer = self._answers.pop(0)
        if isinstance(answer, Retriable):
            raise answer
        return Each({}, {} if answer is None else dict.fromkeys(names, answer))


class Target:
    """A target that answers."""

    alias, expected_id = "west", "T"

    def __init__(self) -> None:
        self.patience = Patience(1.0)

    def retry(self, attempt: Callable[[], T], _deadline: object = None) -> T:
        return attempt()

    def cluster_id(self) -> str:
        return self.expected_id


def test_what_lanes_of_this_generation_say_of_themselves_is_shown(
    look: Callable[..., dict[str, Any]],
) -> None:
    """Not what was left by lanes that there are no more."""
    state = facts()
    others = {**slowed_note(replace(ME, lane=0, generation=1), "west"), **slowed_note(ME, "west")}
    state.read({}, others)
    notes = look(None, None, state=state)["notes"]
    assert [(n["object"], n["code"]) for n in notes] == [("lane 0", "TARGET_QUOTA")]
    assert "generation" not in notes[0] and notes[0]["blocks"] is False


def facts() -> FlowFacts:
    at_ms = int(time.time() * 1000)
    layout = Layout(
        generation=1,
        run="r",
        lanes=1,
        fence_up_to=1,
        ready=True,
        source_cluster_id="S",
        target_cluster_id="T",
        flow_sha256="",
        started_at_ms=at_ms,
        host="h",
    )
    beat = {"run": "r", "at_ms": at_ms, "pid": 1}
    enrolment = Enrolment("orders", "orders", SOURCE_ID, TARGET_ID, {0: 0}, 1)
    return FlowFacts(
        layout=layout, heartbeat=beat, known={"orders": enrolment}, first_look=FirstLook(is_over=True)
    )


def target_logs(
    *,
    here: bool = True,
    error: OnceoverError | None = None,
    generation: int = 1,
    instance: tuple[int, int] = (1, 1),
) -> TargetLogs:
    """Return the target's side: everything copied, unless the topic is not there."""
    meta = ProgressMeta(
        source_topic_id=str(SOURCE_ID),
        target_topic_id=str(TARGET_ID),
        leader_epoch=-1,
        target_end=10,
        generation=generation,
        instance=instance,
    ).encode()
    info = TopicInfo("orders", TARGET_ID, {0: PartitionInfo(0, 0)}, False)
    return TargetLogs(
        topics={"orders": info} if here else {},
        committed={TP: CommittedOffset(error_code=0, offset=10, leader_epoch=-1, metadata=meta)},
        ends={TP: 10} if here else {},
        error=error,
        knows_topics=error is None,
        knows_progress=True,
    )


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Return the status after what the source says by name, and the target at each look."""

    def read(
        *by_name: OnceoverError | None, there: Sequence[TargetLogs] = (), state: FlowFacts | None = None
    ) -> dict[str, Any]:
        looks = list(there) or [target_logs(), target_logs()]
        monkeypatch.setattr(module, "read_flow", lambda *_: state or facts())
        monkeypatch.setattr(module, "read_target_logs", lambda *_: looks.pop(0))
        monkeypatch.setattr(module, "last_commit_ms", lambda *_: 1)
        monkeypatch.setattr(module, "_LOOK_AGAIN_S", 0.0)
        return flow_status("f", Source(*by_name), Target())  # pyrefly: ignore[bad-argument-type]

    return read


def codes(status: Mapping[str, Any]) -> list[str]:
    return [need["code"] for need in status["needs"]]


def test_topic_that_is_gone_is_missing(look: Callable[..., dict[str, Any]]) -> None:
    """The near miss: asked by name, twice, the source knows of none."""
    status = look(None, None)
    assert (codes(status), status["exit"], status["source"]["error"]) == (["SOURCE_MISSING"], 3, None)


def test_state_that_is_older_than_what_has_copied_tells_nothing_of_the_run(
    look: Callable[..., dict[str, Any]],
) -> None:
    """Ended, it says, with nobody to start anything; and a newer run may copy, or have been killed."""
    state = facts()
    assert state.layout is not None
    state.layout = state.layout.as_ended(1)
    status = look(REFUSED, there=[target_logs(generation=2), target_logs(generation=2)], state=state)
    assert codes(status)[0] == "STATE_SHORTENED" and status["exit"] == 3
    assert (status["state"], status["run"]["state"], status["generation"]) == ("unknown", "unknown", None)
    assert "`onceover replicate f`" in status["needs"][0]["resolve"]
    assert "not known" in describe(status)


def test_copy_whose_promotion_the_state_has_lost_is_its_clients(look: Callable[..., dict[str, Any]]) -> None:
    """Its progress tells of that: nobody is to start a flow for what waits for nobody."""
    state, there = facts(), target_logs(generation=2)
    assert state.layout is not None
    state.layout = replace(state.layout, generation=2, ready=False, seized=True)
    promoted = state.known["orders"].as_promoted("d1", LeftAt(2, 70), {0: 10}, {0: 10})
    marked = {
        tp: CommittedOffset(0, to.offset, to.leader_epoch, to.metadata)
        for tp, to in promoted_progress(promoted, there.committed).items()
    }
    there.committed = marked
    status = look(REFUSED, there=[there, there], state=state)
    assert (status["state"], status["run"]["state"], status["partitions"]) == ("promoted", "promoted", [])
    assert [note["code"] for note in status["notes"]] == ["PROMOTED"]


def test_progress_that_nobody_tells_is_not_asked_for_once_more(
    look: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a minute, as the first time; and what else is known of the target would be left out for that."""

    def asked(*_: object) -> int:
        raise Retriable("the coordinator is still away")

    monkeypatch.setattr(module, "told_beside", asked)
    there = target_logs(error=Retriable("the coordinator is away"))
    there.committed, there.knows_progress = {}, False
    status = look(REFUSED, there=[there, there])
    assert status["target"]["error"]["message"] == "the coordinator is away"
    assert status["last_commit_s"] is not None


def test_run_that_begins_between_both_looks_is_no_lost_end(look: Callable[..., dict[str, Any]]) -> None:
    """What has copied is read behind the state: that is read once more."""
    status = look(REFUSED, there=[target_logs(generation=2), target_logs()])
    assert codes(status) == ["NOT_AUTHORIZED"]


def test_topic_that_may_not_be_seen_is_neither_missing_nor_fine(look: Callable[..., dict[str, Any]]) -> None:
    """A right was taken away: the listing leaves the topic out, and says nothing of it."""
    status = look(REFUSED)
    assert (codes(status), status["exit"], status["state"]) == (["NOT_AUTHORIZED"], 2, "unknown")
    assert "orders" in status["needs"][0]["message"]


@pytest.mark.parametrize(
    ("error", "code", "number"), [(REFUSED, "NOT_AUTHORIZED", 2), (AWAY, "SOURCE_UNREACHABLE", 5)]
)
def test_what_fails_in_the_second_look_is_kept(
    look: Callable[..., dict[str, Any]], error: OnceoverError, code: str, number: int
) -> None:
    """The judgement is not confirmed; that nothing is wrong is not, either."""
    status = look(None, error)
    assert (codes(status), status["exit"], status["state"]) == ([code], number, "unknown")


def test_source_that_goes_away_before_it_is_asked_by_name_is_said(
    look: Callable[..., dict[str, Any]],
) -> None:
    """Its listing lacks a topic, and nobody knows why."""
    status = look(AWAY)
    assert (codes(status), status["exit"]) == (["SOURCE_UNREACHABLE"], 5)


def test_target_that_fails_in_the_second_look_is_kept(look: Callable[..., dict[str, Any]]) -> None:
    """The other side likewise."""
    status = look(None, None, there=[target_logs(), target_logs(error=Retriable("west is away"))])
    assert (codes(status), status["exit"]) == (["TARGET_UNREACHABLE"], 5)


def test_target_topic_that_may_not_be_seen_is_not_judged() -> None:
    """As on the source."""
    there = target_logs(here=False)
    owners = {TP: facts().known["orders"]}
    info = TopicInfo("orders", SOURCE_ID, {0: PartitionInfo(0, 0)}, False)
    here = SourceLogs(topics={"orders": info}, starts={TP: 0}, lsos={TP: 10}, high_watermarks={TP: 10})
    assert [stop.code for stop in judge_all("f", owners, here, there).values()] == ["TARGET_MISSING"]
    there.refused = {"orders"}
    assert judge_all("f", owners, here, there) == {}


@pytest.mark.parametrize(
    ("generation", "instance", "lso", "state", "title"),
    [
        (1, (2, 1), 20, "copying", "f: copying  "),
        (1, NOBODY, 20, "waiting", "f: waiting for Spark  "),
        (0, (7, 1), 20, "waiting", "f: waiting for Spark  "),
        (0, (7, 1), 10, "caught_up", "f: caught up  "),
    ],
    ids=["a lane has begun", "enrolled and no more", "an older run's lane", "nothing to do"],
)
def test_driver_without_a_lane_waits_for_spark(
    generation: int, instance: tuple[int, int], lso: int, state: str, title: str
) -> None:
    """It shows signs of life and leads the flow, and nobody copies."""
    there = target_logs(generation=generation, instance=instance)
    here = SourceLogs(starts={TP: 0}, lsos={TP: lso}, high_watermarks={TP: lso})
    sides = StatusSide(alias="east"), StatusSide(alias="west")
    now_ms = time.time() * 1000
    status = shape(
        StatusFacts(
            flow="f", now_ms=now_ms, source=sides[0], target=sides[1], state=facts(), here=here, there=there
        )
    )
    assert (status["state"], status["run"]["state"], status["exit"]) == (state, "running", 0)
    assert describe(status).startswith(title)


@pytest.mark.parametrize(
    ("ended", "lso", "expected"),
    [(None, 20, "copying"), (DONE, 20, "idle"), (FAILED, 20, "idle"), (DONE, 10, "caught_up")],
)
def test_nobody_copies_a_partition_of_a_run_that_is_over(ended: str | None, lso: int, expected: str) -> None:
    """Its records wait for the next start."""
    known = facts()
    assert known.layout is not None
    if ended is not None:
        known.layout = known.layout.as_ended(int(time.time() * 1000), ended)
    here = SourceLogs(starts={TP: 0}, lsos={TP: lso}, high_watermarks={TP: lso})
    status = shape(
        StatusFacts(
            flow="f",
            now_ms=time.time() * 1000,
            source=StatusSide(alias="east"),
            target=StatusSide(alias="west"),
            state=known,
            here=here,
            there=target_logs(),
        )
    )
    assert [p["state"] for p in status["partitions"]] == [expected]


@pytest.mark.parametrize(
    ("here", "partition", "outside"),
    [
        (SourceLogs(), None, None),
        (SourceLogs(lsos={TP: 12}, high_watermarks={TP: 20}), 8, None),
        (SourceLogs(lsos={TP: 20, OUTSIDE[0]: 3}, high_watermarks={TP: 20, OUTSIDE[0]: 7}), 0, None),
        (
            SourceLogs(
                lsos={tp: 3 for tp in (TP, *OUTSIDE)}, high_watermarks={tp: 12 for tp in (TP, *OUTSIDE)}
            ),
            2,
            9 + 7,
        ),
    ],
    ids=["nobody answers", "a leader of one", "half of a topic", "all do"],
)
def test_what_waits_for_open_transactions_is_not_0_where_nobody_knows(
    here: SourceLogs, partition: int | None, outside: int | None
) -> None:
    """Of a partition, and of a topic that is not taken in as a whole: from where it would begin."""
    sides = StatusSide(alias="east"), StatusSide(alias="west")
    status = shape(
        StatusFacts(
            flow="f",
            now_ms=time.time() * 1000,
            source=sides[0],
            target=sides[1],
            state=facts(),
            here=here,
            there=target_logs(),
            missing={OUTSIDE[0]: 0, OUTSIDE[1]: 5},
        )
    )
    assert [p["open_offsets"] for p in status["partitions"]] == [partition, outside]
    assert "offsets wait for" in describe(status) or not partition


@pytest.mark.parametrize(
    ("told", "second", "flow_s"),
    [
        ({}, None, None),
        ({"behind": None}, 0.0, 0.0),
        ({"behind": 4000}, 6.0, 6.0),
        ({"behind": -1}, None, None),
        ({"behind": 1_796_000_000_000_000}, None, None),
        ({"behind": 12_000}, 0.0, 0.0),
    ],
    ids=["not read in time", "markers alone", "read", "a record without a time", "in microseconds", "ahead"],
)
def test_of_one_that_is_behind_the_others_zero_says_nothing(
    told: dict[str, int | None], second: float | None, flow_s: float | None
) -> None:
    """A flow that lacks millions of records is not 0 s late because one partition has caught up."""
    late = TopicPartition(TP.topic, 1)
    known = facts()
    known.known = {name: replace(each, start={0: 0, 1: 0}) for name, each in known.known.items()}
    there = target_logs()
    (target, position), *_ = there.committed.items()
    there = replace(there, committed={**there.committed, TopicPartition(target.topic, 1): position})
    status = shape(
        StatusFacts(
            flow="f",
            now_ms=10_000.0,
            source=StatusSide(alias="east"),
            target=StatusSide(alias="west"),
            state=known,
            here=SourceLogs(
                starts={TP: 0, late: 0},
                lsos={TP: position.offset, late: 5_000_000},
                high_watermarks={TP: position.offset, late: 5_000_000},
            ),
            there=there,
            oldest_ms={late: told["behind"]} if told else {},
        )
    )
    assert [p["oldest_missing_s"] for p in status["partitions"]] == [0.0, second]
    assert (status["lag_offsets"], status["oldest_missing_s"]) == (5_000_000 - position.offset, flow_s)
    (sample,) = flow_figures(status).samples(OLDEST).values() or [None]
    assert sample == flow_s
    topics = flow_figures(status).samples(TOPIC_OLDEST)
    assert list(topics.values()) == ([] if flow_s is None else [flow_s])


def test_where_not_all_is_known_the_oldest_is_at_least_what_is() -> None:
    assert oldest_of([0.0, None]) is None
    assert oldest_of([0.0, None, 7.0, 3.0]) == 7.0
    assert oldest_of([0.0, 0.0]) == 0.0
    assert oldest_of([]) is None
