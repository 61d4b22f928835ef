"""Who goes on where another run left off: another machine, a second run beside the first, nobody for now."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from onceover.connectors.steps import StepName
from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import TIMEOUT_S, Workers
from tests.support.connect.connect_tool import Case, Result
from tests.support.flows.feeds import held
from tests.support.raw.adversary import Adversary
from tests.support.session.wait import wait_until

SECRET = "hunter2-of-the-connector"


@pytest.fixture
def case(workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path) -> Iterator[Case]:
    """A running counting connector on the exactly-once workers."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        case.begin(connection__password=SECRET)
        yield case


def lose_home(case: Case) -> None:
    """Go on at another machine."""
    shutil.rmtree(case.tool.home)


@pytest.mark.soak
def test_another_machine_goes_on_after_a_kill(case: Case) -> None:
    """What the connector was is on the cluster: plan, apply and verify go on from it."""
    case.tool.killed_at(StepName.CONFIGURED, "apply", case.name)
    lose_home(case)

    planned = case.tool.plan(case.name)
    assert [change["what"] for change in planned.document["changes"]] == ["resume"], planned
    applied = case.tool.apply(case.name)
    assert (applied.code, applied.outcome(case.name)) == (0, "done"), applied
    case.assert_goes_on()
    lose_home(case)
    verified = case.tool.verify(case.name)
    assert verified.outcome(case.name) == "done", verified
    written = held(case.client, f"__onceover.connect.{case.cluster.group_id}.runs", 1)[0]
    assert written
    assert not [record for record in written if SECRET.encode() in (record.value or b"")]


@pytest.mark.soak
def test_another_machine_takes_back_after_a_kill(case: Case) -> None:
    """Configuration and state are those of before."""
    before = case.connect.config(case.name)
    case.tool.killed_at(StepName.CONFIGURED, "apply", case.name)
    lose_home(case)

    taken_back = case.tool.rollback(case.name)

    assert (taken_back.code, taken_back.outcome(case.name)) == (0, "done"), taken_back
    assert case.connect.config(case.name) == before
    case.assert_goes_on()


@pytest.mark.soak
def test_another_machine_goes_on_with_a_downgrade_of_all(case: Case) -> None:
    """It has no topic of its own any more, so only the record tells that somebody owes it a resume."""
    case.migrate()
    case.tool.killed_at(StepName.CONFIGURED, "downgrade", case.name)
    lose_home(case)

    applied = case.tool.run("downgrade", "--all", "--apply")

    assert applied.outcome(case.name) == "done", applied
    case.assert_goes_on()


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(StepName.VERIFY, marks=pytest.mark.soak),
        # It is told by the commit itself, and closes its producer with that error.
        StepName.COPY_COMMIT,
        pytest.param(StepName.STOPPED, marks=pytest.mark.soak),
        # The tasks that it would fence now are those that the newer run has resumed.
        pytest.param(StepName.FENCE, marks=pytest.mark.soak),
    ],
    ids=lambda step: step.name,
)
def test_of_two_runs_the_older_is_fenced(case: Case, step: StepName) -> None:
    """Whatever it stumbles over is of the newer one's making, and it leaves that alone."""
    inner: list[Result] = []

    def second(reached: StepName) -> None:
        if reached is step and not inner:
            inner.append(Result(-1, {}))
            inner[0] = case.tool.run("apply", "--connector", case.name)

    outer = case.tool.heard(second, "apply", case.name)

    assert (inner[0].code, inner[0].outcome(case.name)) == (0, "done"), inner
    assert (outer.code, outer.outcome(case.name)) == (4, "fenced"), outer
    assert outer.of(case.name)["error"]["code"] == "FENCED"
    assert case.connect.states(case.name)[0] == "RUNNING"
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.soak
def test_runs_that_were_deleted_in_the_middle_are_written_again(
    case: Case, target_cluster: SharedCluster
) -> None:
    """Another connector's run has made the topic anew by then: what this one reads back is whole."""
    runs = f"__onceover.connect.{case.cluster.group_id}.runs"
    left = [runs]

    def delete(step: StepName) -> None:
        if step is StepName.RESUME and left:
            client = AdminClient(dict(case.client))
            client.delete_topics([left.pop()])[runs].result(TIMEOUT_S)
            wait_until(lambda: runs not in case.connect.topics(), TIMEOUT_S, f"{runs} is gone", poll_s=0.1)
            with Adversary(target_cluster.bootstrap) as adversary:
                adversary.create_topic(runs, config={"cleanup.policy": "compact"})

    applied = case.tool.heard(delete, "apply", case.name)
    assert (applied.code, applied.outcome(case.name)) == (0, "done"), applied
    lose_home(case)

    again = case.tool.verify(case.name)

    assert (again.code, again.outcome(case.name)) == (0, "done"), again
    case.assert_goes_on()


@pytest.mark.soak
def test_a_terminated_run_says_what_it_leaves(case: Case) -> None:
    """`kill`, or an orchestrator's time-out."""
    code = case.tool.signalled_at(signal.SIGTERM, StepName.STOPPED, "apply", case.name)

    said = case.tool.log.read_text()
    assert code == 130, said
    assert "a connector may be stopped now" in said
    assert '"code": "INTERRUPTED"' in said
    case.migrate()
    case.assert_goes_on()
