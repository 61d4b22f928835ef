"""Delivery at least once on real brokers: nothing lost, progress never back, repeats counted and bounded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.cli.terminal.statustext import describe
from onceover.state.steps import Step
from onceover.wire.batches.batch import TRANSACTIONAL
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.feeds import PARTITIONS, held
from tests.support.flows.flowcase import FENCED, TIMEOUT_S, FlowCase
from tests.support.flows.repeats import count_repeats
from tests.support.flows.replica import Replica
from tests.support.raw.adversary import Adversary

EO, ALO = "exactly_once", "at_least_once"
# Before data is sent, behind it, and on both sides of the commit.
STEPS = (Step.DATA_SENT, Step.DATA_ACKED, Step.MAP_SENT, Step.PROGRESS_SENT, Step.COMMIT, Step.COMMITTED)
QUICK = [(Step.DATA_ACKED, ALO), (Step.COMMIT, EO)]
MATRIX = [(step, then, count) for step in STEPS for then in (EO, ALO) for count in (1, 3)]


@pytest.fixture
def case(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[FlowCase]:
    case = FlowCase(tmp_path, unique_name, source_cluster, target_cluster, delivery=ALO)
    yield case
    case.close()


def surplus(case: FlowCase) -> int:
    """Return how many records the target holds beyond the committed progress: they will come again."""
    positions = case.agreed_positions()
    there = sum(map(len, held(case.target, case.topic).values()))
    stands_for = sum(
        record.offset < positions.get(partition, 0)
        for partition, records in held(case.source, case.topic).items()
        for record in records
    )
    return there - stands_for


def repeats(case: FlowCase) -> int:
    """Fail if anything is lost or out of order; return what is there again."""
    return count_repeats(case.source, case.target, [case.topic])


def in_transactions(case: FlowCase) -> int:
    """Return how many data batches of the target belong to transactions."""
    with Adversary(case.target["bootstrap.servers"]) as target:
        batches = [batch for number in range(PARTITIONS) for batch in target.batches(case.topic, number)]
    return sum(bool(batch.attributes & TRANSACTIONAL) and not batch.is_control for batch in batches)


def test_modes_change_in_both_directions_and_lose_and_repeat_nothing(case: FlowCase) -> None:
    """Each time stopped cleanly; the mode in effect is shown, and data is in transactions in one only."""
    inside = 0
    for mode in (ALO, EO, ALO):
        flow = case.flow(delivery=mode)
        flow.copy()
        case.assert_complete()
        status = flow.status()
        assert status["delivery"] == mode
        assert ("at least once" in describe(status)) is (mode is ALO)
        before, inside = inside, in_transactions(case)
        assert (inside > before) is (mode is EO)
        case.feed()


def killed_then(case: FlowCase, step: Step, count: int, then: str) -> int:
    """Kill a run, go on in mode ``then``: what was sent behind the progress comes again, and only that."""
    case.kill(step, count)
    flow = case.flow(delivery=then)
    with flow.running() as (lead, layout):
        # Every lane is fenced: what the killed run left open is decided.
        expected, positions = surplus(case), case.agreed_positions()
        flow.finish(lead, layout)
    after = case.agreed_positions()
    assert all(after[partition] >= position for partition, position in positions.items())
    assert repeats(case) == expected
    case.feed()
    case.flow().copy()
    assert repeats(case) == expected
    return expected


@pytest.mark.parametrize(("step", "then"), QUICK, ids=lambda value: getattr(value, "name", str(value)))
def test_killed_at_a_step_it_repeats_what_was_sent_behind_the_progress(
    case: FlowCase, step: Step, then: str
) -> None:
    """Nothing is lost, whatever mode goes on."""
    assert killed_then(case, step, 2, then) > 0


@pytest.mark.soak
@pytest.mark.parametrize(
    ("step", "then", "count"), MATRIX, ids=lambda value: getattr(value, "name", str(value))
)
def test_killed_at_any_step_it_repeats_what_was_sent_behind_the_progress(
    case: FlowCase, step: Step, then: str, count: int
) -> None:
    """The whole matrix."""
    case.feed()
    killed_then(case, step, count, then)


def test_a_paused_run_that_wakes_repeats_what_it_had_in_hand_and_moves_no_progress(case: FlowCase) -> None:
    """SIGSTOP before its data leaves, a whole newer run, SIGCONT: its data arrives, its commit is fenced."""
    with case.process(pause_at=Step.DATA_SENT.name, kill_count=2) as old:
        old.wait_paused(TIMEOUT_S)
        case.feed()
        newer = case.flow().copy().layout
        before, already = case.agreed_positions(), repeats(case)
        old.child.resume()
        assert old.wait(TIMEOUT_S) == FENCED, old.child.tail()
    woken = repeats(case)
    assert woken > already
    assert case.agreed_positions() == before
    assert case.owners() == {newer.generation}
    # What it has added is no reason to stop, and nothing else comes again.
    case.feed()
    case.flow().copy()
    assert repeats(case) == woken


def test_a_refused_record_stops_its_partition_and_the_others_go_on(replica: Replica) -> None:
    """The same way as exactly once: the record is named, what stands before it is copied."""
    replica.configure(delivery=ALO, topics={"sync_configs": False})
    bad, good = (
        replica.topic("a", config={"message.timestamp.after.max.ms": str(1 << 60)}),
        replica.topic("b"),
    )
    for topic in (bad, good):
        replica.source.plain(topic, 0, replica.source.records(5))
    in_two_hours_ms = (int(time.time()) + 7200) * 1000
    refused = replica.source.plain(bad, 0, replica.source.records(1, timestamp_ms=in_two_hours_ms))
    replica.copy()
    assert (refused, replica.stop_of(bad)["code"]) == (5, "RECORD_REFUSED")
    assert replica.partition_status(bad)["position"] == refused
    assert replica.partition_status(good)["state"] == "caught_up"
    # What was sent together with the refused record came again.
    assert len(replica.target_records(bad)) >= refused


def test_a_refused_record_goes_to_the_dead_letter_topic(replica: Replica) -> None:
    """And its partition goes on: `on_bad_record` holds in both modes."""
    letters = f"{replica.name}-letters"
    replica.configure(delivery=ALO, on_bad_record=f"dead_letter:{letters}", topics={"sync_configs": False})
    topic = replica.topic()
    replica.target_topic(topic, 1, {"max.message.bytes": "50000"})
    for _ in range(2):
        replica.source.plain(topic, 0, replica.source.records(3))
        replica.source.batch_of_size(topic, 0, 60_000)
    replica.copy()
    assert replica.partition_status(topic)["state"] == "caught_up"
    source, target = replica.source_records(topic), replica.target_records(topic).values()
    small = [seen for seen in source.values() if len(seen.value or b"") < 50_000]
    assert set(target) == set(small)
    assert {len(seen.value or b"") > 50_000 for seen in replica.target_records(letters).values()} == {True}
