"""The Airflow that keeps running until it is taken down, with one component after the other brought back.

Invariant: its port is the same at every start, unless another program has taken it meanwhile.
"""

from __future__ import annotations

import configparser
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypedDict

import psutil

from onceover_lab.embed.airflow import (
    KILL_TIMEOUT_S,
    STOP_TIMEOUT_S,
    AirflowHome,
    AirflowStandalone,
    State,
    environment_of,
    is_healthy,
    lineage_settings,
    marked,
    password_of,
    start_component,
    sweep,
    unused_settings,
)
from onceover_lab.embed.airflow_config import CONFIG_FILE, PASSWORDS_FILE, USERNAME
from onceover_lab.embed.airflow_rest import AirflowRest
from onceover_lab.embed.ports import LOOPBACK, choose_port

log = logging.getLogger(__name__)

# As old as Airflow lets a heartbeat be before it calls a component unhealthy.
_HEARTBEAT_AGE: Final = timedelta(seconds=30)


class AirflowStatus(TypedDict):
    """The Airflow as ``up`` and ``status`` report it."""

    alive: bool
    healthy: bool
    url: str
    username: str
    password_file: str
    missing: list[str]


def up(
    home: Path, *, dags: Path, plugins: Path, environ: Mapping[str, str], note: Callable[[str], object]
) -> AirflowHome:
    """Start the Airflow of ``home``, or what is missing of it, detached; return it once it takes runs.

    Its port is ONCEOVER_AIRFLOW_PORT's, otherwise that of the last time if still free, otherwise the kernel
    chooses, which ``note`` is told, as it is of variables without effect. Can be run again at any time.

    Raises:
        UsageError: a configured port is taken or no number.
        Retriable: it did not come up; a start from nothing leaves nothing running.
    """
    home = home.absolute()
    state = State.read(home)
    dead = state.dead()
    if state.processes and len(dead) < len(state.processes):
        return _complete(home, state, dead, environ, note)
    note_settings(note, None)
    # Nothing, or what is left of a start or an Airflow that was killed.
    down(home)
    port = choose_port("airflow", _port(home), os.environ, note)
    return AirflowStandalone.start(
        home, dags=dags, plugins=plugins, port=port, environ=environ, detached=True, triggerer=True
    )


def down(home: Path) -> bool:
    """End the detached Airflow of ``home``; return whether there was one.

    Ends tasks before components, as :meth:`AirflowStandalone.stop` does.
    """
    state = State.read(home.absolute())
    processes = marked(state.mark)
    if not processes:
        return False
    # A process id alone may belong to somebody else by now; together with the mark it is ours.
    components = [process for process in processes if process.pid in state.processes.values()]
    for process in components:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    psutil.wait_procs(components, STOP_TIMEOUT_S)
    sweep(state.mark)
    return True


def status(home: Path) -> AirflowStatus | None:
    """Return where the Airflow of ``home`` is and whether it works; None when there never was one."""
    port, state = _port(home), State.read(home)
    if port is None:
        return None
    dead = state.dead()
    alive = bool(state.processes) and not dead
    rest = AirflowRest(port, username=USERNAME, password="")
    since = datetime.now(UTC) - _HEARTBEAT_AGE
    return AirflowStatus(
        alive=alive,
        healthy=alive and is_healthy(rest.health(), state.processes, since),
        url=f"http://{LOOPBACK}:{port}",
        username=USERNAME,
        password_file=str(home / PASSWORDS_FILE),
        missing=dead if len(dead) < len(state.processes) else [],
    )


def note_settings(note: Callable[[str], object], running: Mapping[str, str] | None) -> None:
    """Say which of this shell's settings for Airflow have no effect on it.

    Args:
        running: the variables that switch lineage on, as a running Airflow has them; None before its start.
    """
    for name in unused_settings():
        note(f"{name}: has no effect on this Airflow, which has settings of its own")
    for name, value in lineage_settings(os.environ).items():
        if running is not None and running.get(name) != value:
            note(f"{name}: has an effect from Airflow's next start: onceover clusters down, then this again")


def _complete(
    home: Path, state: State, dead: list[str], environ: Mapping[str, str], note: Callable[[str], object]
) -> AirflowHome:
    """Bring back what is dead of a running Airflow; return it once it takes runs."""
    begun = datetime.now(UTC)
    processes = dict(state.processes)
    running = _running_settings(state)
    note_settings(note, running)
    own = environment_of(home, str(state.mark), environ)
    # As the others have them: of a component that differs, a catalogue would be told one half.
    env = {name: value for name, value in own.items() if name not in lineage_settings(own)} | running
    for name in dead:
        _end_group(processes[name], state)
        processes[name] = start_component(home, name, env, detached=True).pid
        State(state.mark, processes).write(home)
    airflow = AirflowHome(home, _port(home) or 0, password_of(home))
    airflow.await_ready(begun if dead else begun - _HEARTBEAT_AGE)
    return airflow


def _running_settings(state: State) -> dict[str, str]:
    """Return the variables that switch lineage on, as a component that runs has them."""
    for process in marked(state.mark):
        with suppress(psutil.NoSuchProcess):
            if process.pid in state.processes.values():
                return lineage_settings(process.environ())
    return {}


def _end_group(leader: int, state: State) -> None:
    """End what a killed component has left: workers that hold its port, or tasks nobody watches any more."""
    left = []
    for process in marked(state.mark):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == leader:
                left.append(process)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, stubborn = psutil.wait_procs(left, KILL_TIMEOUT_S)
    for process in stubborn:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stubborn, KILL_TIMEOUT_S)


def _port(home: Path) -> int | None:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(home / CONFIG_FILE, encoding="utf-8")
        return parser.getint("api", "port", fallback=None)
    except (configparser.Error, ValueError) as error:
        log.warning("%s is damaged and is passed over: %r", home / CONFIG_FILE, error)
        return None
