"""A 3.9.1 broker, which has no transaction.version 2: the older request set, and an older source."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.copy.loop import Until
from onceover.errors import Fenced
from onceover.kafka.ports import Features
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.state.steps import Step
from onceover.txn.txnstate import RequestSet
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.flowcase import (
    FENCED,
    TIMEOUT_S,
    FlowCase,
    LaneThread,
    assert_one_generation_after_the_other,
    busy_lane,
    duel,
    lane_threads,
)
from tests.support.flows.repeats import count_repeats

VERSION = "3.9.1"
KILLS = [
    (Step.LAYOUT_COMMIT, 1),
    (Step.FENCE_LANE, 2),
    (Step.READY_COMMIT, 1),
    (Step.ENROL_OFFSETS, 1),
    (Step.ENROL_COMMIT, 1),
    (Step.CLAIM_COMMIT, 1),
    (Step.DATA_SENT, 2),
    (Step.DATA_ACKED, 2),
    (Step.MAP_SENT, 2),
    (Step.PROGRESS_SENT, 2),
    (Step.COMMIT, 2),
    (Step.COMMITTED, 2),
]
PAUSES = [Step.FENCE_LANE, Step.ENROL_COMMIT, Step.DATA_SENT, Step.PROGRESS_SENT, Step.COMMIT]

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def old_cluster(session_home: Path) -> Iterator[KafkaCluster]:
    home = Path(tempfile.mkdtemp(prefix="older-", dir=session_home))
    factory = ClusterFactory(home)
    try:
        yield factory("old", version=VERSION)
    finally:
        factory.close()
        shutil.rmtree(home)


@pytest.fixture
def case(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, old_cluster: KafkaCluster
) -> Iterator[FlowCase]:
    case = FlowCase(tmp_path, unique_name, source_cluster, old_cluster)
    with lane_threads():
        yield case
    case.close()


def test_older_set_is_chosen_and_copies(case: FlowCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the broker does not know is not sent to it."""
    chosen: set[RequestSet] = set()
    init = TransactionalProducer.init

    def spy(producer: TransactionalProducer) -> bool:
        done = init(producer)
        chosen.add(producer.requests)
        return done

    monkeypatch.setattr(TransactionalProducer, "init", spy)
    case.flow().copy()
    case.assert_complete()
    case.feed()
    case.converge()
    assert chosen == {RequestSet.V3}
    assert assert_one_generation_after_the_other(case) == {1, 2}


def test_at_least_once_needs_nothing_newer(case: FlowCase) -> None:
    """Data by topic name, progress in a transaction of the older set."""
    case.flow(delivery="at_least_once").copy()
    case.assert_complete()
    case.feed()
    case.kill(Step.PROGRESS_SENT, 2)
    case.flow().copy()
    repeats = count_repeats(case.source, case.target, [case.topic])
    assert repeats > 0
    case.feed()
    case.flow().copy()
    assert count_repeats(case.source, case.target, [case.topic]) == repeats


def test_older_source_is_copied_to_a_newer_target(
    tmp_path: Path, unique_name: str, old_cluster: KafkaCluster, target_cluster: SharedCluster
) -> None:
    """Fetch v13 and everything else that is asked of a source is served."""
    case = FlowCase(tmp_path, unique_name, old_cluster, target_cluster)
    try:
        case.converge()
        case.feed()
        case.converge()
    finally:
        case.close()


def test_newer_broker_with_the_older_set_is_copied_to(
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an upgraded cluster with an old finalized feature looks like."""
    monkeypatch.setattr("onceover.kafka.cluster.Features", lambda *_: Features(0))
    case = FlowCase(tmp_path, unique_name, source_cluster, target_cluster)
    try:
        case.converge()
    finally:
        case.close()


@pytest.mark.parametrize(("step", "count"), KILLS, ids=lambda value: getattr(value, "name", str(value)))
def test_killed_at_a_step_the_next_start_converges(case: FlowCase, step: Step, count: int) -> None:
    """As on a newer broker."""
    case.kill(step, count)
    case.converge()


@pytest.mark.parametrize("step", PAUSES, ids=lambda step: step.name)
def test_a_paused_run_that_wakes_after_a_newer_one_stops_and_changes_nothing(
    case: FlowCase, step: Step
) -> None:
    """No new epoch at each transaction here: InitProducerId alone keeps the older one out."""
    with case.process(pause_at=step.name) as old:
        old.wait_paused(TIMEOUT_S)
        case.feed()
        case.flow().copy()
        before = case.agreed()
        old.child.resume()
        assert old.wait(TIMEOUT_S) == FENCED, old.child.tail()
    assert case.agreed() == before
    case.assert_complete()


def test_of_two_launches_at_once_one_survives(case: FlowCase) -> None:
    """Several rounds."""
    for pause_s in (0.0, 0.1):
        outcomes = duel(case.flow(), case.flow(), pause_s)
        assert None in outcomes, outcomes
        assert all(isinstance(outcome, Fenced) for outcome in outcomes if outcome)
        case.agreed()
        case.feed()
    case.converge()


def test_the_higher_instance_wins(case: FlowCase) -> None:
    """A lower one that wakes up in the middle of its transaction."""
    flow, lane = case.flow(), busy_lane(case)
    with flow.running() as (lead, layout):
        low = LaneThread(flow, layout, lane, token=1, freeze_at=Step.COMMIT)
        low.start()
        low.wait_frozen()
        flow.lanes(layout, Until(time.monotonic() + 5.0), token=2)
        assert low.finish() is None and not low.receipts
        flow.finish(lead, layout, token=3)
    case.assert_complete()
