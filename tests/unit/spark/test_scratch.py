"""What a run needs for itself goes with it, or at the next start; never under a process that lives."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from onceover.config.flow.load import load_flow
from onceover.errors import NeedsOperator
from onceover.spark.launch.scratch import scratch, suits_java
from onceover.spark.launch.submit import replicate_job

_RUN = """
import subprocess, sys
from pathlib import Path
from onceover.spark.launch.scratch import scratch
with scratch(Path(sys.argv[1])) as held:
    child = subprocess.Popen(["sleep", "600"], pass_fds=[held])
    print(child.pid, flush=True)
    sys.stdin.read()
"""

# Such a lock is a process's own: its JVM does not have it.
_WITH_OTHER_LOCKS = """
import fcntl, sys
from pathlib import Path
from onceover.spark.launch.scratch import scratch
fcntl.flock = fcntl.lockf
with scratch(Path(sys.argv[1])):
    print(0, flush=True)
    sys.stdin.read()
"""
OLDER, NEWER = "replicate-20260101T000000Z-0123abcd", "audit-20260101T000001Z-89abcdef"


def run_once(folder: Path) -> None:
    with scratch(folder):
        (folder / "blockmgr").mkdir()
        (folder / "blockmgr" / "block").write_bytes(b"records")


def begin(folder: Path, program: str = _RUN) -> tuple[subprocess.Popen[str], int]:
    """Start a run in a process of its own; return that, and the one that has the folder in use."""
    run = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    return run, int(run.stdout.readline())


def test_a_run_leaves_nothing(tmp_path: Path) -> None:
    run_once(tmp_path / "tmp" / NEWER)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_it_is_nobody_elses_business(tmp_path: Path) -> None:
    folder = tmp_path / "tmp" / NEWER
    with scratch(folder):
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)] == [0o700, 0o700]


def test_what_killed_runs_have_left_goes_when_nobody_uses_it_any_more(tmp_path: Path) -> None:
    """Who started it is killed first, and its JVM lives on for a moment."""
    older, newer = tmp_path / OLDER, tmp_path / NEWER
    run, user = begin(older)
    try:
        run.kill()
        run.wait()
        run_once(newer)
        assert older.is_dir()
    finally:
        for pipe in (run.stdin, run.stdout):
            assert pipe is not None
            pipe.close()
        os.kill(user, 9)
    # Its lock ends with it, which is a moment after the signal.
    with (older / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    run_once(newer)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_goes_on_keeps_its_folder(tmp_path: Path) -> None:
    """Two runs of one flow overlap while the newer one takes over."""
    with scratch(tmp_path / OLDER):
        run_once(tmp_path / NEWER)
        assert [each.name for each in tmp_path.iterdir()] == [OLDER]


def test_the_same_where_locks_are_given_to_readers_or_writers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFSv4 does, which makes locks of POSIX of them; a process sees none of its own there."""
    monkeypatch.setattr(fcntl, "flock", fcntl.lockf)
    run, _ = begin(tmp_path / OLDER, _WITH_OTHER_LOCKS)
    with run:
        run_once(tmp_path / NEWER)
        assert [each.name for each in tmp_path.iterdir()] == [OLDER]
        run.communicate()
    assert list(tmp_path.iterdir()) == []


def test_locks_of_another_machine_may_not_be_seen_from_here(tmp_path: Path) -> None:
    """Machines may share a home whose locks are each machine's own."""
    elsewhere = tmp_path / OLDER
    elsewhere.mkdir()
    (elsewhere / "lock").write_text("another machine\nanother kernel")
    run_once(tmp_path / NEWER)
    assert [each.name for each in tmp_path.iterdir()] == [OLDER]


@pytest.mark.parametrize("begun", [f"{socket.gethostname()}\nanother kernel", None])
def test_what_a_machine_has_left_that_was_started_again_goes(tmp_path: Path, begun: str | None) -> None:
    """And what somebody had not removed to the end."""
    (tmp_path / OLDER).mkdir()
    if begun is not None:
        (tmp_path / OLDER / "lock").write_text(begun)
    run_once(tmp_path / NEWER)
    assert list(tmp_path.iterdir()) == []


def test_without_locks_who_made_a_folder_removes_it_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems have none."""

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with scratch(tmp_path / OLDER):
        run_once(tmp_path / NEWER)
        assert [each.name for each in tmp_path.iterdir()] == [OLDER]
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_runs_is_left_alone(tmp_path: Path) -> None:
    """Somebody may have put the folder where others have theirs."""
    (tmp_path / "mine").mkdir()
    run_once(tmp_path / NEWER)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(("age_s", "left"), [(10.0, [f"{OLDER}.begins"]), (7200.0, [])])
def test_a_start_that_got_nowhere_is_forgotten_an_hour_later(
    tmp_path: Path, age_s: float, left: list[str]
) -> None:
    """Before that it may be one that is under way."""
    begins = tmp_path / f"{OLDER}.begins"
    begins.mkdir()
    then_s = time.time() - age_s
    os.utime(begins, (then_s, then_s))
    run_once(tmp_path / NEWER)
    assert [each.name for each in tmp_path.iterdir()] == left


def test_while_its_jvm_ends_the_folder_stays(tmp_path: Path) -> None:
    """An error may pass by while it does: a task's time is over, Ctrl-C is typed twice."""
    with scratch(tmp_path / OLDER) as held:
        jvm = subprocess.Popen(["sleep", "600"], pass_fds=[held])
    with jvm:
        assert (tmp_path / OLDER).is_dir()
        jvm.kill()
    run_once(tmp_path / NEWER)
    assert list(tmp_path.iterdir()) == []


def test_one_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may be full."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(NeedsOperator, match="No space"):
        run_once(tmp_path / NEWER)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a,b", "em\N{GRINNING FACE}ji"])
def test_a_home_that_java_would_take_for_another_place_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Spark splits its folders at commas; its launcher takes characters beyond U+FFFF for two."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / name))
    monkeypatch.setenv("ONCEOVER_EAST", "127.0.0.1:1")
    monkeypatch.setenv("ONCEOVER_WEST", "127.0.0.1:2")
    job = replicate_job(load_flow("flights-dr"), until="forever").with_own_files()
    assert "java.io.tmpdir" not in job.conf["spark.driver.extraJavaOptions"]


def test_where_nothing_can_be_run_from_java_unpacks_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receipts need a library that is unpacked."""
    assert suits_java(tmp_path / "home" / "tmp")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NODEV))
    assert not suits_java(tmp_path / "home" / "tmp")
