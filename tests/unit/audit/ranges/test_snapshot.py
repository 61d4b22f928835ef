"""What an audit takes in of a flow's state: a value that is none ends no audit of all the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onceover.audit.ranges.snapshot import AuditSelection, snapshot_of
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.read import read_flow_state
from onceover.stops.record import Stop
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
