"""Signs of life: only a drill's own ones count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.drills import journal as journals
from onceover.drills.journal import ALIVE, DrillJournal
from onceover.errors import Retriable
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


@pytest.mark.parametrize(("signs", "is_alive"), [([3, 3, 3, 4], True), ([3] * 20, False)])
def test_while_the_journal_does_not_answer_nobody_is_silent(
    monkeypatch: pytest.MonkeyPatch, signs: list[int], *, is_alive: bool
) -> None:
    """Its leader was away for 10 s, for the drill, too: all of the time begins behind that."""
    clock, looks = [100.0], iter(enumerate(signs))
    monkeypatch.setattr("onceover.backoff.time.monotonic", lambda: clock[0])

    def pause(seconds: float) -> bool:
        clock[0] += seconds
        return False

    def values() -> dict[str, Any]:
        number, count = next(looks)
        # The first look behind the pause.
        clock[0] += 10.0 if number == 1 else 0.01
        return {ALIVE: sign("d2", count)}

    journal = DrillJournal(LiveCluster(cast(Any, None)), "orders-dr", 1, Path("nowhere"), pause)
    monkeypatch.setattr(journal, "_values", values)
    assert journal.is_alive("d2") == is_alive
    assert clock[0] < 100.0 + 10.0 + 2 * journals.SILENT_S


def test_a_journal_that_is_slow_at_every_look_keeps_no_dead_one_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr("onceover.backoff.time.monotonic", lambda: clock[0])

    def values() -> dict[str, Any]:
        clock[0] += 5.0
        return {ALIVE: sign("d2", 3)}

    journal = DrillJournal(LiveCluster(cast(Any, None)), "orders-dr", 1, Path("nowhere"), lambda _: False)
    monkeypatch.setattr(journal, "_values", values)
    assert not journal.is_alive("d2")
    assert clock[0] < 200.0


class Clocks:
    """Both clocks, and a target that takes signs until it is away."""

    steady_s, wall_s, is_away = 100.0, 1e9, False

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told = SimpleNamespace(monotonic=lambda: self.steady_s, time=lambda: self.wall_s)
        monkeypatch.setattr(journals, "time", told)
        monkeypatch.setattr(journals, "NoteWriter", lambda *_: self)

    def write(self, *_: object) -> None:
        if self.is_away:
            raise Retriable("no broker of west answers")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("steady_s", "wall_s", "holds"),
    [(5.0, 5.0, True), (7.0, 7.0, False), (1.0, 600.0, False), (7.0, -60.0, False)],
)
def test_a_drill_is_ours_without_asking_only_while_its_last_sign_is_young(
    monkeypatch: pytest.MonkeyPatch, steady_s: float, wall_s: float, *, holds: bool
) -> None:
    """A machine that slept does not know it by the one clock, one whose time was set not by the other."""
    clocks = Clocks(monkeypatch)
    target = cast(Any, SimpleNamespace(another=lambda: clocks))
    beats = DrillJournal(target, "orders-dr", 1, Path("nowhere"), lambda _: False)
    assert not beats.holds("d2")
    heart = beats.heartbeat("d2")
    # One round, and no thread of its own.
    heart._over = cast(Any, SimpleNamespace(is_set=iter([False, True] * 2).__next__, wait=lambda _: None))
    assert not beats.holds("d2")
    heart._beat()
    assert beats.holds("d2")
    assert not beats.holds("d1")
    clocks.steady_s, clocks.wall_s, clocks.is_away = clocks.steady_s + steady_s, clocks.wall_s + wall_s, True
    heart._beat()
    assert beats.holds("d2") == holds


def test_nobody_is_dead_before_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks is asked to stop."""
    assert alive(monkeypatch, forever(sign("d2", 3)), stops=True)
