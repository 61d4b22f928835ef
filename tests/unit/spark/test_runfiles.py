"""What runs leave on the disk: files of their own, and not for ever."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path

import pytest

from onceover.spark.launch import runfiles
from onceover.spark.launch.runfiles import (
    KEPT_RUNS,
    forget_old_runs,
    own_report,
    prune_receipts,
    read_report,
    refused,
    write_report,
)


def runs(folder: Path, kind: str, count: int) -> list[Path]:
    """Make the files of so many runs, the oldest first; return their reports."""
    reports = [own_report(folder / f"{kind}.json") for _ in range(count)]
    for second, report in enumerate(reports):
        for path in (report, report.with_suffix(".log")):
            path.touch()
            os.utime(path, (second, second))
    return reports


def test_no_two_runs_share_a_file(tmp_path: Path) -> None:
    """Also within a second."""
    assert len({own_report(tmp_path / "replicate.json") for _ in range(100)}) == 100


def test_the_newest_runs_stay(tmp_path: Path) -> None:
    """Both files of a run, or neither; who begins is not counted."""
    reports = runs(tmp_path, "replicate", KEPT_RUNS + 3)
    own = own_report(tmp_path / "replicate.json")
    own.with_suffix(".log").touch()
    forget_old_runs(own)
    stay = {path for report in reports[3:] for path in (report, report.with_suffix(".log"))}
    assert set(tmp_path.iterdir()) == {*stay, own.with_suffix(".log")}


def test_a_run_that_lasts_keeps_its_output(tmp_path: Path) -> None:
    """It began before all the others, and still prints."""
    first, *_ = runs(tmp_path, "replicate", KEPT_RUNS + 3)
    os.utime(first.with_suffix(".log"), (100, 100))
    forget_old_runs(own_report(tmp_path / "replicate.json"))
    assert first.with_suffix(".log").exists()


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    """Other kinds of runs, files of people, and all of it where a report has a name of somebody's own."""
    runs(tmp_path, "audit", KEPT_RUNS + 3)
    theirs = [tmp_path / name for name in ("replicate-notes.log", "replicate.json", "audit-12.progress")]
    for path in theirs:
        path.touch()
    before = set(tmp_path.iterdir())
    forget_old_runs(own_report(tmp_path / "replicate.json"))
    forget_old_runs(tmp_path / "audit.json")
    forget_old_runs(own_report(tmp_path / "away" / "audit.json"))
    assert set(tmp_path.iterdir()) == before


def test_receipts_are_bounded_by_age_and_a_run_that_has_none_yet_stays(tmp_path: Path) -> None:
    """Whole runs go, of one that goes on its old files; Spark's own list stays."""
    day_s = 86_400.0
    for run, ages in (("1-old", [40.0, 30.0]), ("2-long", [30.0, 1.0]), ("3-new", [])):
        (tmp_path / run / "_spark_metadata").mkdir(parents=True)
        (tmp_path / run / "_spark_metadata" / "0").touch()
        for number, days in enumerate(ages):
            part = tmp_path / run / f"part-{number}.parquet"
            part.touch()
            os.utime(part, (100 * day_s - days * day_s,) * 2)
    old = tmp_path / "1-old"
    for path in (old / "_spark_metadata" / "0", old / "_spark_metadata", old):
        os.utime(path, (60 * day_s,) * 2)
    assert prune_receipts(tmp_path, 14 * day_s, 100 * day_s) == 3
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    assert left == ["2-long/part-1.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2-long", "3-new"]
    assert (tmp_path / "2-long" / "_spark_metadata" / "0").exists()
    assert prune_receipts(tmp_path / "none", 1.0) == 0


def test_a_report_that_is_missing_half_written_or_something_else_is_none(tmp_path: Path) -> None:
    """A job killed while it wrote has reported nothing."""
    path = tmp_path / "log" / "report.json"
    assert read_report(path) is None
    write_report(path, {"exit": 0})
    assert read_report(path) == {"exit": 0}
    for content in (json.dumps({"exit": 0})[:-2], "[]", b"\xff{}"):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert read_report(path) is None
    path.unlink()
    path.mkdir()
    assert read_report(path) is None


def test_a_report_that_cannot_be_written_costs_no_driver_its_exit_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The exit code tells the most of it, and a line the reason."""
    (tmp_path / "log").touch()
    with caplog.at_level(logging.ERROR):
        write_report(tmp_path / "log" / "report.json", {"exit": 0})
    assert "the report cannot be written: " in caplog.text
    assert not [each for each in caplog.records if each.exc_info]


def test_why_nothing_was_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something was, or could be, nobody has refused it; where nothing was started, neither."""
    report = tmp_path / "log" / "report.json"
    assert refused(report) is None
    report.parent.mkdir()
    assert refused(report) is None
    assert list(report.parent.iterdir()) == []

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(runfiles, "NamedTemporaryFile", full)
    assert refused(report) == "No space left on device"
    report.write_text('{"exit": 0}')
    assert refused(report) is None
