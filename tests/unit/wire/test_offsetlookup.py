"""Every lookup agrees with a brute-force model that knows each record's fate, or admits not to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.errors import Fatal
from onceover.model import TopicPartition
from onceover.wire.offsetlookup import (
    NotCovered,
    Translated,
    Translation,
    arrange,
    merge,
    split,
    translate,
    translate_back,
)
from onceover.wire.offsetmap import MapRecord, Segment, SegmentBuilder, decode_map_value, encode_map_value
from tests.support.session.examples import examples

# Each example tries every offset of its history, both ways.
SOME = settings(max_examples=examples(20))
PAIR = TopicPartition("orders", 0), TopicPartition("orders", 0)


def record(
    start: int, end: int, target_start: int, *segments: tuple[int, int, int], gen: int = 1
) -> MapRecord:
    return MapRecord(
        source=PAIR[0],
        target=PAIR[1],
        source_start=start,
        source_end=end,
        target_start=target_start,
        segments=tuple(Segment(*segment) for segment in segments),
        bytes=10 * (end - start),
        generation=gen,
        lane=0,
        batch=0,
        attempt=0,
        begin_ms=1000 + start,
        commit_ms=1500 + start,
    )


class Run(NamedTuple):
    """What the model knows of joined records: their ranges, and each kept record's two offsets."""

    source: tuple[int, int]
    target: tuple[int, int]
    kept: list[tuple[int, int]]


class History(NamedTuple):
    records: list[MapRecord]
    runs: list[Run]


class Writer:
    """Plays a lane: walks the source offset by offset and writes what is kept to the target."""

    def __init__(self, source: int, target: int, *, tight: bool) -> None:
        self.source, self.target, self.first = source, target, (source, target)
        # Whether target ranges start at their first record or where the one before ended: both are right.
        self.tight = tight
        self.end = target
        self.kept: list[tuple[int, int]] = []

    def transaction(self, fates: Sequence[int], marker: int) -> MapRecord:
        """``fates`` holds for each source offset how many target records came of it (0: not kept)."""
        start, target_start, builder = self.source, self.end, SegmentBuilder()
        for copies in fates:
            for _ in range(copies):
                builder.add(self.source, self.target, 1)
                self.kept.append((self.source, self.target))
                self.target += 1
                self.end = self.target
            self.source += 1
        segments = builder.build()
        if self.tight and segments:
            target_start = segments[0].target
        made = record(start, self.source, target_start, *segments)
        self.target += marker
        return made

    def run(self) -> Run:
        return Run((self.first[0], self.source), (self.first[1], self.end), self.kept)


# 1 kept, 0 aborted, compacted or filtered, 2 and more: a handler made several records of one.
FATES = st.lists(st.sampled_from([0, 0, 1, 1, 1, 1, 2, 3]), min_size=1, max_size=12)
TRANSACTIONS = st.lists(st.tuples(FATES, st.integers(0, 3)), min_size=1, max_size=5)


@st.composite
def histories(draw: st.DrawFn) -> History:
    source, target = draw(st.integers(0, 50)), draw(st.integers(0, 50))
    records: list[MapRecord] = []
    runs: list[Run] = []
    for transactions in draw(st.lists(TRANSACTIONS, min_size=1, max_size=3)):
        writer = Writer(source, target, tight=draw(st.booleans()))
        records += [writer.transaction(fates, marker) for fates, marker in transactions]
        runs.append(writer.run())
        # What lies between the runs fell out of the map, or an operator skipped it.
        source, target = writer.source + draw(st.integers(1, 5)), writer.target + draw(st.integers(0, 5))
    return History(records, runs)


def expected(runs: list[Run], offset: int, *, back: bool) -> int | None:
    """Return the answer by definition, found by trying every kept record; None is 'not covered'."""
    for run in reversed(runs):
        start, end = run.target if back else run.source
        if start <= offset <= end:
            break
    else:
        return None
    pairs = [(t, s) for s, t in run.kept] if back else run.kept
    best = run.source[0] if back else run.target[0]
    for here, there in pairs:
        if here >= offset:
            return min(best, there)
        best = there + 1
    return best if run is runs[-1] else None


def answer(translation: Translation) -> int | None:
    return translation.offset if isinstance(translation, Translated) else None


def span(history: History, *, back: bool) -> range:
    first, last = history.runs[0], history.runs[-1]
    return (
        range(first.target[0] - 2, last.target[1] + 3)
        if back
        else range(first.source[0] - 2, last.source[1] + 3)
    )


def assert_lookups_exact(records: list[MapRecord], history: History) -> None:
    for offset in span(history, back=False):
        assert expected(history.runs, offset, back=False) == answer(translate(records, offset)), offset
    for offset in span(history, back=True):
        assert expected(history.runs, offset, back=True) == answer(translate_back(records, offset)), offset


@given(histories())
def test_every_offset_translates_as_the_model_says(history: History) -> None:
    assert_lookups_exact(history.records, history)


@SOME
@given(histories(), st.integers(1, 9))
def test_merging_changes_no_answer_and_no_sum(history: History, max_segments: int) -> None:
    merged = merge(history.records, max_segments=max_segments)
    assert_lookups_exact(merged, history)
    assert sum(one.bytes for one in history.records) == sum(one.bytes for one in merged)
    assert sum(one.records for one in history.records) == sum(one.records for one in merged)


@SOME
@given(histories())
def test_merging_joins_each_run_into_one_record(history: History) -> None:
    merged = merge(history.records)
    assert [run.source for run in history.runs] == [(one.source_start, one.source_end) for one in merged]
    assert merged == [decode_map_value(one.key, encode_map_value(one)) for one in merged]


@SOME
@given(histories(), st.integers(1, 4))
def test_splitting_changes_no_answer_and_no_sum(history: History, max_segments: int) -> None:
    parts = [part for one in merge(history.records) for part in split(one, max_segments=max_segments)]
    assert_lookups_exact(parts, history)
    assert sum(one.bytes for one in history.records) == sum(one.bytes for one in parts)
    assert len({part.key for part in parts}) == len(parts)


def test_split_obeys_the_limit_without_a_handler() -> None:
    one = record(0, 100, 0, *((offset, offset // 2, 1) for offset in range(0, 100, 2)))
    assert [len(part.segments) for part in split(one, max_segments=20)] == [20, 20, 10]


@SOME
@given(histories(), st.randoms(use_true_random=False))
def test_arranging_restores_any_order(history: History, random: object) -> None:
    shuffled = list(history.records)
    random.shuffle(shuffled)  # pyrefly: ignore[missing-attribute]
    assert history.records == arrange(shuffled)


@SOME
@given(histories())
def test_translation_never_runs_backwards(history: History) -> None:
    """A group that moves on at the source moves on, or stays, at the target."""
    found = [answer(translate(history.records, offset)) for offset in span(history, back=False)]
    covered = [offset for offset in found if offset is not None]
    assert covered == sorted(covered)


def test_an_empty_map_covers_nothing() -> None:
    assert translate([], 5) == translate_back([], 5) == NotCovered(None, None)


def test_outside_the_map_the_covered_span_is_told() -> None:
    records = [record(10, 20, 5, (10, 5, 10)), record(20, 30, 15, (20, 16, 10))]
    assert translate(records, 9) == translate(records, 31) == NotCovered(10, 30)
    assert translate_back(records, 4) == translate_back(records, 27) == NotCovered(5, 26)


def test_the_answer_at_the_copy_position_stays_right_after_the_next_transaction() -> None:
    """The marker's offset is not known when the group is moved, and needs not be."""
    first, second = record(0, 10, 0, (0, 0, 10)), record(10, 20, 10, (10, 11, 10))
    assert translate([first], 10) == translate([first, second], 10) == Translated(10)


def test_a_transaction_that_kept_nothing_extends_the_position() -> None:
    records = [record(0, 10, 0, (0, 0, 4)), record(10, 50, 4)]
    assert [translate(records, offset) for offset in (4, 10, 49, 50)] == [Translated(4)] * 4


def test_a_reseed_makes_older_records_of_those_ranges_unknown() -> None:
    old = [record(0, 10, 0, (0, 0, 10)), record(10, 20, 10, (10, 11, 10))]
    new = record(10, 20, 22, (10, 22, 10), gen=2)
    assert arrange([*old, new]) == [old[0], new]
    assert translate(arrange([*old, new]), 15) == Translated(27)


def test_after_the_target_was_recreated_nothing_older_is_believed() -> None:
    old, new = record(0, 10, 40, (0, 40, 10)), record(200, 210, 0, (200, 0, 10), gen=2)
    assert arrange([old, new]) == [new]


def test_two_pairs_in_one_lookup_are_refused() -> None:
    other = SegmentBuilder()
    other.add(0, 0, 1)
    stranger = MapRecord(
        source=PAIR[0]._replace(partition=1),
        target=PAIR[1],
        source_start=0,
        source_end=1,
        target_start=0,
        segments=other.build(),
        bytes=1,
        generation=1,
        lane=0,
        batch=0,
        attempt=0,
        begin_ms=0,
        commit_ms=0,
    )
    with pytest.raises(Fatal, match="several partition pairs"):
        arrange([stranger, record(0, 1, 0, (0, 0, 1))])
