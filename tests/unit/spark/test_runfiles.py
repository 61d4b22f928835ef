"""What runs leave on the disk: files of their own, and not for ever."""

from __future__ import annotations

import os
from pathlib import Path

from onceover.spark.launch.runfiles import KEPT_RUNS, forget_old_runs, own_report


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
