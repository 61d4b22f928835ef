"""Whatever both sides hold: the findings account for every difference, once."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.audit.model import FindingKind
from tests.support.raw.mutations import Content, Expected, Pair
from tests.support.session.examples import examples
from tests.unit.audit.judging import judge, told

# So few contents that twins, records alike in some fields, and records in wrong partitions are common.
_contents = st.builds(
    Content,
    st.sampled_from([None, b"", b"k"]),
    st.sampled_from([None, b"", b"v", b"w"]),
    st.sampled_from([(), ((b"h", None),)]),
    st.integers(1, 3),
)
_partitions = st.lists(st.lists(_contents, max_size=14), min_size=2, max_size=2)
_hidden = st.lists(st.lists(st.tuples(st.just(0), _contents), max_size=2), min_size=2, max_size=2)
_MISSING = {FindingKind.LOST, FindingKind.ALTERED, FindingKind.MISROUTED}
_EXTRA = {
    FindingKind.REPEATED,
    FindingKind.PHANTOM,
    FindingKind.LEAKED,
    FindingKind.ALTERED,
    FindingKind.MISROUTED,
}


@settings(max_examples=examples(60))
@given(_partitions, _partitions, _hidden)
def test_findings_add_up_to_what_differs(
    source: list[list[Content]], target: list[list[Content]], aborted: list[list[tuple[int, Content]]]
) -> None:
    """What is missing in each partition, and what is too much, is named record by record; order is told."""
    pair = Pair(source, target, aborted)
    findings = list(told(pair, judge(pair)).elements())
    for number in range(2):
        here, there = Counter(source[number]), Counter(target[number])
        assert Counter(_missing(pair, findings, number)) == here - there
        assert Counter(_extra(findings, number)) == there - here
        moved = [each for each in findings if each.kind is FindingKind.REORDERED and each.target == number]
        if here == there:
            assert bool(moved) == (source[number] != target[number])
    assert (not findings) == (source == target)


def _missing(pair: Pair, findings: list[Expected], number: int) -> list[Content]:
    return [
        pair.source[number][each.source[1]]
        for each in findings
        if each.kind in _MISSING and each.source is not None and each.source[0] == number
    ]


def _extra(findings: list[Expected], number: int) -> list[Content]:
    return [
        each.seen
        for each in findings
        if each.kind in _EXTRA and each.target == number and each.seen is not None
    ]


@settings(max_examples=examples(30))
@given(_partitions, _partitions)
def test_an_altered_record_differs_in_the_fields_that_are_named(
    source: list[list[Content]], target: list[list[Content]]
) -> None:
    """No more and no fewer; a record that is merely elsewhere differs in none."""
    pair = Pair(source, target, [[], []])
    for each in told(pair, judge(pair)):
        if each.source is None or each.seen is None:
            continue
        was = pair.source[each.source[0]][each.source[1]]
        names = ("key", "value", "headers", "timestamp")
        differing = [name for name, one, other in zip(names, was, each.seen, strict=True) if one != other]
        assert (each.fields or "") == ",".join(differing)
