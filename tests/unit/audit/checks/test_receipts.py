"""Receipts: continuous, without overlap, and as many records as are there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceover.audit.checks.receipts import ADDS_UP, CONTINUOUS, MAX_BREAKS, check_receipts, ledger
from onceover.audit.checks.result import Check, PartitionResult
from onceover.audit.model import Mode
from onceover.wire.offsetmap import MapRecord, Segment
from tests.support.worlds import audits


def _receipt(begin: int, end: int, *, target: int | None = None, records: int | None = None) -> MapRecord:
    count = end - begin if records is None else records
    start = begin if target is None else target
    return MapRecord(
        source=audits.at(0),
        target=audits.at(0),
        source_start=begin,
        source_end=end,
        target_start=start,
        segments=(Segment(begin, start, count),) if count else (),
        bytes=100,
        generation=1,
        lane=0,
        batch=1,
        attempt=0,
        begin_ms=begin,
        commit_ms=end,
    )


def _named(result: PartitionResult, receipts: list[MapRecord], name: str) -> list[Check]:
    return [check for check in check_receipts(result, receipts) if check.name == name]


_RESULT = audits.good_partition(0)
_GOOD = [_receipt(0, 60), _receipt(60, 120), _receipt(120, 200)]


def test_receipts_in_a_row_that_add_up_are_right() -> None:
    """The ends of the receipts need not be those of the ranges."""
    checks = check_receipts(_RESULT, _GOOD)

    assert [(check.name, check.ok) for check in checks] == [(CONTINUOUS, True), (ADDS_UP, True)]
    assert checks[1].expected == checks[1].seen == "200 records"


@pytest.mark.parametrize(
    ("receipts", "told"),
    [
        ([_receipt(0, 60), _receipt(50, 200)], "claim the same source offsets"),
        ([_receipt(0, 60), _receipt(60, 200, target=59)], "claim the same target offsets"),
    ],
)
def test_overlap_is_wrong(receipts: list[MapRecord], told: str) -> None:
    """Two receipts for one record: it was written twice, or one of them lies."""
    whole, broken = _named(_RESULT, receipts, CONTINUOUS)

    assert (whole.ok, broken.ok) == (False, False)
    assert told in broken.detail


def test_gap_cannot_be_checked() -> None:
    """An operator went past it, or a receipt is lost: the receipts alone do not tell."""
    whole, broken = _named(_RESULT, [_receipt(0, 60), _receipt(70, 200)], CONTINUOUS)

    assert (whole.ok, broken.ok, broken.offset) == (True, None, 60)


def test_receipts_outside_of_the_scope_are_not_looked_at() -> None:
    """An audit from the watermark on says nothing about what was audited before."""
    result = replace(_RESULT, source_from=100, digests=audits.digests(0, 100, 200))
    receipts = [_receipt(0, 50), _receipt(60, 150), _receipt(150, 200), _receipt(210, 220)]

    checks = check_receipts(result, receipts)

    assert [check.ok for check in checks] == [True, True]
    assert checks[1].seen == "100 records"


def test_sum_that_differs_from_what_was_counted_is_wrong() -> None:
    """One record fewer in the receipts than on the target."""
    (check,) = _named(_RESULT, [_receipt(0, 60), _receipt(60, 120), _receipt(120, 200, records=79)], ADDS_UP)

    assert (check.ok, check.expected, check.seen) == (False, "199 records", "200 records")


def test_sum_is_taken_over_compared_ranges_only() -> None:
    """Of what was not read, nothing was counted."""
    result = replace(_RESULT, digests=audits.digests(0, 0, 50) + audits.digests(0, 150, 200))

    (check,) = _named(result, _GOOD, ADDS_UP)

    assert (check.ok, check.seen) == (True, "100 records")


@pytest.mark.parametrize("mode", [Mode.HANDLER, Mode.COMPACTED])
def test_sum_is_not_asked_of_handlers_and_compacted_topics(mode: Mode) -> None:
    """Their targets rightly hold other numbers of records."""
    assert _named(replace(_RESULT, mode=mode), [_receipt(0, 200, records=3)], ADDS_UP) == []


def test_breaks_are_cut_and_counted() -> None:
    """A map in pieces fills no table."""
    receipts = [_receipt(3 * i, 3 * i + 2) for i in range(MAX_BREAKS + 5)]

    checks = _named(_RESULT, receipts, CONTINUOUS)

    assert len(checks) == MAX_BREAKS + 1
    assert checks[0].seen.startswith(f"{MAX_BREAKS + 4} breaks")


def test_ledger_tells_when_what_follows_was_committed() -> None:
    """A group's position is old when what follows it came later."""
    told = ledger(_GOOD, source_from=60, kept=2)

    assert (told.reached, told.committed_after(0), told.committed_after(60), told.committed_after(199)) == (
        200,
        60,
        120,
        200,
    )
    assert told.committed_after(200) == 0
    assert [commit.commit_ms for commit in told.commits] == [120, 200]


def test_ledger_of_nothing_reaches_nowhere() -> None:
    """A pair without receipts."""
    assert ledger([], 0, 5).reached is None


@pytest.mark.parametrize(("end", "ok"), [(200, True), (199, None), (150, None)])
def test_record_that_was_sent_before_an_operator_went_past_it_needs_no_receipt(
    end: int, ok: bool | None
) -> None:
    """With at_least_once it may be on the target; with another delivery it cannot be."""
    receipts = [_receipt(0, end)]
    (check,) = (e for e in check_receipts(_RESULT, receipts, sent_ahead=True) if e.name == ADDS_UP)
    assert check.ok is ok
    (strict,) = _named(_RESULT, receipts, ADDS_UP)
    assert strict.ok is (end == 200)


def test_more_records_than_source_offsets_without_a_receipt_never_add_up() -> None:
    """Nor do fewer than the receipts claim."""
    for receipts in ([_receipt(0, 200, records=30)], [_receipt(0, 200), _receipt(0, 60)]):
        (check,) = (e for e in check_receipts(_RESULT, receipts, sent_ahead=True) if e.name == ADDS_UP)
        assert check.ok is False
