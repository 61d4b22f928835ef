"""Connectors that fail, or whose system is away: what is said of them is what the workers say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.connectors.steps import StepName
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import TIMEOUT_S, Workers, assert_counted
from tests.support.connect.connect_tool import Case
from tests.support.session.wait import wait_until

SECRET = "not-a-number-but-hunter2"


@pytest.fixture
def trouble(tmp_path: Path) -> Path:
    """A file that makes trouble while it exists."""
    return tmp_path / "trouble"


@pytest.fixture
def case(
    workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path, trouble: Path
) -> Iterator[Case]:
    """A running counting connector on the exactly-once workers."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        case.begin(refuse__if=f"{trouble}.refuse", fail__if=f"{trouble}.fail")
        yield case


def await_failed(case: Case) -> None:
    """Wait until the worker that is asked first knows: each learns of it for itself."""
    wait_until(lambda: "FAILED" in case.connect.states(case.name), TIMEOUT_S, "it has failed", poll_s=0.1)


def test_a_configuration_that_would_be_refused_stops_nobody(case: Case, trouble: Path) -> None:
    """The system that a plugin asks may be away while its tasks only wait for it."""
    away = Path(f"{trouble}.refuse")
    away.touch()
    before = case.connect.config(case.name)

    planned, applied = case.tool.plan(case.name), case.tool.apply(case.name)

    assert planned.codes() == {"CONFIG_REFUSED"}
    assert (applied.code, applied.outcome(case.name)) == (3, "refused")
    assert "the database is away" in applied.of(case.name)["message"]
    assert case.connect.config(case.name) == before
    assert case.connect.states(case.name)[0] == "RUNNING"
    # After a kill, what would bring it back is named; and the way back is refused as plainly.
    away.unlink()
    case.tool.killed_at(StepName.CONFIGURE, "apply", case.name)
    away.touch()
    refused = case.tool.apply(case.name)
    assert "rollback" in refused.of(case.name)["message"]
    # Its configuration is the former one still: nothing is put, so nothing is refused.
    assert case.tool.rollback(case.name).code == 0
    case.assert_goes_on()


@pytest.mark.soak
def test_a_refusal_shows_nothing_that_workers_alone_know(case: Case, tmp_path: Path) -> None:
    """A secret that they read from a file, and quote when they object to it: after the stop, and before."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("pause=50\n")
    case.connect.count(case.name, case.topic, pause__ms=f"${{file:{secrets}:pause}}")
    # The workers report the former tasks still, and have committed the new ones: it is no other mode.
    assert not case.tool.plan(case.name).codes()
    case.connect.await_running(case.name)

    def change(step: StepName) -> None:
        if step is StepName.CONFIGURE:
            secrets.write_text(f"pause={SECRET}\n")

    after = case.tool.heard(change, "apply", case.name)
    planned = case.tool.plan(case.name)

    assert after.outcome(case.name) == "refused" and "CONFIG_REFUSED" in planned.codes(), (after, planned)
    for answer in (after, planned):
        assert "Invalid value *** for configuration pause.ms" in json.dumps(answer.document)
        assert SECRET not in f"{answer}"


@pytest.mark.soak
def test_a_refusal_after_the_stop_lets_the_connector_go_on(case: Case, trouble: Path) -> None:
    """Its system went away meanwhile: it does what it did, and that is said."""
    away = Path(f"{trouble}.refuse")

    def refuse(step: StepName) -> None:
        if step is StepName.CONFIGURE:
            away.touch()

    applied = case.tool.heard(refuse, "apply", case.name)

    found = applied.of(case.name)
    assert (applied.code, found["outcome"], found["state"]) == (3, "refused", "RUNNING"), found
    assert "offsets.storage.topic" not in case.connect.config(case.name)
    case.assert_goes_on()
    away.unlink()
    case.migrate()
    case.assert_goes_on()


@pytest.mark.soak
@pytest.mark.parametrize("who", ["", "tasks"], ids=["connector", "tasks"])
def test_a_failed_connector_is_said_to_have_failed(case: Case, trouble: Path, who: str) -> None:
    """It is not moved, not called good, and the way back ends with what the workers say of it."""
    broken = Path(f"{trouble}.fail")
    case.tool.killed_at(StepName.RESUME, "apply", case.name)
    broken.write_text(who)

    taken_back = case.tool.rollback(case.name)

    found = taken_back.of(case.name)
    assert taken_back.code == 3 and found["outcome"] != "done", found
    assert "the database is gone" in found["message"]
    assert "offsets.storage.topic" not in case.connect.config(case.name)
    await_failed(case)
    listed = case.tool.run("list").document["connectors"]
    (row,) = (each for each in listed if each["name"] == case.name)
    assert "the database is gone" in row["failure"]
    planned = case.tool.plan(case.name)
    assert "CONNECTOR_FAILED" in planned.codes()
    assert case.tool.apply(case.name).outcome(case.name) == "refused"
    broken.unlink()
    # The way back is not over before the connector does what it did.
    again = case.tool.rollback(case.name)
    assert (again.code, again.outcome(case.name)) == (0, "done"), again
    assert "RUNNING" in again.of(case.name)["message"]
    case.assert_goes_on()
    case.migrate()
    broken.write_text(who)
    case.connect.restart(case.name)
    await_failed(case)
    verified = case.tool.verify(case.name)
    assert (verified.code, verified.outcome(case.name)) == (1, "failed")
    assert "the database is gone" in verified.of(case.name)["message"]
    # A reason to take it back: a failed connector can be stopped.
    broken.unlink()
    assert case.tool.downgrade(case.name).outcome(case.name) == "done"
    assert_counted(case.connect.await_more(case.topic))
