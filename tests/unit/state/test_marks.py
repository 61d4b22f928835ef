"""Reading a log that a broker answers for which led it before, and has not heard that it does no more."""

from __future__ import annotations

from contextlib import closing
from typing import Final

import pytest

from onceover.errors import Retriable
from onceover.model import TopicPartition
from onceover.state import log as statelog
from onceover.state.log import StateLog
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content

TP: Final = TopicPartition("__onceover.f.state", 0)
# It hears of it after some answers, or never.
SOON, NEVER = 8, 1_000_000


def put(log: FakeLog, value: int) -> None:
    log.append([Content(b"layout", b"%d" % value, (), 1)])


@pytest.fixture
def west() -> FakeCluster:
    """Give a cluster whose log holds one value that the broker that is asked knows, and a newer one."""
    made = FakeCluster()
    [log] = made.make_topic(TP.topic, 1).logs
    put(log, 1)
    log.past_end = log.end
    put(log, 2)
    return made


@pytest.fixture
def log(west: FakeCluster) -> FakeLog:
    return west.all_topics[TP.topic].logs[0]


def test_what_a_leader_of_before_tells_is_believed_where_it_decides_nothing(
    west: FakeCluster, log: FakeLog
) -> None:
    """Who only looks writes nothing for it, and sees the rest a moment later."""
    log.past_answers = SOON
    with closing(StateLog(west, *TP)) as state:
        assert state.catch_up() == {"layout": 1}
    assert west.batches == []


def test_who_decides_by_it_reads_at_least_to_a_mark_that_the_true_leader_took(
    west: FakeCluster, log: FakeLog
) -> None:
    """What was acknowledged before the mark lies before it; the mark itself leaves nothing to read."""
    log.past_answers = SOON
    with closing(StateLog(west, *TP)) as state:
        assert state.read_whole() == {"layout": 2}
    assert log.past_answers == 0 and len(west.batches) == 1
    [(_, mark)] = [each for each in log.visible() if each[0] == log.end - 1]
    assert (mark.key, mark.value) == (b"mark", None)


def test_who_cannot_get_as_far_believes_nothing_and_looks_for_the_leader_anew(
    west: FakeCluster, log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is cut off from the others may never hear of it."""
    monkeypatch.setattr(statelog, "_CATCH_UP_S", 0.05)
    log.past_answers = NEVER
    with closing(StateLog(west, *TP)) as state:
        with pytest.raises(Retriable, match="does not show what it holds") as failed:
            state.read_whole()
        assert failed.value.expected == "an end at 3 or later"
        assert (failed.value.seen or "").startswith("one at 1,")
        log.past_answers = 0
        opened = len(west.connections)
        assert state.catch_up() == {"layout": 2}
        assert len(west.connections) > opened


def test_what_was_acknowledged_is_read_whoever_answers(west: FakeCluster, log: FakeLog) -> None:
    """A leader that has just written reads its own record; nothing more is written for that."""
    log.past_answers = SOON
    with closing(StateLog(west, *TP)) as state:
        state.holds(log.end - 1)
        assert state.catch_up() == {"layout": 2}
    assert west.batches == []
