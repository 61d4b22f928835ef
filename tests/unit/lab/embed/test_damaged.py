"""Files that a crash left empty or half written: nothing fails for them, and nothing goes on running."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onceover.errors import Retriable
from onceover.process.children import ChildProcess
from onceover_lab.demo import feeding, machine
from onceover_lab.demo.machine import fresh_home
from onceover_lab.embed.airflow import MARK, STATE_FILE, State
from onceover_lab.embed.registry import ProcessIdentity
from onceover_lab.embed.service import Service
from onceover_lab.embed.up import airflow as upairflow
from onceover_lab.embed.up import clusters
from tests.support.session.wait import wait_until

READY = "import threading; print('ready', flush=True); threading.Event().wait()"
TIMEOUT_S = 30.0
damaged = pytest.mark.parametrize("text", ["", '{"pid": 1', "[]", "{}", '{"pid": null, "fed": null}', "\x00"])


@contextmanager
def running(home: Path, *arguments: str, **environ: str) -> Iterator[ChildProcess]:
    """A detached process that has begun."""
    # What one before it has said is not its word.
    (home / "trial.log").unlink(missing_ok=True)
    child = ChildProcess.start(
        [sys.executable, "-c", READY, *arguments],
        name="trial",
        log_path=home / "trial.log",
        env={**os.environ, **environ},
        detached=True,
    )
    try:
        wait_until(lambda: "ready" in child.tail(), TIMEOUT_S, "the process runs")
        yield child
    finally:
        child.kill()


@damaged
def test_service_with_a_damaged_record_is_found_and_ended(tmp_path: Path, text: str) -> None:
    """By what it runs; the next record is read again."""
    service = Service(tmp_path, tmp_path / "settings", ("python", "-c", READY))
    with running(tmp_path, str(service.argument)) as child:
        (tmp_path / "process.json").write_text(text)
        assert not service.alive
        assert service.end()
        assert not child.alive
    service.record(os.getpid())
    assert service.running == ProcessIdentity.of(os.getpid())


@damaged
def test_damaged_state_of_the_feed_is_none(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and `down` goes on."""
    path = tmp_path / "clusters" / "feed" / "feed.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert feeding.status(tmp_path) is None
    assert f"{path} is damaged" in caplog.text
    assert feeding.down(tmp_path) is False


@damaged
def test_airflow_with_a_damaged_state_is_ended(tmp_path: Path, text: str) -> None:
    """Its processes say whose they are; another home's stay."""
    other = tmp_path / "other"
    with (
        running(tmp_path, **{MARK: "own", "AIRFLOW_HOME": str(tmp_path)}) as own,
        running(other, **{MARK: "else", "AIRFLOW_HOME": str(other)}) as left,
    ):
        (tmp_path / STATE_FILE).write_text(text)
        assert State.read(tmp_path) == State("own")
        assert upairflow.down(tmp_path) is True
        assert (own.alive, left.alive) == (False, True)
    assert State.read(tmp_path) == State()


def test_down_goes_on_past_a_part_that_fails(tmp_path: Path) -> None:
    """What could not be stopped is named; all the rest is stopped, and a damaged register is made new."""
    airflow, register = tmp_path / "airflow", tmp_path / "clusters" / "register.json"
    (tmp_path / "clusters" / "feed" / "process.json").mkdir(parents=True)
    register.write_text("")
    with running(airflow, **{MARK: "own", "AIRFLOW_HOME": str(airflow)}) as child:
        with pytest.raises(Retriable, match=r"not everything could be stopped.*feed: .*process\.json"):
            machine.down(tmp_path, print)
        assert not child.alive
    assert json.loads(register.read_text())["clusters"] == []
    assert not any(cluster["alive"] for cluster in clusters.status(tmp_path).values())


def test_what_a_killed_demo_has_left_is_ended(tmp_path: Path) -> None:
    """By the next `down` or demo: a Spark driver waits long for clusters that went with the demo."""
    home = tmp_path / "demo"
    left = {MARK: "left", "AIRFLOW_HOME": str(home / "airflow")}
    with running(tmp_path, **left) as driver:
        assert machine.down(tmp_path, print)["demo"] is True
        assert not driver.alive
    assert machine.down(tmp_path, print)["demo"] is False
    with running(tmp_path, **left) as driver, fresh_home(home):
        assert not driver.alive


def test_a_demo_that_runs_keeps_what_it_has(tmp_path: Path) -> None:
    """`down` leaves it alone; its home is emptied when it is begun, but for the lock."""
    home = tmp_path / "demo"
    (home / "clusters" / "east").mkdir(parents=True)
    (home / "receipts").touch()
    own = {MARK: "own", "AIRFLOW_HOME": str(home / "airflow")}
    with fresh_home(home), running(tmp_path, **own) as scheduler:
        assert [path.relative_to(home) for path in home.rglob("*")] == [
            Path("clusters"),
            Path("clusters/.lock"),
        ]
        assert machine.down(tmp_path, print)["demo"] is False
        assert scheduler.alive
