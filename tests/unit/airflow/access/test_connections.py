"""Clients of flows are looked at before a task runs: also those of the clusters of `make up`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onceover.config.faults import BadConfig
from onceover.config.home import ENVIRONMENT_FILE, render_environment

EAST = "ONCEOVER_TEST_EAST"


@pytest.fixture
def odd_flow(tmp_path: Path) -> Path:
    """The file of a flow whose source is Connection odd."""
    flow = tmp_path / "orders.yaml"
    flow.write_text(
        "flow: orders\n"
        "source: {alias: a, connection: odd}\n"
        "target: {alias: b, client: {bootstrap.servers: '127.0.0.1:2'}}\n"
        "topics: {include: [x]}\n"
    )
    return flow


def test_a_variable_that_the_embedded_clusters_leave_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the file that they leave, as everywhere else."""
    from onceover.config.flow.load import load_flow
    from onceover_airflow.access.connections import connection_environment

    var, flows = tmp_path / "var", tmp_path / "flows"
    flows.mkdir()
    monkeypatch.setenv("ONCEOVER_HOME", str(var))
    monkeypatch.setenv("ONCEOVER_FLOWS", str(flows))
    monkeypatch.delenv(EAST, raising=False)
    left = var / ENVIRONMENT_FILE
    left.parent.mkdir(parents=True)
    left.write_text(render_environment({EAST: "127.0.0.1:1"}))
    flow = flows / "orders.yaml"
    flow.write_text(
        "flow: orders\n"
        f"source: {{alias: a, client: {{bootstrap.servers: '${{{EAST}}}'}}}}\n"
        "target: {alias: b, client: {bootstrap.servers: '127.0.0.1:2'}}\n"
        "topics: {include: [x]}\n"
    )
    assert connection_environment(load_flow(flow)) == {}


def test_a_store_that_refuses_one_keeps_no_other_flow_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right that is missing is that of one Connection; what the store says may be secret."""
    from onceover_airflow.access import connections

    def get(name: str) -> Any:
        if name == "denied":
            raise PermissionError("token hunter2 may not read denied")
        return SimpleNamespace(as_json=lambda: f"{{{name}}}")

    monkeypatch.setattr(connections, "Connection", SimpleNamespace(get=get))
    given, missing = connections.connections_given(["denied", "east"])
    assert given == {"east": "{east}"}
    assert missing == {"denied": "Airflow could not give Connection denied (PermissionError)"}


@pytest.mark.parametrize(
    "text", ['{"conn_type": "kafka", "password": "hunter2-planted"', "{hunter2-planted}", " "]
)
def test_a_connection_that_airflow_cannot_read_is_not_called_missing(
    odd_flow: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Airflow goes on as if it were not there; it is created in vain beside that one."""
    from onceover.config.flow.load import load_flow
    from onceover_airflow.access.connections import connection_environment, connections_given
    from onceover_airflow.errors import TaskFailed

    monkeypatch.setenv("AIRFLOW_CONN_ODD", text)
    with pytest.raises(TaskFailed) as caught:
        connection_environment(load_flow(odd_flow))
    (missing,) = connections_given(["odd"])[1].values()
    for told in (str(caught.value), missing):
        is_there = "AIRFLOW_CONN_ODD" in told and "cannot read" in told
        assert is_there is bool(text.strip()) and "hunter2" not in told
        assert ("Airflow has no Connection odd" in told) is not is_there


@pytest.mark.parametrize("extra", [["hunter2-planted"], 5, "hunter2-planted", None])
def test_an_extra_that_holds_no_keys_is_refused_in_words(
    odd_flow: Path, monkeypatch: pytest.MonkeyPatch, extra: object
) -> None:
    """Airflow takes any JSON for one where it comes from the environment."""
    from onceover.config.flow.load import load_flow
    from onceover_airflow.access.connections import connection_environment

    monkeypatch.setenv("AIRFLOW_CONN_ODD", json.dumps({"conn_type": "kafka", "extra": extra}))
    with pytest.raises(BadConfig, match="has no client keys in extra") as caught:
        connection_environment(load_flow(odd_flow))
    assert "hunter2" not in str(caught.value)
