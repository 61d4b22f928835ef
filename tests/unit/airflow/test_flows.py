"""What the DAG file learns from the flow files."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from onceover.config import values
from onceover.config.values import MAX_FLOW_NAME, spread
from onceover.state import names
from onceover.topics import namingpolicy
from onceover_airflow import flows
from onceover_airflow.starting import forms
from tests.system.test_dags import DAGS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty flows directory."""
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    return tmp_path


def test_every_flow_file_is_offered_by_name(folder: Path) -> None:
    """Also a broken one: the run then says what is wrong with it."""
    for name in ("west", "east", "broken"):
        (folder / f"{name}.yaml").write_text("flow: [" if name == "broken" else f"flow: {name}")
    (folder / "notes.txt").write_text("")
    assert flows.flow_names() == ["broken", "east", "west"]


def test_flow_added_later_is_offered_at_the_next_look(folder: Path) -> None:
    """Nothing is remembered between two reads of the DAG file."""
    assert flows.flow_names() == []
    (folder / "new.yaml").write_text("flow: new")
    assert flows.flow_names() == ["new"]


def test_schedules_are_read_and_nothing_else_breaks_them(folder: Path) -> None:
    """Files without a schedule, with a bad one or without sense give no DAG, and raise nothing."""
    texts = {
        "always": 'schedules: {replicate: "@continuous"}',
        "nightly": 'schedules: {replicate: "0 3 * * *"}\nunknown_key: 1',
        "by-hand": "schedules: {replicate: null}",
        "none": "flow: none",
        "odd": "schedules: {replicate: every now and then}",
        "number": "schedules: {replicate: 5}",
        "list": "- 1",
        "broken": "schedules: {replicate: [",
        "Bad_Name": 'schedules: {replicate: "@daily"}',
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert flows.scheduled_flows("replicate") == [
        flows.ScheduledFlow("always", "@continuous"),
        flows.ScheduledFlow("nightly", "0 3 * * *"),
    ]


def test_a_copy_of_a_flow_file_is_scheduled_for_nobody(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its runs would fence those of the flow that it was copied from."""
    for name in ("dr", "dr-old"):
        (folder / f"{name}.yaml").write_text('flow: dr\nschedules: {replicate: "@daily"}')
    for name in ("x", "y"):
        (folder / f"{name}.yaml").write_text('flow: z\nschedules: {replicate: "@daily"}')
    assert [flow.name for flow in flows.scheduled_flows("replicate")] == ["dr"]
    assert "dr-old.yaml gives no schedule (another file has the same flow)" in caplog.text


@pytest.mark.parametrize("fault", [ValueError, RecursionError, MemoryError, KeyError])
def test_what_nobody_foresaw_in_one_file_costs_that_flow_its_dag_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: type[Exception]
) -> None:
    """The names of the others are in the DAG file's list; the fault's words are not in the log."""
    for name in ("a", "b", "c"):
        (folder / f"{name}.yaml").write_text(f'schedules: {{replicate: "{len(name)} 0 * * *"}}')
    (folder / "b.yaml").write_text('schedules: {replicate: "planted-secret"}')
    inner = values.schedule

    def schedule(value: object) -> str:
        if value == "planted-secret":
            raise fault(value)
        return inner(value)

    monkeypatch.setattr(values, "schedule", schedule)
    assert [flow.name for flow in flows.scheduled_flows("replicate")] == ["a", "c"]
    assert f"b.yaml gives no schedule ({fault.__name__})" in caplog.text
    assert "planted" not in caplog.text


def test_a_number_without_an_end_is_no_schedule(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Python refuses to read more than 4300 digits, and croniter passes that on as it is."""
    (folder / "good.yaml").write_text('schedules: {replicate: "0 3 * * *"}')
    (folder / "huge.yaml").write_text(f'schedules: {{replicate: "{"9" * 5000} 0 * * *"}}')
    assert [flow.name for flow in flows.scheduled_flows("replicate")] == ["good"]
    assert "huge.yaml gives no schedule (Invalid)" in caplog.text


def test_audits_are_scheduled_unless_the_file_says_otherwise(folder: Path) -> None:
    """The flow file's default counts, also where it has no schedules at all; null is by hand."""
    texts = {
        "none": "flow: none",
        "others": 'schedules: {replicate: "@hourly"}',
        "own": 'schedules: {audit: "0 3 * * *"}',
        "by-hand": "schedules: {audit: null}",
        "empty": "schedules:",
        "list": "- 1",
        "broken": "schedules: {audit: [",
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    assert flows.scheduled_flows("audit") == [
        flows.ScheduledFlow("empty", spread("@daily", "empty")),
        flows.ScheduledFlow("none", spread("@daily", "none")),
        flows.ScheduledFlow("others", spread("@daily", "others")),
        flows.ScheduledFlow("own", "0 3 * * *"),
    ]


def test_warning_about_a_broken_file_quotes_nothing_of_it(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A flow file may hold a password, and YAML's own messages quote the text."""
    (folder / "leaky.yaml").write_text("client: {sasl.password: planted-secret")
    assert flows.scheduled_flows("replicate") == []
    assert "leaky.yaml" in caplog.text
    assert "planted" not in caplog.text


def test_continuous_flow_runs_forever_and_others_until_caught_up() -> None:
    """A run that ends under @continuous would start Spark again and again."""
    assert flows.ScheduledFlow("f", "@continuous").run_length == "forever"
    assert flows.ScheduledFlow("f", "@hourly").run_length == "caught-up"


def test_a_flow_whose_dag_is_refused_costs_itself_only(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The DAG file is shared by all flows: its import must not fail over one of them."""
    for name in ("a", "b", "c"):
        (folder / f"{name}.yaml").write_text(f"flow: {name}")
    built = []

    def build(flow: flows.ScheduledFlow) -> None:
        if flow.name == "b":
            raise ValueError("tag cannot be longer than 100 characters")
        built.append(flow.name)

    flows.build_scheduled("audit", build)
    assert built == ["a", "c"]
    assert "flow b gets no DAG by schedules.audit" in caplog.text
    assert "longer than 100" in caplog.text


@pytest.mark.parametrize(
    ("dag_id", "built"),
    [
        ("replicate_nightly", ["nightly"]),
        # The one by hand has none, nor has a flow without a schedule, or one that is called like a DAG.
        ("replicate", []),
        ("replicate_by-hand", []),
        ("nightly", []),
        ("audit_nightly", []),
    ],
)
def test_before_a_task_no_other_flow_is_looked_at(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    dag_id: str,
    built: list[str],
) -> None:
    """Airflow reads the whole DAG file anew for each: with 100 flows that took a second."""
    schedule = 'schedules: {replicate: "@daily"}'
    texts = {"nightly": schedule, "replicate": schedule, "by-hand": "flow: by-hand", "broken": "schedules: ["}
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)
    found: list[str] = []
    flows.build_scheduled("replicate", lambda flow: found.append(flow.name))
    assert found == built
    assert caplog.text == ""
    monkeypatch.delenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID")
    flows.build_scheduled("replicate", lambda flow: found.append(flow.name))
    assert found == [*built, "nightly", "replicate"]
    assert "broken.yaml" in caplog.text


@pytest.mark.parametrize("kind", ["audit", "replicate", "sync_group_offsets", "rehearse"])
def test_the_longest_flow_name_gives_a_dag(folder: Path, kind: str) -> None:
    """The flow file allows no name that Airflow, or Kafka, could not carry in everything made of it."""
    name = "f" * MAX_FLOW_NAME
    (folder / f"{name}.yaml").write_text(f'flow: {name}\nschedules: {{{kind}: "@daily"}}')
    bag = DagBag(DAGS / f"{kind}.py", collect_dags=True)
    assert bag.import_errors == {}
    dag = bag.dags[f"{kind}_{name}"]
    assert dag.tags == {forms.TAG, name}
    own = (names.state_topic, names.map_topic, names.groups_topic, names.owned_topic)
    topics = [topic(name) for topic in own]
    assert max(map(len, topics)) <= namingpolicy.MAX_TOPIC_NAME
