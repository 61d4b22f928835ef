"""Fixtures of the producer's tests."""

from __future__ import annotations

import pytest

from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.kafka.scenes import SETS, target


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceover.backoff.time.sleep", lambda _: None)


@pytest.fixture(params=list(SETS), ids=list(SETS))
def cluster(request: pytest.FixtureRequest) -> FakeCluster:
    return target(*SETS[request.param])
