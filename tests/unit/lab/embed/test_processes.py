"""Children end when they should, and nothing else is ever signalled."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from onceover.errors import Retriable, UsageError
from onceover.process.children import ChildProcess, tail
from onceover_lab.embed.registry import (
    ClusterRecord,
    ProcessIdentity,
    find_by_argument,
    read_records,
    terminate,
    write_records,
)
from tests.support.session.wait import wait_until

SLEEP = "import threading; threading.Event().wait()"
# Only a program with a handler stays paused: Linux ends the others on SIGTERM even then.
HEEDING = (
    "import signal, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    f"print('ready', flush=True)\n{SLEEP}\n"
)
STUBBORN = (
    f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); {SLEEP}"
)
PARENT = (
    "import subprocess, sys\n"
    f"print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}]).pid, flush=True)\n"
    f"{SLEEP}\n"
)
TIMEOUT_S = 10.0


class Starter:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.children: list[ChildProcess] = []

    def __call__(
        self, program: str, *arguments: str, detached: bool = False, family_ends_s: float = 0.0
    ) -> ChildProcess:
        child = ChildProcess.start(
            [sys.executable, "-c", program, *arguments],
            name="trial",
            log_path=self.home / f"{len(self.children)}.log",
            detached=detached,
            family_ends_s=family_ends_s,
        )
        self.children.append(child)
        return child


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    for child in starter.children:
        child.kill()


def printed(child: ChildProcess) -> str:
    return wait_until(child.tail, TIMEOUT_S, "the child has printed something")


def test_exit_code_and_output_are_kept(start: Starter) -> None:
    """The log holds both streams, the exit code is the program's."""
    child = start("import sys; print('out'); sys.exit('err')")

    assert child.wait(TIMEOUT_S) == 1
    assert sorted(child.tail().splitlines()) == ["err", "out"]
    assert not child.alive


def test_missing_program_ends_with_the_reason_in_the_log(tmp_path: Path) -> None:
    """A wrong path is no hang and no silence."""
    child = ChildProcess.start(["/no/such/program"], name="trial", log_path=tmp_path / "log")

    assert child.wait(TIMEOUT_S) != 0
    assert "FileNotFoundError" in child.tail()


def test_stop_ends_gently_first(start: Starter) -> None:
    """SIGTERM suffices for a program that heeds it, also when it is paused."""
    child = start(HEEDING)
    printed(child)
    child.pause()

    assert child.stop(TIMEOUT_S) == 7


def test_stop_kills_who_ignores_it(start: Starter) -> None:
    """After the time-out SIGKILL follows."""
    child = start(STUBBORN)
    printed(child)

    assert child.stop(timeout_s=0.1) == -signal.SIGKILL


def test_wait_is_bounded(start: Starter) -> None:
    """A program that goes on is reported, not waited for without end."""
    with pytest.raises(Retriable, match=r"still runs after 0\.05 s"):
        start(SLEEP).wait(0.05)


def test_kill_takes_grandchildren_too(start: Starter) -> None:
    """The whole group goes, so that no worker of a killed driver stays."""
    child = start(PARENT)
    grandchild = psutil.Process(int(printed(child)))

    child.kill()

    psutil.wait_procs([grandchild], timeout=TIMEOUT_S)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


# Starts a shell that starts a program, as a user's script does, and goes on.
STARTER = (
    "import sys, threading\n"
    "from pathlib import Path\n"
    "from onceover.process.children import ChildProcess\n"
    "argv, log = ['sh', '-c', 'sleep 300 & echo $!; wait'], Path(sys.argv[1])\n"
    "ChildProcess.start(argv, name='trial', log_path=log, with_family=True)\n"
    "threading.Event().wait()\n"
)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_what_a_script_has_started_ends_with_us_too(start: Starter, tmp_path: Path) -> None:
    """Killed, we cannot end it; what it is about to do would be done behind whoever takes it back."""
    path = tmp_path / "script.log"
    child = start(STARTER, str(path))
    wait_until(lambda: tail(path) != "", TIMEOUT_S, "the script has started its program")
    program = psutil.Process(int(tail(path)))
    child.send_signal(signal.SIGKILL)

    def gone() -> bool:
        return not program.is_running() or program.status() == psutil.STATUS_ZOMBIE

    wait_until(gone, TIMEOUT_S, "the program is gone")


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15), ("true", 0)]
)
def test_a_program_that_ends_with_all_it_has_started_ends_as_itself(
    tmp_path: Path, script: str, code: int
) -> None:
    argv = ["sh", "-c", script]
    child = ChildProcess.start(argv, name="trial", log_path=tmp_path / "log", with_family=True)
    assert child.wait(TIMEOUT_S) == code


def test_a_program_that_ends_with_all_it_has_started_heeds_sigterm(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HEEDING]
    child = ChildProcess.start(argv, name="trial", log_path=tmp_path / "log", with_family=True)
    printed(child)
    assert child.stop(TIMEOUT_S) == 7


# Says that it puts things away when its parent is gone, and says when it has done so.
TIDY = (
    "import os, threading\n"
    "parent = os.getppid()\n"
    "print('ready', flush=True)\n"
    "while os.getppid() == parent: threading.Event().wait(0.01)\n"
    "threading.Event().wait(0.5)\n"
    "print('tidied', flush=True)\n"
)
PARENT_OF = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_children_of_a_killed_process_may_put_away_what_it_left(start: Starter) -> None:
    """A Spark driver whose JVM is gone ends the transactions that the lanes left open."""
    child = start(PARENT_OF, TIDY, family_ends_s=TIMEOUT_S)
    wait_until(lambda: "ready" in child.tail(), TIMEOUT_S, "the grandchild runs")
    child.send_signal(signal.SIGKILL)
    wait_until(lambda: not child.alive, TIMEOUT_S, "all have ended")
    assert "tidied" in child.tail()


def test_children_of_a_killed_process_do_not_outlive_their_time(start: Starter) -> None:
    """However long they would take."""
    child = start(PARENT, family_ends_s=0.2)
    wait_until(lambda: child.tail() != "", TIMEOUT_S, "the grandchild runs")
    grandchild = psutil.Process(int(child.tail()))
    child.send_signal(signal.SIGKILL)
    wait_until(lambda: not child.alive, TIMEOUT_S, "all have ended")
    wait_until(lambda: not grandchild.is_running(), TIMEOUT_S, "the grandchild is gone")


def test_child_outlives_the_thread_that_started_it(start: Starter) -> None:
    """The parent-death signal belongs to a thread; ours lives as long as the process."""
    started: list[ChildProcess] = []

    def start_and_see_it_run() -> None:
        started.append(start(STUBBORN))
        printed(started[0])

    thread = threading.Thread(target=start_and_see_it_run)
    thread.start()
    thread.join()

    with pytest.raises(Retriable):
        started[0].wait(0.3)


@pytest.mark.parametrize("content", ["", "one", "one\ntwo\nthree\n"])
def test_tail_returns_the_last_lines(tmp_path: Path, content: str) -> None:
    """Also of short, empty and missing files."""
    (tmp_path / "log").write_text(content)

    assert tail(tmp_path / "log", 2).splitlines() == content.splitlines()[-2:]
    assert tail(tmp_path / "missing") == ""


def test_recycled_process_id_is_not_ours(start: Starter) -> None:
    """A process with the recorded id but another start time is left alone."""
    child = start(SLEEP)
    own = ProcessIdentity.of(child.pid)
    other = replace(own, started_at_s=own.started_at_s - 60, start=None)

    terminate([other], timeout_s=0.1)

    assert own.find() is not None
    assert other.find() is None
    assert child.alive


def test_step_of_the_clock_changes_no_identity(start: Starter) -> None:
    """Start times of the wall clock move with it; ticks since boot do not, and another boot's are others."""
    own = ProcessIdentity.of(start(SLEEP).pid)

    assert replace(own, started_at_s=own.started_at_s - 3600).find() is not None
    assert replace(own, start=f"{own.start}0").find() is None
    assert ProcessIdentity.parse(asdict(own)) == own


def test_frozen_process_is_told_from_a_running_one(start: Starter) -> None:
    """It answers nobody until it is woken."""
    child = start(SLEEP)
    own = ProcessIdentity.of(child.pid)
    record = ClusterRecord("east", "id", "h:1", (1,), (own,), "log")

    assert not record.frozen
    child.pause()
    wait_until(lambda: record.frozen, TIMEOUT_S, "the process is frozen")
    assert record.alive
    child.resume()
    wait_until(lambda: not record.frozen, TIMEOUT_S, "the process goes on")


def test_terminate_ends_recorded_processes(start: Starter) -> None:
    """Gently or not, all are gone afterwards."""
    gentle, stubborn = start(SLEEP), start(STUBBORN, detached=True)
    printed(stubborn)
    identities = [ProcessIdentity.of(child.pid) for child in (gentle, stubborn)]

    terminate(identities, timeout_s=0.5)

    assert [identity.find() for identity in identities] == [None, None]


def test_process_is_found_by_its_argument(start: Starter, tmp_path: Path) -> None:
    """An exact argument finds it; a longer or shorter path does not."""
    path = str(tmp_path / "server.properties")
    child = start(STUBBORN, path)
    printed(child)

    program = ("python", "-c", STUBBORN)
    assert [identity.pid for identity in find_by_argument(program, path)] == [child.pid]
    assert find_by_argument(program, path + ".other") == []


def test_other_programs_with_the_same_argument_are_left_alone(start: Starter, tmp_path: Path) -> None:
    """Somebody looks at the file, or looks for the process: neither is what was started with it."""
    path = str(tmp_path / "feed.json")
    for arguments in ([path], ["-m", path], ["-m", "onceover_lab.demo.feeding.other", path]):
        printed(start(STUBBORN, *arguments))

    assert find_by_argument(("python", "-m", "onceover_lab.demo.feeding"), path) == []
    assert find_by_argument(("java", "-c", STUBBORN), path) == []


def test_records_survive_the_file(tmp_path: Path) -> None:
    """What is written is read again, and a missing file means nothing runs."""
    path = tmp_path / "clusters" / "register.json"
    record = ClusterRecord("east", "id", "127.0.0.1:1", (1,), (ProcessIdentity(7, 1.5),), "broker.log")

    assert read_records(path) == {}
    write_records(path, [record])
    assert read_records(path) == {"east": record}


@pytest.mark.parametrize("text", ["", "[]", '{"v": 2, "clusters": []}', '{"v": 1, "clusters": [{}]}'])
def test_damaged_register_is_named(tmp_path: Path, text: str) -> None:
    """One clear error instead of guessing what runs."""
    path = tmp_path / "register.json"
    path.write_text(text)

    with pytest.raises(UsageError, match=r"register of running clusters is damaged.*register\.json"):
        read_records(path)


def test_what_is_started_while_somebody_interrupts_the_start_does_not_live_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has a handle of it: a fence that it makes would come behind the one who takes it away again."""
    started, gone_on = list[subprocess.Popen[bytes]](), threading.Event()
    real = subprocess.Popen

    def interrupted(*given: Any, **more: Any) -> subprocess.Popen[bytes]:
        popen: subprocess.Popen[bytes] = real(*given, **more)
        started.append(popen)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        gone_on.wait(TIMEOUT_S)
        return popen

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ChildProcess.start(["sleep", "60"], name="sleep", log_path=tmp_path / "log")
    gone_on.set()
    wait_until(lambda: started[0].returncode == -signal.SIGKILL, 60, "it is gone")
