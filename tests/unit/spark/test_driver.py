"""What the driver says at the end of a run, and of Spark's executors while it runs."""

from __future__ import annotations

import json
import os
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JJavaError

from onceover.config.flow.load import DRIVER_NOTE
from onceover.errors import Fenced, NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.model import TopicPartition
from onceover.operate.statusfacts import StatusFacts, StatusSide
from onceover.operate.statusshape import shape
from onceover.spark import driver, untilend
from onceover.spark.driver import Begun, DriverRun, known_stops
from tests.support.fakes.fakecluster import FakeCluster


def status(*, source: OnceoverError | None = None, target: OnceoverError | None = None) -> dict[str, Any]:
    """Return the status at the end of a run."""
    sides = StatusSide(alias="east", error=source), StatusSide(alias="west", error=target)
    return shape(StatusFacts(flow="orders", now_ms=0.0, source=sides[0], target=sides[1]))


def stops(*looks: OnceoverError | None, asked: bool = False) -> list[dict[str, Any]]:
    """Return what is known of the stops after looks at the target, each with its error."""
    errors = iter(looks)
    target = FakeCluster()
    target.tries = len(looks)
    return known_stops(lambda: status(target=next(errors)), target, asked=asked)


AWAY = Retriable("west is away", where="w:1")


def test_what_is_stopped_is_known_when_the_target_answers() -> None:
    """Stops are on the target: a source that is away by then takes nothing from that."""
    assert stops(None) == stops(AWAY, AWAY, None) == []
    source_away = status(source=Retriable("east is away"))
    assert known_stops(lambda: source_away, FakeCluster(), asked=False) == []


@pytest.mark.parametrize(
    ("error", "asked", "kind"),
    [
        (AWAY, False, Retriable),
        (AWAY, True, NeedsOperator),
        (UsageError("west refuses to say", where="w:1"), False, NeedsOperator),
    ],
)
def test_target_that_does_not_answer_at_the_end_is_no_run_without_stops(
    error: OnceoverError, asked: bool, kind: type[OnceoverError]
) -> None:
    """The next try looks again; but what a person has stopped is not started again for it."""
    with pytest.raises(kind, match="whether a partition is stopped cannot be read: west") as unknown:
        stops(error, error, asked=asked)
    assert (unknown.value.code, unknown.value.where) == ("STOPS_UNKNOWN", "w:1")
    assert "`onceover status orders`" in str(unknown.value.resolve)


class Ending:
    """A supervisor that remembers how its run ended."""

    def __init__(self, *, requested: bool) -> None:
        self._requested = requested
        self.ended: list[tuple[str, OnceoverError | None]] = []

    def was_asked_to_stop(self) -> bool:
        return self._requested

    def end(self, why: str, error: OnceoverError | None = None) -> None:
        self.ended.append((why, error))


class Spark:
    """A session whose JVM is gone."""

    @property
    def streams(self) -> Any:
        raise ConnectionRefusedError


GONE = ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("cause", "signalled", "requested", "expected"),
    [
        (GONE, True, False, ("asked", None)),
        (GONE, False, True, ("asked", None)),
        (GONE, False, False, ("failed", "the Spark JVM is gone: it was killed")),
        (UsageError("too few"), True, False, ("failed", "too few")),
        (KeyError("x"), True, True, ("failed", "unexpected KeyError: 'x'")),
    ],
)
def test_a_jvm_taken_from_a_run_that_was_told_to_end_is_no_failure(
    cause: Exception, signalled: bool, requested: bool, expected: tuple[str, str | None]
) -> None:
    """Airflow kills it soon after the signal; what fails for another reason is told all the same."""
    run, leader = (
        DriverRun(cast(Any, None), "forever", Path(), jvm=-1, begun=Begun("a")),
        Ending(requested=requested),
    )
    if signalled:
        run.stop()
    as_asked = run.clean_up(cast(Any, Spark()), cast(Any, leader), cause)
    assert [(why, error and error.message) for why, error in leader.ended] == [expected]
    # Nobody starts it again then.
    assert as_asked == (expected[0] == "asked")


def test_a_run_that_was_taken_over_is_not_taken_for_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever started it again would fence the newer one."""

    def fenced(*_: object) -> None:
        raise Fenced("generation 3 runs")

    leader = Ending(requested=False)
    monkeypatch.setattr(leader, "end", fenced)
    run = DriverRun(cast(Any, None), "forever", Path(), jvm=-1, begun=Begun("a"))
    with pytest.raises(Fenced):
        run.clean_up(cast(Any, Spark()), cast(Any, leader), GONE)


@pytest.mark.parametrize("trouble", [NeedsOperator("its record is refused"), KeyError("x")], ids=repr)
@pytest.mark.parametrize("asked", [True, False])
def test_an_end_that_cannot_be_written_down_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception, asked: bool
) -> None:
    """The run ends with what it ended with, whatever is wrong with the rest."""

    def refused(*_: object) -> None:
        raise trouble

    leader = Ending(requested=asked)
    monkeypatch.setattr(leader, "end", refused)
    run = DriverRun(cast(Any, None), "forever", Path(), jvm=-1, begun=Begun("a"))
    assert run.clean_up(cast(Any, Spark()), cast(Any, leader), GONE) is False


class Query:
    """A query whose first batch is over at the third look."""

    isActive = True

    def __init__(self) -> None:
        self.looks = 0

    @property
    def lastProgress(self) -> dict[str, int] | None:
        self.looks += 1
        return {"batchId": 0} if self.looks >= 3 else None


class Leading:
    """A supervisor with nothing to do; what it copies comes with its ticks."""

    def __init__(self, *copied: dict[str, str]) -> None:
        self._coming = list(copied)
        self._copied: dict[str, str] = {}
        self.discoveries = 0

    def discover(self) -> None:
        """Look at the topics, as ticks do at times."""
        self._copied = self._coming.pop(0)
        self.discoveries += 1

    def copied(self) -> dict[str, str]:
        return self._copied

    def tick(self) -> None:
        pass

    def stop_requested(self) -> bool:
        return False


class Reached:
    """Everything is on the target, it seems."""

    def reached(self) -> bool:
        return True


class Slots:
    """There are enough."""

    def check(self) -> None:
        pass


def test_a_run_until_caught_up_is_not_over_before_every_lane_has_looked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was stopped may be mended, and a position that nobody writes again expires."""
    run = DriverRun(cast(Any, None), "caught-up", tmp_path, jvm=os.getppid(), begun=Begun("a"))
    monkeypatch.setattr(driver, "_TICK_S", 0.0)
    monkeypatch.setattr(run, "_prune_receipts", lambda: None)
    query = Query()
    found = run._watch_over(cast(Any, query), cast(Any, Leading()), cast(Any, Slots()), cast(Any, Reached()))
    assert (found, query.looks) == (True, 3)


def test_a_query_that_spark_does_not_end_in_time_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All that was to be copied is, or somebody has asked for the end; the lanes are fenced behind it."""

    def stop() -> None:
        raise Py4JJavaError("An error occurred while calling o1.stop.", SimpleNamespace(_target_id="o2"))

    monkeypatch.setattr(driver, "_STOP_S", 0.0)
    late = SimpleNamespace(isActive=True, lastProgress=None, stop=stop, exception=lambda: None)
    told: list[str] = []
    leader = SimpleNamespace(finish_lanes=lambda: told.append("finish"))
    run = DriverRun(cast(Any, None), "caught-up", Path(), jvm=-1, begun=Begun("a"))
    run._finish(cast(Any, None), cast(Any, late), cast(Any, leader))
    assert told == ["finish"]
    assert "Spark has not ended its query in time" in caplog.text


class Led(Leading):
    """A run that has nothing to lead, up to its end."""

    def __init__(self) -> None:
        super().__init__({})
        self.refused: list[Any] = []

    def start(self) -> Any:
        return SimpleNamespace(generation=1, run="run", lanes=1)

    def was_asked_before(self) -> bool:
        return False

    def end(self, *_: object) -> None:
        pass

    close = end


class Left(Reached):
    """It has come to its end; so much of it is not copied behind that."""

    def __init__(self, *left: TopicPartition) -> None:
        self._left = list(left)

    def begin(self) -> dict[TopicPartition, int]:
        return {}

    def left(self) -> list[TopicPartition]:
        return self._left


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("left", [(), (TopicPartition("orders", 0),)])
def test_a_run_has_caught_up_only_if_nothing_is_left_once_its_lanes_are_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: tuple[TopicPartition, ...], stopped: bool
) -> None:
    """A stop that excused a partition may be gone by then: it was resumed, and copied in part."""
    flow = SimpleNamespace(flow="orders", lanes=1)
    watch = cast(Any, SimpleNamespace(flow=flow))
    run = DriverRun(watch, "caught-up", tmp_path, os.getppid(), Begun("a"))
    clusters = FakeCluster("east"), FakeCluster("west")
    outside: dict[str, Any] = {
        "slots_of": 1,
        "warm_up": None,
        "open_clusters": clusters,
        "supervisor": Led(),
        "ProgressLog": nullcontext(),
        "known_stops": [{"topic": "orders"}] if stopped else [],
    }
    for name, made in outside.items():
        monkeypatch.setattr(driver, name, lambda *_, made=made, **__: made)
    inside: dict[str, Any] = {
        "_announce": None,
        "_until_end": nullcontext(Left(*left)),
        "_start_query": None,
        "_watch_over": True,
        "_finish": None,
    }
    for name, made in inside.items():
        monkeypatch.setattr(run, name, lambda *_, made=made: made)
    spark = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl="")))
    # Who is told of the stop starts nothing again for that.
    with (
        pytest.raises(Retriable, match=r"not copied .*: orders:0") if left and not stopped else nullcontext()
    ) as short:
        run.execute(spark)
    assert short is None or short.value.code == "COPY_INCOMPLETE"
    assert run.report()["caught_up"] is not (bool(left) or stopped)
    assert run.ended


@pytest.mark.parametrize("folder", ["checkpoint", "receipts"])
def test_a_start_that_spark_has_no_folder_for_takes_nothing_from_the_copy_that_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str
) -> None:
    """As behind a start by another user: the one would be fenced, and the other end."""
    (tmp_path / folder).touch()
    monkeypatch.setattr(driver, "slots_of", lambda _: 1)
    for name in ("warm_up", "open_clusters", "supervisor"):
        monkeypatch.setattr(driver, name, Mock(side_effect=AssertionError(name)))
    watch = cast(Any, SimpleNamespace(flow=SimpleNamespace(flow="orders", lanes=1)))
    with pytest.raises(UsageError, match=f"{folder} cannot be used") as refused:
        DriverRun(watch, "forever", tmp_path, os.getppid(), Begun("a")).execute(cast(Any, None))
    assert refused.value.code == "PATH_UNUSABLE"


def test_the_topics_are_noted_when_they_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Airflow reads the note when the line is there; the report at the end has them, too."""
    run = DriverRun(
        cast(Any, SimpleNamespace(flow=SimpleNamespace(flow="orders"))),
        "forever",
        tmp_path,
        os.getppid(),
        Begun("a"),
    )
    leader = Leading({}, {"x": "east.x"}, {"x": "east.x"}, {"x": "east.x", "y": "east.y"})
    noted: list[Any] = []
    with caplog.at_level("INFO"):
        for _ in range(4):
            caplog.clear()
            leader.discover()
            run._tell_topics(cast(Any, leader))
            note = tmp_path / DRIVER_NOTE
            noted.append((caplog.messages, json.loads(note.read_text())["topics"] if note.exists() else None))
    both = {"x": "east.x", "y": "east.y"}
    assert noted == [
        ([], None),
        (["topics copied: 1"], {"x": "east.x"}),
        ([], {"x": "east.x"}),
        (["topics copied: 2"], both),
    ]
    assert run.report()["topics"] == both


@pytest.mark.parametrize("trouble", ["its folder was taken away", "a folder has its name"])
def test_no_copy_ends_because_its_note_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    """It is a hint (G4), written anew whenever a topic is taken in."""
    home = tmp_path / "orders"
    if trouble == "a folder has its name":
        (home / DRIVER_NOTE).mkdir(parents=True)
    run = DriverRun(cast(Any, None), "forever", home, os.getppid(), Begun("a"))
    leader = Leading({"x": "east.x"})
    leader.discover()
    run._tell_topics(cast(Any, leader))
    written = trouble == "its folder was taken away"
    assert (home / DRIVER_NOTE).is_file() is written
    assert (f"{DRIVER_NOTE} is not written now" in caplog.text) is not written


@pytest.mark.parametrize("fails", [KeyError("x"), Retriable("away")])
def test_a_look_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch, fails: Exception) -> None:
    """Otherwise nobody would ever find out that it is over."""

    class Check:
        left_out = frozenset[TopicPartition]()

        def __init__(self, *_: object) -> None:
            pass

        def open(self, *_: object) -> None:
            pass

        close = open

        def ends(self) -> dict[TopicPartition, int]:
            return {}

        def reached(self, _ends: object) -> bool:
            raise fails

    woken = threading.Event()
    monkeypatch.setattr(untilend, "EndCheck", Check)
    monkeypatch.setattr(untilend, "open_clusters", lambda _flow: (None, None))
    monkeypatch.setattr(untilend, "_LOOK_S", 0.0)
    with untilend.UntilEnd(cast(Any, SimpleNamespace(flow="f")), "run", woken.set) as until_end:
        until_end.begin()
        # Nobody looks before the lanes have.
        assert not woken.is_set() and not until_end._thread.is_alive()
        with suppress(OnceoverError):
            assert not until_end.reached()
        assert woken.wait(10)
        with pytest.raises(OnceoverError, match=r"x|away"):
            until_end.reached()
