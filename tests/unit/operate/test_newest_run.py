"""Who copies, as somebody asks who would take over: one answer that passes is no answer to that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.clock import now_ms
from onceover.errors import Retriable
from onceover.state import names
from onceover.state import read as state
from onceover.wiring import status
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.state.records.test_layout import LAYOUT


def newest(monkeypatch: pytest.MonkeyPatch, tries: int) -> Any:
    """Return the newest run of a target whose leader moves during the first look."""
    target = FakeCluster()
    target.tries = tries
    starting = LAYOUT.to_json() | {"started_at_ms": now_ms(), "ended_at_ms": None, "ready": False}
    looks = [Retriable("NOT_LEADER_OR_FOLLOWER"), [{names.LAYOUT: starting}, {}, {}]]

    def read(*_: object, **__: object) -> Any:
        look = looks.pop(0)
        if isinstance(look, Retriable):
            raise look
        return look

    monkeypatch.setattr(status, "open_clusters", lambda _flow: (FakeCluster("east"), target))
    monkeypatch.setattr(state, "read_values", read)
    return status.newest_run(cast(Any, SimpleNamespace(flow="orders")))


def test_a_leader_that_moves_hides_no_run_that_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rolling restart would have a schedule take over."""
    assert newest(monkeypatch, tries=2).lives


def test_a_target_that_stays_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes it for one on which nobody copies."""
    with pytest.raises(Retriable, match="NOT_LEADER"):
        newest(monkeypatch, tries=1)
