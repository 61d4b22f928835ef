"""What both drivers leave behind them, whoever was in the way."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from onceover.audit.report import datadocs, pages
from onceover.errors import NeedsOperator
from onceover.spark import driver
from onceover.spark.auditing import audit
from onceover.spark.auditing.auditprogress import AuditProgressFile
from onceover.spark.launch.runfiles import read_report
from onceover.wiring.audit import AuditRequest

COPY = ["--until", "forever", "--home", "home", "--launch", "a"]
drivers = pytest.mark.parametrize(("module", "more"), [(driver, COPY), (audit, [])], ids=["copy", "audit"])


def ended(module: ModuleType, more: list[str], report: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit code of a driver that is given a flow that there is not."""
    monkeypatch.setattr(module, "configure", lambda: None)
    missing = str(report.parent.parent / "missing.yaml")
    code: int = module.main(
        ["--flow", missing, *more, "--report", str(report)], cast(Any, SimpleNamespace(jvm=os.getppid()))
    )
    return code


@drivers
def test_a_driver_reports_what_it_ends_with(
    module: ModuleType, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the exit code of its process."""
    report = tmp_path / "log" / "report.json"
    code = ended(module, more, report, monkeypatch)
    document = read_report(report) or {}
    assert (code, document["exit"], document["ok"]) == (2, 2, False)
    assert "missing" in document["error"]["message"]


@drivers
def test_a_driver_that_cannot_report_ends_as_it_would_have(
    module: ModuleType,
    more: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The disk is full: the words of the operating system are all that its starter has."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    assert ended(module, more, tmp_path / "log" / "report.json", monkeypatch) == 2
    assert "the report cannot be written: [Errno 28] No space left on device" in caplog.text


def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *refused: str) -> tuple[dict[str, Any], int]:
    """Return how an audit ends that found something wrong, where these pages cannot be written."""

    def write(name: str) -> Callable[..., Path]:
        def deed(*_: object) -> Path:
            if name in refused:
                raise NeedsOperator(f"no room for {name}")
            return tmp_path / name

        return deed

    monkeypatch.setattr(pages, "write", write("report"))
    monkeypatch.setattr(datadocs, "write", write("data_docs"))
    monkeypatch.setattr(audit, "keep_answer", write("answer"))
    flow, progress = cast(Any, None), AuditProgressFile(None)
    made = audit.Audit(flow, AuditRequest(), tmp_path, tmp_path / "report", progress)
    return made.published({"verdict": "FAIL"}, 1)


def test_an_audit_whose_pages_cannot_be_written_has_answered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is kept by then: it is told, and so is why there is no page."""
    report, docs = str(tmp_path / "report"), str(tmp_path / "data_docs")
    assert told(monkeypatch, tmp_path) == ({"verdict": "FAIL", "report": report, "data_docs": docs}, 1)
    for refused, written in (
        (["report", "data_docs"], (None, None)),
        (["answer"], (None, docs)),
        (["data_docs"], (report, None)),
    ):
        document, code = told(monkeypatch, tmp_path, *refused)
        assert (document["verdict"], document["report"], document["data_docs"], code) == ("FAIL", *written, 3)
        assert document["error"]["message"] == f"no room for {refused[0]}"


def test_an_audit_without_room_before_it_has_judged_waits_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no FAIL."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(audit, "load_flow", full)
    report = tmp_path / "report.json"
    assert ended(audit, [], report, monkeypatch) == 3
    assert (read_report(report) or {})["error"]["code"] == "PATH_UNUSABLE"
