"""What the page shows is kept fresh while somebody looks, and nobody waits for a cluster."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from onceover.errors import Retriable
from onceover_airflow.serving.board import FRESH_S, Board, Entries, ask_clusters
from tests.support.wait import wait_until

TIMEOUT_S = 20.0


class Clusters:
    """Answer when they are let."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = threading.Event()
        self.fault: Exception | None = None

    def read(self) -> Entries:
        self.asked += 1
        assert self.go_on.wait(TIMEOUT_S)
        if self.fault is not None:
            raise self.fault
        told: Mapping[str, Any] = {
            "flow": "orders",
            "lag_offsets": self.asked,
            "oldest_missing_s": None,
            "partitions": [],
        }
        return [told]


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clusters() -> Clusters:
    return Clusters()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clusters: Clusters, clock: Clock) -> Board:
    return Board(clusters.read, clock, lambda: 5)


def seen(board: Board) -> bool:
    return board.look().age_s is not None


def test_many_that_look_at_once_ask_once(board: Board, clusters: Clusters, clock: Clock) -> None:
    """Also while the answer takes long; what is fresh is not asked for again."""
    assert board.look().age_s is None
    assert board.look().entries == ()
    clusters.go_on.set()
    wait_until(lambda: seen(board), TIMEOUT_S, "an answer")
    clock.now_s += FRESH_S - 1
    look = board.look()
    assert (clusters.asked, look.age_s) == (1, FRESH_S - 1)
    clock.now_s += 1
    wait_until(lambda: board.look().entries[0]["lag_offsets"] == 2, TIMEOUT_S, "the next look")
    assert [sample.lag_offsets for sample in board.samples("orders")] == [1, 2]


def test_while_clusters_are_silent_the_last_look_is_shown_with_its_age(
    board: Board, clusters: Clusters, clock: Clock
) -> None:
    """Nobody waits."""
    clusters.go_on.set()
    wait_until(lambda: seen(board), TIMEOUT_S, "an answer")
    clusters.go_on.clear()
    clock.now_s += 1000
    assert board.look().age_s == 1000
    clusters.go_on.set()


def test_what_cannot_be_asked_is_said_until_it_can(board: Board, clusters: Clusters, clock: Clock) -> None:
    """And what was seen before stays."""
    clusters.go_on.set()
    wait_until(lambda: seen(board), TIMEOUT_S, "an answer")
    clusters.fault = Retriable("no memory")
    clock.now_s += FRESH_S
    wait_until(lambda: board.look().problem is not None, TIMEOUT_S, "the fault")
    look = board.look()
    assert (look.problem, look.entries[0]["flow"]) == ("no memory", "orders")
    clusters.fault = None
    clock.now_s += FRESH_S
    wait_until(lambda: board.look().problem is None, TIMEOUT_S, "it is over")


def test_the_child_finds_its_connections_and_nothing_of_airflow(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads every flow file; a fault in one is said in its entry."""
    (tmp_path / "bad.yaml").write_text("flow: bad\n")
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "planted")
    (told,) = ask_clusters(dict)
    assert (told["flow"], told["exit"], told["drills"]) == ("bad", 2, None)


def test_a_child_that_fails_is_told_with_its_last_words(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a directory that may not be read."""
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "onceover.py").write_text("raise SystemExit('broken on purpose')\n")
    with pytest.raises(Retriable, match="what asks the clusters has ended") as raised:
        ask_clusters(dict)
    assert "broken on purpose" in str(raised.value.seen)
