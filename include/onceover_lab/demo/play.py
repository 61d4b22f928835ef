"""The demo's story: start the flow from Airflow, feed, kill the driver, let it resume, stop, compare.

Everything outside is behind three small ports, so the order of events is tested without a broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover_lab.demo.feed import Tally
from onceover_lab.demo.flights import TOPICS
from onceover_lab.demo.report import DemoReport, Kill, Rehearsed, make_rows
from onceover_lab.demo.verdict import CopyVerdict
from onceover_lab.embed.driver import Driver

T = TypeVar("T")

DAG_ID: Final = "replicate"
TASK_ID: Final = "replicate"
REHEARSE_DAG: Final = "rehearse"
# Of each the newest thousand records a partition.
REHEARSE_TOPICS: Final = "flights[.].*"
REHEARSE_TIMEOUT_S: Final = 240.0
KILL_AT: Final = 0.4
# Spark takes 10-15 s to start alone, several times that beside Airflow's own start on two cores.
START_TIMEOUT_S: Final = 180.0
CATCH_UP_TIMEOUT_S: Final = 120.0
# The command allows an hour of feeding.
FEED_TIMEOUT_S: Final = 3700.0
END_TIMEOUT_S: Final = 90.0
# Each look asks both clusters; more often would take CPU from the copy.
POLL_S: Final = 0.5


class Narrator(Protocol):
    """Tells a person what happens."""

    def say(self, text: str) -> None:
        """Report an event."""

    def progress(self, fed: int, expected: int, behind: int | None) -> None:
        """Show how many records are fed and how many offsets the copy is behind (None: unknown)."""


class Scheduler(Protocol):
    """What the demo asks of Airflow."""

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str: ...

    def wait_run(self, dag_id: str, run_id: str, *, timeout_s: float) -> str: ...

    def task_tries(self, dag_id: str, run_id: str, task_id: str) -> list[dict[str, Any]]: ...

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any: ...


class Replication(Protocol):
    """What the demo asks of the running flow."""

    name: str

    def status(self) -> Mapping[str, Any]:
        """Return the flow's status (docs/operations.md)."""

    def driver(self) -> Driver | None:
        """Return the driver that runs now, None while there is none."""

    def kill(self, driver: Driver) -> None:
        """Send SIGKILL to the driver."""

    def stop(self) -> None:
        """Ask the flow to stop in order."""


class Feed(Protocol):
    """The feeding thread (:class:`onceover_lab.demo.feed.Feeder`)."""

    tally: Tally

    @property
    def fraction(self) -> float: ...

    @property
    def failed(self) -> bool: ...

    def start(self) -> None: ...

    def release(self) -> None: ...

    def is_alive(self) -> bool: ...

    def stop(self) -> None: ...

    def result(self) -> Tally: ...


@contextmanager
def step(name: str, logs: Path) -> Iterator[None]:
    """Make an error say during which step of the demo it happened, and where the logs are."""
    try:
        yield
    except OnceoverError as error:
        # Changed in place: a subclass may be made of other arguments than message and fields.
        error.message = f"the demo failed while {name}: {error.message}"
        error.resolve = f"{error.resolve}; logs: {logs}" if error.resolve else f"look at the logs: {logs}"
        raise


def await_condition(condition: Callable[[], T | None], timeout_s: float, what: str) -> T:
    """Return the first answer that is not None or False.

    Raises:
        Retriable: there was none within ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() >= deadline:
            raise Retriable(f"waited {timeout_s:g} s for {what}")
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Cast:
    """Everything the story needs."""

    narrator: Narrator
    scheduler: Scheduler
    replication: Replication
    make_feeder: Callable[[], Feed]
    compare: Callable[[], CopyVerdict]
    logs: Path
    airflow: Mapping[str, str]
    begun_s: float


def perform(cast: Cast, expected: int) -> DemoReport:
    """Play the whole story on a running system and return what came of it.

    Raises:
        OnceoverError: a step failed; the text names it and where the logs are.
    """
    scene = _Scene(cast, expected)
    with step("starting the flow from Airflow", cast.logs):
        run_id, driver = scene.start_flow()
    feeder = cast.make_feeder()
    feeder.start()
    try:
        with step("waiting for the first copied records", cast.logs):
            scene.see_first_copied(feeder)
        with step("feeding and killing the driver", cast.logs):
            kill = scene.feed_and_kill(feeder, driver)
        with step("waiting until everything is copied", cast.logs):
            tally = scene.catch_up(feeder)
    finally:
        feeder.stop()
    with step("rehearsing a failover", cast.logs):
        rehearsed = scene.rehearse()
    with step("stopping the flow", cast.logs):
        tries = scene.stop_flow(run_id)
    with step("comparing both clusters", cast.logs):
        cast.narrator.say("An independent client reads both clusters and compares record by record.")
        compare_begun_s = time.monotonic()
        verdict = cast.compare()
    return DemoReport(
        rows=make_rows(tally, verdict, {topic.name: topic.codec for topic in TOPICS}),
        verdict=verdict,
        kill=kill.as_report(tries),
        rehearsed=rehearsed,
        aborted_transactions=tally.aborted_transactions,
        compare_s=time.monotonic() - compare_begun_s,
        total_s=time.monotonic() - cast.begun_s,
        airflow=cast.airflow,
    )


@dataclass(slots=True)
class _KillWatch:
    """The kill and the return of the flow, with the times of each."""

    driver: Driver
    at_fraction: float
    at_s: float
    # The furthest seen before the new driver: a commit that was on its way still belongs to the old one.
    position: int = 0
    new_driver: Driver | None = None
    new_driver_after_s: float = 0.0
    copying_after_s: float | None = None

    def as_report(self, tries: int) -> Kill:
        return Kill(
            pid=self.driver.pid,
            jvm_pid=self.driver.jvm_pid,
            at_fraction=self.at_fraction,
            at_s=self.at_s,
            generation_before=self.driver.generation,
            generation_after=self.new_driver.generation if self.new_driver else self.driver.generation,
            tries=tries,
            new_driver_after_s=self.new_driver_after_s,
            copying_after_s=self.copying_after_s or 0.0,
        )


class _Scene:
    """The steps, with what they share."""

    def __init__(self, cast: Cast, expected: int) -> None:
        self._cast = cast
        self._expected = expected
        self._say = cast.narrator.say

    def start_flow(self) -> tuple[str, Driver]:
        replication = self._cast.replication
        conf = {"flow": replication.name, "run_length": "forever"}
        run_id = self._cast.scheduler.trigger(DAG_ID, conf)
        self._say(f"Airflow runs {DAG_ID} for flow {replication.name}; Spark is starting.")

        def copying() -> Driver | None:
            driver = replication.driver()
            ready = driver is not None and replication.status()["state"] in {"copying", "caught_up"}
            return driver if ready else None

        driver = await_condition(copying, START_TIMEOUT_S, "the flow to start")
        self._say(f"Spark driver {driver.pid} leads the flow as generation {driver.generation}.")
        return run_id, driver

    def see_first_copied(self, feeder: Feed) -> None:
        """Wait until the query really copies: only then can a kill interrupt it."""
        await_condition(
            lambda: _position(self._look(feeder)) > 0, START_TIMEOUT_S, "the first records to be copied"
        )
        self._say("The first records are copied. Feeding goes on at an even pace.")
        feeder.release()

    def feed_and_kill(self, feeder: Feed, driver: Driver) -> _KillWatch:
        begun_s = time.monotonic()

        def time_to_kill() -> bool:
            self._look(feeder)
            return feeder.fraction >= KILL_AT

        await_condition(time_to_kill, FEED_TIMEOUT_S, "the data to be fed")
        fraction, killed_s = feeder.fraction, time.monotonic()
        self._cast.replication.kill(driver)
        self._say(f"kill -9 of Spark driver {driver.pid} and its JVM {driver.jvm_pid} at {fraction:.0%}.")
        watch = _KillWatch(driver, fraction, killed_s - begun_s)
        await_condition(
            lambda: self._is_back(feeder, watch, killed_s), START_TIMEOUT_S, "the flow to come back by itself"
        )
        return watch

    def _is_back(self, feeder: Feed, watch: _KillWatch, killed_s: float) -> bool:
        status = self._look(feeder)
        if watch.new_driver is None:
            watch.position = max(watch.position, _position(status))
            driver = self._cast.replication.driver()
            if driver is None or driver.run == watch.driver.run:
                return False
            watch.new_driver, watch.new_driver_after_s = driver, time.monotonic() - killed_s
            self._say(f"Airflow tries again: driver {driver.pid}, generation {driver.generation}.")
            return False
        # With nothing left to copy, being there is all that a new driver can show.
        nothing_left = not feeder.is_alive() and _is_caught_up(status)
        if _position(status) <= watch.position and not nothing_left:
            return False
        watch.copying_after_s = time.monotonic() - killed_s
        self._say(f"Copying again {watch.copying_after_s:.1f} s after the kill.")
        return True

    def catch_up(self, feeder: Feed) -> Tally:
        def fed() -> bool:
            self._look(feeder)
            return not feeder.is_alive()

        await_condition(fed, FEED_TIMEOUT_S, "the data to be fed")
        tally = feeder.result()
        self._say(f"All {tally.total:,} flights are fed; {sum(tally.aborted.values()):,} more were aborted.")
        await_condition(lambda: _is_caught_up(self._look(feeder)), CATCH_UP_TIMEOUT_S, "the copy to catch up")
        return tally

    def rehearse(self) -> Rehearsed:
        """Rehearse a failover beside the running flow, from Airflow; return what it came to."""
        scheduler, name = self._cast.scheduler, self._cast.replication.name
        self._say("Rehearsing a failover beside the running flow: no client is touched, nothing stays.")
        run_id = scheduler.trigger(REHEARSE_DAG, {"flow": name, "topics": REHEARSE_TOPICS})
        state = scheduler.wait_run(REHEARSE_DAG, run_id, timeout_s=REHEARSE_TIMEOUT_S)
        if state != "success":
            raise NeedsOperator(
                "the rehearsal did not pass",
                where=f"run {run_id} of {REHEARSE_DAG}",
                expected="success",
                seen=state,
                resolve=f"see the log of its task {REHEARSE_DAG}",
            )
        told = scheduler.xcom(REHEARSE_DAG, run_id, REHEARSE_DAG)
        self._say(f"Rehearsed: clients of a real failover would have waited {told['rto_s']:.1f} s for us.")
        return Rehearsed(told["verdict"], told["rto_s"], told["report"])

    def stop_flow(self, run_id: str) -> int:
        """Stop in order; return how many tries Airflow's task needed."""
        self._say("Everything is copied; the flow is asked to stop.")
        self._cast.replication.stop()
        scheduler = self._cast.scheduler
        state = scheduler.wait_run(DAG_ID, run_id, timeout_s=END_TIMEOUT_S)
        if state != "success":
            raise NeedsOperator(
                "Airflow's run did not succeed",
                where=f"run {run_id} of {DAG_ID}",
                expected="success",
                seen=state,
            )
        return len(scheduler.task_tries(DAG_ID, run_id, TASK_ID))

    def _look(self, feeder: Feed) -> Mapping[str, Any]:
        if feeder.failed:
            # Raises what went wrong: nothing that is waited for would ever come.
            feeder.result()
        status = self._cast.replication.status()
        self._cast.narrator.progress(feeder.tally.total, self._expected, status.get("lag_offsets"))
        return status


def _position(status: Mapping[str, Any]) -> int:
    return sum(partition["position"] or 0 for partition in status["partitions"])


def _is_caught_up(status: Mapping[str, Any]) -> bool:
    stopped = [part for part in status["partitions"] if part["stop"] is not None]
    if stopped:
        first = stopped[0]
        raise NeedsOperator(
            f"{len(stopped)} partitions have stopped",
            where=f"{first['topic']}:{first['partition']}",
            seen=str((first["stop"] or {}).get("message")),
        )
    enrolled = {part["topic"] for part in status["partitions"] if part["position"] is not None}
    return enrolled >= {topic.name for topic in TOPICS} and all(
        part["position"] is not None and part["position"] >= part["lso"] for part in status["partitions"]
    )
