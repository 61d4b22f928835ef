"""A start says that another file of the flows directory is for the same flow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onceover.cli.commands import replicate
from onceover.cli.main import main
from onceover.errors import UsageError

_FLOW = """flow: dr
source: {alias: east, client: {bootstrap.servers: "127.0.0.1:1"}}
target: {alias: west, client: {bootstrap.servers: "127.0.0.1:2"}}
topics: {include: ["x"]}
"""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was begun, of a flow and a copy of its file."""
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    for name in ("dr", "dr-old"):
        (tmp_path / f"{name}.yaml").write_text(_FLOW)
    found: list[Path] = []

    def execute(flow: Any, *_: object) -> dict[str, Any]:
        found.append(flow.path)
        numbers = dict.fromkeys(("records", "transactions", "seconds", "generation", "restarts", "exit"), 0)
        return {"flow": flow.flow, **numbers, "stopped": [], "warnings": []}

    monkeypatch.setattr(replicate, "_execute", execute)
    return found


def test_a_flow_is_started_and_the_copy_of_its_file_named(
    begun: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A file that somebody forgot keeps no flow from going on."""
    assert main(["replicate", "dr"]) == 0
    assert [path.name for path in begun] == ["dr.yaml"]
    assert "dr.yaml: flow: is dr, as in dr-old.yaml" in caplog.text


def test_a_copy_is_not_started_by_its_name(begun: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """It would fence the flow, and copy what its old file says."""
    assert main(["replicate", "dr-old"]) == 2
    assert begun == []
    assert "dr-old.yaml: flow: is dr, as in dr.yaml" in capsys.readouterr().err


def test_advice_names_a_flow_as_it_is_found(
    begun: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the path that was typed, where its name leads nowhere, or to another file."""
    elsewhere = tmp_path / "my flows" / "some.yaml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(_FLOW)

    def refuse(flow: Any, *_: object) -> dict[str, Any]:
        raise UsageError("no", resolve=f"`onceover status {flow.flow}` says it")

    monkeypatch.setattr(replicate, "_execute", refuse)
    for typed, named in ((str(elsewhere), f"'{elsewhere}'"), (str(tmp_path / "dr.yaml"), "dr"), ("dr", "dr")):
        assert main(["replicate", typed]) == 2
        assert f"`onceover status {named}` says it" in capsys.readouterr().err
        assert main(["replicate", typed, "--json"]) == 2
        resolve = json.loads(capsys.readouterr().out)["error"]["resolve"]
        assert resolve == f"`onceover status {named}` says it"
    assert begun == []
