"""A record of the map that nobody can read takes what it may have changed, and no more (G7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.errors import NeedsOperator
from onceover.kafka.each import Each
from onceover.model import TopicPartition
from onceover.positions.index import MapIndex
from onceover.positions.reader import Chunk, MapTopic, Point, Unread
from onceover.positions.store import MapStore
from onceover.positions.translate import UNREAD, _Question
from onceover.wire.offsetlookup import NotCovered, Translated, Translation
from onceover.wire.offsetmap import MapKey
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.positions.maplog import SOURCE, TARGET, MapLog
from tests.unit.positions.mapwriter import copied

DAMAGED = NeedsOperator("a record is damaged", code="MAP_UNREADABLE")
OTHER = MapKey(TopicPartition("others", 0), TARGET, 0)


def ours(start: int) -> MapKey:
    return MapKey(SOURCE, TARGET, start)


def fill(log: MapLog, keys: Mapping[int, MapKey | None], size: int = 3) -> MapStore:
    """Return a store of a log in which the records at some offsets, under these keys, cannot be read."""
    store, at = MapStore(None), None
    while (begin := at or Point(0)).offset < log.next_offset:
        end = min(begin.offset + size, log.next_offset)
        entries = [e for e in log.entries if begin.offset <= e.offset < end and e.offset not in keys]
        unread = [Unread(o, key, DAMAGED) for o, key in keys.items() if begin.offset <= o < end]
        assert store.apply(Chunk(0, entries, end, 0, unread), at)
        at = store.point(0)
    return store


def ask(store: MapStore, offset: int, *, back: bool = False) -> Translation | None:
    return _Question(SOURCE, TARGET, TARGET, offset, back, 0).ask(store)


@pytest.mark.parametrize("key", [None, OTHER], ids=["nobody", "another pair"])
def test_what_says_nothing_of_a_pair_takes_nothing_from_it(key: MapKey | None) -> None:
    log = copied(4)
    log.next_offset += 1
    log.transaction([True, True], 1)
    store = fill(log, {4: key})
    for offset in range(log.source + 1):
        assert ask(store, offset) == Translated(log.forwards(offset) or 0)
    assert [offset for _, offset, _ in store.unread()] == [4]
    store.close()


@given(st.integers(1, 9), st.integers(1, 4))
def test_what_cannot_be_read_is_not_covered_and_the_rest_is(lost: int, size: int) -> None:
    """Ten transactions of three offsets; one record of them is lost."""
    log = copied(10)
    store = fill(log, {lost: ours(3 * lost)}, size)
    for offset in range(31):
        answer = ask(store, offset)
        if 3 * lost < offset < 3 * lost + 3 or (offset == 3 * lost and lost < 9 and answer is None):
            assert isinstance(answer, NotCovered), offset
        elif isinstance(answer, Translated):
            assert answer.offset == log.forwards(offset), offset
        else:
            assert 3 * lost <= offset <= 3 * lost + 3, offset
    store.close()


@given(st.integers(1, 27))
def test_what_it_may_have_begun_again_is_not_covered_until_something_later_tells(start: int) -> None:
    """Ten transactions; then a record from an offset on that was copied before: of what, nobody knows."""
    log = copied(10)
    log.next_offset += 1
    store = fill(log, {10: ours(start)})
    for offset in range(start):
        assert ask(store, offset) == Translated(log.forwards(offset) or 0), offset
    assert all(not isinstance(ask(store, offset), Translated) for offset in range(start + 1, 31))
    behind = ask(store, 35, back=True)
    assert isinstance(behind, NotCovered) and behind.why == UNREAD
    log.transaction([True, True], 1)
    after = fill(log, {10: ours(start)})
    assert ask(after, 31) == Translated(log.forwards(31) or 0)
    assert isinstance(ask(after, 29), NotCovered)
    assert not isinstance(ask(after, log.end + 1, back=True), Translated)
    store.close()
    after.close()


def test_a_readable_record_under_the_same_key_takes_its_place() -> None:
    log = copied(3)
    store = fill(log, {2: ours(6)})
    assert isinstance(ask(store, 8), NotCovered)
    again = log.entries[2]._replace(offset=3)
    assert store.apply(Chunk(0, [again], 4, 0), store.point(0))
    assert ask(store, 8) == Translated(log.forwards(8) or 0)
    assert store.unread() == []
    store.close()


def test_one_that_is_left_out_leaves_with_the_log_and_its_partition() -> None:
    store = fill(copied(3), {2: None})
    store.expire(0, 3)
    assert store.unread() == []
    store.close()
    store = fill(copied(3), {2: None})
    store.forget(0)
    assert store.unread() == []
    store.close()


class _Topic:
    """Three records, of which the second cannot be read."""

    def __init__(self) -> None:
        self.topic_id = uuid4()
        self.info = SimpleNamespace(partitions={0: None})

    def each_bounds(self, partitions: list[int], *, settled: bool = False) -> Each[int, tuple[int, int]]:
        return Each(dict.fromkeys(partitions, (0, 3)))

    def holds(self, partition: int, point: Point) -> bool:
        return True

    def read(
        self, points: Mapping[int, Point], ends: Mapping[int, int], *, skip: bool, **_: object
    ) -> Iterator[Chunk]:
        assert skip
        at = points[0].offset
        entries = [e for e in copied(3).entries if e.offset >= at and e.offset != 1]
        yield Chunk(0, entries, 3, 0, [Unread(1, None, DAMAGED)] if at <= 1 else [])


def test_it_is_named_once_and_stops_only_those_who_need_the_whole_map(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    topic = _Topic()
    monkeypatch.setattr(MapTopic, "find", lambda *_: topic)
    for _ in range(2):
        with MapIndex(FakeCluster(), "f", tmp_path) as index:
            assert index.each_refresh() == {}
            with pytest.raises(NeedsOperator, match="cannot be read whole") as caught:
                index.refresh()
            assert caught.value.where == "__onceover.f.offsets:0, offset 1"
    assert caplog.text.count("partition 0 of it, offset 1") == 1
