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

    planned, again = case.tool.plan(case.name), case.tool.apply(case.name)

    assert (planned.code, planned.document["changes"]) == (0, [])
    assert (again.code, again.outcome(case.name)) == (0, "done"), again
    # Another one that is named is another matter.
    other = case.tool.plan(case.name, options=["--topic", f"{topic}-2"])
    assert (other.code, other.codes()) == (3, {"OTHER_TOPIC"})
