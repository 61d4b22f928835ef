"""What runs detached, written down so that exactly that is stopped later.

Invariant: a process is signalled only when its id *and* its start are those on record; an id
that the system gave to another process since then is never touched.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil

from onceover.errors import UsageError
from onceover.process.boot import boot_id
from onceover.process.children import STOP_TIMEOUT_S
from onceover_lab.embed.security import write_private

# Where the kernel does not tell a start since boot, start times are derived from the wall clock, which
# may be corrected a little while a process runs. No process id comes round again this fast.
START_TIME_TOLERANCE_S: Final = 2.0
_FORMAT: Final = 1
Parsed = TypeVar("Parsed")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process and no other: its id and when it was started.

    Args:
        started_at_s: seconds since the epoch; moves with the wall clock.
        start: boot and ticks since boot, which no clock moves; None where the system does not tell.
    """

    pid: int
    started_at_s: float
    start: str | None = None

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Return the identity of a running process.

        Raises:
            psutil.NoSuchProcess: there is none.
        """
        return cls(pid, psutil.Process(pid).create_time(), _start_of(pid))

    @classmethod
    def parse(cls, value: dict[str, Any]) -> ProcessIdentity:
        """Read what ``dataclasses.asdict`` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        start = value.get("start")
        return cls(int(value["pid"]), float(value["started_at_s"]), None if start is None else str(start))

    def find(self) -> psutil.Process | None:
        """Return the process if it still runs, None when it ended or its id belongs to another one."""
        try:
            process = psutil.Process(self.pid)
            start = None if self.start is None else _start_of(self.pid)
            if start is not None:
                same = start == self.start
            else:
                same = abs(process.create_time() - self.started_at_s) <= START_TIME_TOLERANCE_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    @property
    def frozen(self) -> bool:
        """Whether it runs and is stopped by a signal."""
        process = self.find()
        with suppress(psutil.NoSuchProcess):
            return process is not None and process.status() == psutil.STATUS_STOPPED
        return False


def _start_of(pid: int) -> str | None:
    """Return which boot and how many ticks after it the process began; None where only Linux would tell."""
    boot = boot_id()
    if boot is None:
        return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name, in brackets, may hold anything; the start is field 22, the 20th after it.
    return f"{boot}:{int(stat.rpartition(b')')[2].split()[19])}"


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A detached cluster: enough to reach it, to stop it and to start it on the same ports."""

    name: str
    cluster_id: str
    bootstrap: str
    ports: tuple[int, ...]
    processes: tuple[ProcessIdentity, ...]
    log: str

    @property
    def alive(self) -> bool:
        return bool(self.processes) and all(process.find() is not None for process in self.processes)

    @property
    def frozen(self) -> bool:
        """Whether a process of it is there and does nothing: SIGSTOP, or Ctrl-Z."""
        return any(process.frozen for process in self.processes)

    @classmethod
    def parse(cls, value: dict[str, Any]) -> ClusterRecord:
        """Read what ``dataclasses.asdict`` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        processes = tuple(ProcessIdentity.parse(item) for item in value["processes"])
        ports = tuple(int(port) for port in value["ports"])
        texts = {key: str(value[key]) for key in ("name", "cluster_id", "bootstrap", "log")}
        return cls(ports=ports, processes=processes, **texts)


def read_records(path: Path) -> dict[str, ClusterRecord]:
    """Return the records by cluster name; none when the file does not exist.

    Raises:
        UsageError: the file is damaged.
    """
    if not path.exists():
        return {}
    try:
        records = _parse_document(json.loads(path.read_text(encoding="utf-8")))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            "the register of running clusters is damaged",
            where=str(path),
            expected=f"JSON in format {_FORMAT}",
            seen=repr(error),
            resolve="onceover clusters down: ends what runs and begins a new register",
        ) from error
    return {record.name: record for record in records}


def _parse_document(document: dict[str, Any]) -> list[ClusterRecord]:
    if document["v"] != _FORMAT:
        raise ValueError(f"format {document['v']}")
    return [ClusterRecord.parse(item) for item in document["clusters"]]


def write_records(path: Path, records: Sequence[ClusterRecord]) -> None:
    """Replace the file in one step."""
    document = {"v": _FORMAT, "clusters": [asdict(record) for record in records]}
    write_private(path, (json.dumps(document, indent=2) + "\n").encode())


def read_or_none(path: Path, parse: Callable[[Any], Parsed]) -> Parsed | None:
    """Return what ``parse`` makes of a JSON file; None when there is none or, with a note, it is damaged."""
    try:
        return parse(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        log.warning("%s is damaged and is passed over: %r", path, error)
        return None


def find_by_argument(program: Sequence[str], argument: str) -> list[ProcessIdentity]:
    """Return this user's processes that run ``program`` with ``argument``, a path that is ours alone.

    Finds what a killed ``up`` started and could not write down any more. An editor or a ``tail`` of that
    path is another program.

    Args:
        program: how the executable's name begins, and what follows on its command line one after the other,
            such as ``java``, ``kafka.Kafka``.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.uids().real == os.getuid() and _runs(process.cmdline(), program, argument):
                found.append(ProcessIdentity.of(process.pid))
    return found


def _runs(command: Sequence[str], program: Sequence[str], argument: str) -> bool:
    executable, *wanted = program
    if argument not in command or not Path(command[0]).name.lower().startswith(executable):
        return False
    return any(list(command[begin : begin + len(wanted)]) == wanted for begin in range(1, len(command)))


def terminate(identities: Sequence[ProcessIdentity], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """End the processes: SIGTERM to all, SIGKILL to the groups of those still there after ``timeout_s``."""
    processes = [process for process in (identity.find() for identity in identities) if process]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
            # A paused process sees SIGTERM only after it is woken.
            process.resume()
    _, stubborn = psutil.wait_procs(processes, timeout=timeout_s)
    for process in stubborn:
        if process.is_running():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    psutil.wait_procs(stubborn, timeout=timeout_s)
