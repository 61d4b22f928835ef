"""Child processes that leave nothing behind.

Invariant: a child lives in its own session, and it ends when its parent ends, also when the parent
is killed with SIGKILL, unless it was started ``detached``. A process group is signalled only while
its leader is still unreaped, so a recycled process id is never hit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import psutil

from onceover.errors import Retriable

# A broker with a few partitions needs 1-2 s to stop cleanly; ten times that on a busy machine.
STOP_TIMEOUT_S: Final = 20.0
POLL_INTERVAL_S: Final = 0.02
TAIL_BYTES: Final = 64 * 1024

# PR_SET_PDEATHSIG (1) asks Linux for a signal when the parent thread ends; it survives exec. The
# parent may have died before the request: then the kernel never signals, so we look and leave.
# preexec_fn would run Python between fork and exec, which can deadlock in a threaded parent.
_DIE_WITH_PARENT: Final = (
    "import ctypes,os,sys\n"
    "parent,number=int(sys.argv[1]),int(sys.argv[2])\n"
    "libc=ctypes.CDLL(None,use_errno=True)\n"
    "if libc.prctl(1,number,0,0,0): sys.exit('prctl: '+os.strerror(ctypes.get_errno()))\n"
    "if os.getppid()!=parent: sys.exit('the parent has ended')\n"
    "os.execvp(sys.argv[3],sys.argv[3:])\n"
)
# The signal reaches one process alone. Whoever starts others, as a shell does, is started by one that ends
# the whole group with itself. Not by SIGTERM, which ends the program as it would without it: of a parent with
# threads that is killed it comes while some of them, and so the parent, are still there.
_END_ALL_WITH_PARENT: Final = (
    "import ctypes,os,signal,sys\n"
    "parent,program=int(sys.argv[1]),0\n"
    "def end(*_): os.killpg(0,signal.SIGKILL)\n"
    "def forward(*_):\n"
    " if program: os.kill(program,signal.SIGTERM)\n"
    "signal.signal(signal.SIGUSR2,end)\n"
    "signal.signal(signal.SIGTERM,forward)\n"
    "libc=ctypes.CDLL(None,use_errno=True)\n"
    "if libc.prctl(1,int(signal.SIGUSR2),0,0,0): sys.exit('prctl: '+os.strerror(ctypes.get_errno()))\n"
    "if os.getppid()!=parent: sys.exit('the parent has ended')\n"
    "program=os.fork()\n"
    "if program==0:\n"
    " signal.signal(signal.SIGTERM,signal.SIG_DFL)\n"
    " signal.signal(signal.SIGUSR2,signal.SIG_DFL)\n"
    " os.execvp(sys.argv[3],sys.argv[3:])\n"
    "code=os.waitstatus_to_exitcode(os.waitpid(program,0)[1])\n"
    "if code<0:\n"
    " signal.signal(-code,signal.SIG_DFL) if -code!=signal.SIGKILL else None\n"
    " os.kill(os.getpid(),-code)\n"
    "sys.exit(code)\n"
)


class _Spawner:
    """Runs every ``Popen`` in one thread that lives as long as the process.

    The kernel sends the parent-death signal when the *thread* that forked ends, so a child started
    from a short-lived worker thread would be killed in the middle of its life.
    """

    def __init__(self) -> None:
        self._owner_pid = -1
        self._executor: ThreadPoolExecutor | None = None

    def run(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        # After a fork the executor's thread exists in the parent only.
        if self._executor is None or self._owner_pid != os.getpid():
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="onceover-spawn")
            self._owner_pid = os.getpid()
        spawned = self._executor.submit(start)
        try:
            return spawned.result()
        except BaseException:
            # Who is interrupted while it waits has no handle of what is started all the same.
            spawned.add_done_callback(_end_unheld)
            raise


def _end_unheld(spawned: Future[subprocess.Popen[bytes]]) -> None:
    if not spawned.cancelled() and spawned.exception() is None:
        popen = spawned.result()
        os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()


_spawner = _Spawner()
# Popen warns when it is collected while its process runs, which is what detached processes are for.
_detached: Final[list[subprocess.Popen[bytes]]] = []


def guarded_argv(
    argv: Sequence[str], death_signal: signal.Signals, *, with_family: bool = False
) -> list[str]:
    """Return ``argv`` wrapped so that the process gets ``death_signal`` when its parent ends.

    ``with_family``: so that it and all that it has started are killed then.

    Only Linux offers this; elsewhere ``argv`` comes back unchanged and a parent that is killed with
    SIGKILL leaves its children running.
    """
    if sys.platform != "linux":
        return list(argv)
    wrapper = [sys.executable, "-I", "-S", "-c", _END_ALL_WITH_PARENT if with_family else _DIE_WITH_PARENT]
    return [*wrapper, str(os.getpid()), str(int(death_signal)), *argv]


class ChildProcess:
    """One child process, leader of its own session and process group.

    Output (stdout and stderr) is appended to ``log_path``. Not safe for use from two threads at
    once; several children may be started from several threads.
    """

    def __init__(
        self, name: str, popen: subprocess.Popen[bytes], log_path: Path, family_ends_s: float = 0.0
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._popen = popen
        self._family_ends_s = family_ends_s

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        name: str,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        detached: bool = False,
        death_signal: signal.Signals = signal.SIGKILL,
        family_ends_s: float = 0.0,
        inherited: Sequence[int] = (),
        with_family: bool = False,
    ) -> ChildProcess:
        """Start ``argv``; ``env`` replaces the whole environment when given.

        ``family_ends_s``: how long its children may outlive it, to put away what it left, before its group
        is swept.

        ``inherited``: file descriptors that it has open, too.

        ``with_family``: all that it has started ends with this process, too, as far as it is in its group.

        ``death_signal`` reaches only this process, not its children: give SIGTERM to programs that
        must stop children of their own (Airflow). ``detached`` processes outlive the parent.

        Raises:
            OSError: the program does not exist or cannot be executed (``detached`` only; otherwise
                the child ends at once with the reason in its log).
        """
        log_path.parent.mkdir(parents=True, exist_ok=True)
        command = list(argv) if detached else guarded_argv(argv, death_signal, with_family=with_family)
        with log_path.open("ab") as log:

            def spawn() -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=None if env is None else dict(env),
                    cwd=cwd,
                    start_new_session=True,
                    pass_fds=inherited,
                )

            popen = _spawner.run(spawn)
        if detached:
            _detached.append(popen)
        return cls(name, popen, log_path, family_ends_s)

    def __repr__(self) -> str:
        return f"ChildProcess({self.name!r}, pid={self.pid})"

    @property
    def pid(self) -> int:
        """Process id, equal to the process group id."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended; a paused process is alive."""
        return self.returncode is None

    @property
    def returncode(self) -> int | None:
        """Exit code (negative: signal), or None while running. Once it ended, its group is swept."""
        if self._popen.returncode is None and self._has_exited():
            self._await_family()
            self._sweep_and_reap()
        return self._popen.returncode

    @property
    def state(self) -> str:
        """What the kernel says of it: sleeping, stopped, zombie."""
        try:
            return str(psutil.Process(self.pid).status())
        except psutil.NoSuchProcess:
            return "gone"

    def listens_on(self, port: int) -> bool:
        """Whether this very process accepts TCP connections on ``port``: another program may do, too."""
        try:
            sockets = psutil.Process(self.pid).net_connections("tcp")
        except psutil.Error:
            return False
        return any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets)

    def send_signal(self, number: signal.Signals) -> None:
        """Signal this process alone, not its children; does nothing when it has ended."""
        if self.alive:
            os.kill(self.pid, number)

    def pause(self) -> None:
        """Freeze the process (SIGSTOP)."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process and its whole group with SIGKILL and wait until it is gone."""
        if self.alive:
            self._sweep_and_reap()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """End the process: SIGTERM, then SIGKILL to its group after ``timeout_s``. Returns the exit code."""
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)
            # A paused process sees SIGTERM only after it is woken.
            os.kill(self.pid, signal.SIGCONT)
            self._await_exit(timeout_s)
            self.kill()
        return self._popen.wait()

    def wait(self, timeout_s: float) -> int:
        """Wait for the process to end by itself and return its exit code.

        Raises:
            Retriable: it still runs after ``timeout_s`` seconds.
        """
        if not self._await_exit(timeout_s):
            raise Retriable(
                f"{self.name} still runs after {timeout_s:g} s",
                where=f"process {self.pid}",
                resolve=f"look at {self.log_path}",
            )
        return self._popen.wait()

    def tail(self, lines: int = 20) -> str:
        """Return the last ``lines`` lines of the log."""
        return tail(self.log_path, lines)

    def _await_exit(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_INTERVAL_S)
        return True

    def _has_exited(self) -> bool:
        try:
            return psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            # `terminate` of the register ended and reaped it in this same process. The id may be
            # anybody's now, so there is no group to sweep; wait() records an exit code of 0.
            self._popen.wait()
            return True

    def _await_family(self) -> None:
        deadline = time.monotonic() + self._family_ends_s
        while time.monotonic() < deadline and any(_in_group(each, self.pid) for each in psutil.pids()):
            time.sleep(POLL_INTERVAL_S)

    def _sweep_and_reap(self) -> None:
        if self._popen.returncode is not None:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except PermissionError:
            # macOS refuses to signal a group that consists of zombies only; nothing is left to kill.
            if sys.platform != "darwin":
                raise
        self._popen.wait()


def _in_group(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def run_to_end(
    argv: Sequence[str], *, name: str, log_path: Path, timeout_s: float, env: Mapping[str, str] | None = None
) -> int:
    """Run ``argv`` and return its exit code; unlike ``subprocess.run`` it also ends with this process.

    ``env`` replaces the whole environment when given.

    Raises:
        Retriable: it still ran after ``timeout_s`` seconds, and was killed.
    """
    child = ChildProcess.start(argv, name=name, log_path=log_path, env=env)
    try:
        return child.wait(timeout_s)
    finally:
        child.kill()


def tail(path: Path, lines: int = 20) -> str:
    """Return the last ``lines`` lines of a text file, empty when it does not exist."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])
