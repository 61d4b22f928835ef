"""A copy whose processes were killed and that is started anew by itself, and what somebody does meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from onceover.errors import Fenced, Retriable
from onceover.lead import leader as leading
from onceover.lead.supervisor import Supervisor
from onceover.state.records.layout import ASKED, DONE, FAILED
from onceover.stops.requests import request_stop
from onceover.wiring.flows import open_clusters
from onceover.wiring.runs import supervisor
from tests.support.flows.flowcase import TIMEOUT_S, FlowCase, standing
from tests.support.session.wait import wait_until

KILLED = Retriable("the Spark JVM is gone: it was killed")


@contextmanager
def begun(case: FlowCase, launch: str, begun_by: str | None = None) -> Iterator[Supervisor]:
    """Yield a supervisor that a command with a name has made, which has led nothing yet."""
    watch = case.flow().watch
    source, target = open_clusters(watch.flow)
    with source, target:
        lead = supervisor(watch, source, target, launch=launch, begun_by=begun_by)
        try:
            yield lead
        finally:
            lead.close()


def asked(case: FlowCase, *, wait_s: float = TIMEOUT_S) -> dict[str, object]:
    """Ask the flow to stop, as a person at another machine does."""
    _, target = open_clusters(case.flow().watch.flow)
    with target:
        return request_stop(target, case.name, wait_s=wait_s)


@pytest.mark.parametrize("how", [(FAILED, KILLED), (ASKED, None), (DONE, None)])
@pytest.mark.parametrize("by", ["its command", "a person who clears its task", "somebody else"])
def test_who_was_told_that_nobody_copies_is_not_copied_behind(
    case: FlowCase, by: str, how: tuple[str, Retriable | None]
) -> None:
    """Killed, and about to be started anew by who began it: that ends at once. A person's start does not."""
    with begun(case, "a", "dag run") as killed:
        killed.start()
        killed.discover()
        # In order, too: killed before it has reported, its command starts it anew all the same.
        killed.end(*how)
    assert asked(case) == {"generation": 1, "stopped": True, "was_running": False}
    launch = {"its command": ("a", "dag run"), "a person who clears its task": ("b", "dag run")}
    with begun(case, *launch.get(by, ("c", None))) as again:
        again.start()
        assert again.was_asked_before() is (by == "its command")
        again.end(ASKED)


@pytest.mark.parametrize("ended", ["in no way", "as asked"])
def test_a_request_is_answered_however_often_who_follows_is_killed(case: FlowCase, ended: str) -> None:
    """Between its announcement and its look, or behind its last record: each time the next one knows."""
    with begun(case, "a") as killed:
        killed.start()
        killed.end(FAILED, KILLED)
    asked(case)
    for _ in range(3):
        with begun(case, "a") as again:
            again.start()
            assert again.was_asked_before()
            if ended == "as asked":
                again.end(ASKED)


def test_a_request_that_comes_as_a_killed_run_is_cleaned_up_stays(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has said that it failed, and fences its lanes still: who asks now is told that nobody runs."""
    with begun(case, "a") as killed:
        killed.start()
        monkeypatch.setattr(killed.leader, "abort_lanes", lambda: answers.append(asked(case)))
        answers: list[dict[str, object]] = []
        killed.end(FAILED, KILLED)
        assert answers == [{"generation": 1, "stopped": True, "was_running": False}]
    with begun(case, "a") as again:
        again.start()
        assert again.was_asked_before()
        again.end(ASKED)


def test_a_run_that_is_killed_as_it_ends_by_itself_is_gone_on_with(case: FlowCase) -> None:
    """It had asked its own lanes to finish, as each does that is caught up, or got a signal."""
    with begun(case, "a") as killed:
        killed.start()
        killed.finish_lanes()
        assert not killed.was_asked_to_stop()
    with begun(case, "a") as again:
        again.start()
        assert not again.was_asked_before()
        again.end()


def test_a_request_that_meets_a_kill_is_answered_by_the_next_start(case: FlowCase) -> None:
    """The driver is gone without a word, and its command starts another: that one is asked, and ends."""
    with begun(case, "a") as killed, ThreadPoolExecutor() as pool:
        killed.start()
        answer = pool.submit(asked, case)
        wait_until(lambda: standing(case), TIMEOUT_S, "it is asked")
        with begun(case, "a") as again:
            again.start()
            assert again.was_asked_before()
            again.end(ASKED)
            assert answer.result(TIMEOUT_S) == {"generation": 1, "stopped": True, "was_running": True}


@pytest.mark.parametrize("taken", ["by a run", "by a change by hand"])
def test_a_start_by_itself_leaves_alone_who_came_meanwhile(case: FlowCase, taken: str) -> None:
    """Between the death and the new driver somebody has begun the flow elsewhere, or a switchover."""
    with begun(case, "a") as killed:
        killed.start()
        killed.end(FAILED, KILLED)
    with begun(case, "b") as newer:
        layout = newer.start() if taken == "by a run" else newer.leader.seize()
        with begun(case, "a") as again, pytest.raises(Fenced, match="taken over"):
            again.start()
        # Its id is still good, and the layout its own.
        newer.leader.check()
        newer.leader.note("positions", {"v": 1, "at_ms": 1})
        assert newer.leader.layout == layout
        if taken == "by a run":
            newer.end()


def test_a_start_that_was_overtaken_behind_its_look_leaves_the_newer_one_too(
    case: FlowCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks before it takes the leader's id, and again behind that."""
    monkeypatch.setattr(leading, "_RECOVERY_PAUSE_S", (0.05, 0.1))
    with begun(case, "a") as killed:
        killed.start()
        killed.end(FAILED, KILLED)
    with begun(case, "b") as newer:
        layout = newer.start()
        with begun(case, "a") as again, pytest.raises(Fenced, match="taken over"):
            again.leader.start()
        newer.leader.note("positions", {"v": 1, "at_ms": 1})
        assert newer.leader.layout == layout
        newer.end()
