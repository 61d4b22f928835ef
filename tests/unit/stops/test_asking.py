"""Asking a run to stop, of a state that is told as of before: nobody is said to have stopped who has not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from onceover.errors import Retriable
from onceover.kafka.calls import NO_EPOCH, CommittedOffset
from onceover.model import TopicPartition
from onceover.state import names, read
from onceover.state.records.layout import Layout
from onceover.stops import requests
from onceover.stops.requests import request_stop
from onceover.wire.progress import ProgressMeta
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.state.records.test_layout import LAYOUT

FLOW = "orders-dr"


@pytest.mark.parametrize("told", [LAYOUT.as_ended(1), LAYOUT, None], ids=["ended", "running", "none"])
def test_of_a_state_that_has_lost_its_end_nobody_is_asked_and_none_is_called_ended(
    told: Layout | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has copied tells that a newer run began: its lanes go on until its driver notices."""
    west = FakeCluster("west")
    west.tries = 1
    meta = ProgressMeta("s", "t", 0, 0, generation=LAYOUT.generation + 1, instance=(1, 1), position=7)
    beside = CommittedOffset(0, 7, NO_EPOCH, meta.encode())
    west.groups[names.progress_group(FLOW)] = {TopicPartition("orders", 0): beside}
    values = {} if told is None else {names.LAYOUT: told.to_json()}
    monkeypatch.setattr(read, "read_leader", lambda *_: values)
    with pytest.raises(Retriable, match="is told as it was before generation"):
        request_stop(west, FLOW, wait_s=0.1)


def silent(*_: object) -> None:
    raise Retriable("the group's coordinator is away")


def test_a_run_is_asked_to_stop_where_nobody_tells_what_has_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """That may be why it is to stop; and its own answer is what tells that it has."""
    west = FakeCluster("west")
    west.tries, west.heard = 1, silent
    asked = SimpleNamespace(until_over=lambda _: LAYOUT.as_ended(1), close=lambda: None)
    monkeypatch.setattr(requests, "read_layout", lambda *_: LAYOUT)
    monkeypatch.setattr(requests, "_Asking", lambda *_: asked)
    assert request_stop(west, FLOW, wait_s=0.1)["was_running"]


@pytest.mark.parametrize("told", [LAYOUT.as_ended(1), None], ids=["ended", "none"])
def test_where_nobody_tells_what_has_copied_none_is_called_ended(
    told: Layout | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    west = FakeCluster("west")
    west.tries, west.heard = 1, silent
    monkeypatch.setattr(requests, "read_layout", lambda *_: told)
    with pytest.raises(Retriable, match="coordinator is away"):
        request_stop(west, FLOW, wait_s=0.1)
