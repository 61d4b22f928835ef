"""The index is a hint: deleted, damaged, outdated or shared, its answers stay those of the topic (G4)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from onceover.errors import Retriable, UsageError
from onceover.kafka.each import Each
from onceover.positions.index import FOLDER, MapIndex
from onceover.positions.reader import Chunk, MapChanged, MapTopic, Point
from onceover.positions.store import MapStore
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.session.wait import wait_until
from tests.unit.positions.maplog import MapLog
from tests.unit.positions.mapwriter import copied
from tests.unit.positions.test_store import PAIR, assert_answers


class FakeTopic:
    """The map topic as a model plays it; every answer brings three records."""

    def __init__(self, log: MapLog) -> None:
        self.log = log
        self.topic_id: UUID = uuid4()
        self.info = SimpleNamespace(partitions={0: None})
        self.reads: list[int] = []
        self.same_log = True

    def each_bounds(self, partitions: list[int], *, settled: bool = False) -> Each[int, tuple[int, int]]:
        return Each(dict.fromkeys(partitions, (self.log.log_start, self.log.next_offset)))

    def holds(self, partition: int, point: Point) -> bool:
        return self.same_log

    def read(self, points: Mapping[int, Point], ends: Mapping[int, int], **_: object) -> Iterator[Chunk]:
        at = points[0].offset
        if at and not self.same_log:
            raise MapChanged(0)
        self.reads.append(at)
        while at < ends[0]:
            found = [e for e in self.log.entries if e.offset >= at][:3]
            at = found[-1].offset + 1 if len(found) == 3 else ends[0]
            yield Chunk(0, found, at, 0)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    topic = FakeTopic(copied())
    monkeypatch.setattr(MapTopic, "find", lambda _cluster, _flow: topic)
    return topic


def opened(home: Path | None) -> MapIndex:
    index = MapIndex(FakeCluster(), "flow", home)
    index.refresh()
    return index


def check(index: MapIndex, topic: FakeTopic) -> None:
    assert index.store is not None
    assert_answers(topic.log, index.store)


def files(home: Path) -> list[Path]:
    return sorted((home / FOLDER).iterdir())


@pytest.mark.parametrize("kept", [True, False])
def test_only_what_is_new_is_read_where_there_is_a_home(tmp_path: Path, topic: FakeTopic, kept: bool) -> None:
    home = tmp_path if kept else None
    opened(home).close()
    topic.log.transaction([True], 1)
    with opened(home) as index:
        check(index, topic)
    # From the last record that is known, by which the log is known again.
    assert topic.reads == ([0, 9] if kept else [0, 0])


def test_a_deleted_index_is_built_anew(tmp_path: Path, topic: FakeTopic) -> None:
    opened(tmp_path).close()
    shutil.rmtree(tmp_path / FOLDER)
    with opened(tmp_path) as index:
        check(index, topic)


def test_an_index_deleted_while_it_is_open_is_built_anew(tmp_path: Path, topic: FakeTopic) -> None:
    with opened(tmp_path) as index:
        shutil.rmtree(tmp_path / FOLDER)
        topic.log.transaction([True], 1)
        index.refresh()
        check(index, topic)


@pytest.mark.parametrize("content", [b"", b"no database, and rather long" * 200])
def test_a_damaged_file_is_built_anew(
    tmp_path: Path, topic: FakeTopic, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    opened(tmp_path).close()
    (path,) = files(tmp_path)
    path.write_bytes(content)
    with opened(tmp_path) as index:
        check(index, topic)
    assert ("is built anew" in caplog.text) == bool(content)
    assert len(files(tmp_path)) == 1


def test_another_topic_of_the_same_name_has_another_file(tmp_path: Path, topic: FakeTopic) -> None:
    with opened(tmp_path) as index:
        before = files(tmp_path)
        topic.topic_id, topic.log = uuid4(), copied(3)
        index.refresh()
        check(index, topic)
        assert len(files(tmp_path)) == 1
        assert files(tmp_path) != before


def test_another_log_of_the_same_topic_is_read_from_its_start(tmp_path: Path, topic: FakeTopic) -> None:
    """After an unclean election the topic may hold less, or something else."""
    with opened(tmp_path) as index:
        topic.log = copied(4)
        topic.same_log = False
        index.refresh()
        check(index, topic)
    assert topic.reads == [0, 0]


@pytest.mark.parametrize("more", [0, 1, 4])
def test_a_log_that_was_put_back_and_has_grown_past_the_index_is_read_from_its_start(
    tmp_path: Path, topic: FakeTopic, more: int
) -> None:
    """Its leader epochs are the same ones again; the index of an older log answers for none of it (G4)."""
    opened(tmp_path).close()
    topic.log = copied(6)
    for _ in range(4 + more):
        topic.log.transaction([False, True], 2)
    with opened(tmp_path) as index:
        check(index, topic)
    assert topic.reads == [0, 9, 0]


def test_records_where_none_were_behind_the_last_one_are_another_log(
    tmp_path: Path, topic: FakeTopic
) -> None:
    """The log was put back to just behind the last record that is known, which is there as before."""
    topic.log.next_offset += 4  # aborted
    opened(tmp_path).close()
    topic.log.next_offset -= 3
    for _ in range(3):
        topic.log.transaction([True], 1)
    with opened(tmp_path) as index:
        check(index, topic)


def test_an_index_whose_last_record_was_compacted_is_built_anew(tmp_path: Path, topic: FakeTopic) -> None:
    opened(tmp_path).close()
    topic.log.merge(30)
    topic.log.compact(tombstones=True)
    with opened(tmp_path) as index:
        check(index, topic)


def test_a_log_that_is_as_it_was_is_read_from_its_last_record_and_kept(
    tmp_path: Path, topic: FakeTopic
) -> None:
    topic.log.merge(30)
    opened(tmp_path).close()
    last = max(entry.offset for entry in topic.log.entries if entry.record is not None)
    for _ in range(2):
        with opened(tmp_path) as index:
            check(index, topic)
    assert topic.reads == [0, last, last]


def test_a_log_that_changes_again_and_again_is_given_up(tmp_path: Path, topic: FakeTopic) -> None:
    def changed(*_: object, **__: object) -> Iterator[Chunk]:
        raise MapChanged(0)

    topic.read = changed  # pyrefly: ignore[method-assign]
    with pytest.raises(Retriable, match="changes again and again"):
        opened(tmp_path)


def test_an_index_older_than_the_topics_start_begins_there(tmp_path: Path, topic: FakeTopic) -> None:
    opened(tmp_path).close()
    for _ in range(5):
        topic.log.transaction([True], 1)
    topic.log.expire(12)
    with opened(tmp_path) as index:
        check(index, topic)
    assert topic.reads == [0, 12]


def test_two_that_read_at_once_share_one_file(tmp_path: Path, topic: FakeTopic) -> None:
    with opened(tmp_path) as first, opened(tmp_path) as second:
        for _ in range(7):
            topic.log.transaction([True, True], 1)
        steps = first.refreshing()
        next(steps)
        second.refresh()
        for _ in steps:
            pass
        check(first, topic)
        check(second, topic)
        assert len(files(tmp_path)) == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, topic: FakeTopic) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    with pytest.raises(UsageError, match="cannot be kept") as caught:
        opened(tmp_path)
    assert str(tmp_path) in (caught.value.where or "")


def test_a_folder_in_the_file_s_place_is_named(tmp_path: Path, topic: FakeTopic) -> None:
    opened(tmp_path).close()
    (path,) = files(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match="cannot be kept") as caught:
        opened(tmp_path)
    assert caught.value.code == "INDEX_UNUSABLE"
    assert str(path) in (caught.value.seen or "")


def test_a_flow_without_a_map_has_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MapTopic, "find", lambda _cluster, _flow: None)
    with opened(tmp_path) as index:
        assert index.store is None


def test_a_process_killed_while_it_writes_leaves_a_sound_file(tmp_path: Path) -> None:
    """kill -9; whoever comes next goes on where it was, and has what one has that was never disturbed."""
    log, store, undisturbed = copied(200), MapStore(tmp_path / "store"), MapStore(None)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.positions.mapwriter", str(tmp_path / "store")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        wait_until(lambda: store.point(0), 60, "it writes")
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    log.feed(store, 7)
    log.feed(undisturbed, 200)
    assert list(undisturbed.records(PAIR)) == list(store.records(PAIR))
    store.close()
    undisturbed.close()
