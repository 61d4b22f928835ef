"""What both drivers leave behind them, whoever was in the way."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from onceover.spark import driver
from onceover.spark.auditing import audit
from onceover.spark.launch.runfiles import read_report

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
