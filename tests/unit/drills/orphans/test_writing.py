"""Orphans are written in transactions that wait for nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onceover.drills.orphans import exporttopic
from onceover.drills.orphans.exporttopic import OrphanOrigin, OrphanTopic, OrphanWriter, SourceUnread
from onceover.errors import Retriable
from onceover.model import TopicPartition
from onceover.wire.batches.records import DecodedRecord

ORIGIN = OrphanOrigin("id", TopicPartition("a", 0))


class Producer:
    """Takes note of what is asked of it, among what else happens."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def send(self, _: object) -> None:
        self._events.append("send")

    def drain(self) -> None: ...

    def commit(self) -> None:
        self._events.append("commit")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a transaction hold two records, each in a batch of its own."""
    monkeypatch.setattr(exporttopic, "OWN_BATCH_BYTES", 1)
    size = exporttopic._size(DecodedRecord(0, 0, b"k", b"v"))
    monkeypatch.setattr(exporttopic, "_COMMIT_BYTES", 2 * size)
    found: list[str] = []
    monkeypatch.setattr(exporttopic, "TransactionalProducer", lambda *_, **__: Producer(found))
    return found


def read(events: list[str], count: int) -> Iterator[DecodedRecord]:
    for offset in range(count):
        events.append("read")
        yield DecodedRecord(offset, 0, b"k", b"v")


def writer() -> OrphanWriter:
    target: Any = None
    return OrphanTopic(target, "f", "east", 1).writer()


def test_nothing_is_open_at_the_target_while_the_source_is_read(events: list[str]) -> None:
    told: list[int] = []
    assert writer().write(ORIGIN, read(events, 5), told.append) == 5
    is_open = False
    for event in events:
        assert not (is_open and event == "read")
        is_open = event == "send"
    assert (events.count("send"), told, is_open) == (5, [2, 2, 1], False)


def test_what_was_committed_stays_where_the_source_gives_no_more(events: list[str]) -> None:
    def broken() -> Iterator[DecodedRecord]:
        yield from read(events, 3)
        raise SourceUnread(Retriable("away"))

    told: list[int] = []
    with pytest.raises(SourceUnread):
        writer().write(ORIGIN, broken(), told.append)
    assert (told, events[-1]) == ([2], "commit")
