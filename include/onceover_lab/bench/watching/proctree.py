"""Samples CPU time and memory of a whole process tree while it runs.

The figure of a system is that of everything it started: for Onceover spark-submit, the JVM, the Python
driver and all Python workers. A process that was seen once stays in the account when it ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from typing import Final

import psutil

from onceover_lab.bench.stats import Sample
from onceover_lab.bench.watching.cpu import Part, ProcessCpu, ProcessId, cpu_by_process, part_of

# Both looks cost CPU on the machine that is measured. The CPU clock ticks every 10 ms; a scan for new
# members reads every process of the machine; PSS makes the kernel walk all mappings.
CPU_INTERVAL_S: Final = 0.2
SCAN_EVERY: Final = 5


class ProcessTree:
    """A thread that follows the process ``pid`` and everything it starts, until ``close``.

    Members are found by parent, and by session, because a child whose parent ended belongs to init.

    Raises:
        psutil.NoSuchProcess: there is no process ``pid``.
    """

    def __init__(self, pid: int) -> None:
        self._members: dict[ProcessId, psutil.Process] = {}
        self._seen: dict[ProcessId, ProcessCpu] = {}
        self._sessions: set[int] = set()
        self._parts: dict[ProcessId, Part] = {}
        self._samples: dict[Part | None, list[Sample]] = {part: [] for part in (None, *Part)}
        self._peak_memory_bytes = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        root = psutil.Process(pid)
        self._add(ProcessId(pid, root.create_time()), root)
        self._thread = threading.Thread(target=self._follow, name=f"sample-{pid}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the sampling; the figures stay readable."""
        self._stop.set()
        self._thread.join()

    def cpu_samples(self, part: Part | None = None) -> list[Sample]:
        """Return cumulative CPU seconds over monotonic time, as sampled so far: of all, or of one part."""
        with self._lock:
            return list(self._samples[part])

    def peak_memory_bytes(self) -> int:
        """Return the largest sum of the members' proportional memory (PSS; RSS where there is none)."""
        with self._lock:
            return self._peak_memory_bytes

    def living(self) -> list[psutil.Process]:
        """Return the members that are still running."""
        self._find_members()
        return [process for process in self._members.values() if _is_running(process)]

    def _follow(self) -> None:
        look = 0
        while True:
            if look % SCAN_EVERY == 0:
                self._find_members()
                self._measure_memory()
            self._measure_cpu()
            look += 1
            if self._stop.wait(CPU_INTERVAL_S):
                self._measure_cpu()
                return

    def _find_members(self) -> None:
        processes = {
            ProcessId(process.pid, process.info["create_time"]): process
            for process in psutil.process_iter(["ppid", "create_time"])
        }
        # Matched by start time too: the pid of an ended member may belong to a stranger by now.
        members = self._members.keys() & processes.keys()
        grown = True
        while grown:
            pids = {identity.pid for identity in members}
            found = {identity for identity, process in processes.items() if self._belongs(process, pids)}
            grown = not found <= members
            members |= found
        for identity in sorted(members - self._members.keys(), key=lambda identity: identity.created_s):
            self._add(identity, processes[identity])
        for identity in members:
            self._find_part(identity)

    def _find_part(self, identity: ProcessId) -> None:
        """Learn what a member does; again at each scan, as a shell becomes the JVM that it was to start."""
        try:
            command = self._members[identity].cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return
        if command:  # none is left of one that has ended and was not waited for
            self._parts[identity] = part_of(command)

    def _belongs(self, process: psutil.Process, pids: set[int]) -> bool:
        return process.info["ppid"] in pids or _session_of(process.pid) in self._sessions

    def _add(self, identity: ProcessId, process: psutil.Process) -> None:
        self._members[identity] = process
        session = _session_of(process.pid)
        # Our own session is the shell's or the test runner's: its other processes are strangers.
        if session is not None and session != os.getsid(0):
            self._sessions.add(session)

    def _measure_cpu(self) -> None:
        # Parents first (insertion order): a child that is reaped between the two looks is then missing
        # from both for one sample, instead of being counted twice.
        for identity, process in self._members.items():
            self._seen[identity] = _look(process, self._seen.get(identity))
        now_s, shares = time.monotonic(), cpu_by_process(self._seen)
        with self._lock:
            self._samples[None].append(Sample(now_s, sum(shares.values())))
            for part in Part:
                own = (cpu_s for identity, cpu_s in shares.items() if self._parts.get(identity) is part)
                self._samples[part].append(Sample(now_s, sum(own)))

    def _measure_memory(self) -> None:
        total = sum(_memory_bytes(self._members.values()))
        with self._lock:
            self._peak_memory_bytes = max(self._peak_memory_bytes, total)


def _look(process: psutil.Process, before: ProcessCpu | None) -> ProcessCpu:
    try:
        times = process.cpu_times()
        parent_pid = before.parent_pid if before else process.ppid()
    except psutil.NoSuchProcess:
        return before._replace(alive=False) if before else ProcessCpu(0, 0.0, 0.0, alive=False)
    reaped_s = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return ProcessCpu(parent_pid, times.user + times.system, reaped_s, alive=True)


def _memory_bytes(processes: Iterable[psutil.Process]) -> Iterable[int]:
    for process in processes:
        try:
            full = process.memory_full_info()
            yield getattr(full, "pss", full.rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
