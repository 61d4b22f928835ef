"""What integration tests share: a flow between the session's two clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flowcase import FlowCase, lane_threads
from tests.support.flows.replica import Replica


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process find flows by name in the test's own directory, and write there."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))


@pytest.fixture
def replica(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Replica]:
    """A flow of the test's own between the shared clusters."""
    with Replica(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        yield replica


@pytest.fixture
def case(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[FlowCase]:
    """A flow whose topic holds batches of every kind already, and which is run as each test likes."""
    case = FlowCase(tmp_path, unique_name, source_cluster, target_cluster)
    with lane_threads():
        yield case
    case.close()
