"""The store answers as the model says, whatever has become of the topic; never a guess (G7)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceover.positions.reader import Chunk, Point
from onceover.positions.store import MapStore, PairRow, StoreDamaged
from onceover.wire.offsetlookup import NotCovered, Translated, Translation, translate, translate_back
from tests.support.session.examples import examples
from tests.unit.positions.maplog import SOURCE, TARGET, MapLog

PAIR = PairRow(1, SOURCE, TARGET)

KEPT = st.lists(st.booleans(), min_size=1, max_size=6)
COPY = st.tuples(KEPT, st.integers(0, 2)).map(lambda drawn: lambda log, _: log.transaction(*drawn))
MERGE = st.tuples(st.sampled_from([1, 4, 30]), st.lists(st.tuples(KEPT, st.integers(0, 2)), max_size=3)).map(
    lambda drawn: lambda log, _: log.merge(*drawn)
)
STEPS = st.one_of(
    COPY,
    COPY,
    COPY,
    st.integers(-12, 6).map(lambda move: lambda log, _: log.start(move)),
    MERGE,
    MERGE,
    st.booleans().map(lambda gone: lambda log, _: log.compact(tombstones=gone)),
    st.integers(1, 6).map(lambda count: lambda log, _: log.expire(count)),
    st.integers(1, 5).map(lambda size: lambda log, store: log.feed(store, size)),
)
Step = Callable[[MapLog, MapStore], None]


def answer(translation: Translation) -> int | None:
    return translation.offset if isinstance(translation, Translated) else None


def lookup(store: MapStore, offset: int, *, back: bool) -> int | None:
    records = store.around(PAIR, offset, back=back)
    return answer((translate_back if back else translate)(records, offset))


def assert_answers(log: MapLog, store: MapStore) -> None:
    last = max(log.fates, default=0) + 3
    assert [log.forwards(o) for o in range(last)] == [lookup(store, o, back=False) for o in range(last)]
    targets = range(log.end + 3)
    assert [log.backwards(o) for o in targets] == [lookup(store, o, back=True) for o in targets]


@settings(max_examples=examples(40))
@given(st.lists(STEPS, max_size=30))
def test_a_store_kept_up_to_date_answers_as_the_model(steps: list[Step]) -> None:
    """Also over restarts that missed merges whose tombstones are gone by now."""
    log, store = MapLog(), MapStore(None)
    for step in steps:
        step(log, store)
    log.feed(store, 3)
    assert_answers(log, store)
    store.close()


@settings(max_examples=examples(40))
@given(st.lists(STEPS, max_size=30))
def test_a_store_built_at_once_and_a_plain_reader_answer_as_the_model(steps: list[Step]) -> None:
    log, unused, store = MapLog(), MapStore(None), MapStore(None)
    for step in steps:
        step(log, unused)
    log.feed(store, 1000)
    assert_answers(log, store)
    records = log.arranged()
    for offset in range(max(log.fates, default=0) + 3):
        assert log.forwards(offset) == answer(translate(records, offset))
    for offset in range(log.end + 3):
        assert log.backwards(offset) == answer(translate_back(records, offset))
    unused.close()
    store.close()


@settings(max_examples=examples(30))
@given(st.lists(COPY, min_size=2, max_size=12), st.data())
def test_a_reader_in_the_middle_of_a_merge_sees_either_form(steps: list[Step], data: st.DataObject) -> None:
    log, store = MapLog(), MapStore(None)
    for step in steps:
        step(log, store)
    before = log.next_offset
    log.merge(30)
    cut = data.draw(st.integers(before, log.next_offset))
    log.entries = [entry for entry in log.entries if entry.offset < cut]
    log.feed(store, 2)
    assert_answers(log, store)
    store.close()


@settings(max_examples=examples(30))
@given(st.lists(KEPT, min_size=2, max_size=8), st.data())
def test_a_merge_beside_lanes_that_copy_again_takes_none_of_their_records(
    transactions: list[list[bool]], data: st.DataObject
) -> None:
    """They write keys that older records have; the merge was planned before they did."""
    log, store, starts = MapLog(), MapStore(None), []
    for kept in transactions:
        starts.append(log.source)
        log.transaction(kept, 1)
    log.start(data.draw(st.sampled_from(starts)) - log.source)
    log.merge(30, beside=[(kept, 1) for kept in transactions[-2:]])
    log.feed(store, 3)
    assert_answers(log, store)
    store.close()


def copied(path: Path | None, transactions: int = 20) -> tuple[MapLog, MapStore]:
    log, store = MapLog(), MapStore(path)
    for _ in range(transactions):
        log.transaction([True, True, False], 1)
    log.feed(store, 5)
    return log, store


def test_another_process_goes_on_where_this_one_was(tmp_path: Path) -> None:
    log, first = copied(tmp_path / "a")
    second = MapStore(tmp_path / "a")
    log.transaction([True], 1)
    log.feed(second, 5)
    assert_answers(log, first)
    assert first.pairs() == second.pairs() == [PAIR]
    first.close()
    second.close()


def test_a_chunk_that_follows_another_point_changes_nothing(tmp_path: Path) -> None:
    """Two processes have read the same: the slower one is told so."""
    log, store = copied(tmp_path / "a")
    at = store.point(0)
    assert at == Point(20, 0)
    stale = Chunk(0, log.entries[:1], 1, 0)
    assert not store.apply(stale, None)
    assert at == store.point(0)
    assert_answers(log, store)
    store.close()


def test_a_changed_row_is_noticed_and_not_answered_from(tmp_path: Path) -> None:
    _, store = copied(tmp_path / "a")
    store.close()
    with sqlite3.connect(tmp_path / "a") as direct:
        direct.execute("UPDATE record SET source_end = source_end + 1 WHERE source_start = 9")
    direct.close()
    again = MapStore(tmp_path / "a")
    assert lookup(again, 3, back=False) is not None
    with pytest.raises(StoreDamaged, match="is not what was written"):
        lookup(again, 10, back=False)
    again.close()


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 30])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(StoreDamaged):
        MapStore(tmp_path / "a")


def test_what_falls_out_of_the_topic_is_not_covered() -> None:
    log, store = copied(None)
    log.expire(5)
    log.feed(store, 5)
    assert store.span(PAIR) == (15, 60, 14, 59)
    assert lookup(store, 14, back=False) is None
    assert lookup(store, 15, back=False) == 14
    store.close()


def test_without_records_nothing_is_covered() -> None:
    store = MapStore(None)
    assert store.pairs() == []
    assert store.span(PAIR) is None
    assert translate(store.around(PAIR, 3, back=False), 3) == NotCovered(None, None)
    store.close()
