"""Real Kafka clusters (KRaft, combined nodes) as child processes on loopback.

Invariant: a cluster that was started is ready for clients, and after ``close`` no process and no
port of it is left. Data survives stop, kill and restart.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from onceover.errors import Retriable, UsageError
from onceover.process.children import tail
from onceover_lab.embed import config as broker_config
from onceover_lab.embed.datadir import META_FILE, new_id
from onceover_lab.embed.jars import DEFAULT_VERSION
from onceover_lab.embed.node import QUICK_FLAG, START_TIMEOUT_S, KafkaNode, NodeSettings
from onceover_lab.embed.ports import LOOPBACK, PortReservation
from onceover_lab.embed.probe import create_scram_users
from onceover_lab.embed.security import Security, make_certificates

PORT_ATTEMPTS: Final = 4
# What Java says when another program took the port between the choice and the bind.
_PORT_TAKEN: Final = ("Address already in use", "BindException")
# After SIGKILL a broker may register again only when the session of its former self has expired: 9 s
# by default, most of the time that a restart takes.
_QUICK_SETTINGS: Final = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "400"}


class KafkaCluster:
    """A running cluster; a context manager that closes it."""

    def __init__(
        self,
        spec: NodeSettings,
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
        advertised: Sequence[int] | None = None,
        heap_mb: int = 768,
        quick_start: bool = True,
        java_flags: Sequence[str] = (),
        detached: bool = False,
    ) -> KafkaCluster:
        """Start a cluster with its files under ``home/name`` and return when every broker answers.

        Data found there is used again. ``config`` overrides broker settings. ``ports`` fixes the
        client ports, one per broker; otherwise the kernel chooses. ``advertised`` sends clients to other
        ports than those, where something stands between. ``quick_start`` leaves out the optimising
        compiler and expires broker sessions after 2 s: right for tests, wrong for measurements.
        ``java_flags`` are added. Brokers die with this process unless ``detached``.

        Raises:
            UsageError: a fixed port is taken, no Java, or an unknown version.
            Retriable: a broker did not start; the text carries the end of its log.
        """
        if ports is not None and len(ports) != brokers:
            raise UsageError(
                "one port per broker is needed", expected=f"{brokers} ports", seen=f"{len(ports)}"
            )
        directory = home.resolve() / name
        spec = NodeSettings(
            home=directory,
            name=name,
            version=version,
            cluster_id=_existing_cluster_id(directory) or new_id(),
            heap_mb=heap_mb,
            java_flags=(*([QUICK_FLAG] if quick_start else []), *java_flags),
            detached=detached,
        )
        settings = {**(_QUICK_SETTINGS if quick_start else {}), **config}
        elsewhere: Sequence[int | None] = advertised or [None] * brokers
        places = list(zip(ports or [0] * brokers, elsewhere, strict=True))
        return cls._start_on_ports(spec, places, security, settings)

    @classmethod
    def _start_on_ports(
        cls,
        spec: NodeSettings,
        places: Sequence[tuple[int, int | None]],
        security: Security | None,
        settings: Mapping[str, str],
    ) -> KafkaCluster:
        """Start with the given ports; with free ones again, when another program took one meanwhile."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            cluster = cls._with_ports(spec, places, security, settings)
            try:
                cluster._start_nodes()
            except BaseException as error:
                # Also on Ctrl-C: whatever was started by now has to go.
                cluster.close()
                retry = (
                    not any(port for port, _ in places)
                    and attempt < PORT_ATTEMPTS
                    and isinstance(error, Retriable)
                )
                if not (retry and cluster._lost_a_port()):
                    raise
            else:
                return cluster
        raise Retriable(f"no free ports for cluster {spec.name} after {PORT_ATTEMPTS} attempts")

    @classmethod
    def _with_ports(
        cls,
        spec: NodeSettings,
        places: Sequence[tuple[int, int | None]],
        security: Security | None,
        config: Mapping[str, str],
    ) -> KafkaCluster:
        reservations: list[PortReservation] = []
        try:
            for port, _ in places:
                reservations.append(PortReservation(port))
                reservations += [PortReservation(), PortReservation()]
        except UsageError:
            _release(reservations)
            raise
        numbers = [reservation.port for reservation in reservations]
        node_ports = [
            broker_config.NodePorts(client, internal, controller, told)
            for client, internal, controller, (_, told) in zip(
                numbers[::3], numbers[1::3], numbers[2::3], places, strict=True
            )
        ]
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
        """``host:port`` of every broker's client listener as clients are told, separated by commas."""
        return ",".join(f"{LOOPBACK}:{n.ports.advertised or n.ports.client}" for n in self.nodes)

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

    def release_ports(self) -> None:
        """Stop holding the ports for restarts: for detached clusters, before this process leaves them."""
        _release(self._reservations)

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
    """Start several clusters at once; either all run, or none does and the first error is raised."""
    if not starts:
        return []
    futures: list[Future[KafkaCluster]] = []
    try:
        with ThreadPoolExecutor(max_workers=len(starts)) as executor:
            futures += [executor.submit(start) for start in starts]
        return [future.result() for future in futures]
    except BaseException:
        # Also on Ctrl-C, which arrives here while the threads go on starting.
        for future in futures:
            if future.exception() is None:
                future.result().close()
        raise


def _existing_cluster_id(directory: Path) -> str | None:
    for path in sorted(directory.glob(f"node-*/data/{META_FILE}")):
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
