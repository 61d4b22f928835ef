"""Which source transactions were torn: told from what logs hold, against a model that knows the truth."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.drills.orphans.torn import (
    SKEW_MS,
    PartitionSpans,
    SpanState,
    TornTransaction,
    TransactionSpan,
    named,
    torn,
)
from onceover.model import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
COMMITTED, ABORTED, OPEN = SpanState.COMMITTED, SpanState.ABORTED, SpanState.OPEN


def old(first: int, last: int, at_ms: int, *, pid: int = 7, state: SpanState = COMMITTED) -> TransactionSpan:
    """A span of a client without KIP-890: all of them share an epoch."""
    return TransactionSpan(pid, 0, first, last, state, at_ms, 0)


def new(first: int, last: int, epoch: int, *, pid: int = 7, at_ms: int = 100) -> TransactionSpan:
    """A span of transaction version 2: its marker bears the next epoch."""
    return TransactionSpan(pid, epoch, first, last, COMMITTED, at_ms, epoch + 1)


def open_span(first: int, last: int, epoch: int = 0, *, pid: int = 7) -> TransactionSpan:
    return TransactionSpan(pid, epoch, first, last, OPEN)


def shape(found: list[TornTransaction]) -> list[tuple[bool, list[str], list[str]]]:
    return [(each.certain, [str(s) for s in each.copied], [str(s) for s in each.left]) for each in found]


def test_an_epoch_of_its_own_is_one_transaction() -> None:
    """Copied in one partition, behind the cut of another one: torn, whatever the clocks say."""
    here = PartitionSpans(A, 10, [new(3, 5, 4, at_ms=5)])
    there = PartitionSpans(B, 20, [new(20, 24, 4, at_ms=900_000)])
    assert shape(torn([here, there])) == [(True, ["t:0 3 to 5"], ["t:1 20 to 24"])]


def test_the_next_epoch_is_another_transaction() -> None:
    """The near miss: both lie around the same moment, and were two."""
    here = PartitionSpans(A, 10, [new(3, 5, 4)])
    there = PartitionSpans(B, 20, [new(20, 24, 5)])
    assert torn([here, there]) == []


def test_what_was_aborted_is_lost_to_nobody() -> None:
    here = PartitionSpans(A, 10, [old(3, 5, 100, state=ABORTED)])
    there = PartitionSpans(B, 20, [old(20, 24, 100, state=ABORTED)])
    assert torn([here, there]) == []


def test_older_clients_may_have_torn_one() -> None:
    """Two spans with nothing between them may be one transaction: nobody can tell, so it is said."""
    here = PartitionSpans(A, 10, [old(3, 5, 100)])
    there = PartitionSpans(B, 20, [old(20, 24, 105)])
    assert shape(torn([here, there])) == [(False, ["t:0 3 to 5"], ["t:1 20 to 24"])]


def test_the_order_tells_older_transactions_apart() -> None:
    """Another one of the producer's has ended in between, beyond what clocks may differ by."""
    gap_ms = 3 * SKEW_MS
    here = PartitionSpans(A, 10, [old(3, 5, 0), old(6, 8, gap_ms)])
    there = PartitionSpans(B, 20, [old(9, 11, 2 * gap_ms), old(20, 24, 3 * gap_ms)])
    assert torn([here, there]) == []


def test_markers_that_came_after_a_crash_are_still_found() -> None:
    """One broker has written its end hours later: with nothing else in between it may be the same one."""
    here = PartitionSpans(A, 10, [old(3, 5, 100)])
    there = PartitionSpans(B, 20, [old(20, 24, 7_200_000)])
    assert shape(torn([here, there])) == [(False, ["t:0 3 to 5"], ["t:1 20 to 24"])]


def test_a_cut_in_the_middle_of_a_partition_tears_for_certain() -> None:
    here = PartitionSpans(A, 10, [old(3, 15, 100)])
    assert shape(torn([here])) == [(True, ["t:0 3 to 9"], ["t:0 10 to 15"])]


def test_a_part_that_is_open_may_be_torn() -> None:
    """A coordinator was lost between two markers: one part counts, of the other one nobody knows yet."""
    (found,) = torn([PartitionSpans(A, 10, [new(3, 5, 4)]), PartitionSpans(B, 20, [open_span(20, 20, 4)])])
    assert (found.certain, found.is_open) == (True, True)
    assert "may be torn" in found.describe()


def test_other_producers_have_nothing_to_do_with_it() -> None:
    here = PartitionSpans(A, 10, [old(3, 5, 100, pid=7)])
    there = PartitionSpans(B, 20, [old(20, 24, 100, pid=8)])
    assert torn([here, there]) == []


def test_the_coordinators_name_is_told_where_it_is_known() -> None:
    found = torn([PartitionSpans(A, 10, [new(3, 5, 4)]), PartitionSpans(B, 20, [new(20, 24, 4)])])
    assert [each.name for each in named(found, {7: "billing"})] == ["billing (producer id 7, epoch 4)"]
    assert [each.name for each in named(found, {8: "billing"})] == ["producer id 7, epoch 4"]


@dataclass
class History:
    """Transactions of some producers, one after the other for each, and what of them the logs hold."""

    parts: dict[TopicPartition, list[TransactionSpan]] = field(default_factory=dict)
    # Of each committed transaction: its spans, by partition.
    truth: list[dict[TopicPartition, TransactionSpan]] = field(default_factory=list)

    def looks(self, cuts: dict[TopicPartition, int]) -> list[PartitionSpans]:
        return [PartitionSpans(tp, cuts[tp], spans) for tp, spans in self.parts.items()]

    def torn(self, cuts: dict[TopicPartition, int]) -> list[dict[TopicPartition, TransactionSpan]]:
        """Return the transactions that a cut has torn."""
        return [
            spans
            for spans in self.truth
            if any(s.first < cuts[tp] for tp, s in spans.items())
            and any(s.last >= cuts[tp] for tp, s in spans.items())
        ]


@st.composite
def histories(draw: st.DrawFn) -> tuple[History, bool]:
    """Draw a history, and whether its clients know transaction version 2."""
    modern = draw(st.booleans())
    partitions = [A, B, C][: draw(st.integers(1, 3))]
    # Each leader has a clock of its own.
    clocks = {tp: draw(st.integers(0, SKEW_MS)) for tp in partitions}
    history = History({tp: [] for tp in partitions})
    ends = dict.fromkeys(partitions, 0)
    epochs = {7: 0, 8: 3}
    now_ms = 10_000
    for _ in range(draw(st.integers(0, 12))):
        pid = draw(st.sampled_from([7, 8]))
        written = draw(st.lists(st.sampled_from(partitions), min_size=1, max_size=3, unique=True))
        state = draw(st.sampled_from([COMMITTED, COMMITTED, ABORTED]))
        # Some end at once, some wait for a broker that comes back.
        waits = {tp: draw(st.sampled_from([0, 3, 60_000])) for tp in written}
        now_ms += draw(st.sampled_from([0, 1, 20, 5_000]))
        spans = {}
        for tp in written:
            count = draw(st.integers(1, 4))
            marker = epochs[pid] + 1 if modern else epochs[pid]
            at_ms = now_ms + waits[tp] + clocks[tp]
            first = ends[tp]
            spans[tp] = TransactionSpan(pid, epochs[pid], first, first + count - 1, state, at_ms, marker)
            history.parts[tp].append(spans[tp])
            # The marker takes an offset, too.
            ends[tp] += count + 1
        if state is COMMITTED:
            history.truth.append(spans)
        # The coordinator lets nothing begin before all markers are written.
        now_ms += max(waits.values())
        epochs[pid] += 1 if modern else draw(st.sampled_from([0, 0, 0, 1]))
    return history, modern


@given(histories(), st.lists(st.integers(0, 40), min_size=3, max_size=3))
def test_no_torn_transaction_is_left_out(drawn: tuple[History, bool], at: list[int]) -> None:
    """Wherever the cuts lie; and what is told for certain was torn."""
    history, modern = drawn
    cuts = dict(zip([A, B, C], at, strict=True))
    found, truth = torn(history.looks(cuts)), history.torn(cuts)
    for spans in truth:
        assert any(_covers(each, spans, cuts) for each in found), (spans, found)
    for each in found:
        if each.certain:
            assert any(_is(each, spans, cuts) for spans in truth), (each, truth)
    if modern:
        assert all(each.certain for each in found)
        assert len(found) == len(truth)


def _offsets(each: TornTransaction) -> set[tuple[TopicPartition, int]]:
    return {(s.partition, n) for s in (*each.copied, *each.left) for n in (s.first, s.last)}


def _covers(
    each: TornTransaction, spans: dict[TopicPartition, TransactionSpan], cuts: dict[TopicPartition, int]
) -> bool:
    """Tell whether a part of it that was copied, and one that was not, are both named."""
    one = next(iter(spans.values()))
    if (each.producer_id, each.epoch) != (one.producer_id, one.epoch):
        return False
    copied = {s.partition: (s.first, s.last) for s in each.copied}
    left = {s.partition: (s.first, s.last) for s in each.left}
    before = {tp: s for tp, s in spans.items() if s.first < cuts[tp]}
    behind = {tp: s for tp, s in spans.items() if s.last >= cuts[tp]}
    return all(tp in copied and copied[tp][0] <= s.first for tp, s in before.items()) and all(
        tp in left and s.last <= left[tp][1] for tp, s in behind.items()
    )


def _is(
    each: TornTransaction, spans: dict[TopicPartition, TransactionSpan], cuts: dict[TopicPartition, int]
) -> bool:
    return _covers(each, spans, cuts) and {tp for tp, _ in _offsets(each)} <= spans.keys()


@pytest.mark.parametrize("gap_ms", [0, SKEW_MS])
def test_clocks_that_differ_hide_nothing(gap_ms: int) -> None:
    """The end in one partition looks older than the end of the one before it in the other."""
    here = PartitionSpans(A, 10, [old(1, 2, 1000), old(3, 5, 1010)])
    there = PartitionSpans(B, 20, [old(20, 24, 1000 - gap_ms)])
    assert any("t:0 " in str(s) and s.last == 5 for each in torn([here, there]) for s in each.copied)
