"""Real Kafka clusters (KRaft, combined nodes) as child processes on loopback.

Invariant: a cluster that was started is ready for clients, and after ``close`` no process and no
port of it is left. Data survives stop, kill and restart.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from onceover.embed import config as broker_config
from onceover.embed.jars import DEFAULT_VERSION, classpath, kafka_jars
from onceover.embed.java import find_java
from onceover.embed.ports import LOOPBACK, PortReservation
from onceover.embed.probe import await_ready, create_scram_users
from onceover.embed.processes import STOP_TIMEOUT_S, ChildProcess, tail
from onceover.embed.security import Security, make_certificates, write_private
from onceover.errors import Retriable, UsageError

# A node is up after about 3 s on two idle cores; several start at once beside Spark and Airflow.
START_TIMEOUT_S: Final = 90.0
FORMAT_TIMEOUT_S: Final = 120.0
PORT_ATTEMPTS: Final = 4
# What Java says when another program took the port between the choice and the bind.
_PORT_TAKEN: Final = ("Address already in use", "BindException")
# The C1 compiler alone starts in half the time; a broker that is measured needs the other one too.
_QUICK_FLAGS: Final = ("-XX:TieredStopAtLevel=1",)
# After SIGKILL a broker may register again only when the session of its former self has expired: 9 s
# by default, most of the time that a restart takes.
_QUICK_SETTINGS: Final = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "400"}


@dataclass(frozen=True, slots=True)
class _Spec:
    """What all nodes of a cluster share and what survives a restart."""

    home: Path
    name: str
    version: str
    cluster_id: str
    heap_mb: int
    java_flags: tuple[str, ...]
    detached: bool


class KafkaNode:
    """One combined broker and controller. ``start`` after ``stop`` or ``kill`` keeps ports and data."""

    def __init__(self, spec: _Spec, node_id: int, ports: broker_config.NodePorts) -> None:
        self.node_id = node_id
        self.ports = ports
        self.home = spec.home / f"node-{node_id}"
        self.log_path = self.home / "broker.log"
        self._spec = spec
        self._process: ChildProcess | None = None

    def __repr__(self) -> str:
        return f"KafkaNode({self._spec.name!r}, {self.node_id}, port={self.ports.client})"

    @property
    def pid(self) -> int:
        """Process id of the broker.

        Raises:
            UsageError: the broker was never started.
        """
        return self._running().pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def data(self) -> Path:
        """The log directory."""
        return self.home / "data"

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self._running().kill()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM; SIGKILL when it has not ended after ``timeout_s`` seconds."""
        self._running().stop(timeout_s)

    def pause(self) -> None:
        """SIGSTOP: the broker keeps its connections and answers nothing."""
        self._running().pause()

    def resume(self) -> None:
        """SIGCONT."""
        self._running().resume()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start again with the same ports and data; return when the broker answers.

        Raises:
            Retriable: it ended or did not answer in time; the text carries the end of its log.
        """
        self.launch()
        self.await_ready(timeout_s)

    def launch(self) -> None:
        """Start the process without waiting for it; does nothing when it runs."""
        if self.alive:
            return
        arguments = ["kafka.Kafka", str(self.home / "server.properties")]
        self._process = ChildProcess.start(
            [*self._java(), *arguments],
            name=f"kafka {self._spec.name}/{self.node_id}",
            log_path=self.log_path,
            detached=self._spec.detached,
        )

    def await_ready(self, timeout_s: float) -> None:
        """Wait until this broker answers a client's request and is a member of the cluster."""
        process = self._running()

        def check_alive() -> None:
            if not process.alive:
                raise Retriable(
                    f"{process.name} ended with exit code {process.returncode} while starting",
                    where=str(self.log_path),
                    seen=process.tail(15),
                )

        await_ready(f"{LOOPBACK}:{self.ports.internal}", self.node_id, check_alive, timeout_s, process.name)

    def format(self) -> None:
        """Prepare the data directory; does nothing when it is formatted already.

        Raises:
            Retriable: Kafka's storage tool failed; the text carries its output.
        """
        if (self.data / "meta.properties").exists():
            return
        command = [*self._java(), "kafka.tools.StorageTool", "format"]
        command += ["-t", self._spec.cluster_id, "-c", str(self.home / "server.properties")]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise Retriable(
                f"the data directory of {self!r} could not be formatted",
                where=str(self.data),
                seen=(done.stdout + done.stderr)[-1000:],
            )

    def write_files(self, properties: str) -> None:
        """Write configuration and logging settings. The configuration may hold passwords: mode 0600."""
        write_private(self.home / "server.properties", properties.encode())
        (self.home / "log4j2.properties").write_text(broker_config.LOG4J2_PROPERTIES, encoding="utf-8")
        (self.home / "log4j.properties").write_text(broker_config.LOG4J1_PROPERTIES, encoding="utf-8")

    def _java(self) -> list[str]:
        return [
            str(find_java().executable),
            f"-Xmx{self._spec.heap_mb}m",
            "-XX:+UseSerialGC",
            # A broker that is out of memory half works; ended, it is a fault that everybody handles.
            "-XX:+ExitOnOutOfMemoryError",
            *self._spec.java_flags,
            f"-Dlog4j2.configurationFile={self.home / 'log4j2.properties'}",
            f"-Dlog4j.configuration=file:{self.home / 'log4j.properties'}",
            "-cp",
            classpath(kafka_jars(self._spec.version)),
        ]

    def _running(self) -> ChildProcess:
        if self._process is None:
            raise UsageError(f"{self!r} was never started", resolve="call start() first")
        return self._process


class KafkaCluster:
    """A running cluster; a context manager that closes it."""

    def __init__(
        self,
        spec: _Spec,
        nodes: Sequence[KafkaNode],
        reservations: Sequence[PortReservation],
        security: Security | None,
    ) -> None:
        self.name = spec.name
        self.home = spec.home
        self.version = spec.version
        self.cluster_id = spec.cluster_id
        self.nodes = tuple(nodes)
        self.security = security
        self._reservations = reservations

    @classmethod
    def start(
        cls,
        home: Path,
        name: str,
        *,
        brokers: int = 1,
        version: str = DEFAULT_VERSION,
        security: Security | None = None,
        config: Mapping[str, str] = {},
        ports: Sequence[int] | None = None,
        heap_mb: int = 768,
        quick_start: bool = True,
        detached: bool = False,
    ) -> KafkaCluster:
        """Start a cluster with its files under ``home/name`` and return when every broker answers.

        Data found there is used again. ``config`` overrides broker settings. ``ports`` fixes the
        client ports, one per broker; otherwise the kernel chooses. ``quick_start`` leaves out the
        optimising compiler and expires broker sessions after 2 s: right for tests, wrong for
        measurements. Brokers die with this process unless ``detached``.

        Raises:
            UsageError: a fixed port is taken, no Java, or an unknown version.
            Retriable: a broker did not start; the text carries the end of its log.
        """
        if ports is not None and len(ports) != brokers:
            raise UsageError(
                "one port per broker is needed", expected=f"{brokers} ports", seen=f"{len(ports)}"
            )
        directory = home.resolve() / name
        spec = _Spec(
            home=directory,
            name=name,
            version=version,
            cluster_id=_existing_cluster_id(directory) or new_cluster_id(),
            heap_mb=heap_mb,
            java_flags=_QUICK_FLAGS if quick_start else (),
            detached=detached,
        )
        settings = {**(_QUICK_SETTINGS if quick_start else {}), **config}
        for attempt in range(1, PORT_ATTEMPTS + 1):
            cluster = cls._with_ports(spec, brokers, ports, security, settings)
            try:
                cluster._start_nodes()
            except BaseException as error:
                # Also on Ctrl-C: whatever was started by now has to go.
                cluster.close()
                retry = ports is None and attempt < PORT_ATTEMPTS and isinstance(error, Retriable)
                if not (retry and cluster._lost_a_port()):
                    raise
            else:
                return cluster
        raise Retriable(f"no free ports for cluster {name} after {PORT_ATTEMPTS} attempts")

    @classmethod
    def _with_ports(
        cls,
        spec: _Spec,
        brokers: int,
        ports: Sequence[int] | None,
        security: Security | None,
        config: Mapping[str, str],
    ) -> KafkaCluster:
        reservations: list[PortReservation] = []
        try:
            for index in range(brokers):
                reservations.append(PortReservation(ports[index] if ports else 0))
                reservations += [PortReservation(), PortReservation()]
        except UsageError:
            _release(reservations)
            raise
        numbers = [reservation.port for reservation in reservations]
        node_ports = [broker_config.NodePorts(*numbers[i : i + 3]) for i in range(0, len(numbers), 3)]
        nodes = [KafkaNode(spec, node_id, own) for node_id, own in enumerate(node_ports, start=1)]
        protection: dict[str, str] = {}
        if security is not None:
            protection = security.broker_properties(make_certificates(spec.home / "tls").keystore)
        for node in nodes:
            node.write_files(
                broker_config.render_server_properties(
                    node_id=node.node_id,
                    nodes=node_ports,
                    data=node.data,
                    security=protection,
                    overrides=config,
                )
            )
        return cls(spec, nodes, reservations, security)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KafkaCluster({self.name!r}, {self.bootstrap})"

    @property
    def bootstrap(self) -> str:
        """``host:port`` of every broker's client listener, separated by commas."""
        return ",".join(f"{LOOPBACK}:{node.ports.client}" for node in self.nodes)

    @property
    def ca_path(self) -> Path:
        """The certificate that signed the brokers' (secured clusters only)."""
        return self.home / "tls" / "ca.pem"

    @property
    def client(self) -> dict[str, str]:
        """librdkafka's keys for the ordinary user; holds the password."""
        protection = self.security.client_properties(self.ca_path) if self.security else {}
        return {"bootstrap.servers": self.bootstrap, **protection}

    @property
    def admin_client(self) -> dict[str, str]:
        """librdkafka's keys for the superuser; equal to ``client`` without security."""
        protection = self.security.client_properties(self.ca_path, admin=True) if self.security else {}
        return {"bootstrap.servers": self.bootstrap, **protection}

    @property
    def internal_bootstrap(self) -> str:
        """``host:port`` of every broker's unsecured internal listener."""
        return ",".join(f"{LOOPBACK}:{node.ports.internal}" for node in self.nodes)

    def close(self, *, remove: bool = False) -> None:
        """Stop every broker, whatever its state. ``remove`` also deletes all files, and so kills at once."""
        started = [node for node in self.nodes if node.alive]
        if remove:
            for node in started:
                node.kill()
        else:
            # Together: a lone survivor of three has no quorum and waits for its time-out.
            _in_parallel([node.stop for node in started])
        _release(self._reservations)
        if remove:
            shutil.rmtree(self.home)

    def _start_nodes(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        _in_parallel([node.format for node in self.nodes])
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.await_ready(max(1.0, deadline - time.monotonic()))
        if self.security is not None and self.security.is_scram:
            create_scram_users(self.internal_bootstrap, self.security.mechanism, self.security.users())

    def _lost_a_port(self) -> bool:
        logs = [tail(node.log_path, 200) for node in self.nodes]
        return any(phrase in log for log in logs for phrase in _PORT_TAKEN)


def start_all(starts: Sequence[Callable[[], KafkaCluster]]) -> list[KafkaCluster]:
    """Start several clusters at once; either all run, or none and the first error is raised."""
    if not starts:
        return []
    with ThreadPoolExecutor(max_workers=len(starts)) as executor:
        futures = [executor.submit(start) for start in starts]
    if any(future.exception() for future in futures):
        for future in futures:
            if future.exception() is None:
                future.result().close()
    return [future.result() for future in futures]


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's form: 22 characters, never beginning with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _existing_cluster_id(directory: Path) -> str | None:
    for path in sorted(directory.glob("node-*/data/meta.properties")):
        for line in path.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition("=")
            if key == "cluster.id":
                return value
    return None


def _in_parallel(actions: Sequence[Callable[[], object]]) -> None:
    """Run every action to its end, then raise the first error."""
    if not actions:
        return
    with ThreadPoolExecutor(max_workers=len(actions)) as executor:
        futures = [executor.submit(action) for action in actions]
    for future in futures:
        future.result()


def _release(reservations: Sequence[PortReservation]) -> None:
    for reservation in reservations:
        reservation.release()
