"""Each anomaly with the smallest history that shows it, and the nearest one that must not be called so."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover_lab.demo.compare import compare_logs
from onceover_lab.demo.verdict import EXAMPLES, CopyFaultKind, CopyVerdict, Log, Partition, digest_record


class Rec(NamedTuple):
    """A record of a history."""

    value: bytes | None = b"v"
    key: bytes | None = b"k"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 1


A, B, C, D = (Rec(bytes([letter]), key=bytes([letter]) * 2, timestamp_ms=letter) for letter in b"abcd")


def log(records: Sequence[Rec], number: int = 0, *, step: int = 1, stamped: bool = False) -> Log:
    """A log whose offsets are 0, step, 2*step...: markers and holes leave gaps in real ones."""
    result = Log(Partition("flights", number), broker_stamped=stamped)
    for index, record in enumerate(records):
        digest = digest_record(record.key, record.value, record.headers, record.timestamp_ms)
        result.append(index * step, digest)
    return result


def judge(source: Sequence[Rec], target: Sequence[Rec]) -> CopyVerdict:
    return compare_logs([(log(source), log(target))])


def found(verdict: CopyVerdict) -> dict[CopyFaultKind, int]:
    return {kind: verdict.count(kind) for kind in CopyFaultKind if verdict.count(kind)}


def test_same_records_at_other_offsets_is_ok() -> None:
    """Offsets may differ: markers take offsets on either side."""
    verdict = compare_logs([(log([A, B], step=1), log([A, B], step=3))])
    assert verdict.ok
    assert "each once, in order, unchanged" in verdict.explain()


def test_two_empty_logs_are_ok_and_say_that_nothing_was_compared() -> None:
    """Nothing against nothing holds, and the text shows the zero."""
    verdict = judge([], [])
    assert verdict.ok
    assert verdict.explain().startswith("0 records in 1 partitions")


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        pytest.param([A], [], {CopyFaultKind.LOST: 1}, id="only record lost"),
        pytest.param([A, B, C], [A, C], {CopyFaultKind.LOST: 1}, id="lost in the middle"),
        pytest.param([A, B], [A], {CopyFaultKind.LOST: 1}, id="lost at the end"),
        pytest.param([A, A], [A], {CopyFaultKind.LOST: 1}, id="one of two equal records lost"),
        pytest.param([A], [A, A], {CopyFaultKind.DUPLICATED: 1}, id="duplicated at once"),
        pytest.param([A, B], [A, B, A], {CopyFaultKind.DUPLICATED: 1}, id="duplicated later"),
        pytest.param([A, B, C], [B, A, B, C], {CopyFaultKind.DUPLICATED: 1}, id="the copy came first"),
        pytest.param([A, B], [A, B, A, B], {CopyFaultKind.DUPLICATED: 2}, id="a batch resent"),
        pytest.param([A, B], [B, A], {CopyFaultKind.REORDERED: 1}, id="two swapped"),
        pytest.param([A, B, C, D], [B, C, D, A], {CopyFaultKind.REORDERED: 1}, id="one moved to the end"),
        pytest.param(
            [A, B, C], [C, A, B, C], {CopyFaultKind.DUPLICATED: 1}, id="copy in front is no reorder"
        ),
        pytest.param([], [A], {CopyFaultKind.PHANTOM: 1}, id="phantom alone"),
        pytest.param([A, B], [A, D, B], {CopyFaultKind.PHANTOM: 1}, id="phantom between"),
        pytest.param(
            [A, B, C],
            [C, A, A, D],
            {
                CopyFaultKind.REORDERED: 1,
                CopyFaultKind.DUPLICATED: 1,
                CopyFaultKind.LOST: 1,
                CopyFaultKind.PHANTOM: 1,
            },
            id="all at once",
        ),
    ],
)
def test_difference_is_named_with_the_fewest_findings(
    source: list[Rec], target: list[Rec], expected: dict[CopyFaultKind, int]
) -> None:
    """Each minimal violation is found, under its own name and nothing else."""
    assert found(judge(source, target)) == expected


@pytest.mark.parametrize(
    "same",
    [
        pytest.param([A, A], id="equal records that were sent twice"),
        pytest.param([A, B, A], id="equal records apart"),
        pytest.param([Rec(None, key=None)] * 3, id="tombstones without keys"),
        pytest.param([Rec(timestamp_ms=-1), Rec(timestamp_ms=0)], id="timestamps at and before the epoch"),
    ],
)
def test_equal_records_in_the_source_are_neither_duplicates_nor_reordered(same: list[Rec]) -> None:
    """Near-miss: repetition alone is no anomaly."""
    assert judge(same, same).ok


H = (("a", b"1"), ("a", b"2"))


@pytest.mark.parametrize(
    ("was", "became", "fields"),
    [
        pytest.param(Rec(key=b"k"), Rec(key=b"K"), {"key"}, id="key"),
        pytest.param(Rec(key=None), Rec(key=b""), {"key"}, id="null key became empty"),
        pytest.param(Rec(key=b""), Rec(key=None), {"key"}, id="empty key became null"),
        pytest.param(Rec(b"v"), Rec(b"w"), {"value"}, id="value"),
        pytest.param(Rec(None), Rec(b""), {"value"}, id="tombstone became empty"),
        pytest.param(Rec(timestamp_ms=1), Rec(timestamp_ms=2), {"timestamp"}, id="timestamp"),
        pytest.param(Rec(headers=H), Rec(headers=()), {"headers"}, id="headers dropped"),
        pytest.param(Rec(headers=H), Rec(headers=H[::-1]), {"headers"}, id="headers swapped"),
        pytest.param(Rec(headers=H), Rec(headers=H[:1]), {"headers"}, id="repeated name merged"),
        pytest.param(Rec(headers=H[:1]), Rec(headers=H[:1] * 2), {"headers"}, id="header doubled"),
        pytest.param(Rec(headers=(("a", None),)), Rec(headers=(("a", b""),)), {"headers"}, id="null header"),
        pytest.param(
            Rec(headers=(("ab", b"c"),)), Rec(headers=(("a", b"bc"),)), {"headers"}, id="border moved"
        ),
        pytest.param(Rec(timestamp_ms=1), Rec(timestamp_ms=2, headers=H), {"headers", "timestamp"}, id="two"),
    ],
)
def test_changed_record_is_altered_and_names_its_fields(was: Rec, became: Rec, fields: set[str]) -> None:
    """A record at its place with some fields changed is one finding that names exactly these fields."""
    verdict = judge([A, was, B], [A, became, B])
    assert found(verdict) == {CopyFaultKind.ALTERED: 1}
    assert set(verdict.partitions[0].altered_fields) == fields


def test_lost_and_unrelated_record_at_the_same_place_is_not_altered() -> None:
    """Near-miss: what shares no field with the lost record is a phantom."""
    assert found(judge([A, B, C], [A, D, C])) == {CopyFaultKind.LOST: 1, CopyFaultKind.PHANTOM: 1}


def test_similar_record_at_another_place_is_not_altered() -> None:
    """Near-miss: resemblance counts only at the same place between matched neighbours."""
    changed = A._replace(timestamp_ms=999)
    assert found(judge([A, B, C], [B, C, changed])) == {CopyFaultKind.LOST: 1, CopyFaultKind.PHANTOM: 1}


def test_record_in_another_partition_is_misrouted() -> None:
    """Lost here and found there, unchanged: one finding with both places."""
    verdict = compare_logs([(log([A, B], 0), log([B], 0)), (log([C], 1), log([C, A], 1))])
    assert found(verdict) == {CopyFaultKind.MISROUTED: 1}
    assert "misrouted: source flights:0 offset 0 target flights:1 offset 1" in verdict.explain()


def test_copy_in_another_partition_is_not_misrouted() -> None:
    """Near-miss: nothing is missing, so the second copy is a phantom of that partition."""
    verdict = compare_logs([(log([A], 0), log([A], 0)), (log([C], 1), log([C, A], 1))])
    assert found(verdict) == {CopyFaultKind.PHANTOM: 1}


def test_aborted_record_on_the_target_is_named_so() -> None:
    """What the source holds but never committed must not be visible."""
    aborted = log([D]).items()
    verdict = compare_logs([(log([A, B]), log([A, D, B]))], lambda _: frozenset(aborted))
    assert found(verdict) == {CopyFaultKind.ABORTED_VISIBLE: 1}


def test_aborted_record_that_was_sent_again_is_ok() -> None:
    """Near-miss: an aborted attempt and a committed one with the same bytes."""

    def unexpected(_: Partition) -> frozenset[bytes]:
        raise AssertionError("equal logs need no second look")

    assert compare_logs([(log([A, D]), log([A, D]))], unexpected).ok


def test_timestamps_count_unless_both_brokers_stamp() -> None:
    """A broker that stamps records itself can only be believed on both sides."""
    later = A._replace(timestamp_ms=5_000)
    both = compare_logs([(log([A], stamped=True), log([later], stamped=True))])
    assert both.ok
    assert "timestamps are not compared" in both.explain()
    one = compare_logs([(log([A]), log([later], stamped=True))])
    assert found(one) == {CopyFaultKind.ALTERED: 1}


def test_examples_are_capped_and_counts_are_not() -> None:
    """A thousand losses are counted, three are printed."""
    many = [Rec(b"%d" % number, timestamp_ms=number) for number in range(1000)]
    verdict = judge(many, [])
    assert verdict.count(CopyFaultKind.LOST) == 1000
    assert len(verdict.partitions[0].examples) == EXAMPLES
    assert "lost: source flights:0 offset 0" in verdict.explain()


def test_many_equal_records_are_compared_in_linear_time() -> None:
    """20,000 equal records, one of them lost: pairing all with all would take 400 million steps."""
    same = [Rec()] * 20_000
    assert found(judge([*same, A], [*same[1:], A])) == {CopyFaultKind.LOST: 1}


records = st.lists(st.sampled_from([A, B, C, D]), max_size=12)


@given(records, records)
def test_findings_account_for_every_record(source: list[Rec], target: list[Rec]) -> None:
    """No history is explained away: records kept plus findings add up on both sides; ok means equal."""
    verdict = judge(source, target)
    counts = found(verdict)
    assert verdict.ok == (source == target)
    surplus = counts.get(CopyFaultKind.DUPLICATED, 0) + counts.get(CopyFaultKind.PHANTOM, 0)
    assert len(target) - len(source) == surplus - counts.get(CopyFaultKind.LOST, 0)


@given(st.integers(0, 2**32))
def test_single_random_fault_is_found_under_its_name(seed: int) -> None:
    """Mutants: one fault injected into a history of unique records is one finding of that kind."""
    rng = random.Random(seed)
    source = [Rec(b"%d" % number, key=b"%d" % number, timestamp_ms=number) for number in range(30)]
    target = list(source)
    at = rng.randrange(30)
    kind = rng.choice(
        [
            CopyFaultKind.LOST,
            CopyFaultKind.DUPLICATED,
            CopyFaultKind.REORDERED,
            CopyFaultKind.ALTERED,
            CopyFaultKind.PHANTOM,
        ]
    )
    if kind is CopyFaultKind.LOST:
        del target[at]
    elif kind is CopyFaultKind.DUPLICATED:
        target.insert(rng.randrange(31), source[at])
    elif kind is CopyFaultKind.REORDERED:
        target.insert((at + rng.randrange(1, 30)) % 30, target.pop(at))
    elif kind is CopyFaultKind.ALTERED:
        target[at] = target[at]._replace(value=b"other")
    else:
        target.insert(at, Rec(b"phantom", key=b"phantom", timestamp_ms=-5))
    assert found(judge(source, target)) == {kind: 1}
