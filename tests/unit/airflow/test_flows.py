"""What the DAG file learns from the flow files."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover_airflow import flows


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
        flows.ScheduledFlow("empty", "@daily"),
        flows.ScheduledFlow("none", "@daily"),
        flows.ScheduledFlow("others", "@daily"),
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
