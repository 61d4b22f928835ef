"""The offset map against the records: every edge, and places between them."""

from __future__ import annotations

import random

import pytest

from onceover.audit.checks.offsetmap import MAX_WRONG, MappedOffsets, SharedOffsets, check_map, choose
from onceover.audit.model import Side
from onceover.audit.records.batches import Unreadable
from onceover.audit.records.recordhash import AuditedRecord
from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord, Segment
from tests.support.worlds.audits import at
from tests.support.worlds.looks import Logs, rec

_ALL = SharedOffsets(0, 1000, 0, 1000)


def _record(*segments: Segment) -> MapRecord:
    last = segments[-1]
    return MapRecord(
        source=at(0),
        target=at(0),
        source_start=segments[0].source,
        source_end=last.source_end,
        target_start=segments[0].target,
        segments=segments,
        bytes=10,
        generation=1,
        lane=0,
        batch=1,
        attempt=0,
        begin_ms=1,
        commit_ms=2,
    )


def _claims(records: list[MapRecord], scope: SharedOffsets = _ALL, samples: int = 4) -> list[MappedOffsets]:
    return choose(records, scope, random.Random(7), samples)


def test_all_edges_are_chosen() -> None:
    """An error by one shows at the first or the last record of a transaction."""
    records = [_record(Segment(0, 0, 10)), _record(Segment(10, 11, 5), Segment(16, 16, 4))]

    claims = _claims(records)

    assert {MappedOffsets(0, 0), MappedOffsets(9, 9), MappedOffsets(10, 11), MappedOffsets(19, 19)} <= set(
        claims
    )
    assert claims == sorted(claims)


def test_places_between_the_edges_are_chosen_from_every_segment() -> None:
    """Errors inside of a transaction have no edge to show at."""
    record = _record(*(Segment(100 * i, 101 * i, 100) for i in range(50)))

    claims = _claims([record], samples=2000, scope=SharedOffsets(0, 10**6, 0, 10**6))

    assert {claim.source // 100 for claim in claims} == set(range(50))
    assert all(claim.target - claim.source == claim.source // 100 for claim in claims)


def test_same_seed_chooses_the_same() -> None:
    """A wrong claim that was found once is found again."""
    record = _record(*(Segment(100 * i, 101 * i, 100) for i in range(5)))

    assert _claims([record]) == _claims([record])


@pytest.mark.parametrize("scope", [SharedOffsets(5, 15, 0, 1000), SharedOffsets(0, 1000, 5, 15)])
def test_claims_outside_of_the_scope_are_left_out(scope: SharedOffsets) -> None:
    """What one side no longer holds cannot be looked at."""
    claims = _claims([_record(Segment(0, 0, 10)), _record(Segment(10, 10, 10))], scope)

    assert claims
    assert all(scope.holds(claim) for claim in claims)


def test_record_without_segments_claims_nothing() -> None:
    """A transaction that only went past markers has no record to look at."""
    empty = MapRecord(
        source=at(0), target=at(0), source_start=0, source_end=5, target_start=0, segments=(), bytes=0,
        generation=1, lane=0, batch=1, attempt=0, begin_ms=1, commit_ms=2,
    )  # fmt: skip

    assert _claims([empty]) == []


_LOGS = Logs([(0, "a"), (1, "b"), (3, "c")], [(0, "a"), (1, "b"), (2, "c")])


def test_right_claims_give_one_check() -> None:
    """All is well: one line says how many were looked at."""
    checks = check_map(
        at(0), at(0), [MappedOffsets(0, 0), MappedOffsets(1, 1), MappedOffsets(3, 2)], _LOGS, compacted=False
    )

    assert [(check.ok, check.expected, check.seen) for check in checks] == [(True, "3 of 3", "3 of 3")]


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (MappedOffsets(1, 0), "hold different records"),
        (MappedOffsets(2, 2), "holds no record at 2"),
        (MappedOffsets(3, 5), "holds no record at 5"),
    ],
    ids=["another record", "no record on the source", "behind the target's end"],
)
def test_wrong_claim_is_named(claim: MappedOffsets, told: str) -> None:
    """An exact map is exact at every offset, or it is wrong."""
    whole, wrong = check_map(at(0), at(0), [MappedOffsets(0, 0), claim], _LOGS, compacted=False)

    assert (whole.ok, whole.seen) == (False, "1 of 2")
    assert (wrong.ok, wrong.offset) == (False, claim.source)
    assert told in wrong.detail


def test_compacted_record_is_left_out() -> None:
    """Compaction removed the record: the claim about it can no longer be looked at."""
    checks = check_map(at(0), at(0), [MappedOffsets(0, 0), MappedOffsets(2, 2)], _LOGS, compacted=True)

    assert [(check.ok, check.seen) for check in checks] == [(True, "1 of 1")]


@pytest.mark.parametrize("side", list(Side))
def test_a_claim_about_what_has_expired_since_the_audit_began_is_left_out(side: Side) -> None:
    """Retention runs every few minutes, and an audit takes hours: a record that was right is gone by now."""
    held = {Side.SOURCE: [(5, "b")], Side.TARGET: [(5, "b")]}
    held[Side.SOURCE if side is Side.TARGET else Side.TARGET].insert(0, (2, "a"))
    logs = Logs(held[Side.SOURCE], held[Side.TARGET])
    claims = [MappedOffsets(2, 2), MappedOffsets(5, 5)]
    logs.start[side] = 3
    (all_,) = check_map(at(0), at(0), claims, logs, compacted=False)
    assert (all_.ok, all_.seen) == (True, "1 of 1")
    # Where the log still begins before it, nobody has taken it: it never was there.
    logs.start[side] = 2
    all_, wrong = check_map(at(0), at(0), claims, logs, compacted=False)
    assert (all_.ok, wrong.offset) == (False, 2)


def test_wrong_claims_are_cut_and_counted() -> None:
    """A map that is wrong throughout fills no table, but its number is told."""
    claims = [MappedOffsets(1, 0)] * (MAX_WRONG + 5)

    checks = check_map(at(0), at(0), claims, _LOGS, compacted=False)

    assert len(checks) == MAX_WRONG + 1
    assert checks[0].seen == f"0 of {len(claims)}"


def test_a_claim_about_what_cannot_be_read_is_neither_right_nor_wrong() -> None:
    """It is named; the others are looked at."""
    logs = Logs({}, {})

    class Damaged:
        def first(self, side: Side, tp: TopicPartition, offset: int) -> AuditedRecord | None:
            if offset == 3:
                raise Unreadable("a record batch cannot be read", where="batch at offset 3")
            return rec(offset, str(offset))

        last_before = logs.last_before
        begins = logs.begins

    claims = [MappedOffsets(offset, offset) for offset in range(5)]
    right, unread = check_map(at(0), at(0), claims, Damaged(), compacted=False)
    assert (right.ok, right.seen) == (True, "4 of 4")
    assert (unread.ok, unread.offset) == (None, 3)
    assert "batch at offset 3" in unread.detail
