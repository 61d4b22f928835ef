"""One combined broker and controller as a child process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceover.errors import Retriable, UsageError
from onceover.process.children import STOP_TIMEOUT_S, ChildProcess, run_to_end, tail
from onceover.process.java import collector_flags, find_java, with_any_names
from onceover_lab.embed import config as broker_config
from onceover_lab.embed.archive import archive_flags
from onceover_lab.embed.datadir import format_as_kept, is_formatted, keep
from onceover_lab.embed.jars import classpath, kafka_jars
from onceover_lab.embed.javatmp import temporary_flag
from onceover_lab.embed.ports import LOOPBACK
from onceover_lab.embed.probe import await_ready
from onceover_lab.embed.security import write_private

# A node is up after about 3 s on two idle cores; several start at once beside Spark and Airflow.
START_TIMEOUT_S: Final = 90.0
FORMAT_TIMEOUT_S: Final = 120.0
# The C1 compiler alone starts in half the time; a broker that is measured needs the other one too.
QUICK_FLAG: Final = "-XX:TieredStopAtLevel=1"
MAIN_CLASS: Final = "kafka.Kafka"


@dataclass(frozen=True, slots=True)
class NodeSettings:
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

    def __init__(self, spec: NodeSettings, node_id: int, ports: broker_config.NodePorts) -> None:
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
        arguments = [MAIN_CLASS, str(self.home / "server.properties")]
        self._process = ChildProcess.start(
            [*self._java(*self._spec.java_flags), *arguments],
            name=f"kafka {self._spec.name}/{self.node_id}",
            log_path=self.log_path,
            env=with_any_names(),
            detached=self._spec.detached,
        )

    def await_ready(self, timeout_s: float) -> None:
        """Wait until this broker answers a client's request and is a member of the cluster."""
        process = self._running()

        def find_fault() -> str | None:
            if not process.alive:
                raise Retriable(
                    f"{process.name} ended with exit code {process.returncode} while starting",
                    where=str(self.log_path),
                    seen=process.tail(15),
                )
            # A broker that could not bind its clients' port answers on the internal one until it has ended.
            port = self.ports.client
            return None if process.listens_on(port) else f"no listener on {port} yet"

        own = f"{LOOPBACK}:{self.ports.internal}"
        try:
            await_ready(own, self.node_id, find_fault, timeout_s, process.name)
        except Retriable as error:
            if process.alive:
                error.seen = f"{error.seen}; the process is {process.state}, its log ends: {process.tail(15)}"
            raise

    def format(self) -> None:
        """Prepare the data directory; does nothing when it is formatted already.

        Raises:
            Retriable: Kafka's storage tool failed; the text carries its output.
        """
        jars = kafka_jars(self._spec.version)
        if is_formatted(self.data) or format_as_kept(
            self.data, jars, cluster_id=self._spec.cluster_id, node_id=self.node_id
        ):
            return
        command = [*self._java(QUICK_FLAG), "kafka.tools.StorageTool", "format"]
        command += ["-t", self._spec.cluster_id, "-c", str(self.home / "server.properties")]
        log_path = self.home / "format.log"
        name = f"storage tool of {self!r}"
        code = run_to_end(
            command, name=name, log_path=log_path, timeout_s=FORMAT_TIMEOUT_S, env=with_any_names()
        )
        if code != 0:
            raise Retriable(
                f"the data directory of {self!r} could not be formatted",
                where=str(self.data),
                seen=tail(log_path),
            )
        keep(self.data, jars)

    def write_files(self, properties: str) -> None:
        """Write configuration and logging settings. The configuration may hold passwords: mode 0600."""
        write_private(self.home / "server.properties", properties.encode())
        (self.home / "log4j2.properties").write_text(broker_config.LOG4J2_PROPERTIES, encoding="utf-8")
        (self.home / "log4j.properties").write_text(broker_config.LOG4J1_PROPERTIES, encoding="utf-8")

    def _java(self, *flags: str) -> list[str]:
        return [
            str(find_java().executable),
            f"-Xmx{self._spec.heap_mb}m",
            *collector_flags(),
            # A broker that is out of memory half works; ended, it is a fault that everybody handles.
            "-XX:+ExitOnOutOfMemoryError",
            *archive_flags(self._spec.version),
            *flags,
            temporary_flag(self.home),
            f"-Dlog4j2.configurationFile={self.home / 'log4j2.properties'}",
            f"-Dlog4j.configuration=file:{self.home / 'log4j.properties'}",
            "-cp",
            classpath(kafka_jars(self._spec.version)),
        ]

    def _running(self) -> ChildProcess:
        if self._process is None:
            raise UsageError(f"{self!r} was never started", resolve="call start() first")
        return self._process
