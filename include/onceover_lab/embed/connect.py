"""Kafka Connect's distributed workers as child processes, from Kafka's own jars.

Invariant: a cluster that was started answers its REST API on every worker, and after ``close`` no process and
no port of it is left. Connectors and their offsets live in Kafka, so they survive stop, kill and restart.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from onceover.errors import Retriable
from onceover.process.children import POLL_INTERVAL_S, STOP_TIMEOUT_S, ChildProcess
from onceover.process.java import collector_flags, find_java, with_any_names
from onceover_lab.embed import config as broker_config
from onceover_lab.embed.archive import archive_flags
from onceover_lab.embed.jars import DEFAULT_VERSION, classpath, kafka_jars
from onceover_lab.embed.javatmp import temporary_flag
from onceover_lab.embed.node import QUICK_FLAG
from onceover_lab.embed.ports import LOOPBACK, PortReservation
from onceover_lab.embed.security import write_private

# Two workers that start together on two cores, beside other work, need up to 25 s.
START_TIMEOUT_S: Final = 120.0
_PROBE_TIMEOUT_S: Final = 2.0
PROPERTIES_FILE: Final = "connect-distributed.properties"
MAIN_CLASS: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_INTERNAL_TOPICS: Final = ("offset.storage", "status.storage", "config.storage")
# Each is about waiting and memory; none changes what a worker guarantees.
_PACE: Final[Mapping[str, str]] = {
    # 25 partitions by default: three are enough to tell partitioners apart.
    "offset.storage.partitions": "3",
    "status.storage.partitions": "1",
    "offset.flush.interval.ms": "1000",
    # A worker that is gone, or back, is noticed within seconds; its tasks move at once (5 min by default).
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1500",
    # Only plugins that announce themselves: scanning every class of the class path takes seconds.
    "plugin.discovery": "service_load",
}


def render_worker_properties(bootstrap: str, group_id: str, port: int, overrides: Mapping[str, str]) -> str:
    """Return a distributed worker's properties for a single-broker cluster; ``overrides`` win.

    The internal topics are named ``<group_id>-offsets``, ``-configs`` and ``-status``.
    """
    text = "org.apache.kafka.connect.storage.StringConverter"
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group_id,
        "offset.storage.topic": f"{group_id}-offsets",
        "config.storage.topic": f"{group_id}-configs",
        "status.storage.topic": f"{group_id}-status",
        **{f"{name}.replication.factor": "1" for name in _INTERNAL_TOPICS},
        "key.converter": text,
        "value.converter": text,
        "listeners": f"http://{LOOPBACK}:{port}",
        **_PACE,
        **overrides,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def worker_java_arguments(version: str, heap_mb: int, plugins: Sequence[Path] = ()) -> list[str]:
    """Return what Java is told for a worker: quick to start; right for trials, wrong for measurements."""
    jars = classpath(kafka_jars(version, "connect"))
    arguments = [f"-Xmx{heap_mb}m", *collector_flags(), "-XX:+ExitOnOutOfMemoryError", QUICK_FLAG]
    return [*arguments, *archive_flags(version, "connect"), "-cp", ":".join([jars, *map(str, plugins)])]


def lists_connectors(port: int) -> bool:
    """Tell whether a worker answers: the list comes from the herder, which answers as a member only."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/connectors")
        answer = connection.getresponse()
        return answer.status == http.HTTPStatus.OK and isinstance(json.loads(answer.read()), list)
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


class ConnectWorker:
    """One worker. ``start`` after ``stop`` or ``kill`` keeps its port, and so its identity in the cluster."""

    def __init__(
        self, home: Path, java_arguments: Sequence[str], *, port: int | None = None, detached: bool = False
    ) -> None:
        self.home = home
        self._java_arguments = java_arguments
        self._detached = detached
        self._reservation = PortReservation(port or 0)
        self._process: ChildProcess | None = None

    def __repr__(self) -> str:
        return f"ConnectWorker({self.worker_id})"

    @property
    def worker_id(self) -> str:
        """What the workers call it: ``host:port`` of its REST API."""
        return f"{LOOPBACK}:{self._reservation.port}"

    @property
    def port(self) -> int:
        return self._reservation.port

    @property
    def url(self) -> str:
        return f"http://{self.worker_id}"

    @property
    def pid(self) -> int | None:
        """Process id, None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def properties_path(self) -> Path:
        """The worker's own configuration; may hold passwords, mode 0600."""
        return self.home / PROPERTIES_FILE

    @property
    def log_path(self) -> Path:
        return self.home / "worker.log"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def write_files(self, properties: str) -> None:
        """Write configuration and logging settings."""
        self.home.mkdir(parents=True, exist_ok=True)
        write_private(self.properties_path, properties.encode())
        (self.home / "log4j2.properties").write_text(broker_config.LOG4J2_PROPERTIES, encoding="utf-8")
        (self.home / "log4j.properties").write_text(broker_config.LOG4J1_PROPERTIES, encoding="utf-8")

    def launch(self) -> None:
        """Start the process without waiting for it; does nothing when it runs."""
        if self.alive:
            return
        self._process = ChildProcess.start(
            [
                str(find_java().executable),
                *self._java_arguments,
                temporary_flag(self.home),
                f"-Dlog4j2.configurationFile={self.home / 'log4j2.properties'}",
                f"-Dlog4j.configuration=file:{self.home / 'log4j.properties'}",
                MAIN_CLASS,
                str(self.properties_path),
            ],
            name=f"connect worker {self.worker_id}",
            log_path=self.log_path,
            env=with_any_names(),
            detached=self._detached,
        )

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the worker is a member of its cluster and lists connectors.

        Raises:
            Retriable: it ended or did not answer in time; the text carries the end of its log.
        """
        deadline = time.monotonic() + timeout_s
        while not lists_connectors(self.port):
            if not self.alive or time.monotonic() >= deadline:
                raise Retriable(
                    f"connect worker {self.worker_id} did not become ready within {timeout_s:g} s",
                    where=str(self.log_path),
                    seen="" if self._process is None else self._process.tail(15),
                )
            time.sleep(POLL_INTERVAL_S)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start again with the same port; return when it is a member of its cluster.

        Raises:
            Retriable: it ended or did not answer in time; the text carries the end of its log.
        """
        self.launch()
        self.await_ready(timeout_s)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM; SIGKILL when it has not ended after ``timeout_s`` seconds."""
        if self._process is not None:
            self._process.stop(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """SIGSTOP: the worker keeps its connections and answers nothing."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            self._process.resume()

    def release_port(self) -> None:
        """Give the port back; the worker cannot be started again."""
        self._reservation.release()


class ConnectCluster:
    """Running workers of one group; a context manager that closes them. They die with this process."""

    def __init__(self, group_id: str, workers: Sequence[ConnectWorker]) -> None:
        self.group_id = group_id
        self.workers = tuple(workers)

    @classmethod
    def start(
        cls,
        home: Path,
        bootstrap: str,
        group_id: str,
        *,
        workers: int = 1,
        properties: Mapping[str, str] = {},
        plugins: Sequence[Path] = (),
        version: str = DEFAULT_VERSION,
        heap_mb: int = 384,
    ) -> ConnectCluster:
        """Start ``workers`` workers with their files under ``home`` and return when all are members.

        ``properties`` override everything of ``render_worker_properties``; ``plugins`` are jars or
        directories of classes beside Kafka's own. The optimising compiler is left out: right for tests,
        wrong for measurements.

        Raises:
            UsageError: no Java, or a version whose jars are not pinned.
            Retriable: the jars could not be fetched, or a worker did not start (with its log's end).
        """
        java_arguments = worker_java_arguments(version, heap_mb, plugins)
        members = [
            ConnectWorker(home.resolve() / f"worker-{number}", java_arguments)
            for number in range(1, workers + 1)
        ]
        cluster = cls(group_id, members)
        try:
            for worker in members:
                text = render_worker_properties(bootstrap, group_id, worker.port, properties)
                worker.write_files(text)
                worker.launch()
            cluster.await_ready()
        except BaseException:
            # Also on Ctrl-C: whatever was started by now has to go.
            cluster.close()
            raise
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ConnectCluster({self.group_id!r}, {', '.join(w.worker_id for w in self.workers)})"

    @property
    def urls(self) -> tuple[str, ...]:
        """Root of every worker's REST API."""
        return tuple(worker.url for worker in self.workers)

    @property
    def offsets_topic(self) -> str:
        return f"{self.group_id}-offsets"

    @property
    def config_topic(self) -> str:
        return f"{self.group_id}-configs"

    @property
    def properties_path(self) -> Path:
        """The first worker's configuration; the others' differ in the port only."""
        return self.workers[0].properties_path

    def reconfigure(self, changes: Mapping[str, str]) -> None:
        """Stop every worker, change settings, and start all again.

        Raises:
            Retriable: one did not start.
        """
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            text = worker.properties_path.read_text(encoding="utf-8")
            kept = [line for line in text.splitlines() if line.partition("=")[0] not in changes]
            worker.write_files("\n".join([*kept, *(f"{key}={value}" for key, value in changes.items()), ""]))
            worker.launch()
        self.await_ready()

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until every worker answers.

        Raises:
            Retriable: one ended or did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        for worker in self.workers:
            worker.await_ready(max(1.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Kill every worker, whatever its state: what they know is in Kafka."""
        for worker in self.workers:
            worker.kill()
            worker.release_port()
