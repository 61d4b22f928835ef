"""What tests of a way back share: a flow between the session's two clusters that is switched over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.clusters import SharedCluster
from tests.support.drills.orphaned import Orphaned, orphaned


@pytest.fixture
def replica(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Orphaned]:
    """A flow whose clients a program moves, so that its source goes on to be written to."""
    with orphaned(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        yield replica
