"""What was committed is counted once, whoever leads the flow and whatever upkeep does to the map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceover.metrics import catalogue as m
from onceover.metrics.counting import ReceiptCounts
from onceover.metrics.figures import Figures
from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord, Segment

SOURCE = TopicPartition("orders", 0)


def receipt(start: int, end: int, *, kept: int | None = None, **changes: Any) -> MapRecord:
    """Return what one transaction did: ``kept`` of the offsets from ``start`` to ``end`` are records."""
    count = end - start if kept is None else kept
    told: dict[str, Any] = {
        "source": SOURCE, "target": SOURCE, "source_start": start, "source_end": end, "target_start": start,
        "segments": (Segment(start, start, count),) if count else (), "bytes": 10 * count, "generation": 1,
        "lane": 0, "batch": 1, "attempt": 1, "begin_ms": 1, "commit_ms": end,
    }  # fmt: skip
    return MapRecord(**{**told, **changes})


def looked(
    counts: ReceiptCounts, position: int, *records: MapRecord, sources: Sequence[TopicPartition] = (SOURCE,)
) -> None:
    counts.stand_at(dict.fromkeys(sources, position))
    counts.count(records)
    counts.looked()


def told(counts: ReceiptCounts) -> dict[str, float]:
    """Return the counters of lane 0."""
    figures = Figures()
    counts.add_to(figures, "orders", 10)
    names = {
        "records": m.LANE_RECORDS,
        "bytes": m.LANE_BYTES,
        "fetched": m.LANE_FETCHED,
        "transactions": m.LANE_COMMITTED,
    }
    return {name: float(figures.samples(spec).get(("orders", "0"), 0)) for name, spec in names.items()}  # pyrefly: ignore[bad-argument-type]


def test_records_bytes_and_markers_are_counted() -> None:
    counts = ReceiptCounts()
    looked(counts, 0)
    looked(counts, 10, receipt(0, 4), receipt(4, 10, kept=5))
    assert told(counts) == {"records": 9, "bytes": 90, "fetched": 10, "transactions": 2}
    figures = Figures()
    counts.add_to(figures, "orders", 0)
    assert figures.samples(m.TOPIC_RECORDS) == {}, "more topics than the bound"


def test_what_upkeep_writes_again_is_not_counted_again() -> None:
    """Of receipts that were counted, and of those from before the first look."""
    counts = ReceiptCounts()
    looked(counts, 100)
    looked(counts, 110, receipt(0, 50), receipt(100, 104), receipt(104, 110), receipt(100, 110))
    looked(counts, 110, receipt(100, 110), receipt(60, 100))
    assert told(counts) == {"records": 10, "bytes": 100, "fetched": 10, "transactions": 2}


def test_what_was_committed_while_a_look_was_under_way_is_counted() -> None:
    """Positions are read before the map is: a receipt may be behind them already."""
    counts = ReceiptCounts()
    looked(counts, 0)
    looked(counts, 4, receipt(0, 4), receipt(4, 7))
    looked(counts, 9, receipt(7, 9))
    assert told(counts)["records"] == 9


def test_what_is_copied_again_after_a_position_was_taken_back_counts_again() -> None:
    """It is on the target twice then, because a person wanted that."""
    counts = ReceiptCounts()
    looked(counts, 0)
    looked(counts, 10, receipt(0, 10))
    looked(counts, 2)
    looked(counts, 10, receipt(2, 10, generation=2))
    assert told(counts) == {"records": 18, "bytes": 180, "fetched": 18, "transactions": 2}


def test_of_a_topic_that_was_copied_once_nothing_is_counted_that_upkeep_merges() -> None:
    """It left the filter before the first look, or behind it; one that has just come is counted."""
    gone, late = TopicPartition("gone", 0), TopicPartition("late", 0)
    counts = ReceiptCounts()
    looked(counts, 0, receipt(0, 500, source=gone, target=gone))
    looked(counts, 5, receipt(0, 5), receipt(0, 3, source=late, target=late, batch=2))
    looked(counts, 5, sources=(SOURCE, late))
    looked(counts, 5, receipt(0, 3, source=late, target=late), receipt(0, 500, source=gone, target=gone))
    assert told(counts) == {"records": 8, "bytes": 80, "fetched": 8, "transactions": 2}


def test_of_a_topic_that_leaves_the_filter_its_last_position_stays_known() -> None:
    left = TopicPartition("left", 0)
    counts = ReceiptCounts()
    looked(counts, 500, sources=(SOURCE, left))
    looked(counts, 0)
    looked(counts, 0, receipt(0, 500, source=left, target=left))
    assert told(counts)["records"] == 0


def test_a_transaction_with_receipts_in_several_places_is_one() -> None:
    """Of several partitions of the map, read one after the other, even by two looks."""
    other = TopicPartition("orders", 1)
    both = (SOURCE, other)
    counts = ReceiptCounts()
    looked(counts, 0, sources=both)
    told_first = (receipt(0, 5), receipt(5, 9), receipt(0, 5, source=other, target=other))
    looked(counts, 20, *told_first, sources=both)
    looked(counts, 20, receipt(5, 9, source=other, target=other), sources=both)
    assert told(counts)["transactions"] == 2
    assert told(counts)["records"] == 18


def test_a_source_offset_that_became_records_of_several_partitions_was_fetched_once() -> None:
    """As a handler does it."""
    counts = ReceiptCounts()
    looked(counts, 0)
    copies = [receipt(0, 6), receipt(0, 6, target=TopicPartition("orders", 1))]
    looked(counts, 6, *copies)
    assert told(counts) == {"records": 12, "bytes": 120, "fetched": 6, "transactions": 1}


def test_a_topic_that_is_copied_no_more_is_told_no_more() -> None:
    """And goes on where it was when it comes back; while nobody knows what is copied all are told."""
    other = TopicPartition("gone", 0)
    counts = ReceiptCounts()

    def topics(most: int = 10) -> dict[str, object]:
        figures = Figures()
        counts.add_to(figures, "orders", most)
        return {labels[1]: value for labels, value in figures.samples(m.TOPIC_RECORDS).items()}

    def look(positions: dict[TopicPartition, int], *records: MapRecord) -> None:
        counts.stand_at(positions)
        counts.count(records)
        counts.looked()

    look({SOURCE: 0, other: 0})
    look({SOURCE: 4, other: 3}, receipt(0, 4), receipt(0, 3, source=other, target=other))
    assert topics() == {"orders": 4, "gone": 3}
    look({SOURCE: 5}, receipt(4, 5))
    assert topics() == topics(most=1) == {"orders": 5}
    look({SOURCE: 5, other: 4}, receipt(3, 4, source=other, target=other))
    assert topics() == {"orders": 5, "gone": 4}
    assert told(counts)["records"] == 9
