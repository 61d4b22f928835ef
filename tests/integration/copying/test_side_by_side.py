"""Several flows between the same clusters at the same time, in both directions, some of them in trouble."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onceover.state.steps import Step
from onceover_lab.embed.ports import PortReservation
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.feeds import PARTITIONS, SMALL, feed
from tests.support.flows.flowcase import KILLED, TIMEOUT_S
from tests.support.flows.flows import FlowProcess, InlineFlow, assert_same, write_flow
from tests.support.flows.replica import alter_config
from tests.support.raw.adversary import Adversary
from tests.support.raw.rawkafka import BrokerRefused
from tests.support.session.wait import wait_until

TEMPORARY = 5


class Side(NamedTuple):
    """One flow of the test, and the topic that it copies."""

    path: Path
    topic: str
    source: Mapping[str, str]
    target: Mapping[str, str]

    def process(self, folder: Path, **options: Any) -> FlowProcess:
        """Start it."""
        return FlowProcess(self.path, folder / f"{self.path.stem}.log", **options)

    def assert_complete(self) -> None:
        """Let the independent judge compare its topic."""
        assert_same(self.source, self.target, [self.topic])


@pytest.fixture
def dead_end() -> Iterator[Mapping[str, str]]:
    """A cluster that nobody reaches."""
    port = PortReservation()
    yield {"bootstrap.servers": f"127.0.0.1:{port.port}"}
    port.release()


def make(
    folder: Path,
    name: str,
    clusters: tuple[Mapping[str, str], Mapping[str, str]],
    **changes: Any,
) -> Side:
    """Create a flow and its topic, which holds everything that matters to a commit."""
    source, target = clusters
    with Adversary(source["bootstrap.servers"], seed=hash(name) & 0xFFFF) as adversary:
        adversary.create_topic(name, PARTITIONS)
        feed(adversary, name)
    return Side(
        write_flow(folder, name, source, target, [name], **{**SMALL, **changes}), name, source, target
    )


def make_stuck(folder: Path, name: str, clusters: tuple[Mapping[str, str], Mapping[str, str]]) -> Side:
    """Create a flow whose first partition ends in a record that the target refuses."""
    side = make(folder, name, clusters, topics={"sync_configs": False})
    alter_config(side.source, side.topic, {"message.timestamp.after.max.ms": str(1 << 60)})
    in_two_hours_ms = (int(time.time()) + 7200) * 1000
    with Adversary(side.source["bootstrap.servers"]) as adversary:

        def taken() -> bool:
            # The broker hears of the topic's new configuration a moment after it was accepted.
            try:
                adversary.plain(side.topic, 0, adversary.records(1, timestamp_ms=in_two_hours_ms))
            except BrokerRefused:
                return False
            return True

        wait_until(taken, TIMEOUT_S, "the source takes a record of the future")
    return side


def test_three_flows_in_both_directions_copy_while_others_fail(
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    dead_end: Mapping[str, str],
) -> None:
    """Started at once, each copies its own; a killed, a stopped and a lost one disturb nobody."""
    there = source_cluster.client, target_cluster.client
    back = there[1], there[0]
    good = [
        make(tmp_path, f"{unique_name}-1", there),
        make(tmp_path, f"{unique_name}-2", there, delivery="at_least_once"),
        make(tmp_path, f"{unique_name}-3", back),
    ]
    dying = make(tmp_path, f"{unique_name}-4", there)
    stuck = make_stuck(tmp_path, f"{unique_name}-6", there)
    lost = write_flow(tmp_path, f"{unique_name}-5", dead_end, there[1], ["nothing"])
    with ExitStack() as stack:
        nowhere = stack.enter_context(FlowProcess(lost, tmp_path / "lost.log"))
        killed = stack.enter_context(dying.process(tmp_path, kill_at=Step.COMMIT.name))
        running = [stack.enter_context(side.process(tmp_path)) for side in (stuck, *good)]
        assert killed.wait(TIMEOUT_S) == KILLED
        for process in running:
            assert process.wait(TIMEOUT_S) == 0, process.child.tail(50)
        assert nowhere.child.alive or nowhere.child.returncode == TEMPORARY, nowhere.child.tail(50)
    for side in good:
        side.assert_complete()
        status = InlineFlow(side.path).status()
        assert {p["topic"] for p in status["partitions"]} == {side.topic}
        assert (status["generation"], status["lag_offsets"]) == (1, 0)
    states = {p["partition"]: p["state"] for p in InlineFlow(stuck.path).status()["partitions"]}
    assert states == {0: "stopped", 1: "caught_up", 2: "caught_up"}
    # What the killed one left is its own: its next start takes it from there.
    InlineFlow(dying.path).copy()
    dying.assert_complete()
