"""What a person is told about a live Connect cluster, and what is asked of them for no reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters import SharedCluster
from tests.support.connect import Workers
from tests.support.connect_tool import Case


@pytest.fixture
def case(workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path) -> Iterator[Case]:
    """Connectors on the exactly-once workers."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        yield case


def test_a_topic_that_was_named_once_is_kept(case: Case) -> None:
    """Every later run without ``--topic`` finds it in order, and asks for no decision."""
    case.begin()
    topic = f"{case.name}-mine"
    first = case.tool.apply(case.name, options=["--topic", topic])
    assert (first.code, case.connect.config(case.name)["offsets.storage.topic"]) == (0, topic), first

    # From where to where it went is said, not only that it did.
    (position, *_) = first.of(case.name)["positions"]
    assert position["from"].startswith("count ") and position["from"] != position["to"]
    assert f"{position['from']} -> " in first.of(case.name)["message"]
    planned, again = case.tool.plan(case.name), case.tool.apply(case.name)

    assert (planned.code, planned.document["changes"]) == (0, [])
    assert (again.code, again.outcome(case.name)) == (0, "done"), again
    # Another one that is named is another matter.
    other = case.tool.plan(case.name, options=["--topic", f"{topic}-2"])
    assert (other.code, other.codes()) == (3, {"OTHER_TOPIC"})


def test_a_plan_says_how_long_a_connector_stands(
    workers: Workers, target_cluster: SharedCluster, case: Case, tmp_path: Path
) -> None:
    """And that it stays so, where it does: until its workers are changed."""
    case.begin()
    planned = case.tool.plan(case.name).of(case.name)
    assert 0 < planned["outage_s"] < 60 and "stands still for about" in planned["notes"][0]
    soft = case.tool.run("downgrade", "--connector", case.name, "--mode", "soft").of(case.name)
    assert soft["outage_s"] is None and "stays STOPPED" in soft["notes"][0]
    # Nothing fences a task without exactly-once: two looks, an interval of commits apart.
    with Case(tmp_path, f"{case.name}-plain", workers.plain, target_cluster.client) as plain:
        plain.begin()
        assert plain.tool.plan(plain.name).of(plain.name)["outage_s"] > planned["outage_s"]


def test_every_worker_is_named_once(case: Case) -> None:
    """A worker that is counted twice, or found by itself, hides one that nobody has asked for its tasks."""
    first, second = case.cluster.urls
    case.begin()
    for names, told in (
        ([first], f"nobody named {second}"),
        ([first, first.replace("127.0.0.1", "localhost")], "lead to the same worker"),
    ):
        case.tool.ask(*names)
        refused = case.tool.plan(case.name)
        error = refused.document["error"]
        assert (refused.code, error["code"]) == (3, "WORKERS_DIFFER"), refused
        assert told in error["seen"]
    # By another name, and in another order, it is the same worker.
    case.tool.ask(second.replace("127.0.0.1", "localhost"), first)
    assert case.tool.plan(case.name).code == 0
