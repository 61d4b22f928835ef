"""What the comparer says about a single difference, and what it costs."""

from __future__ import annotations

import random
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.audit.compare.align import align
from onceover.audit.model import FindingKind
from onceover.audit.records.sketch import DTYPE, RecordMark, Sketch, mark_at, parse_mark
from onceover.model import TopicPartition
from tests.support.raw.mutations import Content, correct_pair
from tests.unit.audit.judging import STEP, sketched

PAIR = TopicPartition("orders", 0), TopicPartition("east.orders", 0)
RECORDS = correct_pair(random.Random(8), partitions=1).source[0][:20]
_MAX_CPU_S = 60.0


def test_a_loss_says_where_the_record_belongs() -> None:
    """Behind the last record before it that is there."""
    (finding,) = align(sketched(RECORDS, 0), sketched(RECORDS[:4] + RECORDS[5:], 900), PAIR).findings()
    assert (finding.kind, finding.source, finding.source_offset) == (FindingKind.LOST, PAIR[0], 4 * STEP)
    assert (finding.target, finding.target_offset, finding.target_mark) == (PAIR[1], None, None)
    assert finding.detail == f"expected behind target offset {900 + 3 * STEP}"
    (first,) = align(sketched(RECORDS, 0), sketched(RECORDS[1:], 900), PAIR).findings()
    assert first.detail == "expected before every record that corresponds"


def test_a_repeat_says_how_often_it_is_there() -> None:
    """And which record of the source it is a copy of."""
    findings = list(
        align(sketched(RECORDS, 0), sketched([*RECORDS, *RECORDS[3:4] * 2], 900), PAIR).findings()
    )
    assert {(each.kind, each.source_offset) for each in findings} == {(FindingKind.REPEATED, 3 * STEP)}
    assert {each.target_offset for each in findings} == {900 + 20 * STEP, 900 + 21 * STEP}
    assert {each.detail for each in findings} == {"once on the source, 3 times on the target"}


def test_an_altered_record_is_known_by_its_place() -> None:
    """Where several missing records have the other fields, the one of the same neighbours is meant."""
    records = [Content(b"k", b"%d" % index, (), 7) for index in range(20)]
    target = [*records[:3], *records[4:10], records[10]._replace(value=b"?"), *records[11:]]
    found = {each.kind: each for each in align(sketched(records, 0), sketched(target, 0), PAIR).findings()}
    assert found[FindingKind.LOST].source_offset == 3 * STEP
    assert found[FindingKind.ALTERED].source_offset == 10 * STEP
    assert len(found) == 2


def test_an_altered_record_is_known_at_another_place() -> None:
    """By three fields that nothing else has; and said to be out of place."""
    altered = RECORDS[3]._replace(timestamp_ms=5)
    assert altered.value
    target = [*RECORDS[:3], *RECORDS[4:15], altered, *RECORDS[15:]]
    (finding,) = align(sketched(RECORDS, 0), sketched(target, 0), PAIR).findings()
    assert (finding.kind, finding.field, finding.source_offset) == (
        FindingKind.ALTERED,
        "timestamp",
        3 * STEP,
    )
    assert finding.detail == f"and belongs behind target offset {2 * STEP}"


def test_records_that_share_nothing_telling_are_not_taken_for_one() -> None:
    """No key and no headers are what unrelated records share: one lost, one surplus."""
    mine, other = Content(None, b"mine", (), 1), Content(None, b"other", (), 2)
    target = [*RECORDS[:5], other, *RECORDS[5:]]
    source = [*RECORDS[:5], mine, *RECORDS[5:]]
    findings = align(sketched(source, 0), sketched(target, 0), PAIR).findings()
    assert [each.kind for each in findings] == [FindingKind.LOST, FindingKind.PHANTOM]


def test_findings_never_hold_payload() -> None:
    """Offsets, names and hashes only (G10)."""
    secret = [each._replace(key=b"hunter2", value=b"hunter2") for each in RECORDS]
    alignment = align(sketched(secret[:9], 0), sketched(secret[4:], 0), PAIR)
    assert not any("hunter2" in repr(each) for each in alignment.findings())
    assert all("mark" not in column for each in alignment.findings() for column in each.as_row())


@given(st.integers(0, 2**128 - 1), *[st.integers(0, 2**64 - 1)] * 3, st.integers(-1, 1 << 60))
def test_marks_survive_as_text(content: int, key: int, value: int, headers: int, timestamp_ms: int) -> None:
    """Findings cross processes as rows."""
    mark = RecordMark(content, key, value, headers, timestamp_ms)
    assert parse_mark(str(mark)) == mark


def test_null_and_empty_are_different_contents() -> None:
    """In key, value and a header's value."""
    plain = Content(None, None, ((b"h", None),), 1)
    contents = [
        plain,
        plain._replace(key=b""),
        plain._replace(value=b""),
        plain._replace(headers=((b"h", b""),)),
    ]
    assert len({mark_at(sketched([each], 0), 0).content for each in contents}) == 4


@pytest.mark.parametrize("half", ["hash_high", "hash_low"])
def test_contents_are_equal_in_all_their_bits_or_not_at_all(half: str) -> None:
    """Two records whose hashes agree in one half are two records."""
    source, target = _numbers(3, 1), _numbers(3, 1)
    target[half][1] += 1
    assert not align(source, target, PAIR).same
    assert align(source, _numbers(3, 1), PAIR).same


def _numbers(count: int, first: int) -> Sketch:
    made = np.zeros(count, DTYPE)
    made["offset"] = np.arange(count)
    for column in ("hash_low", "key", "value", "headers", "timestamp"):
        made[column] = np.arange(count) + first
    return made


@pytest.mark.parametrize(
    ("column", "kind", "count"),
    [("value", "ALTERED", 10_000), (None, "LOST", 10_000), ("all", "LOST", 10_000)],
)
def test_a_target_without_one_right_record_takes_bounded_time_and_memory(
    column: str | None, kind: str, count: int
) -> None:
    """Everything altered in a field, everything surplus, everything equal but fewer."""
    source, target = _numbers(count, 1), _numbers(count, 1)
    if column == "all":
        source, target = np.zeros(count, DTYPE), np.zeros(count // 2, DTYPE)
    elif column is None:
        target = _numbers(count, 10_000_000)
    else:
        target["hash_low"] += 10_000_000
        target[column] += 10_000_000
    begun = time.process_time()
    tracemalloc.start()
    counts = align(source, target, PAIR).counts
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counts[FindingKind(kind)] in (count, count // 2)
    assert time.process_time() - begun < _MAX_CPU_S
    assert peak / count < 2_000, "bytes a record"
