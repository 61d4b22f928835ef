"""What is asked of a running flow through the state topic: stop, look again; and its signs of life."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from onceover.errors import Fenced, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.produce.notes import NoteWriter
from onceover.lead import supervisor
from onceover.lead.supervisor import HEARTBEAT_S
from onceover.model import TopicPartition
from onceover.operate.repair import RepairRequest
from onceover.state import names
from onceover.state.records.runstate import SILENT_AFTER_MS
from onceover.state.steps import Step
from onceover.stops import requests
from onceover.stops.record import Stop
from onceover.stops.requests import request_resume, request_stop, stop_request
from onceover.wiring.flows import open_clusters
from tests.support.flows.feeds import PARTITIONS, held
from tests.support.flows.flowcase import (
    TIMEOUT_S,
    FlowCase,
    LaneThread,
    busy_lane,
    owned_by,
    standing,
)
from tests.support.flows.operations import apply_repair
from tests.support.flows.replica import alter_config
from tests.support.raw.adversary import Traffic
from tests.support.session.wait import wait_until

GRACE_S = 10.0
STATE_OTHERS = names.STATE_OTHERS
NO_STOP = Stop("RECORD_REFUSED", "", "", "", "", None)


def open_transactions(case: FlowCase) -> dict[TopicPartition, tuple[int, int]]:
    """Return (LSO, high watermark) of every partition on the target that a transaction holds open."""
    _, target = open_clusters(case.flow().watch.flow)
    with target:
        topics = target.topics([case.topic, names.map_topic(case.name), names.state_topic(case.name)])
        wanted = [TopicPartition(t.name, p) for t in topics.values() for p in t.partitions]
        lsos = target.list_offsets(wanted, calls.LATEST)
        ends = target.list_offsets(wanted, calls.LATEST, calls.READ_UNCOMMITTED)
    return {tp: (lsos[tp], ends[tp]) for tp in wanted if lsos[tp] != ends[tp]}


def test_stop_request_ends_a_busy_run_within_10_s_and_leaves_nothing_open(case: FlowCase) -> None:
    """The open transaction is finished or aborted, and the run says that it has ended."""
    topics = {case.topic: PARTITIONS}
    with (
        case.process(forever=True) as running,
        Traffic(case.source["bootstrap.servers"], topics, seed=6),
    ):
        wait_until(lambda: case.layout() and case.agreed_positions(), TIMEOUT_S, "it copies")
        _, target = open_clusters(case.flow().watch.flow)
        with target:
            begun_s = time.monotonic()
            answer = request_stop(target, case.name, wait_s=GRACE_S)
            assert time.monotonic() - begun_s < GRACE_S
        assert answer == {"generation": 1, "stopped": True, "was_running": True}
        assert running.wait(GRACE_S) == 0, running.child.tail()
        wait_until(lambda: not open_transactions(case), 2.0, "no transaction is open")
    layout = case.layout()
    assert layout is not None and layout.ended_at_ms is not None
    status = case.flow().status()
    assert (status["state"], status["driver"]) == ("stopped", None)
    _, target = open_clusters(case.flow().watch.flow)
    with target:
        again = request_stop(target, case.name, wait_s=GRACE_S)
    assert again == {"generation": 1, "stopped": True, "was_running": False}
    case.converge()


@pytest.mark.soak
def test_stop_request_for_an_older_run_does_not_stop_a_newer_one(case: FlowCase) -> None:
    """A request names the run it is meant for."""
    flow = case.flow()
    with flow.running() as (lead, layout):
        note(case, names.REQUEST_STOP, stop_request("0" * 16))
        lead.tick()
        lane = LaneThread(flow, layout, busy_lane(case))
        lane.start()
        wait_until(lambda: lane.reached[Step.COMMITTED], TIMEOUT_S, "it copies")
        before = case.agreed_positions()
        case.feed()
        wait_until(lambda: case.agreed_positions() != before, TIMEOUT_S, "it goes on copying")
        assert lane.is_alive() and not lead.stop_requested()
        lead.finish_lanes()
        assert lane.finish() is None
        flow.finish(lead, layout, token=2)
    case.converge()


def note(case: FlowCase, key: str, value: dict[str, object] | None) -> None:
    """Write a request as the command line does."""
    _, target = open_clusters(case.flow().watch.flow)
    with target:
        writer = NoteWriter(target, TopicPartition(names.state_topic(case.name), STATE_OTHERS))
        try:
            writer.write(key, value)
        finally:
            writer.close()


def test_stop_of_a_flow_that_was_never_started_says_so(case: FlowCase) -> None:
    """Nothing is created by asking."""
    _, target = open_clusters(case.flow().watch.flow)
    with target:
        with pytest.raises(UsageError, match="never been started"):
            request_stop(target, case.name, wait_s=1.0)
        assert names.state_topic(case.name) not in target.topics()


def test_stop_of_a_killed_run_is_not_answered_and_takes_its_request_back(case: FlowCase) -> None:
    """Exit code 5 and a hint, instead of waiting for ever; the next start is not stopped by it."""
    case.kill(Step.COMMITTED, 1)
    _, target = open_clusters(case.flow().watch.flow)
    with target, pytest.raises(Retriable, match="did not end within") as refusal:
        request_stop(target, case.name, wait_s=0.5)
    assert refusal.value.exit_code == 5
    case.converge()


def test_a_run_that_is_taken_over_is_not_said_to_have_stopped(case: FlowCase) -> None:
    """Exit code 4, and the newer run by its name; it goes on, unasked."""
    _, target = open_clusters(case.flow().watch.flow)
    with target, case.flow().running() as (_, layout), ThreadPoolExecutor() as pool:
        asked = pool.submit(request_stop, target, case.name, wait_s=TIMEOUT_S)
        wait_until(lambda: standing(case), TIMEOUT_S, "it is asked")
        with case.flow().running() as (newer, now):
            error = asked.exception(TIMEOUT_S)
            assert isinstance(error, Fenced) and error.exit_code == 4
            assert f"generation {now.generation}, started on {now.host}" in str(error)
            assert f"generation {layout.generation} of flow" in str(error)
            assert not newer.was_asked_to_stop() and standing(case) is None
            case.flow().finish(newer, now, token=2)
    case.assert_complete()


@pytest.mark.soak
def test_stop_takes_back_only_ones_own_request(case: FlowCase) -> None:
    """A second person with less patience: the first one's request stands, whoever came first."""
    flow = case.flow()
    with flow.running() as (lead, layout):
        first = stop_request(layout.run)
        note(case, names.REQUEST_STOP, first)
        _, target = open_clusters(flow.watch.flow)
        with target, pytest.raises(Retriable, match="did not end within"):
            request_stop(target, case.name, wait_s=0.5)
        assert standing(case) == first
        assert lead.was_asked_to_stop()
        flow.finish(lead, layout)
    # It names the run that is over, and means no other.
    assert standing(case) == first
    case.converge()


@pytest.mark.soak
def test_a_request_that_is_taken_back_leaves_the_other_person_asking(case: FlowCase) -> None:
    """Who found it asked already asks for themselves when the first one gives up."""
    flow = case.flow()
    with flow.running() as (lead, layout), ThreadPoolExecutor() as pool:
        first = stop_request(layout.run)
        note(case, names.REQUEST_STOP, first)
        _, target = open_clusters(flow.watch.flow)
        with target:
            second = pool.submit(request_stop, target, case.name, wait_s=TIMEOUT_S)
            note(case, names.REQUEST_STOP, None)
            wait_until(lambda: standing(case), TIMEOUT_S, "the second one asks")
            assert standing(case) != first and lead.was_asked_to_stop()
            flow.finish(lead, layout)
            assert second.result(TIMEOUT_S)["was_running"]
    case.converge()


def test_resume_request_makes_the_lane_look_at_a_stopped_partition_again(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's limit was raised: the record that was refused goes through, in its place, although the
    clock of whoever asks is far behind the lane's."""
    monkeypatch.setattr(requests, "now_ms", lambda: int(time.time() * 1000) - 90_000)
    limited = case.adversary.create_topic(f"{case.topic}-limited", 1)
    flow = case.flow()
    with flow.running() as (lead, layout):
        alter_config(case.target, limited, {"max.message.bytes": "20000"})
        case.adversary.plain(limited, 0, case.adversary.records(2))
        case.adversary.batch_of_size(limited, 0, 50_000)
        case.adversary.plain(limited, 0, case.adversary.records(2))
        tp = TopicPartition(limited, 0)
        threads = [LaneThread(flow, layout, lane) for lane in range(layout.lanes)]
        for thread in threads:
            thread.start()
        stop = wait_until(lambda: stop_of(case, limited), TIMEOUT_S, "the partition stops")
        assert stop["code"] == "RECORD_TOO_LARGE" and len(held(case.target, limited, 1)[0]) == 2
        alter_config(case.target, limited, {"max.message.bytes": "200000"})
        resume(case, tp)
        wait_until(lambda: len(held(case.target, limited, 1)[0]) == 5, TIMEOUT_S, "it goes on")
        wait_until(lambda: stop_of(case, limited) is None, TIMEOUT_S, "status forgets the stop")
        lead.finish_lanes()
        assert [thread.finish() for thread in threads] == [None, None]
        flow.finish(lead, layout, token=2)
    case.assert_complete()


def resume(case: FlowCase, tp: TopicPartition) -> None:
    """Do what ``onceover partition resume --apply`` does."""
    apply_repair(case.flow().watch.flow, RepairRequest("resume", tp))


def stop_of(case: FlowCase, topic: str) -> dict[str, str] | None:
    """Return the stop that status shows for a topic's first partition."""
    partitions = case.flow().status()["partitions"]
    stops = [p["stop"] for p in partitions if p["topic"] == topic]
    return stops[0] if stops else None


def test_heartbeat_shows_who_runs_and_its_absence_that_nobody_does(case: FlowCase) -> None:
    """A killed driver looks stopped when its heartbeat is too old, not before."""
    assert case.flow().status()["state"] == "not_started"
    flow = case.flow()
    with flow.running() as (lead, layout):
        status = flow.status()
        assert status["driver"]["alive"] and status["generation"] == layout.generation
        assert status["state"] == "waiting", "for the lanes, of which there is none"
        note(
            case,
            names.HEARTBEAT,
            {
                "v": 1,
                "generation": layout.generation,
                "run": layout.run,
                "at_ms": int(time.time() * 1000) - SILENT_AFTER_MS - 1,
                "pid": 1,
            },
        )
        silent = flow.status()
        assert not silent["driver"]["alive"] and silent["state"] == "stopped"
        lead._next_heartbeat_s = 0.0
        lead.tick()
        assert flow.status()["driver"]["alive"]
        flow.finish(lead, layout)
    assert flow.status()["state"] == "stopped"
    assert SILENT_AFTER_MS > 3 * HEARTBEAT_S * 1000
    case.assert_complete()


def test_request_that_nobody_needs_any_more_is_taken_back(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume request for a partition that was not stopped does not lie about for ever; nor is one of a
    person whose clock is behind taken back before a lane has seen it."""
    flow = case.flow()
    with flow.running() as (lead, layout):
        key = names.resume_key(case.topic, 0)
        note(case, key, {"v": 1, "at_ms": 1})
        for life_s in (60.0, 0.0):
            monkeypatch.setattr(supervisor, "_REQUEST_LIFE_S", life_s)
            lead._next_heartbeat_s = 0.0
            lead.tick()
            lead._requests.catch_up()
            assert (key in lead._requests.values) is bool(life_s)
        flow.finish(lead, layout)


def test_partitions_of_another_lane_are_not_touched_by_a_resume_request(case: FlowCase) -> None:
    """Only the owner looks again: the others keep their transaction."""
    flow, lane = case.flow(), busy_lane(case)
    other = min(set(range(PARTITIONS)) - owned_by(case, lane, 2))
    with flow.running() as (lead, layout):
        thread = LaneThread(flow, layout, lane)
        thread.start()
        wait_until(lambda: thread.reached[Step.COMMITTED], TIMEOUT_S, "it copies")
        _, target = open_clusters(flow.watch.flow)
        with target:
            request_resume(target, case.name, TopicPartition(case.topic, other), NO_STOP)
        before = thread.reached[Step.COMMITTED]
        case.feed()
        wait_until(lambda: thread.reached[Step.COMMITTED] > before, TIMEOUT_S, "it goes on")
        assert thread.reached[Step.LANE_INIT] == 1
        thread.stop()
        assert thread.finish() is None
        flow.finish(lead, layout, token=2)
    case.assert_complete()
