"""Beside a position stands the batch of the source that holds the offset before it, or none: no other one."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from onceover.copy.partition import PartitionCopy
from onceover.handling.obstacles import Blocked, Obstacle
from onceover.stops.lastbatch import is_another
from onceover.stops.record import Stop
from onceover.wire.batches.batch import BatchHeader, parse_header
from onceover.wire.batches.unpack import Ceiling
from onceover.wire.batches.visibility import Visible
from onceover.wire.progress import CopiedBatch
from tests.support.raw.rawkafka import Codec
from tests.unit.copy.batches import stored
from tests.unit.copy.loop import A, partition, sent
from tests.unit.copy.test_partition import skipped, visible
from tests.unit.handling.test_handled_partition import handled

STOP: Final = Stop("RECORD_REFUSED", "m", "e", "s", "r", 3)
# Sizes of batches, and whether readers see them.
LOGS = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=30)
WAYS = ["plain", "pieces", "spread", "spread_batch"]


def log_of(batches: list[tuple[int, bool]], codec: Codec) -> list[Visible]:
    found: list[Visible] = []
    at = 0
    for count, is_seen in batches:
        batch = stored(at, count, codec=codec)
        found += [one for one in visible(batch) if isinstance(one, Visible)] if is_seen else [skipped(batch)]
        at += count
    return found


def told(copy: PartitionCopy) -> CopiedBatch | None:
    return copy.metadata(1, (0, 0)).batch


def holding(log: list[Visible], position: int) -> CopiedBatch | None:
    """Return the batch that holds the offset before a position."""
    for h, _ in log:
        if h.base_offset < position <= h.next_offset:
            return CopiedBatch(h.base_offset, h.next_offset, h.size_bytes, h.crc)
    return None


@given(LOGS, st.sampled_from(WAYS), st.sampled_from([Codec.NONE, Codec.LZ4]), st.data())
def test_what_is_told_is_what_the_source_holds_there(
    batches: list[tuple[int, bool]], way: str, codec: Codec, data: st.DataObject
) -> None:
    """However the records pass: as bytes, merged, in pieces, to a handler, cut where one is refused."""
    copy = handled(A, way) if way.startswith("spread") else partition(A)
    log = log_of(batches, codec)
    end = log[-1].header.next_offset
    if way == "pieces":
        copy.ceiling = Ceiling(30, 1 << 20)
        copy.obstacle = Obstacle(reencode={h.base_offset for h, _ in log})
    if data.draw(st.booleans()):
        copy.obstacle.barrier, copy.obstacle.stop = data.draw(st.integers(0, end)), STOP
    copy.pausing = True
    is_whole = False
    with suppress(Blocked):
        cuts = data.draw(st.integers(1, len(log)))
        for first in range(0, len(log), cuts):
            for _ in sent(copy, log[first : first + cuts]):
                assert told(copy) in (None, holding(log, copy.position))
        is_whole = True
    assert told(copy) in (None, holding(log, copy.position))
    if is_whole:
        assert told(copy) == holding(log, copy.position) is not None


def test_it_stays_beside_a_position_that_does_not_move() -> None:
    """A new session claims it as it was; behind a position that was put elsewhere it is dropped."""
    copied = CopiedBatch(0, 3, 90, 7)
    for position, expected in ((3, copied), (4, None)):
        copy = partition(A)
        copy.last, copy.committed = copied, position
        copy.__post_init__()
        assert told(copy) == expected


def header(**changes: int) -> BatchHeader:
    return parse_header(stored(5, 4))._replace(**changes)


def test_the_same_bytes_are_no_other_batch_wherever_they_are_served() -> None:
    """The broker's own fields, base offset apart, say nothing."""
    first, copied = header(), CopiedBatch(5, 9, header().size_bytes, header().crc)
    assert not is_another(copied, first)
    assert not is_another(copied, first._replace(leader_epoch=9))
    assert is_another(copied, first._replace(crc=first.crc ^ 1))
    assert is_another(copied, first._replace(base_offset=4))
