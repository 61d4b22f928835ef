"""Everything of the demo that keeps running on this machine: clusters, Kafka Connect, Airflow, the feed.

Invariant: ``up`` starts what is missing and leaves alone what runs, so it can be run again at any time, also
after a kill of anything; after ``down`` no process and no port of it is left, and the data are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

import onceover
from onceover.config.home import ENVIRONMENT_FILE, HOME_VARIABLE, render_environment
from onceover.errors import OnceoverError, Retriable
from onceover.process.java import ensure_java
from onceover_lab.demo import feeding
from onceover_lab.demo.connector import connector_file, create_connector
from onceover_lab.demo.feeding import FeedStatus
from onceover_lab.embed.airflow import AirflowHome
from onceover_lab.embed.security import write_private
from onceover_lab.embed.up import airflow as upairflow
from onceover_lab.embed.up import clusters
from onceover_lab.embed.up import connect as upconnect
from onceover_lab.embed.up.airflow import AirflowStatus
from onceover_lab.embed.up.clusters import ClusterStatus
from onceover_lab.embed.up.connect import ConnectStatus
from onceover_lab.embed.up.lock import alone, alone_if_free, emptied

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """What runs and where; None for what was never started."""

    clusters: dict[str, ClusterStatus]
    connect: ConnectStatus | None
    airflow: AirflowStatus | None
    feed: FeedStatus | None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the shipped flow and Connect files read."""
        found = {f"ONCEOVER_{name.upper()}": c["bootstrap"] for name, c in self.clusters.items()}
        found["ONCEOVER_CONNECT_REST"] = self.connect["url"] if self.connect else None
        return {name: value for name, value in found.items() if value}

    def document(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {**asdict(self), **self.environment}


def up(home: Path, *, airflow: bool, feed: bool, say: Say, note: Say) -> MachineStatus:
    """Start what is missing of the clusters and Connect, and of Airflow and the feed when asked for.

    ``say`` is told what happens, ``note`` what a person should know afterwards.

    Raises:
        UsageError: no Java, no data, or a configured port is taken.
        Retriable: a part did not start; what runs by then goes on running.
    """
    with alone(home, "make up"):
        up_clusters(home, say, note)
        if airflow:
            say("starting Airflow, half a minute")
            up_airflow(home, note)
        finish_connect(home)
        if feed:
            say("feeding the first flights")
            feeding.up(home, _east(home))
        found = status(home)
    check_runs(found, airflow=airflow)
    return found


def check_runs(found: MachineStatus, *, airflow: bool) -> None:
    """Refuse to call up what has ended since it was started."""
    alive = {name: cluster["alive"] for name, cluster in found.clusters.items()}
    alive["connect"] = found.connect is not None and found.connect["alive"]
    if airflow:
        alive["airflow"] = found.airflow is not None and found.airflow["alive"]
    ended = [name for name, runs in alive.items() if not runs]
    if ended:
        raise Retriable(
            f"{' and '.join(ended)} started, and ended again",
            resolve="run the same command again; onceover clusters status shows what runs",
        )


def up_clusters(home: Path, say: Say, note: Say) -> MachineStatus:
    """Start the clusters, and Connect without waiting for it; every shell finds them from then on.

    For one caller at a time, as the other parts of ``up`` are: see :func:`onceover_lab.embed.up.lock.alone`.
    """
    ensure_java()
    say("starting the clusters east and west, and Kafka Connect")
    clusters.up(home, note)
    upconnect.launch(home, _east(home), note)
    found = status(home)
    write_private(home / ENVIRONMENT_FILE, render_environment(found.environment).encode())
    return found


def finish_connect(home: Path) -> None:
    """Wait for Connect, and give it the demo's connector."""
    upconnect.await_ready(home)
    connect = upconnect.status(home)
    if connect is not None:
        create_connector(connect["url"], connector_file(home))


def up_airflow(home: Path, note: Say) -> AirflowHome:
    """Start Airflow with the project's DAGs, or what is missing of it."""
    project = Path(onceover.__file__).parents[2]
    # The clusters' addresses are not among them: tasks read the file, which is always up to date.
    environ = {HOME_VARIABLE: str(home.absolute()), "JAVA_HOME": str(ensure_java().home)}
    return upairflow.up(
        home / "airflow", dags=project / "dags", plugins=project / "plugins", environ=environ, note=note
    )


def down(home: Path, say: Say) -> dict[str, bool]:
    """Stop everything and keep the data, and end what a demo that was killed has left; return what ran.

    Raises:
        Retriable: a part could not be stopped; the others were.
    """
    ran: dict[str, bool] = {}
    failed: list[str] = []

    def stop(part: str, end: Callable[[], dict[str, bool]]) -> None:
        try:
            ran.update(end())
        except (OnceoverError, OSError, psutil.Error) as error:
            failed.append(f"{part}: {error}")

    with alone(home, "make down"):
        stop("variables", lambda: _forget(home))
        stop("feed", lambda: {"feed": feeding.down(home)})
        say("stopping Airflow and what it runs")
        stop("airflow", lambda: {"airflow": upairflow.down(home / "airflow")})
        say("stopping Kafka Connect and the clusters")
        stop("connect", lambda: {"connect": upconnect.down(home)})
        stop("clusters", lambda: clusters.down(home))
        stop("demo", lambda: {"demo": _end_killed(demo_home(home))})
    if failed:
        raise Retriable(
            "not everything could be stopped", seen="; ".join(failed), resolve="onceover clusters status"
        )
    return ran


def demo_home(home: Path) -> Path:
    """Return where the files of a demo are that ends what it started."""
    return home / "demo"


@contextmanager
def fresh_home(home: Path) -> Iterator[None]:
    """Wait until no other demo runs in ``home``, end what a killed one has left, and delete its files."""
    with alone(home, "onceover demo"):
        _end_left(home)
        emptied(home)
        yield


def _end_killed(home: Path) -> bool:
    """End what a demo that was killed has left; return whether that was anything. One that runs keeps all."""
    with alone_if_free(home, "make down") as free:
        return free and _end_left(home)


def _end_left(home: Path) -> bool:
    # Brokers go with the demo. A Spark driver does not: it waits for them, to finish its transactions.
    return upairflow.down(home / "airflow")


def _forget(home: Path) -> dict[str, bool]:
    (home / ENVIRONMENT_FILE).unlink(missing_ok=True)
    return {}


def status(home: Path) -> MachineStatus:
    """Return what runs. Changes nothing."""
    return MachineStatus(
        clusters=clusters.status(home),
        connect=upconnect.status(home),
        airflow=upairflow.status(home / "airflow"),
        feed=feeding.status(home),
    )


def _east(home: Path) -> str:
    bootstrap = clusters.status(home)["east"]["bootstrap"]
    if bootstrap is None:
        raise Retriable("cluster east was started but has no address", where=str(home))
    return bootstrap
