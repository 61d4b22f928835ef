"""What is met in a log, as spans of transactions: also of those that began before where a look began."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.drills.orphans.tally import MetBatch, OrphanTally, SpanReader
from onceover.drills.orphans.torn import SpanState, TransactionSpan
from onceover.wire.batches.batch import CONTROL, TRANSACTIONAL, BatchHeader
from onceover.wire.batches.records import DecodedRecord

MANY = 1_000
COMMITTED, ABORTED = SpanState.COMMITTED, SpanState.ABORTED


def batch(first: int, count: int, *, pid: int = 7, epoch: int = 0, aborted: bool = False) -> MetBatch:
    return MetBatch(_header(first, count, pid, epoch, TRANSACTIONAL, 1_000 + first), aborted)


def marker(at: int, *, pid: int = 7, epoch: int = 0) -> MetBatch:
    return MetBatch(_header(at, 1, pid, epoch, TRANSACTIONAL | CONTROL, 5_000 + at), aborted=False)


def _header(first: int, count: int, pid: int, epoch: int, attributes: int, at_ms: int) -> BatchHeader:
    return BatchHeader(first, 100, 0, 2, 0, attributes, count - 1, at_ms, at_ms, pid, epoch, 0, count)


def read(met: list[MetBatch], most: int = MANY) -> SpanReader:
    reader = SpanReader(most)
    for each in met:
        reader.feed(each)
    return reader


def test_transactions_that_overlap_are_told_apart_by_their_producers() -> None:
    met = [batch(0, 2), batch(2, 3, pid=8, aborted=True), batch(5, 1), marker(6), marker(7, pid=8)]
    assert read(met).spans() == [
        TransactionSpan(7, 0, 0, 5, COMMITTED, 5_006, 0, 1_000),
        TransactionSpan(8, 0, 2, 4, ABORTED, 5_007, 0, 1_002),
    ]


def test_the_marker_tells_its_own_epoch() -> None:
    """By it transaction version 2 is told."""
    (span,) = read([batch(0, 1, epoch=3), marker(1, epoch=4)]).spans()
    assert (span.epoch, span.marker_epoch, span.is_alone_in_its_epoch) == (3, 4, True)


def test_what_ends_behind_the_stretch_comes_last_without_an_end() -> None:
    (span,) = read([batch(0, 1)]).spans()
    assert (span.marker_ms, span.last) == (None, 0)


def test_a_batch_that_compaction_has_emptied_begins_nothing() -> None:
    assert read([batch(0, 1)._replace(header=batch(0, 1).header._replace(count=0)), marker(1)]).spans() == []


def test_what_is_left_out_is_said() -> None:
    reader = read([batch(0, 1), marker(1), batch(2, 1), marker(3)], most=1)
    assert (len(reader.spans()), reader.is_short) == (1, True)


def test_of_a_look_back_those_that_end_last_are_kept() -> None:
    """They are the ones next to the cut."""
    reader = SpanReader(1, newest=True)
    for each in [batch(0, 1), marker(1), batch(2, 1), marker(3)]:
        reader.feed(each)
    assert ([span.first for span in reader.spans()], reader.is_short) == ([2], True)


def by_place(span: TransactionSpan) -> tuple[int, int]:
    return span.producer_id, span.first


@st.composite
def logs(draw: st.DrawFn) -> list[MetBatch]:
    """Draw the transactions of three producers, one after the other for each."""
    met: list[MetBatch] = []
    at, begun = 0, set()
    for _ in range(draw(st.integers(0, 20))):
        pid = draw(st.sampled_from([7, 8, 9]))
        if pid in begun and draw(st.booleans()):
            met.append(marker(at, pid=pid))
            begun.discard(pid)
            at += 1
        else:
            count = draw(st.integers(1, 3))
            met.append(batch(at, count, pid=pid))
            begun.add(pid)
            at += count
    return met


@given(logs(), st.integers(0, 20))
def test_two_looks_see_what_one_look_sees(met: list[MetBatch], at: int) -> None:
    """Wherever the first one ended: in between transactions, or in the middle of them."""
    before, behind = read(met[:at]), read(met[at:])
    assert sorted(behind.behind(before), key=by_place) == sorted(read(met).spans(), key=by_place)


@pytest.mark.parametrize("change", [{"key": None}, {"value": b"other"}, {"timestamp": 8}, {"offset": 6}])
def test_any_other_record_has_another_digest(change: dict[str, object]) -> None:
    record = DecodedRecord(5, 7, b"k", b"v", ((b"h", None),))
    one, other = OrphanTally(), OrphanTally()
    one.add(record)
    other.add(record._replace(**change))  # pyrefly: ignore[bad-argument-type]
    assert one.digest != other.digest


def test_a_tally_names_extent_and_times() -> None:
    """Times may run backwards; offsets do not."""
    tally = OrphanTally()
    for offset, at_ms in ((5, 900), (8, 100), (9, 500)):
        tally.add(DecodedRecord(offset, at_ms, b"k", b"v"))
    assert (tally.records, tally.first, tally.last, tally.first_ms, tally.last_ms) == (3, 5, 9, 100, 900)
