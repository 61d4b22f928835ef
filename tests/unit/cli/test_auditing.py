"""What people are told of an audit whose pages could not be written: its answer, and then that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceover.audit.checks.suites import RULES
from onceover.audit.checks.verdict import RuleOutcome, conclude
from onceover.audit.codes import AuditCode
from onceover.audit.report import jsonreport
from onceover.cli.commands import audit
from onceover.cli.parsing import parse
from onceover.cli.sparkjob import JobEnd
from onceover.cli.terminal.output import CommandResult
from onceover.errors import Fatal, NeedsOperator
from tests.support.flows.flows import write_flow
from tests.support.worlds import audits


@pytest.fixture
def document() -> dict[str, Any]:
    """Return what a driver says whose report could not be written."""
    seen = jsonreport.document(audits.result(), conclude(RuleOutcome(rule, True) for rule in RULES))
    return {**seen, "next_steps": [], "report": None, "data_docs": None, "exit": 3}


def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: JobEnd) -> CommandResult:
    """Return what the command says of a job that ends so."""
    client = {"bootstrap.servers": "127.0.0.1:1"}
    flow = write_flow(tmp_path, "f", client, client, ["t"])
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    monkeypatch.setattr(audit, "_execute", lambda *_: end)
    return audit.run(parse(["audit", str(flow)]))


def test_answer_is_told_though_its_report_could_not_be_written(
    document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the exit code of what was in the way."""
    full = NeedsOperator("no room for it", code=AuditCode.REPORT, resolve="make room")
    document["error"] = full.as_dict()
    result = told(monkeypatch, tmp_path, JobEnd(document, full, killed=False))
    assert result.exit_code == 3 and result.document["verdict"] == "PASS"
    assert result.document["error"]["code"] == "REPORT"
    first, *_, last = result.text.splitlines()
    assert first == f"PASS: {jsonreport.summary(document)}"
    assert last == "  error   no room for it: make room"


def test_answer_of_a_job_that_contradicts_itself_is_none(
    document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is believed."""
    with pytest.raises(Fatal):
        told(monkeypatch, tmp_path, JobEnd(document, Fatal("two ends"), killed=False))
