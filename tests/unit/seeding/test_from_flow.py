"""A flow that begins where another one stands: it knows the source by what that one has copied last."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from onceover.resume.sourcelogs import evidence_of, judge_sources
from onceover.seeding.origins import FlowOrigin
from onceover.state import names
from onceover.stops.codes import StopCode
from onceover.wire.batches.batch import parse_header
from onceover.wire.progress import ProgressMeta, last_before
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content
from tests.unit.seeding.seedscene import FLOW, GROUP, SeedScene

ONE = TopicPartition("a", 0)
OTHER = "there"
COPIED = (b"one", b"two")


def log_of(*values: bytes, epoch: int) -> FakeLog:
    """Return a log with a batch for each value."""
    log = FakeLog(epochs=[(epoch, 0)])
    for value in values:
        log.append([Content(b"k", value, (), 1)])
    return log


def copied_by_another(home: Path, east: FakeCluster, log: FakeLog) -> FlowOrigin:
    """Have another flow copy all of a log to a cluster of its own; return it as an origin."""
    there = SeedScene(home, east, FakeCluster("north"))
    there.seeder(flow=OTHER).apply(there.caller)
    ((epoch, _),) = log.epochs
    last = last_before(log.end, parse_header(log.batches[-1].encode()))
    ids = there.enrolled(OTHER)["a"].ids
    meta = ProgressMeta(*ids, epoch, log.end, 1, (1, 1), log.end, batch=last)
    committed = CommittedOffset(0, log.end, epoch, meta.encode())
    there.west.groups[names.progress_group(OTHER)] = {ONE: committed}
    return FlowOrigin(OTHER, there.west)


@pytest.mark.parametrize(
    ("by_then", "stop"),
    [
        pytest.param(log_of(*COPIED, epoch=3), None, id="the log that was copied"),
        pytest.param(log_of(b"one", b"other", b"more", epoch=3), StopCode.SOURCE_DIVERGED, id="put back"),
        pytest.param(log_of(*COPIED, epoch=2), StopCode.SOURCE_DIVERGED, id="an epoch that is gone"),
    ],
)
def test_a_source_that_parts_before_the_first_lane_is_noticed(
    tmp_path: Path, by_then: FakeLog, stop: StopCode | None
) -> None:
    """Put back from an older copy behind the seeding, what stands there instead would never be copied."""
    scene = SeedScene(tmp_path)
    topic = scene.east.make_topic("a", 1)
    topic.logs[:] = [log_of(*COPIED, epoch=3)]
    scene.seeder(copied_by_another(tmp_path, scene.east, topic.logs[0])).apply(scene.caller)
    committed = scene.west.groups[GROUP][ONE]
    assert committed.offset == len(COPIED)
    topic.logs[:] = [by_then]
    here = scene.east.topics(["a"])["a"]
    seen = evidence_of(FLOW, ONE, scene.enrolled()["a"], committed.offset, committed, here, None)
    parted = judge_sources(scene.east, {ONE: seen}, {"a": here}).parted
    assert {tp: found.code for tp, found in parted.items()} == ({ONE: stop} if stop else {})
