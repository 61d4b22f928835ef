"""When a task is tried again, for how long, and from when on a person is told of it.

Invariant: only ``JobInterrupted`` is tried again: what the job itself calls temporary, and killed
processes. Interruptions in a row are bounded: by time, and by number where processes die soon after they
were started, which is a crash rather than an accident. What is remembered between tries (Airflow's task
state store) is a hint: without it the number of tries alone counts.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import RetryAction, RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowRuntimeError

from onceover_airflow.errors import JobInterrupted
from onceover_airflow.flows import CONTINUOUS
from onceover_airflow.telling.notify import notify

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

# A person at a form wants to know soon, and each try has asked for half a minute already.
FEW_RETRIES: Final = 3
# Higher than what the time limit lets happen in one outage: kills over the months of a run count as well.
RETRIES: Final = 2000
FIRST_DELAY_S: Final = 5.0
# An hour's outage costs 60 starts of Spark, not 700.
LONGEST_DELAY_S: Final = 60.0
RETRY_FOR_S: Final = 12 * 3600.0
# A broker's restart is over by then; what is not, somebody has to look at.
TELL_AFTER_S: Final = 300.0
# Beyond the longest delay. Who comes later was not tried again but cleared by a person, who has mended it.
PAUSE_S: Final = 300.0
MAX_KILLED: Final = 5
# Of a @continuous DAG: its runs follow each other within seconds, so this is some minutes of a broken flow
# file, and an end to a flow that nobody mends.
FAILED_RUNS_IN_A_ROW: Final = 10
STORE_KEY: Final = "onceover_interruptions"


@dataclass(frozen=True, slots=True)
class Streak:
    """Interruptions in a row.

    Args:
        since_s: when the first of them was, in seconds since 1970.
        tries: how many there were.
        killed: how many of the last ones were processes that died soon after their start.
        told: whether a person was told.
        last_s: when the last of them was.
        asked_s: when the notifier was called last; it may have failed.
    """

    since_s: float
    tries: int = 0
    killed: int = 0
    told: bool = False
    last_s: float | None = None
    asked_s: float | None = None

    @classmethod
    def remembered(cls, value: Any) -> Streak | None:
        """Return what ``asdict`` made a mapping of; None for anything else."""
        return cls(**value) if isinstance(value, dict) and value.keys() == set(cls.__slots__) else None

    def longer(self, now_s: float, tried_s: float, *, killed: bool, ran_s: float | None = None) -> Streak:
        """Return the streak with another interruption, or a new one after a run that was well, or a pause.

        Args:
            tried_s: how long the try has lasted.
            killed: processes were killed.
            ran_s: how long its last run has lasted: a try may have begun anew by itself.
        """
        # Nothing of Spark's is for the process that parses DAG files.
        from onceover.spark.launch.again import was_well

        paused_s = 0.0 if self.last_s is None else now_s - tried_s - self.last_s
        ran_s = tried_s if ran_s is None else ran_s
        well = was_well(ran_s)
        anew = well or paused_s > LONGEST_DELAY_S + PAUSE_S
        before = Streak(now_s) if anew else self
        soon = killed and not well
        number = before.killed + 1 if soon else 0
        return replace(before, tries=before.tries + 1, killed=number, last_s=now_s)

    def decide(self, now_s: float) -> RetryDecision:
        """Return what follows the last interruption."""
        if self.killed >= MAX_KILLED:
            return RetryDecision.fail(
                f"killed {self.killed} times in a row, soon after its start each time: it would be again"
            )
        if now_s - self.since_s > RETRY_FOR_S:
            return RetryDecision.fail(f"interrupted for {(now_s - self.since_s) / 3600:.0f} hours")
        delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(self.tries - 1, 10))
        return RetryDecision.retry(timedelta(seconds=delay_s), "interrupted; known to pass")


class InterruptionPolicy(RetryPolicy):
    """Tries again after ``JobInterrupted`` and nothing else, within the bounds above."""

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide, in the task's process, and remember."""
        if not isinstance(exception, JobInterrupted):
            remember(context, None)
            return RetryDecision.fail(f"{type(exception).__name__} is not known to pass")
        now_s = _now_s()
        streak = recall(context) or Streak(now_s, tries=try_number - 1)
        streak = streak.longer(
            now_s, now_s - _began_s(context, now_s), killed=exception.killed, ran_s=exception.ran_s
        )
        decision = streak.decide(now_s)
        # Airflow's clear leaves the store as it is, and whoever clears a failed task begins anew.
        remember(context, None if decision.action is RetryAction.FAIL else streak)
        return decision


def retry_interrupted(*, patient: bool = False) -> dict[str, Any]:
    """Return the arguments of a task that is tried again after ``JobInterrupted`` and nothing else.

    Args:
        patient: through an outage of hours, for what nobody has started by hand.
    """
    return {
        "retries": RETRIES if patient else FEW_RETRIES,
        "retry_delay": timedelta(seconds=FIRST_DELAY_S),
        # Of a task whose own process is killed nobody asks the policy: it, too, comes later and later.
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(seconds=LONGEST_DELAY_S),
        "retry_policy": InterruptionPolicy(),
        **told(),
    }


def told() -> dict[str, Callable[[Context], None]]:
    """Return the callbacks that tell a person; for a task, or a DAG's ``default_args``."""
    return {"on_retry_callback": tell_when_it_lasts, "on_failure_callback": tell_of_failure}


def failure_limits(schedule: str | None) -> dict[str, Any]:
    """Return the arguments that keep a DAG from failing for ever."""
    return {"max_consecutive_failed_dag_runs": FAILED_RUNS_IN_A_ROW} if schedule == CONTINUOUS else {}


def tell_when_it_lasts(context: Context) -> None:
    """Say in the log that the task is tried again and again; tell a person, once.

    Of what nobody knows the cause, such as a process that was killed, a person is told the first time.
    """
    streak, now_s = recall(context), _now_s()
    # Without a memory, the first try of all.
    number = getattr(context.get("ti"), "try_number", 1) if streak is None else streak.tries
    if number == 1 and not _is_known(context.get("exception")):
        notify(context, f"ended, nobody knows why, and tried again: {context.get('exception')}")
    if streak is None or now_s - streak.since_s < TELL_AFTER_S:
        return
    since = datetime.fromtimestamp(streak.since_s, UTC)
    reason = (
        f"interrupted {streak.tries} times in a row since {since:%Y-%m-%d %H:%M} UTC, and tried again: "
        f"{context.get('exception')}"
    )
    for line in reason.split("\n"):
        log.error("%s", line)
    asked = streak.asked_s is not None and now_s - streak.asked_s < TELL_AFTER_S
    if not streak.told and not asked:
        remember(context, replace(streak, told=notify(context, reason), asked_s=now_s))


def _is_known(exception: object) -> bool:
    return isinstance(exception, JobInterrupted) and not exception.killed


def tell_of_restart(context: Context, what: str) -> None:
    """Tell a person that processes were killed, although the task goes on: nothing else shows it."""
    notify(context, f"started again at once: {what}")


def tell_of_failure(context: Context) -> None:
    """Tell a person that the task has failed and is not tried again."""
    notify(context, f"failed: {context.get('exception')}")


def recall(context: Context | None) -> Streak | None:
    """Return the interruptions before this one, None when there were none or nothing is known."""
    store = _store_of(context)
    try:
        value = None if store is None else store.get(STORE_KEY)
    except AirflowRuntimeError as error:
        log.warning("what happened to earlier tries is not known: %s", error)
        return None
    return Streak.remembered(value)


def remember(context: Context | None, streak: Streak | None) -> None:
    """Keep the interruptions for the next try; None forgets them."""
    store = _store_of(context)
    if store is None:
        return
    try:
        if streak is None:
            store.delete(STORE_KEY)
        else:
            store.set(STORE_KEY, asdict(streak))
    except AirflowRuntimeError as error:
        log.warning("the next try will not know of this one: %s", error)


def _store_of(context: Context | None) -> Any:
    """Return what keeps something for the next try; None where nothing does.

    Of a task whose process was killed the DAG processor tells, which has none. A question to it is answered
    by nobody (3.3.2): it would hold the file's parsing up until that is killed, nobody would be told, and the
    DAG would not be listed for a minute.
    """
    if sys.argv[1:2] == ["dag-processor"]:
        return None
    return (context or {}).get("task_state_store")


def _began_s(context: Context | None, now_s: float) -> float:
    task_instance = (context or {}).get("ti")
    began = getattr(task_instance, "start_date", None)
    return began.timestamp() if isinstance(began, datetime) else now_s


def _now_s() -> float:
    return datetime.now(UTC).timestamp()
