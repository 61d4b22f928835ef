"""Numbered records: what is lost, late, twice or out of order, and what only looks like it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from threading import Lock
from typing import Final, NoReturn
from uuid import UUID

import pytest

from onceover.drills.canary import ABORTED, Canary
from onceover.errors import NotNow, OnceoverError
from onceover.metrics import catalogue as m
from onceover.metrics.canary.ends import CanarySender, CopyReader, last_values
from onceover.metrics.canary.thread import CanaryOrder, CanaryThread
from onceover.metrics.canary.track import (
    MOST_WAITING,
    SLOW_AFTER_S,
    SLOW_S,
    CanaryCounts,
    CanaryTrack,
    next_number,
)
from onceover.metrics.figures import Distribution, Figures
from onceover.model import TopicPartition
from onceover.state.records.runstate import RunState
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.raw.mutations import Content
from tests.support.session.wait import wait_until

RUN = "run1"
NOT_LEADER: Final = 6
ORDER = CanaryOrder("orders", "onceover-canary.orders", "east.onceover-canary.orders", 1000, 1000)


def unasked() -> NoReturn:
    pytest.fail("a cluster was opened")


def value(number: int, run: str = RUN, **others: str) -> bytes:
    return Canary(run, number, **others).encode()[1]


def told(track: CanaryTrack, now_s: float = 100.0) -> dict[str, float]:
    """Return the samples, without what is 0."""
    figures = Figures()
    track.add_to(figures, "orders", now_s)
    names = {
        "produced": m.CANARY_PRODUCED, "received": m.CANARY_RECEIVED, "lost": m.CANARY_LOST,
        "twice": m.CANARY_DUPLICATES, "disorder": m.CANARY_DISORDER, "age": m.CANARY_WAITING,
    }  # fmt: skip
    found = {name: figures.samples(spec)[("orders",)] for name, spec in names.items()}
    return {
        name: float(number) for name, number in found.items() if number and isinstance(number, int | float)
    }


def sent(rows: int, first: int = 0) -> CanaryTrack:
    """Return a track with so many numbers in each of the two partitions on their way, a second apart."""
    track = CanaryTrack(RUN, first, CanaryCounts())
    for row in range(rows):
        for canary in track.numbered():
            track.sent(canary, float(row))
    return track


def test_what_arrives_in_order_is_timed() -> None:
    track = sent(2)
    track.met([value(0), value(2)], 1.2)
    track.met([value(1), value(3)], 1.5)
    assert told(track) == {"produced": 4, "received": 4}
    figures = Figures()
    track.add_to(figures, "orders", 9.0)
    found = figures.samples(m.CANARY_ROUND_TRIP)[("orders",)]
    assert isinstance(found, Distribution)
    counts = dict(found.counts)
    assert (counts[0.1], counts[0.25], counts[0.5], counts[2.5], counts[float("inf")]) == (0, 1, 2, 4, 4)
    assert round(found.total, 6) == 1.2 + 0.2 + 1.5 + 0.5


def test_a_number_is_lost_when_a_later_one_of_its_partition_has_arrived() -> None:
    """And not while it may still come; if it comes after all, it was out of order."""
    track = sent(3)
    track.met([value(0), value(1), value(5)], 3.0)
    assert told(track, 3.0) == {"produced": 6, "received": 3, "lost": 1, "age": 2.0}
    track.met([value(3)], 3.0)
    assert told(track, 3.0) == {"produced": 6, "received": 4, "lost": 1, "disorder": 1, "age": 2.0}
    track.forget()
    assert told(track, 3.0)["lost"] == 1, "a count never falls"


def test_a_number_that_comes_again_is_told() -> None:
    track = sent(1)
    track.met([value(0), value(0)], 1.0)
    assert told(track, 0.0)["twice"] == 1


def test_what_was_before_the_first_arrival_is_not_judged() -> None:
    """The flow may have taken the topic in behind it."""
    track = sent(3)
    track.met([value(4), value(5)], 9.0)
    assert told(track) == {"produced": 6, "received": 2}


def test_numbers_of_others_and_of_nobody_are_nothing() -> None:
    """Another exporter's, an older run's, an aborted one, and whatever else somebody wrote."""
    track = sent(2)
    track.met([value(0, "run0"), value(2, kind=ABORTED), b"x", None, b'{"drill":1}'], 9.0)
    assert told(track, 1.0) == {"produced": 4, "age": 1.0}


def test_what_the_source_may_not_have_taken_is_never_lost() -> None:
    """Its number is not given again; if it was taken all the same, that is fine."""
    track = CanaryTrack(RUN, 0, CanaryCounts())
    first, failed, third = (track.numbered()[0] for _ in range(3))
    track.sent(first, 0.0)
    track.sent(third, 2.0)
    track.met([value(first.number), value(third.number)], 3.0)
    assert told(track) == {"produced": 2, "received": 2}
    track.met([value(failed.number)], 4.0)
    assert told(track)["received"] == 3


def test_an_arrival_before_the_answer_is_no_late_one() -> None:
    """The reader may be faster than the acknowledgement."""
    track = CanaryTrack(RUN, 0, CanaryCounts())
    canary, _ = track.numbered()
    track.met([value(canary.number)], 1.0)
    track.sent(canary, 0.5)
    assert told(track) == {"produced": 1, "received": 1}


def test_one_that_was_given_up_and_arrives_late_is_in_nobodys_way() -> None:
    """It may have reached the source behind a later one: the copy has kept that order."""
    track = CanaryTrack(RUN, 0, CanaryCounts())
    first, _, later, _ = [*track.numbered(), *track.numbered()]
    track.gave_up(first)
    track.sent(later, 1.0)
    track.met([value(later.number), value(first.number)], 2.0)
    assert told(track, 9.0) == {"produced": 1, "received": 2}


def test_a_copy_that_is_made_anew_repeats_nothing() -> None:
    """It begins where the source does: with what was met in the copy before it."""
    track = sent(2)
    track.met([value(0), value(1)], 1.0)
    track.forget()
    track.met([value(0), value(1), value(2), value(3)], 2.0)
    assert told(track, 9.0) == {"produced": 4, "received": 6}


def test_after_a_gap_in_reading_nothing_of_before_is_judged() -> None:
    track = sent(3)
    track.met([value(0)], 3.0)
    track.forget()
    track.met([value(4)], 3.0)
    assert told(track) == {"produced": 6, "received": 2}


def test_the_oldest_are_judged_no_more_where_too_many_are_on_their_way() -> None:
    """Writing goes on, as only what is written can show that the flow copies again."""
    track = sent(MOST_WAITING // 2 + 3)
    assert told(track, 10.0)["age"] == 7.0
    track.met([value(0), value(6), value(7), value(8)], 10.0)
    assert "lost" not in told(track)


def test_what_the_source_keeps_no_longer_is_judged_no_more() -> None:
    """It may expire before it is copied: a person decides about that, and what is written then goes on."""
    track = sent(1)
    track.met([value(0), value(1)], 0.5)
    for canary in track.numbered():
        track.sent(canary, 1.0)
    track.expire(2.0)
    assert told(track, 9.0) == {"produced": 4, "received": 2}
    later = track.numbered()
    for canary in later:
        track.sent(canary, 3.0)
    track.met([value(canary.number) for canary in later], 4.0)
    assert told(track, 9.0) == {"produced": 6, "received": 4}


def test_little_is_written_while_nothing_arrives() -> None:
    """One a minute still shows when the flow copies again, or a person has skipped what it could not."""
    track = sent(1)
    assert track.pause_s(10.0, SLOW_AFTER_S) == 10.0
    assert track.pause_s(10.0, SLOW_AFTER_S + 1) == SLOW_S
    assert track.pause_s(3600.0, SLOW_AFTER_S + 1) == 3600.0
    track.met([value(0), value(1)], 99.0)
    assert track.pause_s(10.0, 99.0) == 10.0


def test_a_night_in_which_nobody_copies_makes_none_late() -> None:
    """What was sent just before the end waits for the next run, and is not late when that begins."""
    counts, now_s = CanaryCounts(), [0.0]
    thread = CanaryThread(ORDER, counts, Lock(), unasked, lambda: now_s[0])
    thread.saw_run(RunState.RUNNING)
    thread._track.sent(Canary(RUN, 0), 0.0)

    def waits_s() -> float:
        figures = Figures()
        thread.add_to(figures)
        (age_s,) = figures.samples(m.CANARY_WAITING).values()
        assert isinstance(age_s, float)
        return age_s

    for state, at_s, age_s in (
        (RunState.RUNNING, 50.0, 50.0),
        # A target that is away for a moment says nothing, and takes nothing from what is late.
        (RunState.UNKNOWN, 60.0, 60.0),
        (RunState.RUNNING, 70.0, 70.0),
        # Nor does a driver that was killed, or a run that has failed: they were to copy it.
        (RunState.GONE, 72.0, 72.0),
        (RunState.RUNNING, 74.0, 74.0),
        (RunState.FAILED, 76.0, 76.0),
        (RunState.STARTING, 78.0, 78.0),
        (RunState.ENDED, 80.0, 80.0),
        (RunState.STARTING, 28_800.0, 0.0),
        (RunState.RUNNING, 28_890.0, 90.0),
    ):
        now_s[0] = at_s
        thread.saw_run(state)
        assert waits_s() == age_s


def test_nothing_is_written_while_the_flow_does_not_run() -> None:
    """It would expire, and stop the flow's next run: nobody copies it. Nor before anybody has seen it run."""
    thread = CanaryThread(ORDER, CanaryCounts(), Lock(), unasked)
    assert not thread.may_write
    for state in RunState:
        thread.saw_run(state)
        assert thread.may_write == (state in (RunState.STARTING, RunState.RUNNING))


def test_a_new_run_goes_on_behind_the_last_one() -> None:
    """Whatever its last records in either partition were; from the first partition on."""
    assert next_number([]) == 0
    assert next_number([None, b"x"]) == 0
    assert next_number([value(6), value(5)]) == 8
    assert next_number([value(7), value(6)]) == 8
    assert [canary.number for canary in CanaryTrack("run2", 8, CanaryCounts()).numbered()] == [8, 9]


def test_a_new_run_goes_on_counting_what_the_last_one_counted() -> None:
    """A counter never falls; what was on the way is judged no more."""
    counts = CanaryCounts()
    first = CanaryTrack(RUN, 0, counts)
    for canary in [*first.numbered(), *first.numbered()]:
        first.sent(canary, 0.0)
    first.met([value(0), value(1)], 1.0)
    second = CanaryTrack("run2", 4, counts)
    for canary in second.numbered():
        second.sent(canary, 2.0)
    second.met([value(4, "run2"), value(5, "run2")], 3.0)
    assert told(second) == {"produced": 6, "received": 4}
    figures = Figures()
    second.add_to(figures, "orders", 9.0)
    found = figures.samples(m.CANARY_ROUND_TRIP)[("orders",)]
    assert isinstance(found, Distribution)
    assert (found.counts[-1][1], found.total) == (4, 4.0)


def test_each_other_reason_for_which_it_fails_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Once: the log is where the alert leads to."""
    counts = CanaryCounts()
    for _ in range(2):
        thread = CanaryThread(ORDER, counts, Lock(), unasked)
        for why in ("no WRITE", "no WRITE", "no READ"):
            thread.failed(NotNow(why))
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "no WRITE",
        "no READ",
    ] * 2
    assert counts.failures == 6


@pytest.fixture
def copy_of_two() -> FakeCluster:
    """A target that holds a copy of two partitions."""
    target = FakeCluster("west")
    target.make_topic(ORDER.copy, 2)
    return target


def append(cluster: FakeCluster, topic: str, number: int) -> None:
    cluster.all_topics[topic].logs[number % 2].append([Content(None, value(number), (), 0)])


def test_what_was_read_beside_a_leader_that_moved_is_read_again(copy_of_two: FakeCluster) -> None:
    """Otherwise it counts as lost when the next record of its partition arrives, and a person is called."""
    places: dict[TopicPartition, tuple[UUID, int]] = {}
    reader = CopyReader(copy_of_two, ORDER.copy, places, pytest.fail)
    assert reader.opened()
    append(copy_of_two, ORDER.copy, 0)
    copy_of_two.faults[TopicPartition(ORDER.copy, 1)] = NOT_LEADER
    with pytest.raises(NotNow):
        reader.poll()
    reader.close()
    copy_of_two.faults.clear()
    again = CopyReader(copy_of_two, ORDER.copy, places, pytest.fail)
    assert again.opened()
    assert again.poll() == [value(0)]


def test_the_newest_numbers_are_found_at_the_ends_of_all_partitions(copy_of_two: FakeCluster) -> None:
    """Also where nearly all has expired: a number that was sent is not sent again."""
    for number in range(30):
        append(copy_of_two, ORDER.copy, number)
    info = copy_of_two.topics([ORDER.copy])[ORDER.copy]
    logs = copy_of_two.all_topics[ORDER.copy].logs
    assert next_number(last_values(copy_of_two, info)) == 30
    logs[1].expire(14)
    logs[0].expire(15)
    assert last_values(copy_of_two, info) == [value(29)]


def test_a_number_that_cannot_be_read_is_not_taken_for_none(copy_of_two: FakeCluster) -> None:
    """It would be sent a second time, and be told as a copy made twice."""
    append(copy_of_two, ORDER.copy, 0)
    info = copy_of_two.topics([ORDER.copy])[ORDER.copy]
    led = {**info.partitions, 0: replace(info.partitions[0], leader=-1)}
    with pytest.raises(NotNow, match="has no leader"):
        last_values(copy_of_two, replace(info, partitions=led))


def test_a_topic_of_others_is_not_written(caplog: pytest.LogCaptureFixture, copy_of_two: FakeCluster) -> None:
    """Numbered records among orders would be copied, and read by whoever reads orders."""
    source, counts = FakeCluster("east"), CanaryCounts()
    log = source.make_topic(ORDER.topic, 2).logs[1]
    log.append([Content(None, b"an order", (), 0)])
    thread = running((source, copy_of_two), counts)
    wait_until(lambda: counts.failures > 0, 10, "that is a failure")
    thread.stop()
    assert log.end == 1
    assert f"{ORDER.topic} holds records, and none of a canary" in caplog.text


def test_a_strange_record_in_its_own_topic_keeps_no_canary_back(copy_of_two: FakeCluster) -> None:
    source, counts = FakeCluster("east"), CanaryCounts()
    source.make_topic(ORDER.topic, 2)
    append(source, ORDER.topic, 4)
    source.all_topics[ORDER.topic].logs[1].append([Content(None, b"hello", (), 0)])
    thread = running((source, copy_of_two), counts)
    wait_until(lambda: counts.produced > 0, 10, "one is written")
    thread.stop()


def running(
    clusters: tuple[FakeCluster, FakeCluster],
    counts: CanaryCounts,
    clock: Callable[[], float] = time.monotonic,
    state: RunState = RunState.RUNNING,
) -> CanaryThread:
    """Return one of a flow that runs, begun."""
    thread = CanaryThread(ORDER, counts, Lock(), lambda: clusters, clock)
    thread.saw_run(state)
    thread.start()
    return thread


def test_a_flow_that_runs_and_does_not_take_the_topic_in_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is written, nothing waits: without a word it would look as if all were well."""
    counts, hours = CanaryCounts(), count()
    thread = running((FakeCluster("east"), FakeCluster("west")), counts, lambda: 3600.0 * next(hours))
    wait_until(lambda: counts.failures > 0, 10, "that is a failure")
    thread.stop()
    assert f"the flow runs, and {ORDER.topic} has no copy: {ORDER.copy}" in caplog.text
    assert f"onceover status orders --topic {ORDER.topic}" in caplog.text


def test_a_topic_that_is_deleted_under_it_is_made_again(copy_of_two: FakeCluster) -> None:
    """By the run that has made it: otherwise each record would fail until the exporter is started again."""
    source, counts = FakeCluster("east"), CanaryCounts()
    thread = running((source, copy_of_two), counts)
    wait_until(lambda: counts.produced > 0, 10, "one is written")
    before = source.all_topics.pop(ORDER.topic).id
    wait_until(lambda: ORDER.topic in source.all_topics, 10, "the topic is there again")
    thread.stop()
    assert source.all_topics[ORDER.topic].id != before
    # What was on its way in the first one is not waited for.
    assert 0 not in thread._track._waiting


def test_a_source_that_is_gone_is_looked_for_with_little_patience() -> None:
    """Whoever sends reads, too: what was sent before is met meanwhile."""
    asked: list[object] = []
    sender = CanarySender(FakeCluster("east"), ORDER.topic, asked.append)
    for number in (0, 2):
        with pytest.raises(OnceoverError):
            sender.send(Canary(RUN, number))
    assert asked == [sender._cluster]


def test_a_flow_that_starts_is_not_late(copy_of_two: FakeCluster) -> None:
    """That takes its time, too, and nobody says that it runs before it does."""
    del copy_of_two.all_topics[ORDER.copy]
    counts, minutes = CanaryCounts(), count()
    thread = running(
        (FakeCluster("east"), copy_of_two), counts, lambda: 61.0 * next(minutes), RunState.STARTING
    )
    wait_until(lambda: next(minutes) > 40, 10, "it has looked for a while")
    thread.stop()
    assert counts.failures == 0


def test_what_one_record_was_waited_for_is_not_taken_from_the_next() -> None:
    source = FakeCluster("east")
    source.make_topic(ORDER.topic, 2)
    sender = CanarySender(source.hasty(10.0), ORDER.topic, lambda _: unasked())
    sender.send(Canary(RUN, 0))
    patience = sender._cluster.patience
    patience.spend(9.0)
    sender.send(Canary(RUN, 2))
    assert patience.left_s == 10.0


@pytest.mark.parametrize("code", [10, 32, 87])
def test_a_canary_that_is_refused_is_given_up_as_any_other(code: int) -> None:
    """Where somebody limits the topic: the reader goes on beside it."""
    source = FakeCluster("east")
    source.make_topic(ORDER.topic, 2)
    source.codes["answer"].append(code)
    sender = CanarySender(source, ORDER.topic, lambda _: unasked())
    with pytest.raises(OnceoverError, match=f"error {code}"):
        sender.send(Canary(RUN, 0))
