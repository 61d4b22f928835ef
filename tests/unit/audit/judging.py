"""The whole comparer on pairs in memory, as an audit runs it: sketch, align, match across partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from onceover.audit.compare.align import align
from onceover.audit.compare.crossmatch import Sighting, crossmatch, wanted
from onceover.audit.model import Finding
from onceover.audit.records.recordhash import make_rec
from onceover.audit.records.sketch import Sketch, mark_at, sketch
from onceover.model import TopicPartition
from tests.support.raw.mutations import Content, Expected, Pair

SOURCE_BASE = 100
TARGET_BASE = 5_000
ABORTED_BASE = 50_000
# Markers and aborted transactions leave such gaps: offsets are no indices.
STEP = 3


def sketched(contents: Sequence[Content], base: int) -> Sketch:
    """Return the numbers of records at every third offset."""
    return sketch(make_rec(base + STEP * index, *content) for index, content in enumerate(contents))


def partition_of(number: int) -> TopicPartition:
    """Return a partition of the topic that both sides have."""
    return TopicPartition("orders", number)


def judge(pair: Pair, *, borders: Sequence[int] = ()) -> list[Finding]:
    """Return every finding.

    Args:
        borders: indices at which both sides are cut into stretches that are compared alone.
    """
    findings: list[Finding] = []
    for number in range(len(pair.source)):
        tp = partition_of(number)
        here = sketched(pair.source[number], SOURCE_BASE)
        there = sketched(pair.target[number], TARGET_BASE)
        hidden = sketched([content for _, content in pair.aborted[number]], ABORTED_BASE)
        cuts = [0, *borders, max(len(here), len(there))]
        for begin, end in pairwise(cuts):
            found = align(here[begin:end], there[begin:end], (tp, tp), aborted=hidden)
            named = list(found.findings())
            assert Counter(each.kind for each in named) == found.counts
            assert found.same == (not named)
            findings += named
    asked = wanted(findings)
    seen = (each for each in _sightings(pair) if each.content in asked) if asked else ()
    return crossmatch(findings, seen)


def _sightings(pair: Pair) -> Iterator[Sighting]:
    for number, contents in enumerate(pair.source):
        numbers = sketched(contents, SOURCE_BASE)
        for index, row in enumerate(numbers):
            yield Sighting(mark_at(numbers, index).content, partition_of(number), int(row["offset"]))


def told(pair: Pair, findings: Sequence[Finding]) -> Counter[Expected]:
    """Return findings in the words of the mutations: indices and contents instead of offsets."""
    return Counter(_told(pair, each) for each in findings)


def _told(pair: Pair, finding: Finding) -> Expected:
    assert finding.source is not None and finding.target is not None
    source = None
    if finding.source_offset is not None:
        base = ABORTED_BASE if finding.source_offset >= ABORTED_BASE else SOURCE_BASE
        source = (finding.source.partition, (finding.source_offset - base) // STEP)
    seen = None
    if finding.target_offset is not None:
        seen = pair.target[finding.target.partition][(finding.target_offset - TARGET_BASE) // STEP]
    return Expected(finding.kind, source, finding.target.partition, seen, finding.field)
