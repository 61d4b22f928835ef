"""``onceover drill run --mode unplanned``: the source is frozen or gone, and nobody waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceover.backoff import Deadline
from onceover.drills.switching.unplanned import UnplannedSteps
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.drills.switching import step_of, trouble
from tests.support.flows.flows import write_flow
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.replica import Replica
from tests.support.flows.waysout import commands

DONE, AGAIN = 0, 5
# The aim is 10 s on a quiet machine; what is tested is that nothing waits for the source.
BOUND_S = 60.0
# The flow the other way is asked for 3 s; without that bound it would be 30.
REDIRECT_S = 15.0


@pytest.fixture(scope="module")
def lost(session_home: Path) -> Iterator[KafkaCluster]:
    """A source that may be frozen and killed: these tests' own."""
    factory = ClusterFactory(session_home)
    try:
        yield factory("lost-source")
    finally:
        factory.close()


@contextmanager
def flow_between(source: SharedCluster, target: SharedCluster, folder: Path, name: str) -> Iterator[Replica]:
    """Yield a flow whose clients a program moves, and the flow the other way, whose journal is there."""
    program = folder / "switch"
    program.write_text('#!/bin/sh\necho "$1" > "$(dirname "$0")/heard"\n')
    program.chmod(0o700)
    back = f"{name}-back"
    switchover = {"redirect": "command", "command": ["./switch"], "reverse": back}
    sides = {"source": {"alias": "west"}, "target": {"alias": "east"}}
    write_flow(folder, back, target.client, source.client, [f"{name}[.].*"], **sides)
    with Replica(folder, name, source.client, target.client) as replica:
        replica.configure(switchover=switchover)
        yield replica


@pytest.fixture
def replica(
    source_cluster: SharedCluster, target_cluster: SharedCluster, tmp_path: Path, unique_name: str
) -> Iterator[Replica]:
    """A flow from a source that lives."""
    with flow_between(source_cluster, target_cluster, tmp_path, unique_name) as replica:
        yield replica


@pytest.fixture
def losing(
    lost: KafkaCluster, target_cluster: SharedCluster, tmp_path: Path, unique_name: str
) -> Iterator[Replica]:
    """A flow from the source that is frozen or killed meanwhile; it is there again for the next test."""
    with flow_between(lost, target_cluster, tmp_path, unique_name) as replica:
        yield replica
    (node,) = lost.nodes
    if node.alive:
        # One that had been frozen for long once answered nobody for 90 s: what is tested is over by now.
        node.kill()
    node.start()


def ran(replica: Replica, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    path = str(replica.flow.path)
    return replica.command(capsys, "drill", "run", path, "--mode", "unplanned", "--approve")


def copied(replica: Replica, capsys: pytest.CaptureFixture[str]) -> str:
    topic = replica.topic(partitions=2)
    replica.source.plain(topic, 0, replica.source.records(20))
    commit(replica.source_client, f"{replica.name}-billing", topic, {0: 7, 1: 0})
    replica.copy()
    assert replica.command(capsys, "groups", "apply", str(replica.flow.path))[0] == DONE
    return topic


# One that is killed is in the story of a source that is back, below.
@pytest.mark.parametrize("how", ["frozen", pytest.param("killed", marks=pytest.mark.soak)])
def test_a_source_that_does_not_answer_holds_nobody_up(
    losing: Replica, lost: KafkaCluster, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """What was copied is promoted; groups stay where they were put; what is missing is told as unknown."""
    topic = copied(losing, capsys)
    if how == "frozen":
        lost.nodes[0].pause()
    else:
        lost.nodes[0].kill()
    began_s = time.monotonic()
    code, told = ran(losing, capsys)
    took_s = time.monotonic() - began_s
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    assert took_s < BOUND_S
    look = step_of(told, "look")["evidence"]
    assert (look["source_answers"], look["partitions"], look["partitions_unknown"]) == (False, 2, 2)
    assert {finding["code"] for finding in told["findings"]} >= {
        "LOSS_UNKNOWN",
        "GROUPS_LEFT",
        "STILL_FENCED",
    }
    assert step_of(told, "redirect")["seconds"] < REDIRECT_S
    assert (losing.flow.path.parent / "heard").read_text() == "redirect\n"
    assert offset_of(losing.target_client, f"{losing.name}-billing", topic) == 7
    assert len(losing.target_records(topic)) == 20


def test_a_source_that_answers_says_what_is_missing_and_what_was_written_behind_the_look(
    replica: Replica, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three records more, and a group that has read on: it goes on where it is now.

    Nobody keeps the writers of a source that lives off: what it holds alone is counted at the end.
    """
    topic, real = copied(replica, capsys), UnplannedSteps.look
    replica.source.plain(topic, 0, replica.source.records(3))
    commit(replica.source_client, f"{replica.name}-billing", topic, {0: 9, 1: 0})

    def look(steps: UnplannedSteps, deadline: Deadline) -> Mapping[str, Any]:
        found = real(steps, deadline)
        replica.source.plain(topic, 1, replica.source.records(50))
        return found

    monkeypatch.setattr(UnplannedSteps, "look", look)
    code, told = ran(replica, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    seen = step_of(told, "look")["evidence"]
    assert (seen["source_answers"], seen["offsets_missing"], seen["partitions_unknown"]) == (True, 3, 0)
    assert told["rpo"]["offsets"] == 53
    assert told["rpo"]["seconds"] > 0.0
    assert offset_of(replica.target_client, f"{replica.name}-billing", topic) == 9
    before = replica.target_records(topic)
    replica.copy()
    assert replica.target_records(topic) == before
    _, status = replica.command(capsys, "drill", "status", str(replica.flow.path))
    drills = [(each["mode"], each["result"], each["rpo_offsets"]) for each in status["drills"]]
    assert drills == [("unplanned", "PASS", 53)]


def test_a_source_that_is_back_says_what_it_holds_alone(
    losing: Replica,
    lost: KafkaCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as it is away that is not known, never none; and its report said where to look."""
    topic = copied(losing, capsys)
    losing.source.plain(topic, 1, losing.source.records(4))
    lost.nodes[0].kill()
    code, told = ran(losing, capsys)
    assert (code, told["verdict"]) == (DONE, "PASS"), trouble(told)
    (text,) = [finding["text"] for finding in told["findings"] if finding["code"] == "LOOK_BACK"]
    (see,) = commands(text)
    with monkeypatch.context() as patch:
        # Who asks for that may well wait half a minute for it.
        patch.setattr("onceover.kafka.cluster.DEFAULT_TIMEOUT_S", 2.0)
        error = see.run(capsys, codes=(AGAIN,))["error"]
    assert "lost-source" in str(error) or "east" in str(error)
    lost.nodes[0].start()
    found = see.run(capsys)
    by_partition = {each["partition"]: each["records"] for each in found["partitions"]}
    assert (found["orphans"], by_partition) == (4, {f"{topic}:0": 0, f"{topic}:1": 4})
