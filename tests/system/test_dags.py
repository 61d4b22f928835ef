"""The DAG files as Airflow reads them."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions.param import ParamsDict
from airflow.serialization.serialized_objects import DagSerialization

from onceover.config.values import spread

DAGS = Path(__file__).parents[2] / "dags"
COPYING = {"replicate", "replicate_nightly", "replicate_always"}
# Daily, unless the flow file says otherwise.
AUDITING = {"audit", "audit_by-hand", "audit_nightly", "audit_always"}
REHEARSING = {"rehearse", "rehearse_by-hand", "rehearse_nightly", "rehearse_always"}
TASKS = {"check_flow": {"replicate", "report_result"}, "replicate": {"report_result"}, "report_result": set()}
HEAVY = (
    "pyspark",
    "confluent_kafka",
    "kafka.protocol",
    "aiokafka",
    "pyarrow",
    "pandas",
    "openlineage",
    "airflow.providers.openlineage.plugins",
    "onceover.copy",
    "onceover.lead",
    "onceover.groups",
    "onceover.connectors",
    "onceover.spark",
)


@pytest.fixture
def dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All DAGs, with one flow by hand, one nightly and one that never ends."""
    for name, schedule in (("by-hand", "null"), ("nightly", "0 3 * * *"), ("always", "@continuous")):
        quoted = schedule if schedule == "null" else f'"{schedule}"'
        (tmp_path / f"{name}.yaml").write_text(f"flow: {name}\nschedules: {{replicate: {quoted}}}\n")
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    bag = DagBag(DAGS, collect_dags=True)
    assert bag.import_errors == {}
    return bag.dags


def test_dag_files_import_nothing_heavy(tmp_path: Path) -> None:
    """Airflow reads the files again and again: neither Spark nor a Kafka client may come with them.

    Looks at the modules and not at the clock, which says as much about the machine.
    """
    code = (
        "import sys, airflow.sdk, runpy\n"
        f"for path in {[str(path) for path in sorted(DAGS.glob('*.py'))]!r}:\n"
        "    runpy.run_path(path)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=200)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_copying_dag_has_its_tasks_in_order(dags: dict[str, Any]) -> None:
    """Check, copy, report; the report runs after a failed copy, too, and does not hide it."""
    assert set(dags) == COPYING | {
        "sync_topics",
        "sync_group_offsets",
        "seed_progress",
        "repair_partition",
        "migrate_connector_offsets",
        "failover_drill",
        "confirm_drill",
        "export_orphans",
        "failback",
        *AUDITING,
        *REHEARSING,
    }
    for dag in (dags[name] for name in COPYING):
        assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == TASKS
        assert dag.get_task("report_result").is_teardown
        assert not dag.get_task("report_result").on_failure_fail_dagrun
        assert dag.doc_md


def test_the_pages_tell_of_every_dag_and_every_field(dags: dict[str, Any]) -> None:
    """If not: PYTHONPATH=include .venv/bin/python scripts/make_forms.py; the table of DAGs is by hand."""
    made = runpy.run_path(str(DAGS.parent / "scripts" / "make_forms.py"))
    assert made["PAGE"].read_text() == made["page"](dags)
    table = (
        (DAGS.parent / "docs" / "airflow.md")
        .read_text()
        .partition("\n## The DAGs\n")[2]
        .partition("\n## ")[0]
    )
    told = re.findall(r"^\| `(\w+(?:<flow>)?)` \|", table, re.MULTILINE)
    there = [re.sub("_(by-hand|nightly|always)$", "_<flow>", name) for name in dags]
    # None of the flows here asks for groups on a schedule; test_flows shows that one may.
    assert sorted(told) == sorted({*there, "sync_group_offsets_<flow>"})


def test_flow_is_picked_from_the_files(dags: dict[str, Any]) -> None:
    """The form lists every flow and opens valid, with the first one picked."""
    params: ParamsDict = dags["replicate"].params
    assert params.get_param("flow").schema["enum"] == ["always", "by-hand", "nightly"]
    assert params["flow"] == "always"


def test_schedules_of_the_flow_files_give_dags_of_their_own(dags: dict[str, Any]) -> None:
    """Nightly runs end when caught up; a continuous one runs on. Neither overlaps itself."""
    nightly, always, by_hand = dags["replicate_nightly"], dags["replicate_always"], dags["replicate"]
    assert nightly.params.dump() == {"flow": "nightly", "run_length": "caught-up", "master": None}
    assert always.params.dump() == {"flow": "always", "run_length": "forever", "master": None}
    assert [dag.max_active_runs for dag in (nightly, always)] == [1, 1]
    assert [dag.catchup for dag in (nightly, always, by_hand)] == [False] * 3
    assert [dag.schedule for dag in (nightly, always, by_hand)] == ["0 3 * * *", "@continuous", None]


def test_a_continuous_flow_runs_again_and_again(dags: dict[str, Any]) -> None:
    """Each run has a logical date of its own; without, Airflow takes the second one for the first."""
    scheduled: Any = DagSerialization.from_dict(DagSerialization.to_dict(dags["replicate_always"]))
    first = scheduled.next_dagrun_info(last_automated_run_info=None)
    second = scheduled.next_dagrun_info(last_automated_run_info=first)
    assert first.logical_date < second.logical_date <= second.data_interval.end


def test_a_scheduled_flow_does_not_run_before_its_time(dags: dict[str, Any]) -> None:
    """A new flow file with a nightly schedule starts nothing in the middle of the day."""
    assert [dag.dag_id for dag in dags.values() if dag.start_date is not None] == ["replicate_always"]


def test_runs_that_are_to_end_have_a_deadline(dags: dict[str, Any]) -> None:
    """Rehearsals, audits, and copies that a schedule starts and that end by themselves; none but those."""
    hours = {
        name: alert.interval.total_seconds() / 3600
        for name, dag in dags.items()
        for alert in dag.deadline or ()
    }
    assert hours == {
        **dict.fromkeys(REHEARSING, 1.0),
        **dict.fromkeys(AUDITING, 12.0),
        "replicate_nightly": 12.0,
    }


def test_every_dag_says_whose_it_is(dags: dict[str, Any]) -> None:
    """By tag and owner; a flow's own DAGs carry the flow as a tag."""
    assert {dag.owner for dag in dags.values()} == {"onceover"}
    assert dags["audit"].tags == {"onceover"}
    assert dags["replicate_nightly"].tags == dags["audit_nightly"].tags == {"onceover", "nightly"}


def test_only_the_copy_is_retried_and_soon(dags: dict[str, Any]) -> None:
    """A bad flow fails at once; a killed driver is back within seconds."""
    dag = dags["replicate"]
    assert dag.get_task("check_flow").retries == 0
    assert dag.get_task("replicate").retries > 100
    assert dag.get_task("replicate").retry_delay.total_seconds() <= 5
    assert dag.get_task("replicate").has_retry_policy


def test_topics_are_planned_approved_applied_and_reported(dags: dict[str, Any]) -> None:
    """In this order; not asked counts as approved, rejected does not reach the clusters."""
    dag = dags["sync_topics"]
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        "plan_topics": {"approve_changes"},
        "approve_changes": {"apply_topics"},
        "apply_topics": {"report_topics"},
        "report_topics": set(),
    }
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert rules.pop("approve_changes") == "all_success"
    assert set(rules.values()) == {"none_failed"}
    assert all(task.has_retry_policy and 0 < task.retries <= 10 for task in dag.tasks)
    assert dag.params.get_param("apply").value is True
    assert dag.params.get_param("flow").schema["enum"] == ["always", "by-hand", "nightly"]
    assert dag.schedule is None
    assert dag.doc_md


def test_repairs_are_planned_approved_applied_and_reported(dags: dict[str, Any]) -> None:
    """In this order; a plan that refuses fails before anybody is asked."""
    dag = dags["repair_partition"]
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        "plan_repair": {"approve_repair"},
        "approve_repair": {"apply_repair"},
        "apply_repair": {"report_repair"},
        "report_repair": set(),
    }
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert rules.pop("approve_repair") == "all_success"
    assert set(rules.values()) == {"none_failed"}
    assert all(task.has_retry_policy and 0 < task.retries <= 10 for task in dag.tasks)
    assert dag.params.dump() == {
        "flow": "always",
        "action": "resume",
        "topic": None,
        "partition": None,
        "offset": None,
        "apply": True,
    }
    assert dag.schedule is None
    assert dag.doc_md


def test_scheduled_group_syncs_never_wait_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand a person is asked; on a schedule risky moves are left alone, and runs do not overlap."""
    for name, schedule in (("hourly", "@hourly"), ("always", "@continuous")):
        (tmp_path / f"{name}.yaml").write_text(
            f'flow: {name}\nschedules: {{sync_group_offsets: "{schedule}"}}\n'
        )
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    dags = DagBag(DAGS, collect_dags=True).dags
    hourly, always, by_hand = (dags[f"sync_group_offsets{suffix}"] for suffix in ("_hourly", "_always", ""))
    common = {"direction": "failover", "group": None, "allow_rewind": False, "apply": True}
    assert hourly.params.dump() == {**common, "flow": "hourly", "until": "once", "approve": False}
    assert always.params.dump() == {**common, "flow": "always", "until": "1h", "approve": False}
    assert by_hand.params["approve"] is True
    assert [dag.max_active_runs for dag in (hourly, always)] == [1, 1]
    assert {task.task_id: task.downstream_task_ids for task in by_hand.tasks} == {
        "plan_groups": {"approve_moves"},
        "approve_moves": {"apply_groups"},
        "apply_groups": set(),
    }


def test_progress_is_planned_approved_and_applied(dags: dict[str, Any]) -> None:
    """A person is asked in between; rejected does not reach the clusters; started by hand only."""
    dag = dags["seed_progress"]
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        "plan_progress": {"approve_progress"},
        "approve_progress": {"apply_progress"},
        "apply_progress": set(),
    }
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert set(rules.values()) == {"all_success", "none_failed"} and rules["apply_progress"] == "none_failed"
    assert all(task.has_retry_policy and 0 < task.retries <= 10 for task in dag.tasks)
    assert dag.params.get_param("kind").schema["enum"] == ["seed", "adopt"]
    assert (dag.params["apply"], dag.params["replace"], dag.schedule) == (True, False, None)
    assert dag.doc_md


def test_the_way_back_asks_before_each_of_its_steps(dags: dict[str, Any]) -> None:
    """The tasks of other DAGs in a row; a question that is not put stops nothing, a failure does."""
    dag = dags["failback"]
    order = ["find_way_back", "plan_orphans", "approve_orphans", "apply_orphans"]
    order += ["plan_progress", "approve_progress", "apply_progress", "start_replicate", "await_caught_up"]
    order += ["plan_drill", "approve_drill", "run_drill"]
    followers = {a: {b} for a, b in pairwise(order)} | {order[-1]: set()}
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == followers
    asking = {task.task_id for task in dag.tasks if task.trigger_rule.value == "all_success"}
    assert asking == {"find_way_back", "approve_orphans", "approve_progress", "approve_drill"}
    retries = {task.task_id: task.retries for task in dag.tasks if task.has_retry_policy}
    assert retries.pop("await_caught_up") > 100
    assert retries.keys() == {*order} - {"await_caught_up"} and all(0 < n <= 10 for n in retries.values())
    assert dag.params.dump() == {
        "flow": "always",
        "topics": None,
        "rebuild": True,
        "take_over": False,
        "forget_groups": None,
        "apply": True,
    }
    assert dag.doc_md


def test_connectors_are_listed_picked_planned_approved_applied_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order. The form offers the Connect files; connectors are asked of the live cluster later."""
    for name in ("east", "west"):
        (tmp_path / f"{name}.yaml").write_text(f"connect: {name}\n")
    monkeypatch.setenv("ONCEOVER_CONNECT", str(tmp_path))
    dags: dict[str, Any] = DagBag(DAGS, collect_dags=True).dags
    dag = dags["migrate_connector_offsets"]
    order = ["list_connectors", "pick_connectors", "plan_migration"]
    order += ["approve_migration", "apply_migration", "verify_migration"]
    followers = {a: {b} for a, b in pairwise(order)} | {order[-1]: set()}
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == followers
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert {name for name, rule in rules.items() if rule == "none_failed"} == {
        "plan_migration",
        "apply_migration",
        "verify_migration",
    }
    assert all(task.has_retry_policy and 0 < task.retries <= 10 for task in dag.tasks)
    assert dag.params.get_param("connect").schema["enum"] == ["east", "west"]
    assert dag.params["connect"] == "east"
    assert (dag.params["connectors"], dag.params["apply"], dag.schedule) == ([], True, None)
    assert dag.doc_md


def test_audits_are_by_hand_and_scheduled_and_reported_in_any_case(dags: dict[str, Any]) -> None:
    """Check, compare, report; the report runs after a failed audit, too, and does not hide it."""
    for dag in (dags[name] for name in AUDITING):
        assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
            "check_flow": {"audit", "report_audit"},
            "audit": {"report_audit"},
            "report_audit": set(),
        }
        assert dag.get_task("report_audit").is_teardown
        assert not dag.get_task("report_audit").on_failure_fail_dagrun
        assert dag.get_task("audit").has_retry_policy
        assert dag.doc_md
    assert (dags["audit"].schedule, dags["audit_nightly"].schedule) == (None, spread("@daily", "nightly"))
    assert [dags[name].max_active_runs for name in ("audit", "audit_nightly")] == [64, 1]
    assert dags["audit_nightly"].params.dump() == {
        "flow": "nightly",
        "topics": None,
        "since": "watermark",
        "full": False,
        "master": None,
    }


# What a careless or hostile hand can put into one flow file.
BROKEN = {
    "minute-61": b'schedules: {replicate: "61 * * * *", sync_group_offsets: "0 0 30 2 *", audit: "9"}',
    "drawn": b'schedules: {replicate: "H H * * *", audit: "R R * * *"}',
    "Not A Name": b'schedules: {replicate: "@daily", audit: "@daily"}',
    "bomb": b"a: &a [x, x]\nb: &b [*a, *a]\nschedules: {audit: *b}",
    "deep": b"schedules: " + b"{a: " * 5000 + b"1" + b"}" * 5000,
    "latin": "schedules: {audit: \u00e4}".encode("latin-1"),
    "half": b"schedules: {replicate: [",
    "large": b"#" * (2 << 20),
    "date": b"schedules: {replicate: 2026-99-99}",
}


def test_fault_of_one_flow_file_reaches_no_other_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every DAG file is imported, and the flow that is in order has its DAGs."""
    for name, content in BROKEN.items():
        (tmp_path / f"{name}.yaml").write_bytes(content)
    (tmp_path / "twice.yaml").write_text('schedules: {replicate: "@daily"}')
    (tmp_path / "twice.yml").write_text('schedules: {replicate: "@hourly"}')
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere.yaml")
    (tmp_path / "good.yaml").write_text(
        'schedules: {replicate: "0 3 * * MON-FRI", sync_group_offsets: "@hourly"}'
    )
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    bag = DagBag(DAGS, collect_dags=True)
    assert bag.import_errors == {}
    assert {name for name in bag.dags if "_" in name and name.endswith(("good", "twice", *BROKEN))} == {
        "replicate_good",
        "sync_group_offsets_good",
        "audit_good",
        "audit_date",
        # Of files whose other schedules are faulty: each key for itself.
        *(f"rehearse_{name}" for name in ("good", "date", "drawn", "minute-61")),
    }
