"""The two clusters ``east`` and ``west`` that keep running until they are taken down.

``up`` and ``down`` are for one caller at a time: see :func:`onceover_lab.embed.up.lock.alone`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict

from onceover.errors import UsageError
from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.node import MAIN_CLASS
from onceover_lab.embed.ports import choose_port
from onceover_lab.embed.registry import (
    ClusterRecord,
    ProcessIdentity,
    find_by_argument,
    read_records,
    terminate,
    write_records,
)

log = logging.getLogger(__name__)

NAMES: Final = ("east", "west")


class ClusterStatus(TypedDict):
    """One cluster as ``up`` and ``status`` report it."""

    alive: bool
    frozen: bool
    bootstrap: str | None
    cluster_id: str | None
    pids: list[int]
    log: str | None


def _unheard(_text: str) -> None:
    """Nobody asked to be told."""


def up(home: Path, note: Callable[[str], object] = _unheard) -> dict[str, ClusterStatus]:
    """Start the clusters that do not run, detached, with their files under ``home/clusters``.

    Ports come from ONCEOVER_EAST_PORT and ONCEOVER_WEST_PORT, otherwise they are those of the last
    time if still free, otherwise the kernel chooses, which ``note`` is told. Can be run again at any time.

    Raises:
        UsageError: a configured port is taken or no number; no Java.
        Retriable: a broker did not start; nothing that this call started is left running.
    """
    records = read_records(_register(home))
    missing = [name for name in NAMES if not (name in records and records[name].alive)]
    # What is left of them would hold ports and data directories.
    terminate([identity for name in missing for identity in _processes(home, name, records)])
    ports = {name: choose_port(name, _last_port(records, name), os.environ, note) for name in missing}
    for cluster in start_all([_starter(home, name, ports[name]) for name in missing]):
        records[cluster.name] = _record(cluster)
        cluster.release_ports()
    write_records(_register(home), list(records.values()))
    return _report(records)


def down(home: Path) -> dict[str, bool]:
    """Stop both clusters and keep their data; return which of them ran."""
    try:
        records = read_records(_register(home))
    except UsageError as error:
        # Their processes are found without it, and their ports are all that is lost.
        log.warning("%s", error)
        records = {}
    found = {name: _processes(home, name, records) for name in NAMES}
    ran = {name: any(identity.find() for identity in found[name]) for name in NAMES}
    terminate([identity for identities in found.values() for identity in identities])
    stopped = {name: replace(record, processes=()) for name, record in records.items()}
    write_records(_register(home), list(stopped.values()))
    return ran


def status(home: Path) -> dict[str, ClusterStatus]:
    """Return where the clusters are and whether their processes run. Changes nothing."""
    return _report(read_records(_register(home)))


def _last_port(records: Mapping[str, ClusterRecord], name: str) -> int | None:
    return records[name].ports[0] if name in records else None


def _starter(home: Path, name: str, port: int | None) -> Callable[[], KafkaCluster]:
    return lambda: KafkaCluster.start(
        home / "clusters",
        name,
        ports=None if port is None else [port],
        quick_start=False,
        detached=True,
    )


def _record(cluster: KafkaCluster) -> ClusterRecord:
    return ClusterRecord(
        name=cluster.name,
        cluster_id=cluster.cluster_id,
        bootstrap=cluster.bootstrap,
        ports=tuple(node.ports.client for node in cluster.nodes),
        processes=tuple(ProcessIdentity.of(node.pid) for node in cluster.nodes),
        log=str(cluster.nodes[0].log_path),
    )


def _processes(home: Path, name: str, records: Mapping[str, ClusterRecord]) -> list[ProcessIdentity]:
    """Return what may run of a cluster: on record, or started by an ``up`` that was killed."""
    recorded = records[name].processes if name in records else ()
    configuration = home.resolve() / "clusters" / name / "node-1" / "server.properties"
    return list({*recorded, *find_by_argument(("java", MAIN_CLASS), str(configuration))})


def _report(records: Mapping[str, ClusterRecord]) -> dict[str, ClusterStatus]:
    return {name: _describe(records.get(name)) for name in NAMES}


def _describe(record: ClusterRecord | None) -> ClusterStatus:
    if record is None:
        return ClusterStatus(alive=False, frozen=False, bootstrap=None, cluster_id=None, pids=[], log=None)
    return ClusterStatus(
        alive=record.alive,
        frozen=record.frozen,
        bootstrap=record.bootstrap,
        cluster_id=record.cluster_id,
        pids=[identity.pid for identity in record.processes],
        log=record.log,
    )


def _register(home: Path) -> Path:
    return home / "clusters" / "register.json"
