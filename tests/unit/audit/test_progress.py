"""How far an audit is: told by the driver in a file, shown on a terminal, and never in the way."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from onceover.cli.commands.audit import _Progress as Shown
from onceover.spark.auditing.auditprogress import AuditProgress, AuditProgressFile, last_told
from onceover.spark.launch.submit import AuditOptions
from tests.support.session.wait import wait_until

_WAIT_S = 20.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a driver tells."""
    return tmp_path / "audit.progress"


def test_driver_tells_what_it_does_and_how_many_ranges_are_done(path: Path) -> None:
    """While it counts, the number follows; nothing is told before it begins."""
    progress, done = AuditProgressFile(path), [0]
    assert last_told(path) is None
    progress.tell("fixing the bounds")
    assert last_told(path) == AuditProgress("fixing the bounds")
    with progress.counting("comparing", 1_200, lambda: done[0]):
        wait_until(lambda: last_told(path) == AuditProgress("comparing", 0, 1_200), _WAIT_S, "told")
        done[0] = 7
        wait_until(lambda: last_told(path) == AuditProgress("comparing", 7, 1_200), _WAIT_S, "told again")
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert "audit-progress" not in [thread.name for thread in threading.enumerate()]


def test_nothing_is_told_when_nobody_looks(tmp_path: Path) -> None:
    """In a pipe, with --json, from Airflow: no file, no thread, no argument."""
    progress = AuditProgressFile(None)
    progress.tell("judging")
    with progress.counting("comparing", 3, lambda: 1):
        assert "audit-progress" not in [thread.name for thread in threading.enumerate()]
    assert list(tmp_path.iterdir()) == []
    assert "--progress" not in AuditOptions().arguments()
    assert AuditOptions(progress=tmp_path / "p").arguments()[-2:] == ["--progress", str(tmp_path / "p")]


def test_audit_goes_on_where_it_cannot_be_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A full disk, a folder that went: the display is all that is lost."""
    AuditProgressFile(tmp_path / "gone" / "audit.progress").tell("judging")
    assert "cannot be told: No such file" in caplog.text


def test_audit_goes_on_where_no_thread_is_to_be_had(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That tells how many ranges are done: what is compared is compared all the same."""

    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    with AuditProgressFile(path).counting("comparing", 3, lambda: 1):
        pass
    assert "cannot be told: no thread is to be had" in caplog.text


def test_terminal_shows_each_stage_and_is_left_clean(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter lines leave nothing of longer ones; the last one goes, and so does the file."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    display, progress = Shown("dr", path), AuditProgressFile(path)
    display.show()
    progress.tell("comparing", {"done": 3, "total": 10})
    display.show()
    display.show()
    progress.tell("judging")
    display.show()
    display.end()

    shown = capsys.readouterr()
    assert shown.err.split("\r") == [
        "",
        "dr: starting Spark",
        "dr: comparing: 30 % of 10 ranges",
        "dr: judging".ljust(len("dr: comparing: 30 % of 10 ranges")),
        " " * len("dr: judging"),
        "",
    ]
    assert shown.out == ""
    assert list(path.parent.iterdir()) == []


def test_display_without_a_terminal_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Not one byte in a pipe."""
    display = Shown("dr", None)
    display.show()
    display.end()
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_state_is_read_whole(path: Path) -> None:
    """What the driver writes is what the command reads."""
    AuditProgressFile(path).tell("comparing", {"done": 1, "total": 2})
    assert json.loads(path.read_text()) == {"doing": "comparing", "done": 1, "total": 2}
