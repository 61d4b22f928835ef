"""The newest records of a map from look to look: each is given once, whatever else stands in the log."""

from __future__ import annotations

import pytest

from onceover.positions.rate import RateMeter
from onceover.positions.tail import MapTail
from onceover.state import names
from onceover.wire.offsetmap import MapRecord, encode_map_key, encode_map_value
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.support.raw.mutations import Content
from tests.unit.positions.mapwriter import copied

TOPIC = names.map_topic("f")
RECEIPTS = [entry.record for entry in copied(4).entries if entry.record is not None]
JUNK = Content(b"?", b"?", (), 1)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster("west")
    made.make_topic(TOPIC, names.MAP_PARTITIONS)
    return made


def log_of(cluster: FakeCluster) -> FakeLog:
    return cluster.all_topics[TOPIC].logs[1]


def put(cluster: FakeCluster, *records: MapRecord | None) -> None:
    """Commit receipts, and junk between them."""
    contents = [
        JUNK if each is None else Content(encode_map_key(each), encode_map_value(each), (), 1)
        for each in records
    ]
    log_of(cluster).append(contents, 7)
    log_of(cluster).decide(7, commit=True)


def test_what_nobody_can_read_hides_nothing_before_and_behind_it(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted as passed over, and named once."""
    tail = MapTail("f", 1000)
    assert tail.read(cluster) == ([], 0, 0)
    put(cluster, RECEIPTS[0], None, RECEIPTS[1])
    assert tail.read(cluster) == (RECEIPTS[:2], 0, 1)
    put(cluster, RECEIPTS[2])
    assert tail.read(cluster) == ([RECEIPTS[2]], 0, 0)
    assert caplog.text.count("partition 1 of it, offset 1") == 1


def test_how_fast_a_flow_copies_is_told_beside_it(cluster: FakeCluster) -> None:
    """Over all of the time: nothing else was left out."""
    now_ms = iter((0, 0, 60_000))
    meter = RateMeter(cluster, "f", lambda: next(now_ms))
    meter.measure()
    put(cluster, RECEIPTS[0], None)
    rate = meter.measure()
    assert (rate.seconds, rate.transactions, rate.records) == (60.0, 1, RECEIPTS[0].records)
