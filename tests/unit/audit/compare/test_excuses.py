"""What excuses a difference: a decision, at_least_once, what a log cleaner can have taken; nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.compare.align import align
from onceover.audit.compare.excuses import (
    Cleaned,
    Decided,
    Excuse,
    Excused,
    MayBeDiverted,
    Repeats,
    held,
    joined,
    told_apart,
)
from onceover.audit.model import Finding, FindingKind, Mode, Range, Reason, Unverifiable
from onceover.audit.ranges.diverted import DeadLetters, Doubt
from onceover.audit.ranges.tiling import Hole
from onceover.audit.records.recordhash import AuditedRecord, make_rec
from onceover.audit.records.sketch import sketch
from onceover.model import TopicPartition
from tests.support.raw.mutations import Content

TP = TopicPartition("accounts", 0)
Log: TypeAlias = Sequence[tuple[int, Content]]


def keyed(key: bytes, value: bytes | None, timestamp_ms: int) -> Content:
    """Return a record of a key."""
    return Content(key, value, (), timestamp_ms)


HISTORY = [
    keyed(b"a", b"1", 1),
    keyed(b"b", b"1", 2),
    keyed(b"a", b"2", 3),
    keyed(b"c", b"1", 4),
    keyed(b"c", None, 5),
    keyed(b"b", b"2", 6),
    keyed(b"d", None, 7),
]
WHOLE = list(enumerate(HISTORY))


def recs(log: Log) -> list[AuditedRecord]:
    """Return the records of a log."""
    return [make_rec(offset, *content) for offset, content in log]


class Answered(Excused):
    """With what was left."""

    findings: tuple[Finding, ...] = ()


def differences(source: Log, target: Log, later: Log = (), source_to: int = len(HISTORY)) -> Answered:
    """Return what is left of the differences of a compacted pair, as ``findings``, and what is excused.

    Args:
        later: what the source holds beyond what was copied; ``source_to`` where that begins.
    """
    here, there = recs(source), recs(target)
    alignment = align(sketch(here), sketch(there), (TP, TP))
    end = max(at for at, _ in (*source, *target)) + 1
    span = Range(TP, 0, source_to, TP, 0, end, Mode.COMPACTED)
    cleaned = Cleaned(alignment, span, held(here, recs(later)), held(there, ()), Decided((), ()))
    return asked([cleaned], alignment.findings())


def asked(excuses: Sequence[Excuse], findings: Iterable[Finding]) -> Answered:
    """Return what some excuses make of findings."""
    answered = Answered(excuses)
    answered.findings = tuple(answered.left(findings))
    return answered


@pytest.mark.parametrize("removed", [(), (0,), (1,), (0, 1), (3,), (3, 4), (0, 1, 3, 4), (6,)])
@pytest.mark.parametrize("side", ["source", "target"])
def test_what_a_cleaner_can_have_taken_is_excused_and_counted(removed: tuple[int, ...], side: str) -> None:
    """Earlier values and old tombstones may be gone from either side, and not from the other."""
    rest = [(offset, content) for offset, content in WHOLE if offset not in removed]
    found = differences(rest, WHOLE) if side == "source" else differences(WHOLE, rest)
    assert found.findings == ()
    assert len(found.told) == len(removed)
    assert {each.reason for each in found.told} <= {Reason.COMPACTED_HISTORY}
    assert all(each.gone is (side == "source") for each in found.told)


@pytest.mark.parametrize(
    ("missing", "offset"),
    [
        pytest.param([2], 2, id="latest-value"),
        pytest.param([5], 5, id="latest-value-behind-others"),
        pytest.param([4], 4, id="tombstone-whose-value-is-there"),
    ],
)
def test_latest_value_and_tombstone_of_a_value_that_is_there_are_lost(
    missing: list[int], offset: int
) -> None:
    """No cleaner takes them."""
    rest = [(at, content) for at, content in WHOLE if at not in missing]
    (finding,) = differences(WHOLE, rest).findings
    assert (finding.kind, finding.source_offset) == (FindingKind.LOST, offset)


@pytest.mark.parametrize("value", [b"x", None])
@pytest.mark.parametrize("place", range(8))
def test_surplus_record_between_copied_ones_is_named_while_the_source_is_whole(
    value: bytes | None, place: int
) -> None:
    """Whatever its key's later values are: the source has no offset without a record for it."""
    contents = [*HISTORY[:place], keyed(b"a", value, 99), *HISTORY[place:]]
    found = differences(WHOLE, list(enumerate(contents)))
    assert [each.kind for each in found.findings] == [FindingKind.PHANTOM]


def test_value_that_the_source_has_replaced_beyond_the_copy_is_excused() -> None:
    """Its cleaner took what was copied; the later value is not copied yet."""
    source = WHOLE[1:2] + WHOLE[3:]
    later = [(9, keyed(b"a", b"3", 9))]
    assert differences(source, WHOLE, later).findings == ()
    assert {each.kind for each in differences(source, WHOLE).findings} == {FindingKind.PHANTOM}


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.booleans()), min_size=1, max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_no_cleaning_of_either_side_is_a_finding(
    shape: list[tuple[bytes, bool]], tombstones: bool, swapped: bool
) -> None:
    """For any history: what a cleaner leaves differs from the whole in nothing but what is excused."""
    whole = [(at, keyed(key, b"%d" % at if live else None, at)) for at, (key, live) in enumerate(shape)]
    latest = {content.key: at for at, content in whole}
    rest = [
        (at, content)
        for at, content in whole
        if latest[content.key] == at and not (tombstones and content.value is None)
    ]
    one, other = (whole, rest) if swapped else (rest, whole)
    found = differences(one, other, source_to=len(whole))
    assert found.findings == ()
    assert sum(each.offsets for each in found.told) == len(whole) - len(rest)


# ---- decisions, and repeats


def lost(offset: int) -> Finding:
    """Return a record that is missing."""
    return Finding(FindingKind.LOST, TP, offset, TP, None)


def test_skipped_and_diverted_records_are_told_and_others_stay() -> None:
    """An operator may skip millions: neighbours are told as one."""
    found = asked([Decided((Hole(3, 6),), frozenset({8}))], map(lost, range(2, 10)))
    assert [each.source_offset for each in found.findings] == [2, 6, 7, 9]
    told = [(each.reason, each.offset_from, each.offset_to, each.offsets) for each in joined(found.told)]
    assert told == [(Reason.DEAD_LETTER, 8, 9, 1), (Reason.SKIPPED, 3, 6, 3)]
    assert sum(found.source.values()) == 4


def test_records_that_an_unread_dead_letter_may_name_are_told_though_they_were_proven() -> None:
    """What was right once may be lost now; an excuse that is known goes first."""
    away = Doubt(Reason.NO_LEADER, "letters:0 has no leader")
    doubts = [MayBeDiverted(DeadLetters(hidden=frozenset({3}), unread=(away,)))]
    excused = Excused([Decided((Hole(4, 5),), ())], proven=(9, 0), doubts=doubts)
    assert list(excused.left(map(lost, range(2, 6)))) == []
    told = [(each.reason, each.offset_from) for each in excused.told]
    assert told == [(Reason.NO_LEADER, 2), (Reason.OPEN_TRANSACTION, 3), (Reason.NO_LEADER, 5)]
    assert away.why in excused.told[0].message
    assert MayBeDiverted(DeadLetters())(lost(2)) is None


def test_pair_by_likeness_is_two_where_its_record_may_have_been_diverted() -> None:
    """What is like it on the target is wrong either way."""
    altered = Finding(FindingKind.ALTERED, TP, 3, TP, 7, "key,value")
    doubt = MayBeDiverted(DeadLetters(hidden=frozenset({3})))
    halves = told_apart([altered, replace(altered, source_offset=4)], [doubt])
    kinds = [(each.kind, each.source_offset) for each in halves]
    assert kinds == [(FindingKind.LOST, 3), (FindingKind.PHANTOM, None), (FindingKind.ALTERED, 4)]


def test_repeats_of_at_least_once_are_told_and_surplus_records_stay() -> None:
    """Only what the source holds can have been delivered again."""
    here, there = recs(WHOLE[:2]), recs([*WHOLE[:2], (2, HISTORY[0]), (3, HISTORY[5]), (4, HISTORY[6])])
    alignment = align(sketch(here), sketch(there), (TP, TP))
    ahead = {int.from_bytes(make_rec(0, *HISTORY[5]).hash, "big"): 5}
    found = asked([Repeats(ahead, 5)], alignment.findings())
    assert [(each.kind, each.target_offset) for each in found.findings] == [(FindingKind.PHANTOM, 4)]
    told = {(each.reason, each.offset_from) for each in found.told}
    assert told == {(Reason.AT_LEAST_ONCE, 0), (Reason.NOT_COPIED_YET, 5)}


def test_what_at_least_once_may_have_sent_of_lost_records_is_told_of_the_target_alone() -> None:
    """Nobody knows which source offset it was; where the source holds all of it, it is nobody's."""
    alignment = align(sketch(()), sketch(recs([(4, HISTORY[6])])), (TP, TP))
    found = asked([Repeats({}, 5, Reason.RETENTION)], alignment.findings())
    assert found.findings == ()
    told = [(each.reason, each.offset_from, each.offset_to) for each in found.told]
    assert told == [(Reason.RETENTION, 5, 5)]
    assert len(asked([Repeats({}, 5)], alignment.findings()).findings) == 1


def test_what_was_proven_before_it_was_taken_needs_no_saying() -> None:
    """It is left out of the comparison all the same."""
    excused = Excused([Decided((Hole(3, 6),), frozenset())], proven=(5, 0))
    assert list(excused.left(map(lost, range(3, 6)))) == []
    assert [each.offset_from for each in excused.told] == [5]
    assert len(excused.source) == 3


def test_nothing_is_joined_over_a_gap_or_another_reason() -> None:
    """What is told stays exact."""
    one = Unverifiable(Reason.SKIPPED, TP, 1, 2, 1)
    other = Unverifiable(Reason.SKIPPED, TP, 3, 4, 1)
    assert joined([other, one]) == (one, other)
