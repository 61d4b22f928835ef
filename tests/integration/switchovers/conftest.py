"""What tests of switchovers share: a pair of clusters with authorizers a file, and a flow between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.guarded import Pair, guarded_clusters
from tests.support.switching import Switched, switched


@pytest.fixture(scope="module")
def guarded(session_home: Path) -> Iterator[Pair]:
    """Two clusters with authorizers."""
    with guarded_clusters(session_home) as pair:
        yield pair


@pytest.fixture
def replica(guarded: Pair, tmp_path: Path, unique_name: str) -> Iterator[Switched]:
    """A flow of a super user, whose switchover is told to a program that writes down what it heard."""
    with switched(guarded, tmp_path, unique_name) as replica:
        yield replica
