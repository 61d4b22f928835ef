"""Findings of different stretches that are one and the same record."""

from __future__ import annotations

import random

import pytest

from onceover.audit.compare.align import align
from onceover.audit.compare.crossmatch import Sighting, crossmatch, wanted
from onceover.audit.model import Finding, FindingKind
from onceover.audit.records.sketch import parse_mark
from onceover.model import TopicPartition
from tests.support.raw.mutations import Content, correct_pair
from tests.unit.audit.judging import partition_of, sketched

CONTENTS = correct_pair(random.Random(8), partitions=1).source[0]


def _findings(source: list[Content], target: list[Content], number: int = 0) -> list[Finding]:
    tp = partition_of(number)
    return list(align(sketched(source, 0), sketched(target, 0), (tp, tp)).findings())


def _lost(content: Content, number: int = 0) -> Finding:
    (finding,) = _findings([content], [], number)
    return finding


def _phantom(content: Content, number: int = 0) -> Finding:
    (finding,) = _findings([], [content], number)
    return finding


def test_lost_here_and_surplus_there_is_misrouted() -> None:
    """One finding with both places."""
    (finding,) = crossmatch([_lost(CONTENTS[0], 0), _phantom(CONTENTS[0], 1)])
    assert finding.kind is FindingKind.MISROUTED
    assert (finding.source, finding.target) == (partition_of(0), partition_of(1))
    assert finding.source_offset == finding.target_offset == 0 and finding.field is None


def test_lost_and_surplus_in_one_partition_is_reordered() -> None:
    """Moved from one stretch to another."""
    (finding,) = crossmatch([_phantom(CONTENTS[0]), _lost(CONTENTS[0])])
    assert finding.kind is FindingKind.REORDERED


def test_each_record_is_used_once() -> None:
    """Two lost, one found elsewhere: one is still lost."""
    kinds = [str(each.kind) for each in crossmatch([_lost(CONTENTS[0])] * 2 + [_phantom(CONTENTS[0], 1)])]
    assert sorted(kinds) == ["LOST", "MISROUTED"]


def test_equality_overrules_likeness() -> None:
    """What looked like an altered record in its place is another partition's, and its own is lost."""
    mine, other = CONTENTS[0], CONTENTS[0]._replace(value=b"other")
    altered = _findings([mine], [other])
    assert [each.kind for each in altered] == [FindingKind.ALTERED]
    kinds = {each.kind: each for each in crossmatch([*altered, _lost(other, 1)])}
    assert set(kinds) == {FindingKind.LOST, FindingKind.MISROUTED}
    assert kinds[FindingKind.LOST].source_offset == 0 and kinds[FindingKind.LOST].target_offset is None
    assert kinds[FindingKind.MISROUTED].source == partition_of(1)


def test_a_surplus_record_that_the_source_holds_is_a_repeat() -> None:
    """Told by where the source was seen to hold it, its own partition first."""
    surplus = _phantom(CONTENTS[0], 1)
    (content,) = wanted([surplus])
    seen = [Sighting(content, partition_of(0), 5), Sighting(content, partition_of(1), 9)]
    (finding,) = crossmatch([surplus], seen)
    assert (finding.kind, finding.source, finding.source_offset) == (FindingKind.REPEATED, partition_of(1), 9)
    (finding,) = crossmatch([surplus], seen[:1])
    assert (finding.kind, finding.source) == (FindingKind.REPEATED, partition_of(0))
    assert "in another partition" in finding.detail


def test_surplus_record_of_an_aborted_transaction_is_a_leak() -> None:
    """Unless a reader sees its like somewhere: a retry after an abort is written twice, and copied once."""
    surplus = _phantom(CONTENTS[0], 1)
    (content,) = wanted([surplus])
    near, far = Sighting(content, partition_of(1), 5, True), Sighting(content, partition_of(0), 2, True)
    (finding,) = crossmatch([surplus], [far, near])
    assert (finding.kind, finding.source, finding.source_offset) == (FindingKind.LEAKED, partition_of(1), 5)
    assert finding.detail == "its transaction was aborted on the source"
    (finding,) = crossmatch([surplus], [near, Sighting(content, partition_of(0), 9)])
    assert (finding.kind, finding.source_offset) == (FindingKind.REPEATED, 9)


def test_only_surplus_records_are_asked_for() -> None:
    """Everything else is explained by its own stretch."""
    findings = _findings(CONTENTS[:9], CONTENTS[1:9] + CONTENTS[3:4] + [Content(b"x", b"y", (), 1)])
    surplus = [each for each in findings if each.kind is FindingKind.PHANTOM]
    assert wanted(findings) == {parse_mark(each.target_mark or "").content for each in surplus}
    assert len(surplus) == 1


@pytest.mark.parametrize("kind", list(FindingKind))
def test_a_finding_without_marks_stays_as_it_is(kind: FindingKind) -> None:
    """Nothing is known to match it by."""
    tp = TopicPartition("orders", 0)
    finding = Finding(kind, tp, 1, tp, 2)
    assert crossmatch([finding]) == [finding]


def test_findings_come_in_the_order_of_the_log() -> None:
    """By partition, then by place."""
    findings = [_lost(CONTENTS[0], 2), _lost(CONTENTS[1], 0), _phantom(CONTENTS[2], 1)]
    assert [each.source for each in crossmatch(findings)] == [partition_of(number) for number in (0, 1, 2)]


def test_a_loss_made_up_by_a_copy_too_many_elsewhere_is_misrouted() -> None:
    """The other partition holds a record of the same content by right, and now one more."""
    twin = CONTENTS[3]
    repeated = _findings([twin], [twin, twin], 1)
    assert [each.kind for each in repeated] == [FindingKind.REPEATED]
    (finding,) = crossmatch([*repeated, _lost(twin, 0)])
    assert (finding.kind, finding.source, finding.target) == (
        FindingKind.MISROUTED,
        partition_of(0),
        partition_of(1),
    )


def test_records_that_share_nothing_telling_are_not_taken_for_one() -> None:
    """Without key and value, the same headers are no evidence; with either they are."""
    bare = Content(None, None, ((b"h", b"1"),), 1)
    findings = [_lost(bare, 0), _phantom(bare._replace(timestamp_ms=2), 1)]
    assert [each.kind for each in crossmatch(findings)] == [FindingKind.LOST, FindingKind.PHANTOM]
    for telling in (bare._replace(key=b"k"), bare._replace(value=b"v")):
        findings = [_lost(telling, 0), _phantom(telling._replace(timestamp_ms=2), 1)]
        (finding,) = crossmatch(findings)
        assert (finding.kind, finding.field) == (FindingKind.MISROUTED, "timestamp")
