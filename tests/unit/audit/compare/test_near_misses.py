"""What looks like a difference and is none is not reported."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest

from onceover.audit.compare.align import Alignment, align
from onceover.audit.records.batches import Batch
from onceover.audit.records.recordhash import AuditedRecord
from onceover.audit.records.sketch import sketch
from onceover.model import TopicPartition
from tests.support.raw.mutations import correct_pair
from tests.unit.audit.judging import judge, sketched
from tests.unit.audit.stored import ABORT, COMMIT, batches, log_append, marker, stored

RECORDS = correct_pair(random.Random(8), partitions=1).source[0]
TP = TopicPartition("orders", 0)


def _visible(log: Sequence[Batch], *, aborted: frozenset[int] = frozenset()) -> Iterable[AuditedRecord]:
    """Yield what a reader of committed records sees, told which producers aborted."""
    for batch in log:
        if not batch.is_control and batch.producer_id not in aborted:
            yield from batch.decode()


def _compared(source: Sequence[Batch], target: Sequence[Batch], **hidden: frozenset[int]) -> Alignment:
    return align(sketch(_visible(source, **hidden)), sketch(_visible(target)), (TP, TP))


PLAIN = batches(stored(RECORDS))


@pytest.mark.parametrize(
    "target",
    [
        pytest.param([stored(RECORDS, codec=codec) for codec in (4,)], id="another-compression"),
        pytest.param([stored(RECORDS[:7]), stored(RECORDS[7:], base=7)], id="cut-into-other-batches"),
        pytest.param([stored([each], base=index) for index, each in enumerate(RECORDS)], id="one-a-batch"),
        pytest.param([stored(RECORDS, base=1 << 40)], id="other-offsets"),
        pytest.param([stored(RECORDS, producer=3, transactional=True)], id="in-a-transaction"),
        pytest.param(
            [stored(RECORDS[:9]), marker(COMMIT, base=9, producer=3), stored(RECORDS[9:], base=10)],
            id="a-marker-between",
        ),
        pytest.param([stored(RECORDS, deltas=range(0, 120, 2))], id="holes-between-offsets"),
        pytest.param(
            [
                stored(RECORDS[:20], codec=1),
                stored(RECORDS[20:40], base=20, codec=2),
                stored(RECORDS[40:], base=40),
            ],
            id="each-batch-otherwise",
        ),
    ],
)
def test_the_same_records_in_other_bytes_are_the_same(target: list[bytes]) -> None:
    """How records are stored is no content."""
    assert _compared(PLAIN, batches(*target)).same


def test_an_aborted_transaction_that_is_absent_is_right() -> None:
    """Records that no reader of the source sees are not missed on the target."""
    source = batches(
        stored(RECORDS[:5]),
        stored(RECORDS[5:8], base=5, producer=7, transactional=True),
        marker(ABORT, base=8, producer=7),
        stored(RECORDS[8:], base=9),
    )
    target = batches(stored(RECORDS[:5] + RECORDS[8:]))
    assert _compared(source, target, aborted=frozenset({7})).same


def test_a_retry_after_an_abort_is_no_leak() -> None:
    """The same content, aborted first and committed then, is there once: rightly."""
    numbers, hidden = sketched(RECORDS, 0), sketched(RECORDS[3:6], 500)
    assert align(numbers, numbers, (TP, TP), aborted=hidden).same


def test_a_source_that_stamps_records_is_compared_by_what_readers_see() -> None:
    """LogAppendTime on the source, the same times written out on the target."""
    source = batches(log_append(stored(RECORDS), 99))
    target = batches(stored([each._replace(timestamp_ms=99) for each in RECORDS]))
    assert _compared(source, target).same


def test_a_target_that_stamps_records_is_compared_without_timestamps() -> None:
    """Where the audit was told so, times do not count, and everything else does."""
    source, target = batches(stored(RECORDS)), batches(log_append(stored(RECORDS), 99))
    here, there = (
        sketch((record for batch in log for record in batch.decode(timed=False)), timed=False)
        for log in (source, target)
    )
    assert align(here, there, (TP, TP)).same


def test_equal_records_are_right_as_often_as_the_source_has_them() -> None:
    """A producer may send the same bytes again: no repeat, in whatever order their twins stand."""
    twins = [RECORDS[0]] * 3 + [RECORDS[1], RECORDS[0], RECORDS[1]] * 5
    assert align(sketched(twins, 0), sketched(twins, 70), (TP, TP)).same


@pytest.mark.parametrize("seed", range(10))
def test_twins_across_partitions_are_no_misrouting(seed: int) -> None:
    """The same records in several partitions of a correct pair."""
    pair = correct_pair(random.Random(seed), twins=True)
    for contents in (pair.source, pair.target):
        contents[1][:10] = contents[0][:10]
    assert judge(pair) == []


def test_different_cuts_of_a_correct_pair_say_nothing() -> None:
    """Wherever both sides are cut at the same record."""
    pair = correct_pair(random.Random(5))
    for border in range(1, 60, 7):
        assert judge(pair, borders=(border,)) == []
