"""Signs of life: only a drill's own ones count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from onceover.drills import journal as journals
from onceover.drills.journal import ALIVE, DrillJournal
from onceover.kafka.cluster import LiveCluster


def alive(monkeypatch: pytest.MonkeyPatch, signs: Iterator[Any], *, stops: bool = False) -> bool:
    monkeypatch.setattr(journals, "SILENT_S", 0.3)
    journal = DrillJournal(LiveCluster(cast(Any, None)), "orders-dr", 1, Path("nowhere"), lambda _: stops)
    monkeypatch.setattr(journal, "_values", lambda: {ALIVE: next(signs)})
    return journal.is_alive("d2")


def sign(drill: str, count: Any) -> dict[str, Any]:
    return {"v": 1, "drill": drill, "count": count, "at_ms": 1}


def beating(drill: str) -> Iterator[Any]:
    count = 0
    while True:
        count += 1
        yield sign(drill, count)


def forever(value: Any) -> Iterator[Any]:
    while True:
        yield value


def test_one_that_beats_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sign changes while we look."""
    assert alive(monkeypatch, beating("d2"))


@pytest.mark.parametrize("value", [None, 7, sign("d2", 3), sign("d2", "x"), {"drill": "d2"}])
def test_one_that_does_not_is_dead(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    """Whatever it is that stays as it was."""
    assert not alive(monkeypatch, forever(value))


def test_one_that_was_taken_over_keeps_no_dead_one_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have woken, and does not know yet."""
    assert not alive(monkeypatch, beating("d1"))


def test_nobody_is_dead_before_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks is asked to stop."""
    assert alive(monkeypatch, forever(sign("d2", 3)), stops=True)
