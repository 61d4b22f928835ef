"""What a run needs for itself goes with it, or at the next start; never under a process that lives."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from onceover.config.flow.load import load_flow
from onceover.spark.launch.scratch import scratch
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


def run_once(folder: Path) -> None:
    with scratch(folder):
        (folder / "blockmgr").mkdir()
        (folder / "blockmgr" / "block").write_bytes(b"records")


def begin(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a run in a process of its own; return that, and the one that has the folder in use."""
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    return run, int(run.stdout.readline())


def test_a_run_leaves_nothing(tmp_path: Path) -> None:
    run_once(tmp_path / "tmp" / "run")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_it_is_nobody_elses_business(tmp_path: Path) -> None:
    folder = tmp_path / "tmp" / "run"
    with scratch(folder):
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)] == [0o700, 0o700]


def test_what_killed_runs_have_left_goes_when_nobody_uses_it_any_more(tmp_path: Path) -> None:
    """Who started it is killed first, and its JVM lives on for a moment."""
    older, newer = tmp_path / "older", tmp_path / "newer"
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
    with (older / "lock").open("w") as lock:
        subprocess.run(
            ["flock", str(lock.fileno()), "true"], pass_fds=[lock.fileno()], timeout=10, check=True
        )
    run_once(newer)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_goes_on_keeps_its_folder(tmp_path: Path) -> None:
    """Two runs of one flow overlap while the newer one takes over."""
    with scratch(tmp_path / "older"):
        run_once(tmp_path / "newer")
        assert [each.name for each in tmp_path.iterdir()] == ["older"]


def test_java_is_told_the_folder_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options are split at blanks, as by a shell."""
    home = tmp_path / 'a "home" of \\ mine'
    monkeypatch.setenv("ONCEOVER_HOME", str(home))
    monkeypatch.setenv("ONCEOVER_EAST", "127.0.0.1:1")
    monkeypatch.setenv("ONCEOVER_WEST", "127.0.0.1:2")
    job = replicate_job(load_flow("flights-dr"), until="forever").with_own_files()
    assert f"-Djava.io.tmpdir={job.scratch}" in shlex.split(job.conf["spark.driver.extraJavaOptions"])
    assert job.scratch.parent == home / "flights-dr" / "tmp"
