"""The demo's real surroundings: two clusters, Airflow, the flow. Started together, stopped together.

Invariant: unless it is kept on purpose, everything started here ends when the ``with`` block ends, also on
Ctrl-C. When this process is killed, the next demo or ``make down`` ends what Airflow's tasks have left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import onceover
from onceover.config.flow.load import load_flow
from onceover.config.flow.sides import resolve_clients
from onceover.errors import Retriable
from onceover.kafka.cluster import LiveCluster
from onceover.operate.status import flow_status
from onceover.process.java import ensure_java
from onceover.stops.requests import request_stop
from onceover_lab.demo import machine
from onceover_lab.demo.play import Narrator
from onceover_lab.embed.airflow import AirflowHome, AirflowStandalone
from onceover_lab.embed.driver import Driver, kill_driver, read_driver
from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.ports import configured_port
from onceover_lab.embed.up.lock import alone

FLOW: Final = "flights-dr"
_STOP_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class DemoSystem:
    """The running parts."""

    home: Path
    source: Mapping[str, str]
    target: Mapping[str, str]
    airflow: AirflowHome
    environment: Mapping[str, str]

    @property
    def login(self) -> dict[str, str]:
        """Where Airflow is and how to log in; the password stays in its file."""
        return {
            "url": self.airflow.url,
            "username": self.airflow.username,
            "password_file": str(self.airflow.password_path),
        }


@contextmanager
def running_system(home: Path, narrator: Narrator, *, keep: bool) -> Iterator[DemoSystem]:
    """Start everything with its files under ``home``; stop it at the end unless ``keep``.

    Without ``keep`` the home of an earlier demo is emptied first, behind the end of one that still runs: the
    story begins with empty clusters.

    Raises:
        UsageError: no Java, or a configured port is taken.
        Retriable: a part did not start.
    """
    java = ensure_java()
    with ExitStack() as stack:
        if not keep:
            stack.enter_context(machine.fresh_home(home))
        narrator.say("Starting two Kafka clusters, east and west.")
        starting = stack.enter_context(ExitStack())
        if keep:
            starting.enter_context(alone(home, "onceover demo --keep"))
        east, west = _kept_clusters(home, narrator) if keep else _own_clusters(home, stack)
        narrator.say(f"Kafka runs: east {east}, west {west}. Starting Airflow.")
        environment = {
            "JAVA_HOME": str(java.home),
            "ONCEOVER_HOME": str(home),
            "ONCEOVER_EAST": east,
            "ONCEOVER_WEST": west,
        }
        airflow = machine.up_airflow(home, narrator.say) if keep else _own_airflow(home, environment, stack)
        starting.close()
        if not keep:
            # Runs first, because said last: stopping takes seconds in which nothing else is seen.
            stack.callback(narrator.say, "Stopping Airflow and both clusters.")
        source, target = {"bootstrap.servers": east}, {"bootstrap.servers": west}
        system = DemoSystem(home, source, target, airflow, environment)
        login = system.login
        narrator.say(f"Airflow runs: {login['url']} (user {login['username']}, see {login['password_file']})")
        yield system


def _own_clusters(home: Path, stack: ExitStack) -> tuple[str, str]:
    def starter(name: str) -> Callable[[], KafkaCluster]:
        port = configured_port(name, os.environ)
        ports = None if port is None else [port]
        return lambda: KafkaCluster.start(home / "clusters", name, ports=ports)

    clusters = start_all([starter("east"), starter("west")])
    for cluster in clusters:
        stack.callback(cluster.close)
    return clusters[0].bootstrap, clusters[1].bootstrap


def _kept_clusters(home: Path, narrator: Narrator) -> tuple[str, str]:
    report = machine.up_clusters(home, _unheard, narrator.say).clusters
    machine.finish_connect(home)
    east, west = (report[name]["bootstrap"] for name in ("east", "west"))
    if east is None or west is None:
        raise Retriable("the clusters were started but have no address", where=str(home))
    return east, west


def _unheard(_text: str) -> None:
    """The demo has its own words for it."""


def _own_airflow(home: Path, environment: Mapping[str, str], stack: ExitStack) -> AirflowStandalone:
    project = Path(onceover.__file__).parents[2]
    airflow = AirflowStandalone.start(
        home / "airflow",
        dags=project / "dags",
        plugins=project / "plugins",
        port=configured_port("airflow", os.environ),
        environ=environment,
    )
    stack.callback(airflow.stop)
    return airflow


class LiveReplication:
    """The flow of the running system, as :class:`onceover_lab.demo.play.Replication`. Close it after use."""

    name = FLOW

    def __init__(self, system: DemoSystem) -> None:
        self._home = system.home
        # The flow file names the clusters by variables, which only Airflow's processes have.
        environment = {**os.environ, **system.environment}
        source, target = resolve_clients(load_flow(FLOW, environ=environment), environment)
        self._source, self._target = LiveCluster(source), LiveCluster(target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.close()
        self._target.close()

    def status(self) -> Mapping[str, Any]:
        """Return the flow's status (docs/operations.md), read from the clusters."""
        return flow_status(FLOW, self._source, self._target)

    def driver(self) -> Driver | None:
        """Return what the newest driver says about itself."""
        return read_driver(self._home, FLOW)

    def kill(self, driver: Driver) -> None:
        """Send SIGKILL to the driver, after making sure that it is this flow's."""
        kill_driver(driver, FLOW)

    def stop(self) -> None:
        """Ask the flow to stop and wait until it has, as ``onceover stop`` does.

        Raises:
            OnceoverError: it does not run, or does not end in time.
        """
        request_stop(self._target, FLOW, wait_s=_STOP_TIMEOUT_S)
