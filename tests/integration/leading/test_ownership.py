"""Flows that want the same topic at the same moment: one of them copies it (G1)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceover.state.read import read_flow_state
from onceover.state.records.enrolment import Enrolment
from onceover.state.steps import Step
from onceover.topics.plan import View
from onceover.topics.view import TopicReader
from onceover.wiring.flows import open_clusters
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flows import FlowProcess
from tests.support.flows.replica import Replica
from tests.support.session.wait import wait_until

Capture = pytest.CaptureFixture[str]
_TIMEOUT_S = 60.0
_RECORDS = 1000


@pytest.fixture
def pair(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[tuple[Replica, Replica]]:
    """Two flows over the same topics; the first goes first by its name where both claim one."""
    # A digit where the other has a letter: digits come first.
    names = f"{unique_name}0", f"{unique_name}x"
    with (
        Replica(tmp_path, names[0], source_cluster.client, target_cluster.client) as first,
        Replica(tmp_path, names[1], source_cluster.client, target_cluster.client) as second,
    ):
        for replica in (first, second):
            replica.configure(topics={"include": [f"{unique_name}.[.].*"]})
        yield first, second


def meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have two flows look at each other at the same moment when they start: neither sees anything."""
    barrier, read = threading.Barrier(2), TopicReader.read
    met: set[str] = set()

    def read_together(reader: TopicReader, *args: Any, **kwargs: Any) -> View:
        view = read(reader, *args, **kwargs)
        if reader.flow not in met:
            met.add(reader.flow)
            barrier.wait(_TIMEOUT_S)
        return view

    monkeypatch.setattr(TopicReader, "read", read_together)


def at_once(*actions: Callable[[], Any]) -> None:
    """Run actions in threads of their own; raise what fails in one."""
    problems: list[BaseException] = []

    def run(action: Callable[[], Any]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's own thread
            problems.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def enrolled(replica: Replica) -> dict[str, Enrolment]:
    """Return the topics that are or were part of the flow."""
    source, target = open_clusters(replica.flow.watch.flow)
    with source, target:
        return dict(read_flow_state(target, replica.name).enrolled)


def winner_of(first: Replica, second: Replica) -> tuple[Replica, Replica]:
    """Return the flow that has enrolled, then the other: the first, unless it was late with its claim."""
    return (first, second) if enrolled(first) else (second, first)


def refused(replica: Replica, capsys: Capture) -> dict[str, str]:
    """Return the codes of topics that are not taken in."""
    _, document = replica.command(capsys, "status", str(replica.flow.path))
    (entry,) = document["flows"]
    waiting = [p for p in entry["partitions"] if p["state"] == "not_enrolled"]
    # Between two looks there may be no reason to tell.
    return {p["topic"]: (p["stop"] or {}).get("code", "") for p in waiting}


def test_two_flows_started_together_do_not_both_copy_a_topic(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Each looks for others before either has enrolled, as a cron starts them; the other says why not."""
    first, second = pair
    topic = first.topic()
    first.source.plain(topic, 0, first.source.records(_RECORDS))
    meet(monkeypatch)

    at_once(first.copy, second.copy)

    assert len(first.target_records(topic, 0)) == _RECORDS
    winner, other = winner_of(first, second)
    assert refused(winner, capsys) == {}
    # As it saw the other one: by its claim, or when it had enrolled already.
    assert refused(other, capsys) in ({topic: "CLAIMED_ELSEWHERE"}, {topic: "ENROLLED_ELSEWHERE"})
    assert [winner.copy().records, other.copy().records] == [0, 0]
    assert refused(other, capsys) == {topic: "ENROLLED_ELSEWHERE"}
    winner.assert_same(topic)


def test_two_opposite_flows_started_together_do_not_copy_a_topic_round(
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """Under identity naming either would copy what the other one has copied."""
    there, back = f"{unique_name}0", f"{unique_name}x"
    with (
        Replica(tmp_path, there, source_cluster.client, target_cluster.client) as east,
        Replica(tmp_path, back, target_cluster.client, source_cluster.client) as west,
    ):
        topic = east.topic()
        east.target_topic(topic)
        for replica in (east, west):
            replica.configure(topics={"include": [topic.replace(".", "[.]")]})
        meet(monkeypatch)
        at_once(east.copy, west.copy)
        winner, other = winner_of(east, west)
        assert [list(enrolled(winner)), list(enrolled(other))] == [[topic], []]
        winner.source.plain(topic, 0, winner.source.records(_RECORDS))
        assert [winner.copy().records, other.copy().records] == [_RECORDS, 0]
        assert [refused(winner, capsys), refused(other, capsys)] == [{}, {topic: "TWO_WAY"}]
        winner.assert_same(topic)


def test_a_flow_that_stopped_between_its_claim_and_its_look_gives_way_when_it_wakes(
    pair: tuple[Replica, Replica], tmp_path: Path, capsys: Capture
) -> None:
    """Until then nobody knows whether it has looked: the other one waits, says for whom, and copies later."""
    first, second = pair
    topic = first.topic()
    first.source.plain(topic, 0, first.source.records(_RECORDS))
    second.flow.status()
    with FlowProcess(second.flow.path, tmp_path / "second.log", pause_at=Step.OWN_LOOK.name) as paused:
        paused.wait_paused(_TIMEOUT_S)
        with first.running():
            wait_until(lambda: refused(first, capsys) == {topic: "CLAIMED_ELSEWHERE"}, _TIMEOUT_S, "it waits")
            os.kill(paused.child.pid, signal.SIGCONT)
            assert paused.child.wait(_TIMEOUT_S) == 0, paused.child.tail()
            wait_until(lambda: refused(first, capsys) == {}, _TIMEOUT_S, "it is its own")
    first.copy()
    first.assert_same(topic)
    assert refused(second, capsys)[topic] in ("CLAIMED_ELSEWHERE", "ENROLLED_ELSEWHERE")


def test_seeding_claims_its_topics_like_a_run(
    pair: tuple[Replica, Replica], tmp_path: Path, capsys: Capture
) -> None:
    """Beside a flow that has claimed them and not looked yet it writes nothing, and says why."""
    first, second = pair
    topic = first.topic()
    first.source.plain(topic, 0, first.source.records(_RECORDS))
    seed = "seed", "apply", str(first.flow.path), "--from", "earliest"
    with FlowProcess(second.flow.path, tmp_path / "second.log", pause_at=Step.OWN_LOOK.name) as paused:
        paused.wait_paused(_TIMEOUT_S)

        code, document = first.command(capsys, *seed)

        said = [each["code"] for each in document["refused"]]
        assert (code, said, document["written"]) == (3, ["CLAIMED_ELSEWHERE"], 0)
        os.kill(paused.child.pid, signal.SIGCONT)
        assert paused.child.wait(_TIMEOUT_S) == 0, paused.child.tail()
    assert first.command(capsys, *seed)[0] == 0
    assert first.copy().records == _RECORDS
    first.assert_same(topic)


@pytest.mark.soak
def test_a_claim_that_was_left_behind_is_settled_by_a_start_of_its_flow(
    pair: tuple[Replica, Replica], tmp_path: Path, capsys: Capture
) -> None:
    """As the refusal says; the way out was followed."""
    first, second = pair
    topic = first.topic()
    first.source.plain(topic, 0, first.source.records(_RECORDS))
    with FlowProcess(second.flow.path, tmp_path / "second.log", kill_at=Step.OWN_LOOK.name) as killed:
        assert killed.child.wait(_TIMEOUT_S) == -signal.SIGKILL
    assert first.copy().records == 0
    assert refused(first, capsys) == {topic: "CLAIMED_ELSEWHERE"}

    assert second.copy().records == _RECORDS

    assert first.copy().records == 0
    assert refused(first, capsys) == {topic: "ENROLLED_ELSEWHERE"}
    second.assert_same(topic)
