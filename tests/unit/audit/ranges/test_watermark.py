"""What an audit leaves in a flow's state, where a broker tells what stood there before."""

from __future__ import annotations

from contextlib import closing
from typing import Final
from uuid import UUID

from onceover.audit.ranges.watermark import write_outcome
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.log import StateLog
from onceover.state.records.verified import Watermark, read_watermarks
from tests.support.fakes.fakecluster import FakeCluster

COPY: Final = TopicPartition("shop.orders", 0)
OTHERS: Final = (names.state_topic("f"), names.STATE_OTHERS)


def proven(offset: int) -> Watermark:
    ids = {"source_id": UUID(int=1), "target_id": UUID(int=2)}
    return Watermark(offset=offset, target_offset=offset, timestamp_ms=-1, at_ms=offset, **ids)


def test_a_watermark_is_not_written_lower_by_one_of_before() -> None:
    """A broker that was frozen and continues knows the first of three audits, and asks the third one."""
    west = FakeCluster()
    west.tries = 3
    log = west.make_topic(OTHERS[0], names.STATE_PARTITIONS).logs[names.STATE_OTHERS]
    write_outcome(west, "f", {COPY: proven(100)})
    log.past_end = log.end
    write_outcome(west, "f", {COPY: proven(900)})
    log.past_answers = 10
    write_outcome(west, "f", {COPY: proven(500)})
    log.past_answers = 0
    with closing(StateLog(west, *OTHERS)) as state:
        assert read_watermarks(state.catch_up())[COPY].offset == 900
