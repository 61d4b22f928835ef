"""The topic of a journal of drills, in memory."""

from __future__ import annotations

import pytest

from onceover.state import names
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.unit.drills.journals import FLOW


@pytest.fixture
def west() -> FakeCluster:
    made = FakeCluster()
    made.make_topic(names.drills_topic(FLOW), 1)
    made.tries = 3
    return made


@pytest.fixture
def log(west: FakeCluster) -> FakeLog:
    return west.all_topics[names.drills_topic(FLOW)].logs[0]
