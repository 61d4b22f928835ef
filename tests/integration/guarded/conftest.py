"""What tests of rights and of switchovers share: one pair of clusters with authorizers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.guarded import Pair, guarded_clusters
from tests.support.brokers.sharing import forget, forget_groups
from tests.support.flows.grants import revoke_all


@pytest.fixture(scope="package")
def guarded(session_home: Path) -> Iterator[Pair]:
    """Two clusters on which the flow's user may do nothing that was not granted."""
    with guarded_clusters(session_home) as pair:
        yield pair


@pytest.fixture(autouse=True)
def nothing_left(guarded: Pair, unique_name: str) -> Iterator[None]:
    """What a test has left there and may not be seen would be in the way of the next one."""
    yield
    for cluster in guarded:
        revoke_all(cluster)
        forget(cluster.internal_bootstrap, unique_name)
        forget_groups(cluster.internal_bootstrap, unique_name)
