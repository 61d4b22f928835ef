"""Airflow on this machine alone: SQLite, LocalExecutor, loopback, a home directory of its own.

Invariant: every process of it carries a random mark in its environment. ``stop`` ends exactly the
processes with that mark, whatever sessions or parents they have by then (Spark drivers included).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Self

import psutil

from onceover.errors import Retriable, UsageError
from onceover.process.children import ChildProcess, tail
from onceover_lab.embed.airflow_config import (
    AUDIT_POOL,
    AUDIT_POOL_VARIABLE,
    AUDIT_SLOTS,
    CONFIG_FILE,
    COPY_POOL,
    COPY_SLOTS,
    DATABASE_FILE,
    PASSWORDS_FILE,
    POOL_VARIABLE,
    SLOTS_VARIABLE,
    USERNAME,
    AirflowSecrets,
    render_config,
)
from onceover_lab.embed.airflow_rest import AirflowRest
from onceover_lab.embed.jars import cache_directory, refuse_open_cache
from onceover_lab.embed.ports import LOOPBACK, PortReservation
from onceover_lab.embed.registry import read_or_none
from onceover_lab.embed.security import write_private

# Two shared cores need 15-40 s for all three components; five times that on a machine busy with tests.
BOOT_TIMEOUT_S: Final = 180.0
MIGRATE_TIMEOUT_S: Final = 120.0
# A task gets 5 s from Airflow to stop its flow, the scheduler a few more to book it.
STOP_TIMEOUT_S: Final = 15.0
KILL_TIMEOUT_S: Final = 10.0
POLL_INTERVAL_S: Final = 0.3
MARK: Final = "ONCEOVER_AIRFLOW_MARK"
STATE_FILE: Final = "onceover.json"
# Logs are read from disk by the API server, so log servers (fixed ports) are not needed.
COMPONENTS: Final[Mapping[str, Sequence[str]]] = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
}
# No task of ours defers, but Airflow's Home page shows a missing triggerer in red.
TRIGGERER: Final[Mapping[str, Sequence[str]]] = {"triggerer": ("triggerer", "--skip-serve-logs")}
_LINEAGE: Final = ("AIRFLOW__OPENLINEAGE__", "OPENLINEAGE_")
_PRIVATE: Final = 0o600
_HEALTHY: Final = "healthy"


@dataclass(frozen=True, slots=True)
class State:
    """Who belongs to an Airflow home: the mark of its processes, and its components' process ids."""

    mark: str | None = None
    processes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, home: Path) -> State:
        """Return what is written in the home; otherwise the mark of what runs there, if anything does."""
        return read_or_none(home / STATE_FILE, cls._parse) or cls(_mark_of(home))

    @classmethod
    def _parse(cls, document: dict[str, Any]) -> State:
        mark, processes = str(document["mark"]), document.get("processes", {})
        return cls(mark, {str(name): int(pid) for name, pid in processes.items()})

    def write(self, home: Path) -> None:
        """Write it down in the home."""
        write_private(home / STATE_FILE, json.dumps(asdict(self)).encode())

    def dead(self) -> list[str]:
        """Return the components whose process is gone. An id alone may be somebody else's by now."""
        return [name for name, pid in self.processes.items() if not _is_there(pid, self.mark)]


class AirflowHome(AirflowRest):
    """An Airflow on this machine with its REST client: where it is, and how to log in."""

    def __init__(self, home: Path, port: int, password: str) -> None:
        super().__init__(port, username=USERNAME, password=password)
        self.home = home
        self.url = f"http://{LOOPBACK}:{port}"
        self.username = USERNAME
        self.password = password
        self.password_path = home / PASSWORDS_FILE

    def await_healthy(self, since: datetime, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Wait until every component runs and has given a sign of life after ``since``.

        Raises:
            Retriable: one ended, or they are not healthy in time; the text carries the end of a log.
        """
        state, deadline = State.read(self.home), time.monotonic() + timeout_s
        while not is_healthy(self.health(), state.processes, since):
            dead = next(iter(state.dead()), None)
            if dead or time.monotonic() >= deadline:
                failed = dead or next(iter(state.processes))
                raise Retriable(
                    f"Airflow's {failed} ended" if dead else f"Airflow is not up after {timeout_s:g} s",
                    where=str(self.home),
                    seen=tail(self.home / f"{failed}.log"),
                    resolve=f"look at {self.home}/*.log, then start it again",
                )
            time.sleep(POLL_INTERVAL_S)

    def await_ready(self, since: datetime) -> None:
        """Wait as ``await_healthy`` does, and see to the pools: a task of none waits for ever.

        Raises:
            Retriable: as ``await_healthy``; or Airflow does not take the pool.
        """
        self.await_healthy(since)
        self.put_pool(COPY_POOL, COPY_SLOTS, "copies of flows; what is left is for all else")
        self.put_pool(AUDIT_POOL, AUDIT_SLOTS, "audits that schedules begin")


class AirflowStandalone(AirflowHome):
    """A running Airflow that ends with the ``with`` block. Start it with :meth:`start`."""

    def __init__(
        self,
        home: Path,
        port: int,
        password: str,
        mark: str,
        children: list[ChildProcess],
        reserved: PortReservation,
    ) -> None:
        super().__init__(home, port, password)
        self._mark = mark
        self._children = children
        self._reserved = reserved

    @classmethod
    def start(
        cls,
        home: Path,
        *,
        dags: Path,
        plugins: Path,
        port: int | None = None,
        environ: Mapping[str, str] | None = None,
        detached: bool = False,
        triggerer: bool = False,
    ) -> AirflowStandalone:
        """Start Airflow and return once it takes runs (healthy scheduler, DAG files being read).

        ``environ`` is added to the environment of every task. A home is kept over restarts: runs,
        Connections and the login stay. ``detached`` processes outlive the caller;
        ``onceover_lab.embed.up.airflow.down`` ends them. ``triggerer`` starts one, too: Airflow's Home page
        asks for it.

        Raises:
            UsageError: the port is taken, or an Airflow of this home is still running.
            Retriable: it did not come up in time; the message quotes the log of what failed.
        """
        home = home.absolute()
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if marked(State.read(home).mark):
            raise UsageError("this Airflow runs already", where=str(home), resolve="onceover clusters down")
        reserved = PortReservation(port or 0)
        children: list[ChildProcess] = []
        mark, begun = secrets.token_hex(16), datetime.now(UTC)
        password = _prepare(home, dags, plugins, reserved.port)
        airflow = cls(home, reserved.port, password, mark, children, reserved)
        # Written down before anything starts: what a killed start leaves behind is found again.
        State(mark).write(home)
        env = environment_of(home, mark, environ or {})
        try:
            make_database(home, env)
            names = {**COMPONENTS, **(TRIGGERER if triggerer else {})}
            children += [start_component(home, name, env, detached=detached) for name in names]
            State(mark, {child.name: child.pid for child in children}).write(home)
            airflow.await_ready(begun)
        except BaseException:
            airflow.stop()
            raise
        return airflow

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process of this Airflow, running tasks and their Spark drivers included.

        Tasks are asked first: a replicating flow finishes its transactions and resumes later.
        """
        # The API server last: the others report to it while they end.
        for child in reversed(self._children):
            if child.alive:
                # The whole group: the executor's workers pass the signal on to their tasks.
                os.killpg(child.pid, signal.SIGTERM)
            child.stop(STOP_TIMEOUT_S)
        self._children.clear()
        # Its own mark: what the home has on record may be another Airflow by now.
        sweep(self._mark)
        self._reserved.release()


def start_component(home: Path, name: str, env: Mapping[str, str], *, detached: bool) -> ChildProcess:
    """Start one of ``COMPONENTS`` or the triggerer, without waiting for it."""
    return ChildProcess.start(
        _command(*{**COMPONENTS, **TRIGGERER}[name]),
        name=name,
        log_path=home / f"{name}.log",
        env=env,
        cwd=home,
        detached=detached,
        death_signal=signal.SIGTERM,
    )


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]


def _prepare(home: Path, dags: Path, plugins: Path, port: int) -> str:
    """Write the configuration and the login; return the password."""
    config = home / CONFIG_FILE
    secret = AirflowSecrets.read(config)
    found = config.read_text(encoding="utf-8") if config.exists() else ""
    dags, plugins = dags.absolute(), plugins.absolute()
    text = render_config(home, dags=dags, plugins=plugins, port=port, secret=secret, found=found)
    write_private(config, text.encode())
    return password_of(home)


def password_of(home: Path) -> str:
    """Return the password of the login; a new one is made where there is none."""
    passwords = home / PASSWORDS_FILE
    found = read_or_none(passwords, lambda document: str(document[USERNAME]))
    if found is not None:
        return found
    password = secrets.token_urlsafe(16)
    write_private(passwords, json.dumps({USERNAME: password}).encode())
    return password


def environment_of(home: Path, mark: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of all components of a home."""
    unused = unused_settings()
    kept = {name: value for name, value in os.environ.items() if name not in unused}
    own = {
        "AIRFLOW_HOME": str(home),
        MARK: mark,
        POOL_VARIABLE: COPY_POOL,
        SLOTS_VARIABLE: str(COPY_SLOTS),
        AUDIT_POOL_VARIABLE: AUDIT_POOL,
        # Otherwise setproctitle overwrites the memory in which ps and we look for the mark.
        "SPT_NOENV": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "NO_COLOR": "1",
    }
    return {**kept, **environ, **own}


def lineage_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that switch lineage on: Airflow's, and those of OpenLineage's client."""
    return {name: value for name, value in environ.items() if name.startswith(_LINEAGE)}


def unused_settings() -> list[str]:
    """Return a developer's other AIRFLOW__ variables: they would override our configuration file."""
    names = (name for name in os.environ if name.startswith("AIRFLOW__"))
    return sorted(name for name in names if not name.startswith(_LINEAGE))


def make_database(home: Path, env: Mapping[str, str]) -> None:
    """Create or upgrade the database; a fresh one is copied from the cache where there is one.

    An empty database of a pinned Airflow is always the same, and making one takes 10 s.
    """
    database = home / DATABASE_FILE
    template = cache_directory() / f"airflow-{metadata.version('apache-airflow')}.db"
    fresh = not database.exists()
    refuse_open_cache(template)
    if fresh and template.exists():
        shutil.copyfile(template, database)
        database.chmod(_PRIVATE)
        return
    log = home / "migrate.log"
    migration = ChildProcess.start(
        _command("db", "migrate"), name="airflow db migrate", log_path=log, env=env, cwd=home
    )
    try:
        code = migration.wait(MIGRATE_TIMEOUT_S)
    finally:
        migration.kill()
    if code != 0:
        raise Retriable("Airflow's database could not be prepared", where=str(database), seen=tail(log))
    if fresh:
        template.parent.mkdir(0o755, parents=True, exist_ok=True)
        partial = template.with_name(f"{template.name}.{os.getpid()}")
        shutil.copyfile(database, partial)
        partial.chmod(_PRIVATE)
        partial.replace(template)


def is_healthy(health: Mapping[str, Any] | None, components: Iterable[str], since: datetime) -> bool:
    """Tell whether the database is healthy and every component has given a sign of life after ``since``.

    The API server has, or there would be no document. What was killed counts as healthy for half a minute.
    """
    if health is None or health["metadatabase"]["status"] != _HEALTHY:
        return False
    parts = [name.replace("-", "_") for name in components if name != "api-server"]
    beats = [health[part][f"latest_{part}_heartbeat"] for part in parts]
    return all(health[part]["status"] == _HEALTHY for part in parts) and all(
        beat is not None and datetime.fromisoformat(beat) >= since for beat in beats
    )


def marked(mark: str | None) -> list[psutil.Process]:
    """Return the living processes that carry ``mark``, this one left out."""
    if mark is None:
        return []
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def _is_there(pid: int, mark: str | None) -> bool:
    """Tell whether a process lives and carries ``mark``, or cannot be looked into yet.

    Between two programs (one has asked to be replaced by the other) it has no variables for a moment. So it
    is looked at once: who looks for the mark, and then for that moment, finds neither if it ends between.
    """
    try:
        process = psutil.Process(pid)
        environ = process.environ()
        return environ.get(MARK) == mark if environ else process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _mark_of(home: Path) -> str | None:
    """Return the mark of a living process of this home, None when there is none."""
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            environ = process.environ() if process.pid != os.getpid() else {}
            if environ.get("AIRFLOW_HOME") == str(home.absolute()) and MARK in environ:
                return environ[MARK]
    return None


def sweep(mark: str | None) -> None:
    """End what is left with ``mark``: drivers get the chance to finish, then nothing survives."""
    left = marked(mark)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, stubborn = psutil.wait_procs(left, KILL_TIMEOUT_S)
    # Again: a process that is just starting another program bears no mark for a moment.
    stubborn += [process for process in marked(mark) if process not in stubborn]
    for process in stubborn:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stubborn, KILL_TIMEOUT_S)
