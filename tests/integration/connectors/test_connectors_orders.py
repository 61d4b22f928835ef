"""Orders of persons and of runs that come at the same time, on live workers: whose is whose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onceover.connectors.steps import StepName
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import Workers
from tests.support.connect.connect_tool import Case, Result

# Of a migration, the commands in their order.
STOP, CONFIGURE, RESUME = 1, 2, 3


@pytest.fixture
def case(workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path) -> Iterator[Case]:
    """A running counting connector on the exactly-once workers."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        case.begin()
        yield case


def at(wanted: StepName, count: int, act: Callable[[], None]) -> Callable[[StepName], None]:
    """Return a listener that acts when a step is reached for the ``count``-th time."""
    left = [count]

    def listen(step: StepName) -> None:
        left[0] -= step is wanted
        if step is wanted and left[0] == 0:
            act()

    return listen


def changed(result: Result, case: Case) -> str:
    """Return what is said where a run has noticed somebody else."""
    found = result.of(case.name)
    assert result.code == 3, found
    assert found["error"]["code"] == "CHANGED_SINCE", found
    return str(found["message"])


@pytest.mark.soak
@pytest.mark.parametrize(
    "step",
    [StepName.ORDER, StepName.STOPPED],
    ids=lambda step: step.name,
)
def test_a_persons_stop_beside_that_of_a_run_is_the_persons(case: Case, step: StepName) -> None:
    """Just before it, or while the run waits: whoever stopped it as well wants it to stay so."""
    late = case.tool.heard(at(step, 1, lambda: case.connect.stop(case.name)), "apply", case.name)

    assert "somebody" in changed(late, case) or "one of which is this run's" in changed(late, case)
    case.connect.await_stopped(case.name)
    assert "offsets.storage.topic" not in case.connect.config(case.name)
    # It is moved, and left as the person wants it, who is told how to let it run.
    planned = case.tool.plan(case.name)
    assert "somebody has asked for STOPPED" in " ".join(planned.of(case.name)["warnings"]), planned
    again = case.migrate(outcome="unverifiable")
    assert f"/connectors/{case.name}/resume" in again.of(case.name)["message"]
    case.connect.await_stopped(case.name)


@pytest.mark.soak
@pytest.mark.parametrize(
    "step", [StepName.STOP, StepName.ORDER, StepName.STOPPED], ids=lambda step: step.name
)
def test_a_persons_stop_after_a_kill_is_the_persons(case: Case, step: StepName) -> None:
    """Also where the killed run had written down that it was about to ask for the same."""
    case.tool.killed_at(step, "apply", case.name)
    case.connect.stop(case.name)

    case.migrate(outcome="unverifiable")

    case.connect.await_stopped(case.name)
    case.connect.resume(case.name)
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.soak
def test_a_stop_that_a_resume_came_behind_is_given_back(case: Case) -> None:
    """The run had looked, and its command was on its way."""
    late = case.tool.heard(
        at(StepName.ORDER, RESUME, lambda: case.connect.call("PUT", f"/connectors/{case.name}/stop")),
        "apply",
        case.name,
    )

    assert "STOPPED was asked for again" in changed(late, case)
    case.connect.await_stopped(case.name)
    case.connect.resume(case.name)
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.soak
def test_a_configuration_that_the_runs_came_behind_is_put_back(case: Case) -> None:
    """Nothing of what a person has put is lost; the next run moves the connector with it."""
    late = case.tool.heard(
        at(StepName.ORDER, CONFIGURE, lambda: case.connect.update(case.name, batch=7)), "apply", case.name
    )

    assert "the other configuration was put back" in changed(late, case)
    config = case.connect.config(case.name)
    assert (config["batch"], config.get("offsets.storage.topic")) == ("7", None)
    case.migrate()
    assert case.connect.config(case.name)["batch"] == "7"
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.soak
def test_a_connector_that_the_runs_configuration_made_anew_is_told_of(case: Case) -> None:
    """A person had deleted it as the command was on its way: workers start what they do not know."""
    late = case.tool.heard(
        at(StepName.ORDER, CONFIGURE, lambda: case.connect.delete(case.name)), "apply", case.name
    )

    assert f"curl -X DELETE {case.cluster.urls[0]}/connectors/{case.name}`" in changed(late, case)
    case.connect.await_running(case.name)


@pytest.mark.soak
def test_a_stop_of_a_run_that_was_overtaken_is_taken_back(case: Case) -> None:
    """It was on its way when the newer run began and came to its end; what stands still later is told of."""
    inner: list[Result] = []

    def second() -> None:
        inner.append(case.tool.run("apply", "--connector", case.name))

    outer = case.tool.heard(at(StepName.ORDER, STOP, second), "apply", case.name)

    assert (inner[0].code, inner[0].outcome(case.name)) == (0, "done"), inner
    assert (outer.code, outer.outcome(case.name)) == (4, "fenced"), outer
    assert "STARTED was asked for again" in outer.of(case.name)["message"], outer
    case.connect.await_running(case.name)
    case.assert_goes_on()
    case.assert_never_back()
    assert case.tool.verify(case.name).code == 0
    # Somebody stops it: no later command calls that done without a word.
    case.connect.stop(case.name)
    resume = f"/connectors/{case.name}/resume"
    for found in (case.tool.verify(case.name), case.tool.apply(case.name)):
        assert (found.code, found.outcome(case.name)) == (3, "unverifiable"), found
        assert "somebody has asked for STOPPED" in found.of(case.name)["message"]
        assert resume in found.of(case.name)["message"]
    planned = case.tool.plan(case.name).of(case.name)
    assert resume in " ".join(planned["warnings"]), planned


@pytest.mark.soak
def test_a_resume_after_a_kill_at_the_resume_is_the_persons(case: Case) -> None:
    """The run is over: the connector is judged, and not stopped whatever its offsets do."""
    case.tool.killed_at(StepName.RESUME, "apply", case.name)
    case.connect.resume(case.name)
    case.connect.await_running(case.name)

    planned = case.tool.plan(case.name)

    assert (planned.code, planned.document["changes"]) == (0, [])
    assert "interrupted run has resumed it" not in " ".join(planned.of(case.name)["warnings"]), planned
    case.assert_goes_on()
    assert case.tool.apply(case.name).outcome(case.name) == "done"


@pytest.mark.soak
def test_what_a_killed_run_owes_is_told_whoever_is_asked(case: Case) -> None:
    """That it has no topic of its own yet is no way back that was done; asked again, the run goes on."""
    case.tool.killed_at(StepName.COPY_COMMIT, "apply", case.name)

    back = case.tool.downgrade(case.name)
    assert (back.outcome(case.name), back.of(case.name)["error"]["code"]) == ("refused", "INTERRUPTED")
    for found in (back, case.tool.verify(case.name)):
        message = found.of(case.name)["message"]
        assert "it is STOPPED by an interrupted run" in message
        assert f"onceover connectors rollback {case.tool.name} --connector {case.name} --apply" in message
    case.connect.await_stopped(case.name)

    case.migrate()
    case.assert_goes_on()
    case.assert_never_back()
