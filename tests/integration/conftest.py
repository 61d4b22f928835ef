"""What integration tests share: a flow between the session's two clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters import SharedCluster
from tests.support.replica import Replica


@pytest.fixture
def replica(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Replica]:
    """A flow of the test's own between the shared clusters."""
    with Replica(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        yield replica
