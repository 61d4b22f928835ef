"""What ``onceover replicate`` makes of a run that ends, and of somebody who wants it to."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any, cast

import pytest

from onceover.cli.commands import replicate
from onceover.cli.sparkjob import JobEnd
from onceover.cli.terminal.output import Interrupted
from onceover.errors import Retriable, UsageError
from onceover.spark.failures import jvm_gone
from onceover.spark.launch.again import Restarts


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once somebody wants the command to end."""
    event = threading.Event()
    monkeypatch.setattr(replicate, "ending_signals", lambda: nullcontext(event))
    return event


DIED = JobEnd({}, jvm_gone(), killed=True)
COPIED = JobEnd({"records": 5}, None, killed=False)


def ended(monkeypatch: pytest.MonkeyPatch, *ends: JobEnd) -> dict[str, Any]:
    """Return the document of a command whose runs end so, one after the other."""
    coming = iter(ends)

    class Job:
        def with_own_files(self) -> Job:
            return self

    monkeypatch.setattr(replicate, "_once", lambda *_: next(coming))
    nothing = cast(Any, None)
    return replicate._execute(nothing, cast(Any, Job()), nothing, Restarts("forever"))


def test_a_run_that_was_killed_is_begun_again_and_says_so(
    stopping: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it counts is of its last start."""
    assert ended(monkeypatch, DIED, COPIED) == {"records": 5, "restarts": 1}


def test_somebody_who_ends_it_between_two_starts_is_told_no_failure(
    stopping: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever tries again after a 5 would undo it."""
    stopping.set()
    with pytest.raises(Interrupted) as caught:
        ended(monkeypatch, DIED, COPIED)
    assert caught.value.code == "STOPPED_EARLY"


def test_what_running_again_cannot_help_ends_it(
    stopping: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, in its own words."""
    with pytest.raises(UsageError, match="no"):
        ended(monkeypatch, JobEnd({}, UsageError("no"), killed=False), COPIED)


@pytest.mark.parametrize(
    ("alive", "listens", "expected"), [(True, True, []), (True, False, [15]), (False, False, [])]
)
def test_who_is_asked_to_end_is_the_driver_and_where_there_is_none_yet_its_jvm(
    monkeypatch: pytest.MonkeyPatch, alive: bool, listens: bool, expected: list[int]
) -> None:
    """Between its first process and the note that it leaves the JVM was taken from it, and it had failed."""
    signals: list[int] = []

    class Child:
        pid = 7

        def __init__(self) -> None:
            self.alive = alive

        def send_signal(self, number: int) -> None:
            signals.append(number)

        def wait(self, _timeout_s: float) -> int:
            raise Retriable("it still runs")

    asked = threading.Event()
    asked.set()
    monkeypatch.setattr(replicate, "ask_to_end", lambda *_: listens)
    shown = type("Shown", (), {"tick": lambda _: None, "end": lambda _: None})()
    job = type("Job", (), {"application": "replicate.py"})()
    replicate._attend(cast(Any, Child()), cast(Any, job), asked, cast(Any, shown))
    assert signals == expected
