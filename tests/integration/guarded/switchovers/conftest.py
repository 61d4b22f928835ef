"""What tests of switchovers share: a flow between clusters with authorizers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.guarded import Pair
from tests.support.drills.switching import Switched, switched


@pytest.fixture
def replica(guarded: Pair, tmp_path: Path, unique_name: str) -> Iterator[Switched]:
    """A flow of a super user, whose switchover is told to a program that writes down what it heard."""
    with switched(guarded, tmp_path, unique_name) as replica:
        yield replica
