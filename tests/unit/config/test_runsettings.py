"""What a run keeps although the flow file changes under it, and what travels to the workers."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from onceover.config.flow.load import load_flow
from onceover.config.flow.runsettings import RunSettings
from onceover.errors import UsageError
from onceover.state.records.layout import Layout
from onceover.wiring.watch import FIXED, FlowWatch

_FULL = RunSettings(
    delivery="at_least_once",
    naming="prefix",
    handler="package.module:function",
    handler_args={"key": "${SECRET_OF_A_HANDLER}", "fields": ["a", "b"]},
    on_bad_record="dead_letter:letters",
)


def _write(path: Path, **changes: Any) -> None:
    document = {
        "flow": "f",
        "source": {"alias": "east", "client": {"bootstrap.servers": "127.0.0.1:8"}},
        "target": {"alias": "west", "client": {"bootstrap.servers": "127.0.0.1:9"}},
        "topics": {"include": ["a"]},
    }
    path.write_text(json.dumps({**document, **changes}))
    # Two writes within one tick of the file system's clock would look like one.
    os.utime(path, ns=(len(changes), len(changes)))


@pytest.mark.parametrize("settings", [RunSettings(), _FULL])
def test_settings_survive_the_journey_as_one_text(settings: RunSettings) -> None:
    """What the driver says is what the worker hears."""
    assert RunSettings.from_text(settings.to_text()) == settings


@pytest.mark.parametrize("change", [{"v": 2}, {"later": 1}])
def test_a_worker_of_another_version_refuses_the_settings(change: dict[str, Any]) -> None:
    """A key that it does not know would be a promise that it does not keep."""
    text = json.dumps({**json.loads(_FULL.to_text()), **change})
    with pytest.raises(UsageError, match="give driver and executors the same version"):
        RunSettings.from_text(text)


def test_a_changed_file_leaves_the_run_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The filter changes live; what decides how records are copied is named and waits for a restart."""
    path = tmp_path / "f.yaml"
    _write(path)
    watch = FlowWatch(path)
    _write(path, topics={"include": ["b"]}, delivery="at_least_once")
    assert watch.current().topics.include == ("b",)
    assert watch.run == RunSettings()
    assert "in effect after a restart: delivery" in caplog.text


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"lanes": 3}, "lanes"),
        ({"state": {"map_retention": "2d"}}, "state"),
        ({"spark": {"master": "local[4]"}}, "spark.master"),
        ({"spark": {"task_length": "10s"}}, None),
        ({"limits": {"memory_per_lane": "64MiB"}}, None),
    ],
)
def test_a_restart_is_asked_for_where_it_takes_one_and_no_longer_than_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changed: dict[str, Any], named: str | None
) -> None:
    """The next task goes by its new length; and what is as it was at the start again waits for nothing."""
    path = tmp_path / "f.yaml"
    _write(path)
    watch = FlowWatch(path)
    _write(path, **changed)
    watch.current()
    told = [record.message for record in caplog.records]
    assert told == ([f"changed in the flow file, in effect after a restart: {named}"] if named else [])
    caplog.clear()
    _write(path, topics={"include": ["b.*"]})
    assert watch.current().topics.include == ("b.*",)
    assert caplog.records == []


def test_the_page_tells_what_waits_for_a_restart() -> None:
    """docs/flow-file.md: all of it, and nothing else."""
    page = (Path(__file__).parents[3] / "docs" / "flow-file.md").read_text()
    section = page.partition("## When a change counts\n")[2].partition("\n## ")[0]
    listed = section.partition("from the next start on: ")[2].partition(".\n")[0]
    kept = {key for key in RunSettings.__dataclass_fields__ if key != "naming"} | {"topics.naming"}
    assert set(re.findall(r"`([a-z_.]+)`", listed)) == kept | set(FIXED)


def test_another_file_in_its_place_is_read_whatever_its_time_says(tmp_path: Path) -> None:
    """Put there with the time and the length of the one before, as copies and mounted folders have them."""
    path, other = tmp_path / "f.yaml", tmp_path / "g.yaml"
    _write(path)
    watch = FlowWatch(path)
    _write(other, topics={"include": ["b"]})
    os.utime(other, ns=(0, 0))
    assert other.stat().st_size == path.stat().st_size
    other.replace(path)
    assert watch.current().topics.include == ("b",)


def test_a_task_that_opens_a_changed_file_keeps_the_settings_of_its_run(tmp_path: Path) -> None:
    """The next task of a lane reads the file again; the driver's settings win."""
    path = tmp_path / "f.yaml"
    _write(path)
    assert FlowWatch(path, _FULL).run == _FULL


def test_a_task_begins_with_the_flow_of_its_run_although_the_file_is_broken(tmp_path: Path) -> None:
    """And takes what may change live as soon as the file is in order again."""
    path = tmp_path / "f.yaml"
    _write(path, transaction={"max_interval": "1s"})
    begun_with = pickle.loads(pickle.dumps(load_flow(path)))  # noqa: S301 - as Spark carries it
    path.write_text("flow: [")
    watch = FlowWatch(path, RunSettings.of(begun_with), begun_with)
    assert watch.current() == begun_with
    _write(path, transaction={"max_interval": "2s"}, topics={"include": ["b"]}, lanes=1)
    assert watch.current().transaction.max_interval_ms == 2000


def test_what_changed_before_a_task_begins_is_in_effect_for_it(tmp_path: Path) -> None:
    """The flow that the task brings along is older than the file."""
    path = tmp_path / "f.yaml"
    _write(path, transaction={"max_interval": "1s"})
    begun_with = load_flow(path)
    _write(path, transaction={"max_interval": "2s"})
    watch = FlowWatch(path, RunSettings.of(begun_with), begun_with)
    assert watch.flow == begun_with
    assert watch.current().transaction.max_interval_ms == 2000


def test_handler_args_travel_unresolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark option is shown in the UI: it holds the name of a variable, never its value (G10)."""
    monkeypatch.setenv("SECRET_OF_A_HANDLER", "hunter2")
    path = tmp_path / "f.yaml"
    _write(path, handler="a.b:c", handler_args={"key": "${SECRET_OF_A_HANDLER}"})
    text = FlowWatch(path).run.to_text()
    assert "${SECRET_OF_A_HANDLER}" in text
    assert "hunter2" not in text


def test_a_layout_older_than_delivery_modes_is_of_exactly_once() -> None:
    """Its writer knew nothing else."""
    layout = Layout(
        generation=1,
        run="r",
        lanes=1,
        fence_up_to=0,
        ready=True,
        source_cluster_id="S",
        target_cluster_id="T",
        flow_sha256="",
        started_at_ms=1,
        host="h",
        delivery="at_least_once",
    )
    value = layout.to_json()
    assert Layout.from_json(value) == layout
    del value["delivery"]
    assert Layout.from_json(value).delivery == "exactly_once"
