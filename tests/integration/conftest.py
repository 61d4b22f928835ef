"""What integration tests share: a flow between the session's two clusters, and Connect workers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters import SharedCluster
from tests.support.connect import Workers, connect_workers
from tests.support.replica import Replica


@pytest.fixture
def replica(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Replica]:
    """A flow of the test's own between the shared clusters."""
    with Replica(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        yield replica


@pytest.fixture(scope="session")
def workers(session_home: Path, target_cluster: SharedCluster) -> Iterator[Workers]:
    """Two Connect workers with exactly-once, and one without, on the target cluster."""
    # An external cluster may still hold the topics of an older session.
    name = f"connect-{uuid.uuid4().hex[:8]}"
    with connect_workers(session_home / name, target_cluster.bootstrap, name) as workers:
        yield workers
