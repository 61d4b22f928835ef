"""Looking at single records, in any order of questions, with little reading."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from onceover.audit.model import Reason, Side
from onceover.audit.records import lookup
from onceover.audit.records.batches import TooLarge, Unreadable
from onceover.audit.records.lookup import Lookup
from onceover.audit.records.reader import Gone, ReadBatch, Stretch
from onceover.audit.records.recordhash import AuditedRecord
from onceover.audit.records.refusals import NotThere
from tests.support.worlds.audits import at
from tests.support.worlds.looks import rec

# Batches of ten offsets: every third offset has no record, every fourth batch was aborted.
_END = 200
_VISIBLE = [o for o in range(_END) if o % 3 and (o // 10) % 4 != 3]


class Log:
    """One partition of both clusters, read batch by batch."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.opened: list[int] = []
        self.closed = 0

    def read_batches(self, cluster: Any, stretch: Stretch, *, fetch_bytes: int) -> Iterator[ReadBatch]:
        """Yield the batches that touch the stretch."""
        self.opened.append(stretch.start)
        if stretch.start < self.start:
            raise Gone("retention", Reason.RETENTION)
        try:
            assert stretch.end <= _END, "nobody answers what is behind the end"
            for base in range(stretch.start // 10 * 10, stretch.end, 10):
                yield ReadBatch(_batch(base), (base // 10) % 4 == 3)
        finally:
            self.closed += 1

    alias = "east"

    def retry(self, ask: Any) -> Any:
        """Ask once, as a cluster does that is there."""
        return ask()

    def list_offsets(self, tps: list[Any], what: int) -> dict[Any, int]:
        """Return where the log begins (-2) or ends."""
        return dict.fromkeys(tps, self.start if what == -2 else _END)

    def topics(self, names: list[str]) -> dict[str, Any]:
        """Return the topic."""
        return {name: SimpleNamespace(topic_id=UUID(int=1)) for name in names}


def _batch(base: int) -> Any:
    def decode(*, timed: bool, record_bytes: int) -> Iterator[AuditedRecord]:
        assert timed and record_bytes
        return (rec(offset, str(offset)) for offset in range(base, base + 10) if offset % 3)

    return SimpleNamespace(base_offset=base, last_offset=base + 9, size_bytes=1000, decode=decode)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log that is there from its beginning."""
    made = Log()
    monkeypatch.setattr(lookup, "read_batches", made.read_batches)
    return made


def _look(log: Log) -> Lookup:
    clusters: Any = {side: log for side in Side}
    return Lookup(clusters)


def _offset(record: AuditedRecord | None) -> int | None:
    return None if record is None else record.offset


@pytest.mark.parametrize("seed", range(5))
def test_questions_in_any_order_are_answered_alike(log: Log, seed: int) -> None:
    """What was fetched for one question never answers another one wrongly."""
    chance = random.Random(seed)
    with _look(log) as look:
        for _ in range(200):
            offset = chance.randrange(_END + 5)
            expected = next((o for o in _VISIBLE if o >= offset), None)
            assert _offset(look.first(Side.TARGET, at(0), offset)) == expected


def test_rising_questions_share_what_is_read(log: Log) -> None:
    """One reading for all that lies close together; nothing stays open."""
    with _look(log) as look:
        for offset in range(0, 180, 4):
            look.first(Side.SOURCE, at(0), offset)
        assert len(log.opened) == 1
    assert log.closed == 1


@pytest.mark.parametrize("offset", [0, 1, 2, 31, 40, 44, 199, 200, 260])
def test_last_record_before_an_offset(log: Log, offset: int) -> None:
    """Gaps and aborted batches are passed over backwards, too; what is behind the end, as well."""
    expected = next((o for o in reversed(_VISIBLE) if o < offset), None)
    with _look(log) as look:
        assert _offset(look.last_before(Side.TARGET, at(0), offset)) == expected


def test_log_that_begins_later_has_nothing_to_show(log: Log) -> None:
    """Retention took it: nothing is guessed from what follows."""
    log.start = 50
    with _look(log) as look:
        assert look.first(Side.SOURCE, at(0), 20) is None
        assert _offset(look.first(Side.SOURCE, at(0), 50)) == 50
        assert look.last_before(Side.SOURCE, at(0), 50) is None


def test_what_cannot_be_read_is_no_answer_and_is_looked_at_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage must not look like "no record": the same question is refused each time, others are answered."""
    read = log.read_batches

    def damaged(cluster: Any, stretch: Stretch, *, fetch_bytes: int) -> Iterator[ReadBatch]:
        for each in read(cluster, stretch, fetch_bytes=fetch_bytes):
            if each.batch.base_offset == 50:
                raise Unreadable("a record batch cannot be read")
            yield each

    monkeypatch.setattr(lookup, "read_batches", damaged)
    look = Lookup({Side.SOURCE: log, Side.TARGET: log})  # pyrefly: ignore[bad-assignment]
    before = look.first(Side.SOURCE, at(0), 44)
    for _ in range(2):
        with pytest.raises(Unreadable):
            look.first(Side.SOURCE, at(0), 51)
    behind = look.first(Side.SOURCE, at(0), 62)
    assert before is not None and behind is not None
    assert (before.offset, behind.offset) == (44, 62)


def test_a_batch_whose_records_are_too_many_to_keep_is_refused(log: Log) -> None:
    """They are kept together while they are looked at."""
    look = Lookup({Side.SOURCE: log, Side.TARGET: log}, batch_bytes=2_000)  # pyrefly: ignore[bad-assignment]
    with pytest.raises(TooLarge):
        look.first(Side.SOURCE, at(0), 1)


def test_no_record_is_looked_at_of_a_topic_that_was_made_anew_meanwhile(log: Log) -> None:
    """Its records are none of those that were copied; nor is one that is gone waited for."""
    clusters: Any = {side: log for side in Side}
    meant = {(Side.SOURCE, at(0).topic): UUID(int=2), (Side.TARGET, at(0).topic): UUID(int=1)}
    look = Lookup(clusters, ids=meant)
    asks: list[Callable[[Side], object]] = [
        lambda side: look.begins(side, at(0)),
        lambda side: look.first(side, at(0), 4),
        lambda side: look.last_before(side, at(0), 4),
    ]
    for ask in asks:
        assert ask(Side.TARGET) is not None
        with pytest.raises(NotThere, match="any more"):
            ask(Side.SOURCE)
