"""What an audit takes in of a flow's state: a value that is none ends no audit of all the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onceover.audit.ranges.snapshot import AuditSelection, snapshot_of, take_snapshot
from onceover.errors import Retriable
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.read import read_flow_state
from onceover.stops.record import Stop
from onceover.wire.progress import ProgressMeta
from tests.unit.seeding.seedscene import FLOW, SeedScene

STOP = Stop("SOURCE_DIVERGED", "it has parted", "", "", "", 5, at_ms=7, generation=3)


def test_a_stop_that_nobody_can_read_ends_no_audit(tmp_path: Path) -> None:
    """An audit is what SOURCE_DIVERGED of another partition asks for."""
    scene = SeedScene(tmp_path)
    scene.east.make_topic("a", 2)
    scene.seeder().apply(scene.caller)
    state = read_flow_state(scene.west, FLOW)
    others = {names.stop_key("a", 0): "no stop", names.stop_key("a", 1): STOP.to_json()}
    selection = AuditSelection(settle_s=0.0)
    seen = snapshot_of(FLOW, scene.east, scene.west, selection, replace(state, others=others))
    assert {each.source: each.stop for each in seen.partitions} == {
        TopicPartition("a", 0): None,
        TopicPartition("a", 1): STOP,
    }


def test_what_leader_epochs_tell_of_ends_that_were_lost(tmp_path: Path) -> None:
    """A source that knows no such epoch has parted; a target may only have forgotten its epochs."""
    scene = SeedScene(tmp_path)
    scene.east.make_topic("a", 4)
    scene.seeder().apply(scene.caller)
    here, there = (side.all_topics["a"] for side in (scene.east, scene.west))
    for log in (*here.logs, *there.logs):
        log.end = 100
    here.logs[0].epochs = there.logs[0].epochs = [(0, 0), (3, 90)]
    here.logs[1].epochs = there.logs[1].epochs = [(0, 0), (3, 40)]
    here.logs[3].epochs = there.logs[3].epochs = [(0, 0), (1, 40), (3, 80)]
    for partition, epoch in enumerate((0, 0, 2, 1)):
        meta = ProgressMeta(str(here.id), str(there.id), epoch, 80, 1, (1, 0), 80, epoch)
        scene.west.groups[names.progress_group(FLOW)][TopicPartition("a", partition)] = CommittedOffset(
            0, 80, -1, meta.encode()
        )
    state = read_flow_state(scene.west, FLOW)
    seen = snapshot_of(FLOW, scene.east, scene.west, AuditSelection(settle_s=0.0), state)
    assert [each.parted_at for each in seen.partitions] == [(None, None), (40, 40), (0, None), (None, None)]


def test_of_a_state_that_has_lost_its_end_no_bounds_are_fixed(tmp_path: Path) -> None:
    """What was taken in since would be left out of a PASS, and what was diverted since called lost."""
    scene = SeedScene(tmp_path)
    for topic in ("a", "b"):
        scene.east.make_topic(topic, 1)
    scene.seeder().apply(scene.caller)
    selection = AuditSelection(settle_s=0.0)
    whole = take_snapshot(FLOW, scene.east, scene.west, selection)
    assert {each.source.topic for each in whole.partitions} == {"a", "b"}
    tp, here, there = TopicPartition("b", 0), *(side.all_topics["b"].id for side in (scene.east, scene.west))
    meta = ProgressMeta(str(here), str(there), 0, 0, whole.layout.generation + 1, (1, 0), 0)
    scene.west.groups[names.progress_group(FLOW)][tp] = CommittedOffset(0, 0, -1, meta.encode())
    with pytest.raises(Retriable, match="is told as it was before generation"):
        take_snapshot(FLOW, scene.east, scene.west, selection)


def test_what_an_operator_does_while_bounds_are_fixed_is_known_of_the_position_that_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would know what was to be skipped of a position that skips records, and a state of before."""
    scene = SeedScene(tmp_path)
    scene.east.make_topic("a", 1)
    scene.seeder().apply(scene.caller)
    scene.grow("a", 5)
    (before,) = scene.enrolled().values()
    fetch, acted = scene.west.each_committed, iter([lambda: scene.seeder(replace=True).apply(scene.caller)])

    def meanwhile(group: str, *asked: Any, stable: bool = True) -> Each[TopicPartition, CommittedOffset]:
        if stable and (act := next(acted, None)) is not None:
            act()
        return fetch(group, *asked, stable=stable)

    monkeypatch.setattr(scene.west, "each_committed", meanwhile)
    (seen,) = take_snapshot(FLOW, scene.east, scene.west, AuditSelection(settle_s=0.0)).partitions
    (after,) = scene.enrolled().values()
    assert before.approval(0) != after.approval(0) == seen.approval
    assert seen.position == after.start[0] == seen.start == 5


def test_end_that_is_asked_for_again_is_of_the_leader_epoch_of_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may have restarted while the flow went on: by the epoch of before, what is proven behind its
    end would be lost to the next audit.
    """
    scene = SeedScene(tmp_path)
    scene.east.make_topic("a", 1)
    scene.seeder().apply(scene.caller)
    here, there = (side.all_topics["a"] for side in (scene.east, scene.west))
    here.logs[0].end, fetch = 100, scene.west.each_committed
    meta = ProgressMeta(str(here.id), str(there.id), 1, 0, 1, (1, 0), 120, 0)

    def meanwhile(group: str, *asked: Any, stable: bool = True) -> Each[TopicPartition, CommittedOffset]:
        if here.logs[0].end == 100:
            here.logs[0].epochs, here.logs[0].end = [(0, 0), (1, 100)], 120
            scene.west.groups[group][TopicPartition("a", 0)] = CommittedOffset(0, 120, -1, meta.encode())
        return fetch(group, *asked, stable=stable)

    monkeypatch.setattr(scene.west, "each_committed", meanwhile)
    state = read_flow_state(scene.west, FLOW)
    (seen,) = snapshot_of(FLOW, scene.east, scene.west, AuditSelection(settle_s=0.0), state).partitions
    assert seen.source_log is not None
    assert (seen.source_log.stable, seen.source_log.epoch) == (120, 1)
