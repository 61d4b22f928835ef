"""Tasks that nobody sees any more: a frozen worker's, or those of a larger number of tasks before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onceover.connectors.steps import StepName
from onceover_lab.embed.connect import ConnectWorker
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import TIMEOUT_S, Workers, assert_counted, last_counts
from tests.support.connect.connect_tool import Case
from tests.support.raw.rawkafka import BrokerRefused, RawRecord
from tests.support.raw.rawtxn import OpenTransaction
from tests.support.session.wait import wait_until

# Longer than the tool waits for a transaction's end: only the fence ends one of these.
LONG_MS = 600_000
FENCED = re.compile("ProducerFencedException|InvalidProducerEpochException")
INVALID_PRODUCER_EPOCH, PRODUCER_FENCED = 47, 90


@pytest.fixture
def case(workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path) -> Iterator[Case]:
    """Connectors on the exactly-once workers."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        yield case


@contextmanager
def frozen(worker: ConnectWorker) -> Iterator[None]:
    """Freeze a worker, and do not go on before it is a member again."""
    worker.pause()
    try:
        yield
    finally:
        worker.resume()
        worker.await_ready()


def pair(case: Case) -> tuple[ConnectWorker, ConnectWorker]:
    """Return the leader and the other worker."""
    first, second = case.cluster.workers
    return (first, second) if first.worker_id == case.connect.leader() else (second, first)


def test_a_frozen_workers_task_cannot_move_an_offset_after_the_snapshot(case: Case) -> None:
    """The workers call the connector stopped and without tasks; the one that was frozen does not know."""
    case.begin()
    leader, other = pair(case)
    case.ask(leader)
    assert other.worker_id in {task["worker_id"] for task in case.connect.status(case.name)["tasks"]}
    with frozen(other):
        case.connect.stop(case.name)
        # Everything up to the snapshot is done, the fence included; nothing is copied yet.
        case.tool.killed_at(StepName.COPY_BEGIN, "apply", case.name)
        offsets, numbers = case.connect.offsets(case.name), case.connect.numbers(case.name)
    # It has come back, has tried to go on, and has given up its task.
    wait_until(lambda: FENCED.search(other.log_path.read_text(errors="replace")), TIMEOUT_S, "it is fenced")
    assert case.connect.offsets(case.name) == offsets
    assert case.connect.numbers(case.name) == numbers

    case.tool.ask(*case.cluster.urls)
    case.migrate(outcome="unverifiable")
    case.connect.resume(case.name)
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.soak
def test_a_worker_that_does_not_answer_is_a_refusal(case: Case) -> None:
    """It may own the connector, and nobody can tell what it does; nothing is changed."""
    case.begin()
    _, other = pair(case)
    with frozen(other):
        applied = case.tool.apply(case.name)
        assert applied.code in (3, 5)
        assert other.worker_id in json.dumps(applied.document)
    assert "offsets.storage.topic" not in case.connect.config(case.name)
    case.connect.resume(case.name)
    case.assert_goes_on()


@pytest.mark.soak
def test_as_many_tasks_are_fenced_as_ever_ran(case: Case, target_cluster: SharedCluster) -> None:
    """A stop commits 0, tasks.max may be lower by now: the record of the workers' own fence counts."""
    case.connect.create_topic(case.name, 3)
    case.connect.count(case.name, case.name, partitions=3, tasks__max=3)
    case.connect.await_numbers(case.name, 20, partitions=3)
    case.connect.stop(case.name)
    case.connect.update(case.name, tasks__max=1)
    case.connect.await_stopped(case.name)
    offsets = case.connect.offsets(case.name)
    before = last_counts(offsets)
    ids = [f"{case.cluster.group_id}-{case.name}-{task}" for task in range(4)]
    key, places = next(iter(offsets.partitions.items()))
    zombies = [
        OpenTransaction(target_cluster.bootstrap, transactional_id, case.cluster.offsets_topic, LONG_MS)
        for transactional_id in ids
    ]
    for zombie in zombies[:3]:
        zombie.send(min(places), [RawRecord(key=key, value=b'{"count":1000000}')])
    # One that no task ever had is somebody else's: left alone.
    zombies[3].send(min(places), [RawRecord(key=b'["other",{}]', value=b"{}")])
    zombies[3].commit()

    case.migrate(outcome="unverifiable")

    for zombie in zombies[:3]:
        with pytest.raises(BrokerRefused) as refused:
            zombie.commit()
        assert refused.value.code in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
    case.connect.resume(case.name)
    case.connect.await_more(case.name, partitions=3)
    numbers = case.connect.numbers(case.name, 3)
    assert_counted(numbers)
    assert all(len(numbers[p]) > count for p, count in before.items())
