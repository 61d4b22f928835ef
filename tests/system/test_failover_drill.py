"""The `failover_drill` DAG in a real Airflow: approved by a person, who fences and moves the clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from onceover.drills import chain as chains
from onceover.planning.operation import wait
from onceover.wiring.failovers.drills import drill_history, drill_journal
from onceover.wiring.flows import open_clusters
from onceover_lab.embed.airflow import AirflowStandalone
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flows import InlineFlow, write_flow
from tests.support.flows.groups import commit, offset_of
from tests.support.flows.replica import delete_topics
from tests.support.session.wait import wait_until
from tests.system.conftest import PLANTED, SWITCHING, AskingRun, Side, failed_logs
from tests.system.person import Person

DAG, APPROVAL, CONFIRM = "failover_drill", "approve_drill", "confirm_drill"
TASKS = ("plan_drill", APPROVAL, "run_drill")
FLOW = "sys-switch"
# Of one that a program keeps writers off.
ENDED = "sys-ended"
TOPIC, GROUP = f"{FLOW}.orders", f"{FLOW}-billing"
TIMEOUT_S = 180.0
# Of a task's log, for an error.
TOLD_CHARACTERS = 4000

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def copied(
    secured_cluster: KafkaCluster, target_cluster: SharedCluster, tmp_path: Any
) -> Iterator[InlineFlow]:
    """The flow, with records and a group, all of which are copied; all of it is forgotten afterwards."""
    with copied_flow(tmp_path, FLOW, secured_cluster, target_cluster) as flow:
        yield flow


@contextmanager
def copied_flow(
    folder: Path, name: str, source_cluster: KafkaCluster, target_cluster: SharedCluster
) -> Iterator[InlineFlow]:
    """Yield a flow that has copied all there is."""
    topic, source = f"{name}.orders", Side(source_cluster.client)
    source.create(topic)
    source.feed(topic, 30)
    commit(source_cluster.client, f"{name}-billing", topic, {0: 5})
    flow = InlineFlow(
        write_flow(folder, name, source_cluster.client, target_cluster.client, [f"{name}[.].*"], lanes=1)
    )
    flow.copy()
    yield flow
    delete_topics(source_cluster.client, [topic])
    there = AdminClient(target_cluster.client).list_topics(timeout=10).topics
    delete_topics(target_cluster.client, [each for each in there if name in each])


def await_asked(run: AskingRun, step: str) -> None:
    """Return once a drill waits for a person, which its log says."""
    asked = f"waiting for a person: `onceover drill confirm {FLOW} {step}`"

    def waits() -> bool:
        return run.states["run_drill"] == "running" and asked in run.log("run_drill")

    wait_until(waits, TIMEOUT_S, f"the drill waits for {step}", poll_s=0.5)


def confirm(run: AskingRun, step: str) -> None:
    """Say that a step was done by hand, as soon as a drill waits for it."""
    await_asked(run, step)
    run_id = run.airflow.trigger(CONFIRM, {"flow": FLOW, "step": step})
    state = run.airflow.wait_run(CONFIRM, run_id, timeout_s=TIMEOUT_S)
    assert state == "success", failed_logs(run.airflow, CONFIRM, run_id)


def test_a_person_approves_fences_and_moves_the_clients(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    copied: InlineFlow,
    target_cluster: SharedCluster,
) -> None:
    """The question has the whole plan; what was said by whom is in the report; the group is in place."""
    run = AskingRun.start(airflow, person, DAG, APPROVAL, {"flow": FLOW, "mode": "planned"})
    question = run.question()
    assert question is not None
    assert f"`{TOPIC}`" in question["body"]
    assert "point of no return" in question["body"]
    run.respond("Approve")
    confirm(run, "fence")
    confirm(run, "redirect")
    assert run.ended() == "success", run.log(*TASKS)
    told = airflow.xcom(DAG, run.run_id, "run_drill")
    assert told["verdict"] == "PASS"
    assert offset_of(target_cluster.client, GROUP, TOPIC) == 5
    assert PLANTED not in run.log(*TASKS) + question["body"]


def test_one_that_somebody_ends_in_airflow_lets_the_writers_in_again(
    airflow: AirflowStandalone,
    person: Person,
    connection: None,
    secured_cluster: KafkaCluster,
    target_cluster: SharedCluster,
    session_home: Path,
    var: Path,
    tmp_path: Path,
) -> None:
    """Airflow asks its task to end, and kills it five seconds later, while a program is letting them in."""
    calls = tmp_path / "calls"
    write_hanging(session_home / SWITCHING, calls)
    with copied_flow(tmp_path, ENDED, secured_cluster, target_cluster) as copied:
        run = AskingRun.start(airflow, person, DAG, APPROVAL, {"flow": ENDED, "mode": "planned"})
        assert run.question() is not None
        run.respond("Approve")
        wait_until(lambda: called(calls) == ["fence"], TIMEOUT_S, "writers are kept off", poll_s=0.5)
        task = f"/api/v2/dags/{DAG}/dagRuns/{run.run_id}/taskInstances/run_drill"
        airflow.call("PATCH", task, {"new_state": "failed"})

        def ended() -> bool:
            chain = drill_history(copied.watch.flow, wait).chain
            return called(calls)[-1] == "let in" and chains.running(chain) is None

        try:
            wait_until(ended, TIMEOUT_S, "writers are let in, and nothing runs", poll_s=0.5)
        except TimeoutError as error:
            error.add_note(run.log("run_drill")[-TOLD_CHARACTERS:])
            raise
        # The first to let them in was killed with the task.
        assert called(calls) == ["fence", "unfence", "unfence", "let in"]
        assert PLANTED not in next(var.rglob("abort.log")).read_text()
        with (
            open_clusters(copied.watch.flow)[1] as target,
            drill_journal(copied.watch.flow, target, wait) as journal,
        ):
            assert chains.fenced_topics(journal.read()) == set()


def write_hanging(program: Path, calls: Path) -> None:
    """Write a program that hangs while it keeps writers off, and while it lets them in for the first time."""
    program.write_text(
        f"""#!/bin/sh
echo "$1" >> {calls}
[ "$(grep -c unfence {calls})" = 2 ] || exec sleep 60
echo "let in" >> {calls}
"""
    )
    program.chmod(0o700)


def called(calls: Path) -> list[str]:
    """Return what a program was called for, and did."""
    return calls.read_text().splitlines() if calls.exists() else [""]
