"""Clusters for tests: two shared ones for the session, special ones for a single test.

Invariant: every broker started here is gone, with its data, when its scope ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import psutil
from confluent_kafka.admin import AdminClient

from onceover_lab.embed.kafka import KafkaCluster, start_all

SOURCE_VARIABLE = "ONCEOVER_SOURCE_BOOTSTRAP"
TARGET_VARIABLE = "ONCEOVER_TARGET_BOOTSTRAP"
# Brokers look for what has expired 30 s after their start, and every five minutes: records of tests are dated
# long ago, and some topics have the default retention of a week. Here they look once, before there is any.
NOTHING_EXPIRES: Final[Mapping[str, str]] = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "86400000",
}
_DESCRIBE_TIMEOUT_S = 30.0
_MEMORY = Path("/dev/shm")
# Connectors' tests were seen to need 20 MB; a whole run was not measured. Processes take more.
_ROOM_BYTES = 6 << 30


class SharedCluster(Protocol):
    """What tests may rely on: the cluster may be somebody else's, so it has no nodes to kill."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def client(self) -> dict[str, str]: ...
    @property
    def admin_client(self) -> dict[str, str]: ...
    @property
    def cluster_id(self) -> str: ...


@dataclass(frozen=True)
class ExternalCluster:
    """A cluster that runs already, without security."""

    bootstrap: str
    cluster_id: str

    @property
    def client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap}

    @property
    def admin_client(self) -> dict[str, str]:
        return self.client

    @classmethod
    def connect(cls, bootstrap: str) -> ExternalCluster:
        """Ask the cluster for its id."""
        client = AdminClient({"bootstrap.servers": bootstrap})
        return cls(bootstrap, client.describe_cluster().result(timeout=_DESCRIBE_TIMEOUT_S).cluster_id)


@contextmanager
def shared_clusters(home: Path) -> Iterator[Mapping[str, SharedCluster]]:
    """Yield clusters ``source`` and ``target``, starting those that the environment does not name."""
    variables = {"source": SOURCE_VARIABLE, "target": TARGET_VARIABLE}
    external = {
        name: ExternalCluster.connect(os.environ[variable])
        for name, variable in variables.items()
        if os.environ.get(variable)
    }
    missing = [name for name in variables if name not in external]
    started = start_all([_starter(home, name) for name in missing])
    try:
        yield {**external, **dict(zip(missing, started, strict=True))}
    finally:
        for cluster in started:
            cluster.close(remove=True)


class ClusterFactory:
    """Starts clusters for one test; may be called from several threads (``start_all``)."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._started: list[KafkaCluster] = []
        self._lock = threading.Lock()

    def __call__(self, name: str, **settings: Any) -> KafkaCluster:
        """Start a cluster; ``settings`` are those of ``KafkaCluster.start``."""
        cluster = KafkaCluster.start(self._home, name, **settings)
        with self._lock:
            self._started.append(cluster)
        return cluster

    def close(self) -> None:
        """Kill every broker that was started and remove its data."""
        while self._started:
            self._started.pop().close(remove=True)


def make_session_directory() -> Path:
    """Return a new directory for this test session, and remove those of sessions that were killed.

    It is in memory where that has room, as brokers touch many small files; ``TMPDIR`` says otherwise.
    """
    name = f"onceover-tests-{os.getuid()}"
    places = [Path(tempfile.gettempdir()), *([_MEMORY] if _MEMORY.is_dir() else [])]
    for place in places:
        for other in (place / name).glob("*"):
            if not _is_session_alive(other.name):
                # Another session may be removing the same one.
                shutil.rmtree(other, ignore_errors=True)
    base = (_MEMORY if "TMPDIR" not in os.environ and _has_room() else places[0]) / name
    base.mkdir(mode=0o700, exist_ok=True)
    own = base / _session_name(psutil.Process())
    own.mkdir()
    return own


def _has_room() -> bool:
    """Tell whether the memory takes a session, and starts the programs that tests write into it."""
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK) or os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return (
        shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES
        and psutil.virtual_memory().available >= 2 * _ROOM_BYTES
    )


def _starter(home: Path, name: str) -> Callable[[], KafkaCluster]:
    return lambda: KafkaCluster.start(home, name, config=NOTHING_EXPIRES)


def _session_name(process: psutil.Process) -> str:
    # The start time tells this process from a later one with the same id.
    return f"{process.pid}-{int(process.create_time() * 1000)}"


def _is_session_alive(name: str) -> bool:
    pid = name.partition("-")[0]
    try:
        return pid.isdigit() and _session_name(psutil.Process(int(pid))) == name
    except psutil.NoSuchProcess:
        return False
