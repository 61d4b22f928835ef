"""The order of the demo's events, with everything outside scripted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover_lab.demo import play
from onceover_lab.demo.feed import Tally
from onceover_lab.demo.flights import TOPICS
from onceover_lab.demo.play import Cast, perform, step
from onceover_lab.demo.verdict import CopyVerdict, Partition, PartitionVerdict
from onceover_lab.embed.driver import Driver

EACH = 100
EXPECTED = EACH * len(TOPICS)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "POLL_S", 0)


class World:
    """Feed, flow, Airflow and judge in one: every look at the status lets a little happen."""

    name = "flights-dr"

    def __init__(self) -> None:
        self.events: list[str] = []
        self.said: list[str] = []
        self.tally = Tally()
        self.fed = 0
        self.position = 0
        self.generation = 0
        self.alive = False
        self.comes_back = True
        self.run_state = self.rehearsal_state = "success"
        self.stop_code: dict[str, Any] | None = None
        self.feed_error: OnceoverError | None = None
        self.feeding = False
        self.released = False

    # the flow
    def status(self) -> Mapping[str, Any]:
        if self.feeding and not self.fed:
            self.fed = EXPECTED // 100
        elif self.feeding and self.released:
            self.fed = min(self.fed + EXPECTED // 10, EXPECTED)
        if self.alive:
            self.position = self.fed
        elif self.comes_back and self.generation:
            self._start_driver()
        share, target = self.fed // len(TOPICS), self.position // len(TOPICS)
        self.tally.produced = {topic.name: share for topic in TOPICS}
        stop = self.stop_code
        state = "stopped" if stop else "copying"
        partitions = [
            {
                "topic": t.name,
                "partition": 0,
                "position": target,
                "lso": share,
                "state": state,
                "stop": self.stop_code,
            }
            for t in TOPICS
        ]
        return {"state": "copying", "lag_offsets": self.fed - self.position, "partitions": partitions}

    def driver(self) -> Driver | None:
        if not self.generation:
            return None
        return Driver(
            100 + self.generation, 200 + self.generation, f"run-{self.generation}", self.generation, 0
        )

    def kill(self, driver: Driver) -> None:
        self.events.append(f"kill {driver.pid} at {self.fraction:.1f}")
        self.alive = False

    def _start_driver(self) -> None:
        self.generation += 1
        self.alive = True
        self.events.append(f"generation {self.generation}")

    # the feed
    @property
    def fraction(self) -> float:
        return self.fed / EXPECTED

    @property
    def failed(self) -> bool:
        return self.feed_error is not None

    def start(self) -> None:
        self.feeding = True
        self.events.append("feed")

    def release(self) -> None:
        self.released = True
        self.events.append("full pace")

    def is_alive(self) -> bool:
        return self.fed < EXPECTED and not self.failed

    def stop(self) -> None:
        if self.feeding:
            self.feeding = False
            self.events.append("feed stopped")
        else:
            self.events.append("flow stopped")

    def result(self) -> Tally:
        if self.feed_error is not None:
            raise self.feed_error
        return self.tally

    # Airflow
    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        self.events.append(f"trigger {dag_id} {conf['flow']} {conf.get('run_length', conf.get('topics'))}")
        if dag_id == "replicate":
            self._start_driver()
        return f"{dag_id}-run"

    def wait_run(self, dag_id: str, run_id: str, *, timeout_s: float) -> str:
        return self.rehearsal_state if dag_id == "rehearse" else self.run_state

    def task_tries(self, dag_id: str, run_id: str, task_id: str) -> list[dict[str, Any]]:
        return [{"try_number": number} for number in range(1, self.generation + 1)]

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        assert (dag_id, run_id, task_id) == ("rehearse", "rehearse-run", "rehearse")
        return {"verdict": "PASS", "rto_s": 1.5, "report": "report.html"}

    # the person, the judge
    def say(self, text: str) -> None:
        self.said.append(text)

    def progress(self, fed: int, expected: int, behind: int | None) -> None:
        assert 0 <= fed <= expected

    def compare(self) -> CopyVerdict:
        self.events.append("compare")
        return CopyVerdict(
            tuple(PartitionVerdict(Partition(t.name, 0), Partition(t.name, 0), EACH, EACH) for t in TOPICS)
        )

    def cast(self) -> Cast:
        return Cast(
            narrator=self,
            scheduler=self,
            replication=self,
            make_feeder=lambda: self,
            compare=self.compare,
            logs=Path("var/demo"),
            airflow={"url": "http://127.0.0.1:1"},
            begun_s=0.0,
        )


def test_story_kills_once_at_forty_percent_and_compares_last() -> None:
    """Trigger, feed, kill, a new generation, everything copied, stop, compare: in this order."""
    world = World()
    report = perform(world.cast(), EXPECTED)
    assert world.events == [
        "trigger replicate flights-dr forever",
        "generation 1",
        "feed",
        "full pace",
        "kill 101 at 0.4",
        "generation 2",
        "feed stopped",
        "trigger rehearse flights-dr flights[.].*",
        "flow stopped",
        "compare",
    ]
    assert report.ok
    assert (report.kill.generation_before, report.kill.generation_after, report.kill.tries) == (1, 2, 2)
    assert report.produced == EXPECTED


def test_a_rehearsal_that_does_not_pass_ends_the_demo() -> None:
    """With the task whose log says why; the feed is stopped all the same."""
    world = World()
    world.rehearsal_state = "failed"
    with pytest.raises(NeedsOperator, match="the rehearsal did not pass"):
        perform(world.cast(), EXPECTED)
    assert "compare" not in world.events


def test_flow_that_does_not_come_back_fails_and_names_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """No report without a recovery; the feed is stopped; the text says where the logs are."""
    monkeypatch.setattr(play, "START_TIMEOUT_S", 0.05)
    world = World()
    world.comes_back = False
    with pytest.raises(Retriable, match="while feeding and killing the driver: waited") as caught:
        perform(world.cast(), EXPECTED)
    assert "var/demo" in str(caught.value)
    assert world.events[-1] == "feed stopped"


def test_refused_record_ends_the_demo_at_once() -> None:
    """A feed that failed is not waited for."""
    world = World()
    world.feed_error = Retriable("feeding the source failed")
    with pytest.raises(Retriable, match="feeding the source failed"):
        perform(world.cast(), EXPECTED)


def test_failed_airflow_run_fails_the_demo() -> None:
    """Right data after a failed run is still no success."""
    world = World()
    world.run_state = "failed"
    with pytest.raises(NeedsOperator, match="while stopping the flow: Airflow's run did not succeed"):
        perform(world.cast(), EXPECTED)
    assert "compare" not in world.events


def test_stopped_partition_ends_the_wait_with_its_message() -> None:
    """A partition that needs a person never catches up."""
    world = World()
    world.stop_code = {"message": "the source log was truncated"}
    with pytest.raises(NeedsOperator, match="the source log was truncated"):
        perform(world.cast(), EXPECTED)


def test_step_keeps_the_kind_of_the_error() -> None:
    """The exit code depends on it, and its constructor is its own business."""

    class Special(NeedsOperator):
        def __init__(self, things: list[str]) -> None:
            super().__init__(things[0], code="X", seen="s", resolve="do it")

    with pytest.raises(Special) as caught, step("testing", Path("logs")):
        raise Special(["no"])
    assert caught.value.code == "X"
    assert caught.value.message == "the demo failed while testing: no"
    assert caught.value.resolve == "do it; logs: logs"
