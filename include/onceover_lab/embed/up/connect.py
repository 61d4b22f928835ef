"""One Kafka Connect worker on cluster ``east`` that keeps running until it is taken down.

Its group and its topics are those of ``include/connect/flights.yaml``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypedDict
from urllib.parse import urlsplit

from onceover.config.properties import parse_properties
from onceover.errors import Retriable
from onceover.process.children import POLL_INTERVAL_S, tail
from onceover_lab.embed.connect import (
    MAIN_CLASS,
    PROPERTIES_FILE,
    START_TIMEOUT_S,
    ConnectWorker,
    lists_connectors,
    render_worker_properties,
    worker_java_arguments,
)
from onceover_lab.embed.jars import DEFAULT_VERSION
from onceover_lab.embed.ports import LOOPBACK, choose_port
from onceover_lab.embed.service import Service

GROUP: Final = "onceover-connect"
# Enough for a few connectors; measured: 96 is the least with which the worker starts.
HEAP_MB: Final = 128
_PROPERTIES: Final[Mapping[str, str]] = {
    "offset.storage.topic": "connect-offsets",
    "config.storage.topic": "connect-configs",
    "status.storage.topic": "connect-status",
    "exactly.once.source.support": "enabled",
    # What a killed task leaves open holds up readers so long (a minute by default).
    "producer.transaction.timeout.ms": "15000",
}


class ConnectStatus(TypedDict):
    """The worker as ``up`` and ``status`` report it."""

    alive: bool
    frozen: bool
    url: str
    pid: int | None
    log: str


def launch(home: Path, bootstrap: str, note: Callable[[str], object]) -> str:
    """Start the worker, detached, unless it runs already; return its URL without waiting for it.

    Its port is asked for and remembered as the clusters' are. A worker of another ``bootstrap`` is ended.

    Raises:
        UsageError: a configured port is taken or no number; no Java.
        Retriable: Kafka's jars could not be fetched.
    """
    service = _service(home)
    previous = _port(home)
    if service.alive and previous and _settings(home).get("bootstrap.servers") == bootstrap:
        return _url(previous)
    # Also what a killed `up` has started and not written down.
    service.end()
    port = choose_port("connect", previous, os.environ, note)
    worker = ConnectWorker(
        service.folder, worker_java_arguments(DEFAULT_VERSION, HEAP_MB), port=port, detached=True
    )
    worker.write_files(render_worker_properties(bootstrap, GROUP, worker.port, _PROPERTIES))
    worker.launch()
    if worker.pid is not None:
        service.record(worker.pid)
    worker.release_port()
    return worker.url


def await_ready(home: Path, timeout_s: float = START_TIMEOUT_S) -> None:
    """Wait until the worker answers.

    Raises:
        Retriable: it ended or did not answer in time; the text carries the end of its log.
    """
    service, port = _service(home), _port(home)
    deadline = time.monotonic() + timeout_s
    while not (port and lists_connectors(port)):
        if not service.alive or time.monotonic() >= deadline:
            log = service.folder / "worker.log"
            raise Retriable(
                "Kafka Connect did not become ready",
                where=str(log),
                seen=tail(log, 15),
                resolve="onceover clusters down, then start again",
            )
        time.sleep(POLL_INTERVAL_S)


def down(home: Path) -> bool:
    """End the worker; return whether one ran. Connectors and offsets stay in Kafka."""
    return _service(home).end()


def status(home: Path) -> ConnectStatus | None:
    """Return where the worker is; None when none was ever started."""
    service, port = _service(home), _port(home)
    if port is None:
        return None
    identity = service.running
    return ConnectStatus(
        alive=identity is not None,
        frozen=identity is not None and identity.frozen,
        url=_url(port),
        pid=None if identity is None else identity.pid,
        log=str(service.folder / "worker.log"),
    )


def _service(home: Path) -> Service:
    folder = home.resolve() / "clusters" / "connect"
    return Service(folder, folder / PROPERTIES_FILE, ("java", MAIN_CLASS))


def _port(home: Path) -> int | None:
    listeners = _settings(home).get("listeners")
    return None if listeners is None else urlsplit(listeners).port


def _settings(home: Path) -> dict[str, str]:
    """Return what the worker was last started with."""
    try:
        text = _service(home).argument.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return {entry.key: entry.value for entry in parse_properties(text)}


def _url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"
