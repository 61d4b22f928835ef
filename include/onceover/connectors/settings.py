"""How a Connect cluster is reached, and what is asked for: given by the composition root. Without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from onceover.kafka.ports import ClientSettings, Cluster


@dataclass(frozen=True)
class RestSettings:
    """How the workers' REST API is reached.

    Args:
        urls: every worker that should be reachable.
        username: for basic authentication, None without; ``password`` its secret.
        ca_file: certificate authority of https workers, None for the system's.
        timeout_s: for one answer; a worker gives up after 90 s.
    """

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeout_s: float = 100.0


@dataclass(frozen=True)
class RoleClient:
    """One of the three clients that a connector itself uses, as far as its configuration can be read here.

    Args:
        role: ``producer``, ``consumer`` or ``admin``.
        principal: as brokers know it, None where the configuration does not tell.
        settings: how to log in as it, None where that is not known; ``reason`` why.
    """

    role: str
    principal: str | None = None
    settings: ClientSettings | None = field(default=None, repr=False)
    reason: str = ""


class KafkaClients(Protocol):
    """How the Kafka clusters are reached."""

    def worker(self) -> ClientSettings:
        """Return the client for the cluster with the workers' internal topics."""

    def connector(self, config: Mapping[str, str]) -> ClientSettings | None:
        """Return the client for the cluster that a connector's overrides (KIP-458) name, None for the
        workers' own.

        Raises:
            UsageError: the overrides name several clusters, or do not say how to get in.
        """

    def roles(self, config: Mapping[str, str]) -> list[RoleClient]:
        """Return the clients of a connector of this configuration."""

    def open(self, client: ClientSettings) -> Cluster:
        """Return the cluster that a client is for, not connected yet. The caller closes it."""


@dataclass(frozen=True)
class ConnectSettings:
    """A Connect cluster as its file describes it.

    Args:
        name: of the file; part of paths and of our transactional ids.
        rest: how its workers are asked.
        worker: the workers' own configuration, as Kafka's property names; may hold secrets.
        clients: how its Kafka clusters are reached.
        home: directory for journals and manifests.
    """

    name: str
    rest: RestSettings
    worker: Mapping[str, str] = field(repr=False)
    clients: KafkaClients = field(repr=False)
    home: Path


@dataclass(frozen=True)
class ConnectorRequest:
    """What a person asks for.

    Args:
        connectors: names, in the order in which they are done.
        topic: the topic of its own that each connector gets; None: ``<shared topic>-<connector>``.
        watch_s: how long a resumed connector is watched; None: twice the workers' flush interval, at least
            30 s.
        settle_s: without exactly-once, between two looks that must be equal; None: a flush interval.
    """

    connectors: tuple[str, ...]
    topic: str | None = None
    watch_s: float | None = None
    settle_s: float | None = None


class ConnectorMove(StrEnum):
    """What is done to connectors' offsets.

    ``migrate``: to topics of their own. ``rollback``: a run that did not get to its end is taken back.
    ``downgrade``: to the shared topic, each connector's own topic being the truth. ``downgrade-soft``:
    exactly-once is switched off for the workers; values that were aborted are overwritten first, because the
    workers will read them.
    """

    MIGRATE = "migrate"
    ROLLBACK = "rollback"
    DOWNGRADE = "downgrade"
    DOWNGRADE_SOFT = "downgrade-soft"
