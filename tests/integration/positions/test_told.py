"""A coordinator that has not read its log to the end tells what was once, with all that stood beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from onceover.kafka import calls
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.each import Each
from onceover.model import TopicPartition
from onceover.state import names
from tests.integration.stops.test_repair_races import forget_partition
from tests.support.flows.replica import Replica
from tests.support.flows.scene import Capture, Scene

Progress = Each[TopicPartition, CommittedOffset]


class Early:
    """A coordinator that tells what a flow had committed at first, or nothing, until it takes a write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, flow: str, *, nothing: bool) -> None:
        self.told = 0
        self._group = names.progress_group(flow)
        self._nothing = nothing
        self._first: dict[TopicPartition, CommittedOffset] = {}
        self._reading = False
        self._committed, self._write = LiveCluster.each_committed, calls.txn_offset_commit
        monkeypatch.setattr(LiveCluster, "each_committed", lambda *a, **k: self._read(*a, **k))
        monkeypatch.setattr(calls, "txn_offset_commit", self._written)

    def begin(self) -> None:
        """Tell no longer what is there."""
        self._reading = True

    def _read(
        self,
        cluster: LiveCluster,
        group: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        stable: bool = True,
    ) -> Progress:
        asked = None if partitions is None else list(partitions)
        each = self._committed(cluster, group, asked, stable=stable)
        if group != self._group:
            return each
        if not self._reading:
            self._first = {**each.found, **self._first}
            return each
        self.told += 1
        return Each() if self._nothing else Each({tp: self._first[tp] for tp in asked or self._first})

    def _written(self, *arguments: Any, **named: Any) -> dict[TopicPartition, int]:
        codes = self._write(*arguments, **named)
        self._reading = False
        return codes


@pytest.mark.parametrize(
    ("delivery", "nothing"),
    [
        pytest.param("exactly_once", False, id="exactly_once-older"),
        pytest.param("at_least_once", True, id="at_least_once-nothing"),
        pytest.param("exactly_once", True, id="exactly_once-nothing", marks=pytest.mark.soak),
        pytest.param("at_least_once", False, id="at_least_once-older", marks=pytest.mark.soak),
    ],
)
def test_what_is_told_too_early_repeats_and_stops_nothing(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch, delivery: str, nothing: bool
) -> None:
    """Seen after restarts: a lane notices before it commits anything, and begins again."""
    replica.configure(delivery=delivery, lanes=1)
    early = Early(monkeypatch, replica.name, nothing=nothing)
    scene = Scene(replica, partitions=2)
    early.begin()
    scene.feed(90)
    scene.expect_copied(3 * 90)
    assert early.told
    scene.expect_clear(capsys)
    replica.assert_same()


def test_progress_that_is_not_told_yet_is_not_written_anew(
    replica: Replica, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a record came to lack a partition: who enrols it asks behind a write, too."""
    early = Early(monkeypatch, replica.name, nothing=True)
    scene = Scene(replica, partitions=2)
    forget_partition(replica, scene.topic)
    early.begin()
    assert replica.copy().records == 0
    assert len(replica.target_records(scene.topic, 1)) == 10
    scene.expect_clear(capsys)
