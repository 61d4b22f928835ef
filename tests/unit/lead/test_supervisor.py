"""A run of a flow as its driver sees it, between clusters in memory: start, topics, signs of life, end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pytest

from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.lead import supervisor as module
from onceover.lead.enroller import Newest, Start
from onceover.lead.supervisor import HEARTBEAT_S
from onceover.model import TopicPartition
from onceover.operate.status import flow_status
from onceover.planning.plan import Refusal
from onceover.state import names
from onceover.state.records.layout import DONE
from onceover.stops.record import Stop
from onceover.stops.requests import asked_to_end, stop_request
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content
from tests.unit.lead.leading import FLOW, GROUP, Leading, leading, scope_of

ORDERS = [TopicPartition("shop.orders", n) for n in range(3)]
NOT_AUTHORIZED, NOT_LEADER, TOO_LARGE, MISDATED = 29, 6, 10, 32
_SOMETHING = Content(b"k", b"v", (), 5_000)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leading]:
    """Give two clusters with a topic of two partitions on the source, which the flow copies."""
    made = leading(tmp_path, monkeypatch)
    yield made
    for each in made.opened:
        each.close()


# ---- start and topics


def test_who_may_not_write_the_progress_leads_nothing_and_fences_nobody(scene: Leading) -> None:
    """A coordinator would refuse it behind the fencing, when the copy that runs is gone."""
    scene.west.unread.add(GROUP)
    with pytest.raises(UsageError, match="READ on the group"):
        scene.supervisor().start()
    assert names.state_topic(FLOW) not in scene.west.all_topics
    scene.west.unread.clear()
    run = scene.led()
    scene.west.unread.add(GROUP)
    with pytest.raises(UsageError, match="READ on the group"):
        scene.supervisor().start()
    with pytest.raises(UsageError, match="READ on the group"):
        scene.supervisor().leader.seize()
    assert scene.layout.generation == 1
    run.tick()


def test_a_first_run_makes_what_it_needs_and_takes_its_topics_in(scene: Leading) -> None:
    """Each partition has its progress from then on, and the topic its source's configuration."""
    scene.east.all_topics["shop.orders"].config["retention.ms"] = "60000"
    run = scene.led()
    assert (scene.layout.generation, scene.layout.ready) == (1, True)
    own = {names.state_topic(FLOW), names.map_topic(FLOW), names.owned_topic(FLOW)}
    assert own < set(scene.west.all_topics)
    made = scene.west.all_topics["shop.orders"]
    assert (len(made.logs), made.config["retention.ms"]) == (2, "60000")
    assert "other" not in scene.west.all_topics
    enrolment = scene.enrolled()["shop.orders"]
    ids = scene.east.all_topics["shop.orders"].id, made.id
    assert (enrolment.source, enrolment.start, enrolment.active) == ("shop.orders", {0: 0, 1: 0}, True)
    assert (enrolment.source_id, enrolment.target_id) == ids
    assert scene.progress() == {"shop.orders:0": 0, "shop.orders:1": 0}
    run.tick()
    assert run.copied() == {"shop.orders": "shop.orders"}


def test_another_look_changes_nothing(scene: Leading) -> None:
    """Nor does another run, but for its generation."""
    run = scene.led()
    scene.commit(ORDERS[0], 40)
    before = scene.records(), scene.progress()
    scene.west.log.clear()
    run.discover()
    assert run.discoveries == 2
    assert not any(r.startswith(("Create", "Alter")) for r in scene.west.log)
    assert (scene.records(), scene.progress()) == before
    scene.led()
    assert scene.layout.generation == 2
    assert scene.progress() == before[1]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", 2),
        ("latest", 9),
        (4_999, 2),
        (5_001, 9),
        (Newest(3), 6),
        (Newest(100), 2),
        (Newest(0), 9),
    ],
)
def test_a_flow_begins_where_its_file_says(scene: Leading, start: Start, expected: int) -> None:
    """At one end, at a time, or so many offsets before the end, of which no more than there are."""
    log = scene.east.all_topics["shop.orders"].logs[0]
    log.append([_SOMETHING] * 9)
    log.start = 2
    scene.rewrite(start=start)
    scene.led()
    assert scene.progress()["shop.orders:0"] == expected
    # What comes later begins at its beginning: nothing of it was there to be left out.
    scene.east.make_topic("shop.late", 1).logs[0].append([_SOMETHING] * 5)
    scene.opened[-1].discover()
    assert scene.progress()["shop.late:0"] == 0


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("at", ["look", "over", "claim", "enrol", "behind"])
def test_what_a_killed_first_run_has_seen_begins_where_the_file_says_and_nothing_later_does(
    scene: Leading, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Until it has written down what there was, the next look is the first one."""
    scene.rewrite(start="latest")
    for log in scene.east.all_topics["shop.orders"].logs:
        log.append([_SOMETHING] * 9)
    run = scene.supervisor()
    run.start()
    put, enrol, killed_at = run.leader.put, run.leader.enrol, {"look": 0, "over": 1}.get(at, 9)
    puts: list[object] = []

    def counted(records: Mapping[str, Any]) -> None:
        if any(key.startswith((names.FIRST_PREFIX, names.DISCOVERED)) for key in records):
            puts.append(records)
            if len(puts) > killed_at:
                raise Killed
        put(records)

    def enrolled(*told: Any) -> None:
        if at == "behind":
            enrol(*told)
        raise Killed

    def claims(_: object) -> NoReturn:
        raise Killed

    if at == "claim":
        monkeypatch.setattr(run, "_claims", claims)
    monkeypatch.setattr(run.leader, "put", counted)
    monkeypatch.setattr(run.leader, "enrol", enrolled)
    with pytest.raises(Killed):
        run.discover()
    scene.east.make_topic("shop.late", 1).logs[0].append([_SOMETHING] * 5)
    scene.led()
    is_first = at in ("look", "over")
    assert scene.progress() == {"shop.orders:0": 9, "shop.orders:1": 9, "shop.late:0": 5 if is_first else 0}
    assert not [key for key in scene.records() if key.startswith(names.FIRST_PREFIX)]


def test_what_could_not_be_taken_in_at_first_begins_where_the_file_says(scene: Leading) -> None:
    """It was there; a namesake that is made meanwhile was not."""
    scene.rewrite(start="latest")
    namesake = scene.east.make_topic("shop.namesake", 1)
    for topic in (scene.east.all_topics["shop.orders"], namesake):
        for log in topic.logs:
            log.append([_SOMETHING] * 9)
        topic.leaders[0] = -1
    run = scene.led()
    assert scene.progress() == {}
    del scene.east.all_topics["shop.namesake"]
    scene.east.make_topic("shop.namesake", 1).logs[0].append([_SOMETHING] * 5)
    scene.east.all_topics["shop.orders"].leaders[0] = 0
    told = flow_status(FLOW, scene.east, scene.west, scene.scope.rules, "latest")["partitions"]
    assert {p["topic"]: p["lag_offsets"] for p in told} == {"shop.orders": 0, "shop.namesake": 5}
    run.discover()
    assert scene.progress() == {"shop.orders:0": 9, "shop.orders:1": 9, "shop.namesake:0": 0}


def test_a_flow_that_begins_at_the_earliest_record_remembers_no_topics(scene: Leading) -> None:
    """It makes no difference to them."""
    scene.east.all_topics["shop.orders"].leaders[0] = -1
    scene.led()
    assert not [key for key in scene.records() if key.startswith(names.FIRST_PREFIX)]
    assert names.DISCOVERED in scene.records()


def test_a_grown_topic_is_grown_and_only_its_new_partitions_begin(scene: Leading) -> None:
    """At their earliest, wherever the flow began."""
    scene.rewrite(start="latest")
    run = scene.led()
    scene.commit(ORDERS[0], 40)
    scene.east.all_topics["shop.orders"].logs.append(FakeLog(start=3, end=9))
    run.discover()
    assert len(scene.west.all_topics["shop.orders"].logs) == 3
    assert scene.enrolled()["shop.orders"].start == {0: 0, 1: 0, 2: 3}
    assert scene.progress() == {"shop.orders:0": 40, "shop.orders:1": 0, "shop.orders:2": 3}


def test_who_leaves_the_filter_and_returns_goes_on_where_it_was(scene: Leading) -> None:
    """Its record says so; nothing else is touched."""
    run = scene.led()
    scene.commit(ORDERS[0], 40)
    scene.rewrite(rules=scope_of(["other"]).rules)
    run.discover()
    left = scene.enrolled()["shop.orders"]
    run.tick()
    assert (left.active, run.copied()) == (False, {"other": "other"})
    scene.rewrite(rules=scope_of(["shop.*", "other"]).rules)
    run.discover()
    back = scene.enrolled()["shop.orders"]
    assert back.active and back.start == left.start
    assert scene.progress() == {"shop.orders:0": 40, "shop.orders:1": 0, "other:0": 0}


def test_progress_that_is_there_is_kept(scene: Leading) -> None:
    """Whatever the topic's record says: it may be gone, and a lane's position is not."""
    run = scene.led()
    scene.commit(ORDERS[0], 40)
    # Its record is lost; the group has the position.
    scene.west.all_topics[names.state_topic(FLOW)].logs[names.STATE_LEADER] = FakeLog()
    del run
    scene.led()
    assert scene.progress()["shop.orders:0"] == 40


# ---- what is refused, and what goes wrong in between


def test_what_the_target_refuses_holds_up_no_other_topic(scene: Leading) -> None:
    """It is told, tried again at each look, and taken in as soon as it may be."""
    scene.east.make_topic("shop.secret", 1)
    scene.west.codes["CreateTopics shop.secret"].append(NOT_AUTHORIZED)
    run = scene.led()
    assert set(scene.enrolled()) == {"shop.orders"}
    assert [(each.object, each.blocks) for each in run.refused] == [("shop.secret", True)]
    run.tick()
    noted = scene.records(names.STATE_OTHERS)[names.REFUSED]
    assert (noted["count"], noted["refused"][0]["object"]) == (1, "shop.secret")
    run.discover()
    assert set(scene.enrolled()) == {"shop.orders", "shop.secret"} and not run.refused
    scene.now_s += HEARTBEAT_S
    run.tick()
    assert scene.records(names.STATE_OTHERS)[names.REFUSED]["count"] == 0


def test_a_topic_that_somebody_writes_to_meanwhile_is_not_taken_in(scene: Leading) -> None:
    """Between the plan and the enrolment: its records would stand between those of the copy."""
    run = scene.supervisor()
    run.start()

    def write(request: str, subject: str) -> None:
        topic = scene.west.all_topics.get("shop.orders")
        if topic is not None and not topic.logs[1].end:
            topic.logs[1].append([_SOMETHING])

    scene.west.heard = write
    run.discover()
    assert scene.enrolled() == {} and scene.progress() == {}


@pytest.mark.parametrize(
    ("partitions", "config", "code"),
    [
        (7, {}, "PARTITION_COUNT"),
        (2, {"message.timestamp.type": "LogAppendTime"}, "TARGET_RESTAMPS"),
        (2, {}, None),
    ],
)
def test_a_topic_that_somebody_makes_meanwhile_is_looked_at_before_it_is_taken_in(
    scene: Leading, monkeypatch: pytest.MonkeyPatch, partitions: int, config: dict[str, str], code: str | None
) -> None:
    """Between the plan and its creation: a client, on a target that makes what it is asked for."""
    run = scene.supervisor()
    run.start()

    answer = scene.west.next

    def make(request: str) -> Any:
        if request == "CreateTopics shop.orders" and "shop.orders" not in scene.west.all_topics:
            scene.west.make_topic("shop.orders", partitions).config.update(config)
        return answer(request)

    monkeypatch.setattr(scene.west, "next", make)
    with pytest.raises(Retriable, match=r"somebody else has made shop\.orders since"):
        run.discover()
    assert scene.enrolled() == {} and "managed/shop.orders" not in run._owned.catch_up()
    run.discover()
    assert (set(scene.enrolled()) == set()) == (code is not None)
    assert [refusal.code for refusal in run.refused if refusal.blocks] == ([code] if code else [])


def test_a_topic_that_is_there_and_may_not_be_seen_holds_up_none_of_the_others(scene: Leading) -> None:
    """It is planned and refused as one that exists each time: nobody has overtaken anybody."""
    scene.east.make_topic("shop.late", 1)
    scene.west.make_topic("shop.orders", 2)
    scene.west.unanswered["shop.orders"] = UsageError("not authorized", code="NOT_AUTHORIZED")
    run = scene.led()
    assert set(scene.enrolled()) == {"shop.late"}
    assert [(r.object, r.code) for r in run.refused if r.blocks] == [("shop.orders", "TARGET_REFUSES")]


@pytest.mark.parametrize("lost", ["EndTxn v5", "TxnOffsetCommit v5"])
def test_an_enrolment_whose_answer_is_lost_is_planned_anew(
    scene: Leading, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there once in the end, with one start."""
    run = scene.supervisor()
    run.start()
    scene.west.codes[lost].append("the connection is lost")
    with monkeypatch.context() as patched:
        # For what is open the coordinator is waited for, which here ends nothing by itself.
        patched.setattr("onceover.state.log._CATCH_UP_S", 0.05)
        patched.setattr("onceover.lead.leader._RECOVERY_PAUSE_S", (0.0, 0.0))
        with pytest.raises(OnceoverError):
            run.discover()
    assert scene.enrolled() == {} and scene.progress() == {}
    scene.led()
    assert set(scene.enrolled()) == {"shop.orders"}
    assert scene.progress() == {"shop.orders:0": 0, "shop.orders:1": 0}


def test_source_and_target_may_not_be_one_cluster(scene: Leading) -> None:
    """Under two addresses. Nothing was made."""
    scene.west.id = scene.east.id
    with pytest.raises(UsageError):
        scene.supervisor().start()
    assert names.state_topic(FLOW) not in scene.west.all_topics


# ---- signs of life, requests, the end


def test_a_driver_shows_that_it_lives_also_without_a_source(
    scene: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What asks the source comes afterwards."""
    run = scene.led()
    run.tick()
    first = scene.records(names.STATE_OTHERS)[names.HEARTBEAT]
    assert (first["generation"], first["run"]) == (1, scene.layout.run)
    scene.now_s += 100

    def away(_names: object = None) -> NoReturn:
        raise Retriable("east is away")

    monkeypatch.setattr(scene.east, "topics", away)
    monkeypatch.setattr(module, "now_ms", lambda: first["at_ms"] + 100_000)
    with pytest.raises(Retriable, match="east is away"):
        run.tick()
    assert scene.records(names.STATE_OTHERS)[names.HEARTBEAT]["at_ms"] == first["at_ms"] + 100_000


def test_topics_are_looked_at_when_it_is_time_or_the_file_says_something_else(scene: Leading) -> None:
    """And not in between."""
    run = scene.led()
    run.tick()
    scene.now_s += 29
    run.tick()
    assert run.discoveries == 1
    scene.now_s += 2
    run.tick()
    assert run.discoveries == 2
    scene.rewrite(rules=scope_of(["other"]).rules)
    run.tick()
    run.tick()
    assert (run.discoveries, run.copied()) == (3, {"other": "other"})


def test_a_request_to_stop_is_of_one_run(scene: Leading) -> None:
    """Who asked an earlier one did not mean this one; what was asked stays for who follows that one."""
    run = scene.led()
    run._notes.write(names.REQUEST_STOP, stop_request(scene.layout.run))
    assert run.was_asked_to_stop()
    asked = scene.layout.run
    run.end("asked")
    again = scene.led()
    assert not again.was_asked_to_stop() and not again.was_asked_before()
    assert scene.records(names.STATE_OTHERS)[names.REQUEST_STOP]["run"] == asked


def test_what_the_leader_asks_of_its_lanes_is_nobodys_wish(scene: Leading) -> None:
    """Each run that ends in order asks them to finish; killed then, it has to be gone on with."""
    run = scene.led()
    run.finish_lanes()
    assert not run.was_asked_to_stop()
    assert asked_to_end(scene.records(names.STATE_OTHERS), scene.layout.run)
    run.end("asked")
    assert scene.records(names.STATE_OTHERS).get(names.REQUEST_FINISH) is None


def test_what_the_leader_has_asked_is_taken_back_though_nobody_has_read_it_since(scene: Leading) -> None:
    """A driver asks its lanes last of all, and looks at no request behind that."""
    run = scene.led()
    run.finish_lanes()
    run.end("asked")
    assert scene.records(names.STATE_OTHERS).get(names.REQUEST_FINISH) is None


def test_a_request_to_look_again_stands_until_it_is_answered(scene: Leading) -> None:
    """Its lane's task may be over, or its broker away, for minutes: nobody else would see it."""
    run = scene.led()
    stop = Stop("RECORD_REFUSED", "", "", "", "", 3, at_ms=1, generation=1)
    request = names.resume_key(*ORDERS[0])

    def stands_after_a_minute() -> bool:
        for seconds in (6, 61):
            scene.now_s += seconds
            run.tick()
        return request in scene.records(names.STATE_OTHERS)

    run._notes.write(names.stop_key(*ORDERS[0]), stop.to_json())
    run._notes.write(request, {"v": 1, "at_ms": 5, "stop": stop.name})
    assert stands_after_a_minute() and stands_after_a_minute()
    run._notes.write(names.stop_key(*ORDERS[0]), replace(stop, at_ms=2).to_json())
    assert not stands_after_a_minute()
    run._notes.write(request, {"v": 1, "at_ms": 6, "stop": replace(stop, at_ms=2).name})
    assert stands_after_a_minute()
    run._notes.write(names.stop_key(*ORDERS[0]), None)
    assert not stands_after_a_minute()


def test_what_a_copy_refused_before_its_configuration_followed_is_looked_at_again(scene: Leading) -> None:
    """A limit is raised on the source, and a record that needs it is there before the next look at topics."""
    run = scene.led()
    key = names.resume_key(*ORDERS[0])
    stop = Stop("RECORD_TOO_LARGE", "", "", "", "", 3, at_ms=1, generation=1)
    run._notes.write(names.stop_key(*ORDERS[0]), stop.to_json())
    run._notes.write(names.stop_key(*ORDERS[1]), replace(stop, code="HANDLER_FAILED").to_json())
    scene.now_s += HEARTBEAT_S
    run.tick()
    assert key not in scene.records(names.STATE_OTHERS)
    scene.east.all_topics["shop.orders"].config["max.message.bytes"] = "5000000"
    scene.now_s += scene.scope.interval_s
    run.tick()
    scene.now_s += HEARTBEAT_S
    run.tick()
    found = scene.records(names.STATE_OTHERS)
    assert stop.is_meant_by(found[key]) and names.resume_key(*ORDERS[1]) not in found
    # The lane was refused once more in between: brokers hear of the new limit a moment later.
    later = replace(stop, at_ms=2)
    run._notes.write(names.stop_key(*ORDERS[0]), later.to_json())
    for seconds in (HEARTBEAT_S, HEARTBEAT_S):
        scene.now_s += seconds
        run.tick()
        assert later.is_meant_by(scene.records(names.STATE_OTHERS)[key])
    # And much later it is no matter of that.
    last = replace(stop, at_ms=3)
    run._notes.write(names.stop_key(*ORDERS[0]), last.to_json())
    scene.now_s += 60
    run.tick()
    assert not last.is_meant_by(scene.records(names.STATE_OTHERS).get(key))


def test_the_end_is_written_and_says_why(scene: Leading) -> None:
    """Then what its lanes left open is over: they own their ids no longer."""
    run = scene.led()
    owners = dict(scene.west.owners)
    run.end("failed", Retriable("west is away"))
    ended = scene.layout
    assert (ended.generation, ended.ended_why, ended.ended_error) == (1, "failed", "west is away")
    assert ended.ended_at_ms is not None and ended.ended_passes
    lanes = [names.lane_id(FLOW, lane) for lane in range(2)]
    assert all(scene.west.owners[each] > owners[each] for each in lanes)
    assert scene.progress() == {"shop.orders:0": 0, "shop.orders:1": 0}


def test_a_run_that_was_taken_over_writes_nothing_more(scene: Leading) -> None:
    """It hears so at its next tick, and enrols nothing."""
    older = scene.led()
    newer = scene.led()
    scene.east.make_topic("shop.late", 1)
    scene.now_s += 100
    with pytest.raises(Fenced):
        older.tick()
    with pytest.raises((Fenced, OnceoverError)):
        older.discover()
    assert set(scene.enrolled()) == {"shop.orders"}
    newer.tick()
    assert set(scene.enrolled()) == {"shop.orders", "shop.late"}
    assert GROUP in scene.west.groups


# ---- records of its own that the target does not take


@pytest.mark.parametrize(("code", "resolve"), [(MISDATED, "set the clock"), (TOO_LARGE, "remove what")])
def test_a_start_whose_record_is_refused_is_a_persons(scene: Leading, code: int, resolve: str) -> None:
    """Whose clock is ahead hears of that: nobody has set anything on the topic."""
    scene.west.codes["answer"].extend([code] * 9)
    with pytest.raises(NeedsOperator, match=resolve) as failed:
        scene.supervisor().start()
    assert (failed.value.code, failed.value.where) == ("OWN_RECORD_REFUSED", names.state_topic(FLOW))
    # Nothing is left open that would keep others from reading the layout.
    assert not scene.west.open_now
    scene.west.codes["answer"].clear()
    scene.led()
    assert set(scene.enrolled()) == {"shop.orders"}


def test_an_end_that_is_refused_is_a_persons_and_the_lanes_are_ended_all_the_same(scene: Leading) -> None:
    """What they have left open would hold up readers of the copies until its timeout."""
    run = scene.led()
    owners = dict(scene.west.owners)
    scene.west.codes["answer"].extend([MISDATED] * 9)
    with pytest.raises(NeedsOperator) as failed:
        run.end("failed", Retriable("west is away"))
    assert failed.value.code == "OWN_RECORD_REFUSED"
    lanes = [names.lane_id(FLOW, lane) for lane in range(2)]
    assert all(scene.west.owners[each] > owners[each] for each in lanes)


def test_a_note_that_is_refused_makes_no_failure_of_a_run_that_has_said_that_it_is_done(
    scene: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scene.led()
    run.finish_lanes()
    run.refused = [Refusal("shop.late", "TARGET_REFUSES", "it says no", "ask it")]
    refuses = mock.Mock(side_effect=NeedsOperator("it did not take it", code="WRITE_REFUSED"))
    monkeypatch.setattr(run._notes, "write", refuses)
    run.end()
    assert refuses.call_count == 2
    assert scene.layout.ended_why == DONE


def test_the_daily_positions_are_tried_again_soon_where_they_were_refused(scene: Leading) -> None:
    run = scene.led()
    run._next_positions_s = scene.now_s
    scene.west.codes["answer"].extend([MISDATED] * 9)
    run.tick()
    assert scene.now_s < run._next_positions_s <= scene.now_s + 60


def test_a_sign_of_life_that_is_refused_ends_no_run(
    scene: Leading, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is copied by it. It is said now and then, tried again, and topics are looked at meanwhile."""
    monkeypatch.setattr("onceover.lead.leader._RECOVERY_PAUSE_S", (0.0, 0.0))
    run = scene.led()
    scene.east.make_topic("shop.late", 1)
    for _ in range(3):
        scene.west.codes["answer"].extend([MISDATED] * 9)
        scene.now_s += HEARTBEAT_S
        run._next_positions_s = 0.0
        run.tick()
    assert caplog.text.count("did not take 'heartbeat'") == 1
    scene.west.codes["answer"].clear()
    scene.now_s += 100
    run._next_positions_s = 0.0
    run.tick()
    assert names.HEARTBEAT in scene.records(names.STATE_OTHERS) and names.POSITIONS in scene.records()
    assert set(scene.enrolled()) == {"shop.orders", "shop.late"}
