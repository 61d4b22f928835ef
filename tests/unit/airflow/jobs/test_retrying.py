"""How long a task is tried again, and when a person hears of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from airflow.sdk import BaseNotifier, BaseOperator, RetryAction

from onceover.spark.launch.again import WELL_AFTER_S
from onceover_airflow.errors import JobInterrupted
from onceover_airflow.jobs import retrying
from onceover_airflow.jobs.retrying import (
    FEW_RETRIES,
    MAX_KILLED,
    RETRY_FOR_S,
    STORE_KEY,
    TELL_AFTER_S,
    InterruptionPolicy,
    Streak,
    failure_limits,
    retry_interrupted,
)
from onceover_airflow.telling import notify as notifying
from onceover_airflow.telling.notify import VARIABLE, check_notifier

AWAY = JobInterrupted("west does not answer")
KILLED = JobInterrupted("killed by signal 9", killed=True)


class Notifier(BaseNotifier):
    """One of Airflow's, with a template."""

    template_fields = ("text",)
    sent: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__()
        self.text = "{{ reason }}"

    def notify(self, context: Any) -> None:
        Notifier.sent.append(self.text)


broken = 5


def away(_: Any) -> None:
    """As requests words it."""
    raise ConnectionError("Max retries exceeded with url: /services/T0/B0/hunter2")


def notifier(context: Any) -> None:
    """A new one each time, as each try of a task has a process of its own: rendering changes it."""
    Notifier()(context)


class Tries:
    """Tries of one task, as Airflow makes them: the store is all that is left of an earlier one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_800_000_000.0
        self.store: dict[str, Any] = {}
        monkeypatch.setattr(retrying, "_now_s", lambda: self.now_s)

    def _forget(self, key: str) -> None:
        self.store.pop(key, None)

    def end(self, error: Exception, *, ran_s: float = 40.0, pause_s: float = 0.0) -> RetryAction:
        """Let a try run, end and be judged."""
        began = datetime.fromtimestamp(self.now_s, UTC)
        self.now_s += ran_s
        state = SimpleNamespace(get=self.store.get, set=self.store.__setitem__, delete=self._forget)
        context: Any = {
            "task_state_store": state,
            "ti": SimpleNamespace(start_date=began),
            "exception": error,
        }
        decision = InterruptionPolicy().evaluate(error, 1, 2000, context)
        if decision.action is RetryAction.RETRY:
            retrying.tell_when_it_lasts(context)
            assert decision.retry_delay is not None
            self.delay_s = decision.retry_delay.total_seconds()
            self.now_s += max(self.delay_s, pause_s)
        else:
            retrying.tell_of_failure(context)
        return decision.action


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    """A new task, and a notifier that remembers."""
    Notifier.sent.clear()
    monkeypatch.setenv(VARIABLE, f"{__name__}:notifier")
    return Tries(monkeypatch)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyError("x"), TimeoutError()])
def test_unknown_error_is_not_tried_again(tries: Tries, error: Exception) -> None:
    """Only what is known to pass is; a person is told at once."""
    assert tries.end(error) is RetryAction.FAIL
    assert len(Notifier.sent) == 1


def test_pauses_grow_to_a_minute(tries: Tries) -> None:
    """Soon at first: most outages are a restart."""
    delays = []
    for _ in range(7):
        tries.end(AWAY)
        delays.append(tries.delay_s)
    assert delays == [5, 10, 20, 40, 60, 60, 60]


def test_long_outage_is_told_once_at_error_and_ends_after_half_a_day(
    tries: Tries, caplog: pytest.LogCaptureFixture
) -> None:
    """At each try in the log, after five minutes; to a person once, and again when it is given up."""
    caplog.set_level(logging.ERROR)
    first_s, count = tries.now_s + 40.0, 0
    while tries.end(AWAY) is RetryAction.RETRY:
        count += 1
        ended_s = tries.now_s - tries.delay_s
        assert bool(caplog.records) == (ended_s - first_s >= TELL_AFTER_S)
        assert len(Notifier.sent) == bool(caplog.records)
        caplog.clear()
        if Notifier.sent:
            break
    while tries.end(AWAY) is RetryAction.RETRY:
        count += 1
    begun_s = first_s
    assert RETRY_FOR_S < tries.now_s - begun_s < RETRY_FOR_S + 300
    assert count < 600
    assert "west does not answer" in Notifier.sent[0]
    assert Notifier.sent[1].startswith("failed: ")


def test_a_kill_is_told_at_once_and_once(tries: Tries) -> None:
    """Nobody knows why it was; what is known to pass is told when it lasts."""
    assert tries.end(JobInterrupted("killed by signal 9", killed=True)) is RetryAction.RETRY
    (told,) = Notifier.sent
    assert told == "ended, nobody knows why, and tried again: killed by signal 9"
    assert tries.end(JobInterrupted("killed by signal 9", killed=True)) is RetryAction.RETRY
    assert tries.end(AWAY) is RetryAction.RETRY
    assert Notifier.sent == [told]


def test_without_a_memory_only_the_first_try_is_told_at_once(tries: Tries) -> None:
    """Or each of two thousand would be."""
    error = JobInterrupted("killed", killed=True)
    for number in (1, 2, 3):
        context: Any = {"ti": SimpleNamespace(try_number=number), "exception": error}
        retrying.tell_when_it_lasts(context)
    assert len(Notifier.sent) == 1


def test_driver_that_crashes_again_and_again_is_given_up(tries: Tries) -> None:
    """A kill passes; the same kill five times in a row, soon after each start, does not."""
    actions = [tries.end(KILLED, ran_s=20.0) for _ in range(MAX_KILLED)]
    assert actions == [RetryAction.RETRY] * (MAX_KILLED - 1) + [RetryAction.FAIL]


def test_kills_between_healthy_runs_are_accidents(tries: Tries) -> None:
    """However many there are over the months; each is told, because nobody knows why it was."""
    for _ in range(3 * MAX_KILLED):
        assert tries.end(KILLED, ran_s=WELL_AFTER_S + 1) is RetryAction.RETRY
        assert tries.delay_s == 5
    assert len(Notifier.sent) == 3 * MAX_KILLED
    assert {text.partition(",")[0] for text in Notifier.sent} == {"ended"}


def test_kill_during_an_outage_does_not_count_as_a_crash(tries: Tries) -> None:
    """Two different things happened."""
    for _ in range(2 * MAX_KILLED):
        assert tries.end(KILLED, ran_s=1.0) is RetryAction.RETRY
        assert tries.end(AWAY) is RetryAction.RETRY


def test_without_a_memory_tries_are_counted() -> None:
    """The store is a hint: its loss costs longer retrying, and no failure."""
    decision = InterruptionPolicy().evaluate(AWAY, 4, 2000, None)
    assert decision.action is RetryAction.RETRY
    assert decision.retry_delay == timedelta(seconds=40)


@pytest.mark.parametrize("value", ["x", {"since_s": 1.0}, {**asdict(Streak(1.0)), "more": 1}, [], 5])
def test_memory_that_cannot_be_read_is_none(tries: Tries, value: Any) -> None:
    """Another version may have written it."""
    tries.store[STORE_KEY] = value
    assert tries.end(AWAY) is RetryAction.RETRY
    assert tries.store[STORE_KEY]["tries"] == 1


@pytest.mark.parametrize("name", ["nowhere.at.all:x", f"{__name__}:missing", f"{__name__}:broken", "x"])
def test_notifier_that_fails_is_said_and_changes_nothing(
    tries: Tries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """The task's own outcome stands."""
    monkeypatch.setenv(VARIABLE, name)
    assert tries.end(RuntimeError("a bug")) is RetryAction.FAIL
    assert "nobody was told" in caplog.text


def test_text_of_what_a_notifier_raises_is_not_logged(
    tries: Tries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A library quotes the address that it could not reach: who has a webhook's can write there."""
    monkeypatch.setenv(VARIABLE, f"{__name__}:away")
    assert tries.end(RuntimeError("a bug")) is RetryAction.FAIL
    assert "nobody was told" in caplog.text and "ConnectionError at test_retrying.py" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("kind", ["OSError", "ValueError"])
def test_nor_of_what_its_module_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Nor its line, as a traceback shows it."""
    (tmp_path / "module_of_alerts.py").write_text(f'raise {kind}("https://chat.example/hooks/hunter2")\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(VARIABLE, "module_of_alerts:tell")
    check_notifier()
    assert "nobody would be told" in caplog.text and f"{kind} at module_of_alerts.py:1" in caplog.text
    assert "hunter2" not in caplog.text


def test_what_people_start_gives_up_soon_and_what_a_schedule_starts_is_patient() -> None:
    """Each with the callbacks that tell."""
    by_hand, scheduled = retry_interrupted(), retry_interrupted(patient=True)
    assert by_hand["retries"] == FEW_RETRIES < 10 < scheduled["retries"]
    kept: list[Mapping[str, Any]] = [by_hand, scheduled]
    assert all(arguments["on_failure_callback"] and arguments["on_retry_callback"] for arguments in kept)


def test_a_task_whose_own_process_is_killed_each_time_comes_later_and_later() -> None:
    """Nobody asks the policy of it, and a memory limit would have it begin every five seconds."""
    task = BaseOperator(task_id="replicate", **retry_interrupted(patient=True))
    assert task.retry_exponential_backoff == 2.0
    assert task.max_retry_delay == timedelta(seconds=60)


def test_only_what_starts_again_by_itself_is_limited() -> None:
    """A @continuous DAG would spin."""
    assert failure_limits("@continuous") == {"max_consecutive_failed_dag_runs": 10}
    assert failure_limits("@daily") == failure_limits(None) == {}


def test_who_clears_a_failed_task_begins_anew(tries: Tries) -> None:
    """Airflow's clear leaves the store as it is: what was mended is not counted again."""
    actions = [tries.end(KILLED, ran_s=20.0) for _ in range(MAX_KILLED)]
    assert actions[-1] is RetryAction.FAIL
    assert tries.end(KILLED, ran_s=20.0) is RetryAction.RETRY
    assert tries.store[STORE_KEY]["killed"] == 1


def test_interruption_long_after_the_last_one_is_a_new_story(tries: Tries) -> None:
    """A task that was marked, or cleared a day later: nobody has tried in between."""
    assert tries.end(AWAY) is RetryAction.RETRY
    tries.now_s += RETRY_FOR_S + 3600
    assert tries.end(AWAY) is RetryAction.RETRY
    assert tries.store[STORE_KEY]["tries"] == 1
    assert tries.end(AWAY, ran_s=WELL_AFTER_S - 1) is RetryAction.RETRY
    assert tries.store[STORE_KEY]["tries"] == 2, "a long try is no pause"


def test_notifier_that_fails_is_called_again_after_some_minutes(
    tries: Tries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One failed call is not silence until the task fails, and no flood."""
    monkeypatch.setenv(VARIABLE, f"{__name__}:missing")
    begun_s = tries.now_s
    while tries.now_s - begun_s < 4 * TELL_AFTER_S:
        tries.end(AWAY)
    failed = [record for record in caplog.records if "nobody was told" in record.message]
    assert 2 <= len(failed) <= 4
    monkeypatch.setenv(VARIABLE, f"{__name__}:notifier")
    while tries.now_s - begun_s < 8 * TELL_AFTER_S:
        tries.end(AWAY)
    assert len(Notifier.sent) == 1


@pytest.mark.parametrize(
    ("name", "warned"), [(f"{__name__}:missing", 1), (f"{__name__}:notifier", 0), ("", 0)]
)
def test_notifier_that_cannot_be_loaded_is_said_before_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, warned: int
) -> None:
    """A misspelt name is found by the first task."""
    monkeypatch.setenv(VARIABLE, name)
    check_notifier()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * warned


HELD = threading.Event()


@pytest.mark.parametrize("text", ["raise SystemExit", f"import {__name__} as here\nhere.HELD.wait()"])
def test_a_notifier_that_ends_or_holds_who_loads_it_changes_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A script that was written to be run, or a service that does not answer at its import."""
    module = f"strange_{len(text)}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(notifying, "_LOADING_S", 0.2)
    monkeypatch.setenv(VARIABLE, f"{module}:notifier")
    check_notifier()
    HELD.set()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_notifier_that_ends_its_process_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "sys:exit")
    assert not notifying.notify({}, "failed")
    assert "nobody was told" in caplog.text


def test_a_try_that_began_anew_by_itself_was_well_only_if_its_last_run_was() -> None:
    """Four crashes, three minutes each, make a try of twelve."""
    streak = Streak(0.0)
    for number in range(1, MAX_KILLED + 1):
        streak = streak.longer(number * 720.0, 720.0, killed=True, ran_s=180.0)
    assert streak.killed == MAX_KILLED
    assert streak.decide(MAX_KILLED * 720.0).action is RetryAction.FAIL
    assert streak.longer(9000.0, 720.0, killed=True, ran_s=700.0).tries == 1


def test_the_dag_processor_tells_of_a_killed_task_and_asks_for_nothing(
    tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no memory of tries; a question would wait until its process is killed, and nobody were told."""
    monkeypatch.setattr("sys.argv", ["airflow", "dag-processor"])
    asked = SimpleNamespace(get=pytest.fail, set=pytest.fail, delete=pytest.fail)
    for number in (1, 2):
        context: Any = {
            "task_state_store": asked,
            "ti": SimpleNamespace(try_number=number),
            "exception": "the task's process was killed",
        }
        retrying.tell_when_it_lasts(context)
    assert Notifier.sent == ["ended, nobody knows why, and tried again: the task's process was killed"]
