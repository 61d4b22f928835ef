"""`onceover status` of many flows: whatever is wrong with one hides none of the others."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from onceover.cli.main import main
from onceover.config.flow.load import load_flow
from onceover.errors import Fatal, NeedsOperator, OnceoverError, Retriable
from onceover.kafka.cluster import LiveCluster
from onceover.operate.status import flow_status as real_status
from onceover.wiring import board

_FLOW = """flow: {name}
source: {{alias: east, client: {{bootstrap.servers: "{source}"}}}}
target: {{alias: west, client: {{bootstrap.servers: "127.0.0.1:2"}}}}
topics: {{include: ["x"]}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A flows directory with one flow whose clusters are dead, which is nobody's fault."""
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))

    def refused(*_: object, **__: object) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refused)
    write(tmp_path, "good")
    return tmp_path


def write(folder: Path, name: str, source: str = "127.0.0.1:1", flow: str | None = None) -> None:
    (folder / f"{name}.yaml").write_text(_FLOW.format(name=flow or name, source=source))


def status(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code, and each flow's entry."""
    code = main(["status", "--json", "--patience", "0.2", *arguments])
    document = json.loads(capsys.readouterr().out)
    return code, {entry["flow"]: entry for entry in document["flows"]}


@pytest.mark.parametrize("host", ["kafka..example.com", ".kafka.example.com", "a" * 64])
def test_one_empty_variable_in_an_address_hides_no_flow(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """A file to be corrected, and its neighbour as it is; exit code 1 would say that an audit has failed."""
    write(folder, "typo", "${HOST}:9092")
    monkeypatch.setenv("HOST", host)
    code, entries = status(capsys)
    assert code == 2
    assert {name: entry["exit"] for name, entry in entries.items()} == {"good": 5, "typo": 2}
    assert "bootstrap.servers" in entries["typo"]["error"]["message"]


@pytest.mark.parametrize(
    ("fault", "exit_code", "seen"),
    [
        (LookupError("boom"), 3, "unexpected LookupError: boom"),
        (RecursionError("deep"), 3, "unexpected RecursionError: deep"),
        (Fatal("a bug"), 3, "a bug"),
        (NeedsOperator("a person"), 3, "a person"),
        (Retriable("later"), 5, "later"),
    ],
)
def test_what_nobody_foresaw_in_one_flow_hides_no_other(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    exit_code: int,
    seen: str,
) -> None:
    """It is that flow's entry; also where it was asked for alone."""
    write(folder, "odd")

    def flow_status(flow: str, *others: Any) -> dict[str, Any]:
        if flow == "odd":
            raise fault
        return real_status(flow, *others)

    monkeypatch.setattr("onceover.wiring.status.flow_status", flow_status)
    code, entries = status(capsys)
    assert code == exit_code
    assert (entries["good"]["exit"], entries["good"]["error"]) == (5, None)
    assert (entries["odd"]["exit"], entries["odd"]["error"]["message"]) == (exit_code, seen)
    if not isinstance(fault, OnceoverError):
        code, entries = status(capsys, "odd")
        assert (code, list(entries)) == (exit_code, ["odd"])


def test_two_files_for_one_flow_are_said_beside_both(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy is not looked at; the flow's own entry is whole, and says that there is another file."""
    write(folder, "good-old", flow="good")
    code, entries = status(capsys)
    assert code == 2
    assert {name: entry["exit"] for name, entry in entries.items()} == {"good": 2, "good-old": 2}
    assert entries["good-old"]["error"]["message"].count("is good, as in good.yaml")
    assert entries["good"]["error"] is None
    assert entries["good"]["source"]["error"]["exit"] == 5
    assert "is good, as in good-old.yaml" in entries["good"]["fault"]["message"]
    assert [need["code"] for need in entries["good"]["needs"]].count("bad_config") == 1
    code, entries = status(capsys, "good")
    assert "good-old.yaml" in entries["good"]["fault"]["message"]


def test_bug_about_one_side_hides_nothing_of_the_other(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both clusters are asked in threads: what one raises stays with it."""

    def topics(_: LiveCluster, *__: object) -> Any:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(LiveCluster, "topics", topics)
    code, entries = status(capsys)
    entry = entries["good"]
    assert (code, entry["error"]) == (3, None)
    assert entry["source"]["error"]["message"] == "unexpected ZeroDivisionError: boom"
    assert entry["target"]["error"]["exit"] == 5


def test_the_page_hears_of_data_docs_that_lie_beside_the_report(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an audit of another machine there are none here."""
    path, report = folder / "good.yaml", tmp_path / "run" / "report.html"
    told: dict[str, Any] = {"audit": {"report": str(report)}, "generation": None, "target": {"error": None}}
    monkeypatch.setattr(board, "read_one", lambda *_, **__: told)

    def seen() -> Any:
        entries: list[Any] = []
        board.read_board({path: load_flow(path)}, {}, entries.append)
        return entries[0]["data_docs"]

    assert seen() is None
    (report.parent / "data_docs").mkdir(parents=True)
    (report.parent / "data_docs" / "index.html").touch()
    assert seen() == "data_docs/index.html"
    told["audit"] = None
    assert seen() is None
