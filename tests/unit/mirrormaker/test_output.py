"""The thread that writes MirrorMaker 2's records: nothing it meets reaches the copy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.mirrormaker.output import MirrorOutput, Round
from onceover.mirrormaker.records import MirrorSettings
from tests.support.session.wait import wait_until

_TIMEOUT_S = 10.0
_HOUR_S = 3600.0


def settings(
    *, checkpoints: bool = True, heartbeats: bool = False, interval_s: float = 60.0
) -> MirrorSettings:
    return MirrorSettings(checkpoints, False, heartbeats, interval_s, interval_s, str.isalpha)


class FakeRound:
    """Does what it is told, and counts."""

    def __init__(self, name: str, error: OnceoverError | None = None, pause_s: float = _HOUR_S) -> None:
        self.name = name
        self.error = error
        self.seen: list[MirrorSettings] = []
        self.closed = False
        self._pause_s = pause_s

    def wanted(self, settings: MirrorSettings) -> bool:
        return bool(getattr(settings, self.name))

    def run(self, settings: MirrorSettings) -> float:
        self.seen.append(settings)
        if self.error is not None:
            raise self.error
        return self._pause_s

    def close(self) -> None:
        self.closed = True


class Case:
    """An output over fake rounds, and the settings it is told."""

    def __init__(self, *rounds: FakeRound, opening: OnceoverError | None = None) -> None:
        self.settings = settings()
        self.rounds = rounds
        self.opening = opening
        self.output = MirrorOutput(lambda: self.settings, self.open)

    @contextmanager
    def open(self) -> Iterator[Sequence[Round]]:
        if self.opening is not None:
            raise self.opening
        yield self.rounds
        for each in self.rounds:
            each.close()

    def wait_for(self, number: int, what: FakeRound) -> None:
        wait_until(lambda: len(what.seen) >= number, _TIMEOUT_S, f"{what.name} has run {number} times")


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    assert "mirrormaker" not in [thread.name for thread in threading.enumerate()]


def test_nothing_wanted_starts_nothing() -> None:
    case = Case(FakeRound("checkpoints"))
    case.settings = settings(checkpoints=False)
    case.output.tick()
    assert "mirrormaker" not in [thread.name for thread in threading.enumerate()]
    case.output.finish()
    case.output.close()
    assert case.rounds[0].seen == []


def test_only_what_is_wanted_runs_and_what_is_switched_on_meanwhile_begins_at_once() -> None:
    checkpoints, heartbeats = FakeRound("checkpoints"), FakeRound("heartbeats")
    case = Case(checkpoints, heartbeats)
    case.output.tick()
    case.wait_for(1, checkpoints)
    assert heartbeats.seen == []
    case.settings = settings(heartbeats=True)
    case.output.tick()
    case.wait_for(1, heartbeats)
    case.output.close()
    assert heartbeats.seen[0] == case.settings
    assert checkpoints.closed


def test_a_round_runs_again_after_the_pause_it_names() -> None:
    case = Case(FakeRound("checkpoints", pause_s=0.01))
    case.output.tick()
    case.wait_for(3, case.rounds[0])
    case.output.close()


def test_the_end_of_a_run_is_written_once_more() -> None:
    """Whatever the interval is."""
    case = Case(FakeRound("checkpoints"))
    case.output.tick()
    case.wait_for(1, case.rounds[0])
    case.output.finish()
    assert len(case.rounds[0].seen) == 2
    assert case.rounds[0].closed
    case.output.close()


def test_what_a_person_has_to_resolve_is_a_remark_and_the_others_go_on() -> None:
    """Until it works again."""
    taken = NeedsOperator("topic x is there already", code="MIRROR_TOPIC_TAKEN", resolve="move it")
    broken, fine = FakeRound("checkpoints", taken), FakeRound("heartbeats")
    case = Case(broken, fine)
    case.settings = settings(heartbeats=True)
    case.output.tick()
    case.wait_for(1, fine)
    (remark,) = case.output.refused
    assert (remark.object, remark.code, remark.blocks) == (
        "mirrormaker.checkpoints",
        "MIRROR_TOPIC_TAKEN",
        False,
    )
    broken.error = None
    case.settings = settings(heartbeats=True, interval_s=1.0)
    case.output.tick()
    case.wait_for(2, broken)
    case.output.close()
    assert case.output.refused == []


def test_what_is_switched_off_is_no_remark_any_more() -> None:
    case = Case(FakeRound("checkpoints", NeedsOperator("no", code="NO")))
    case.output.tick()
    wait_until(lambda: case.output.refused, _TIMEOUT_S, "the remark")
    case.settings = settings(checkpoints=False)
    case.output.tick()
    wait_until(lambda: not case.output.refused, _TIMEOUT_S, "no remark")
    case.output.close()


def test_a_cluster_that_is_away_is_logged_once_and_no_remark(caplog: pytest.LogCaptureFixture) -> None:
    case = Case(FakeRound("checkpoints", Retriable("no broker answers")))
    case.output.tick()
    case.wait_for(1, case.rounds[0])
    case.output.finish()
    assert len(case.rounds[0].seen) == 2
    assert case.output.refused == []
    assert [r.getMessage().count("no broker answers") for r in caplog.records] == [1]


def test_clusters_that_cannot_be_opened_are_a_remark() -> None:
    case = Case(opening=UsageError("the client file is gone", code="NO_FILE"))
    case.output.tick()
    wait_until(lambda: case.output.refused, _TIMEOUT_S, "the remark")
    case.output.finish()
    assert [remark.code for remark in case.output.refused] == ["NO_FILE"]


def test_clusters_that_could_not_be_opened_are_opened_when_they_can_be() -> None:
    """Without a restart of the flow: a client file is put right while it runs."""
    case = Case(FakeRound("checkpoints"), opening=UsageError("mode 0644", code="NO_FILE"))
    case.output.tick()
    wait_until(lambda: case.output.refused, _TIMEOUT_S, "the remark")
    case.settings = settings(checkpoints=False)
    case.output.tick()
    wait_until(lambda: not case.output.refused, _TIMEOUT_S, "nobody wants it")
    case.opening = None
    case.settings = settings()
    case.output.tick()
    case.wait_for(1, case.rounds[0])
    case.output.close()
    assert case.output.refused == []
