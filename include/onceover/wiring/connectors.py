"""A Connect cluster's connectors: what the command line and the DAG ``migrate_connector_offsets`` call.

The only place that turns a Connect file into REST clients and clusters; they are opened and closed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from onceover.config.connect.connectclients import (
    ADMIN,
    CONSUMER,
    PRODUCER,
    ROLES,
    ResolvedConnect,
    resolve_connect,
)
from onceover.config.connect.connectfile import ConnectFile, connect_home
from onceover.config.connect.workerfile import client_of, principal_of
from onceover.connectors.acltable import WORKERS_CLUSTER, AclTableRequest, Grant, OwnTopic, Role, grants
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import ConnectorState, Report
from onceover.connectors.moving import selection
from onceover.connectors.moving.migration import ConnectorOperation, Migration
from onceover.connectors.moving.selection import ConnectorSelection
from onceover.connectors.planning.plan import unasked_topic
from onceover.connectors.record.runrecords import copy_ids, run_ids, runs_topic
from onceover.connectors.settings import (
    ConnectorMove,
    ConnectorRequest,
    ConnectSettings,
    RestSettings,
    RoleClient,
)
from onceover.connectors.workers.listing import ConnectorListing
from onceover.connectors.workers.rest import ConnectRest
from onceover.errors import Retriable, UsageError
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.ports import ClientSettings, Cluster

_CLIENT_ROLES = {Role.PRODUCER: PRODUCER, Role.CONSUMER: CONSUMER, Role.ADMIN: ADMIN}


@dataclass(frozen=True)
class Clients:
    """How the Kafka clusters of a Connect cluster are reached."""

    access: ResolvedConnect

    def worker(self) -> ClientSettings:
        """Return the client for the cluster with the workers' internal topics."""
        return self.access.kafka

    def connector(self, config: Mapping[str, str]) -> ClientSettings | None:
        """Return the client for the cluster that a connector's overrides (KIP-458) name, None for the
        workers' own.

        Raises:
            UsageError: the overrides name several clusters, or do not say how to get in.
        """
        client = self.access.offsets_client(config.get("name", ""), config)
        return None if client is self.access.kafka else client

    def roles(self, config: Mapping[str, str]) -> list[RoleClient]:
        """Return the clients that a connector of this configuration itself uses (KIP-458)."""
        return [self._role(role, config) for role in ROLES]

    def open(self, client: ClientSettings) -> Cluster:
        """Return the cluster that a client is for, not connected yet. The caller closes it."""
        return LiveCluster(client)

    def _role(self, role: str, config: Mapping[str, str]) -> RoleClient:
        java = self.access.role_properties(role, config)
        principal = _principal(java)
        if principal is None and "bootstrap.servers" not in java:
            return RoleClient(role, reason="the workers' own file is not named, which tells how they log in")
        try:
            return RoleClient(role, principal, self.access.role_client(role, config))
        except UsageError as error:
            return RoleClient(role, principal, reason=error.message)


def connect_settings(file: ConnectFile) -> ConnectSettings:
    """Return how the Connect cluster and its Kafka clusters are reached. Nothing is connected yet.

    Raises:
        UsageError: what the file names is missing or not in order.
    """
    return _settings(resolve_connect(file))


def list_connectors(file: ConnectFile) -> ConnectorListing:
    """Return what the cluster runs, as its workers say. Changes nothing.

    Raises:
        Retriable: no worker answers.
        UsageError: what answers is no worker, or refuses our login.
    """
    access = resolve_connect(file)
    with ConnectRest(_settings(access).rest) as rest:
        return _listing(access, rest)


def pick_connectors(file: ConnectFile, names: Sequence[str], meant: ConnectorSelection) -> tuple[str, ...]:
    """Return the source connectors that are meant, as the live cluster has them.

    Args:
        names: in the order in which they are done; empty for all.
        meant: when none is named.

    Raises:
        Retriable: no worker answers.
        UsageError: a name is not that of a source connector; or there is none; or what answers at an address
            is no worker, which may be why there is none.
    """
    listing = list_connectors(file)
    try:
        listing.check(names)
        return tuple(names) or meant_by_all(file, listing, meant)
    except UsageError as error:
        if error.code == ConnectorCode.NO_CONNECTOR:
            _check_addresses(file)
        raise


def _check_addresses(file: ConnectFile) -> None:
    """Ask every address, not the first alone that answers; one that is away is another matter."""
    with ConnectRest(_settings(resolve_connect(file)).rest) as rest:
        for url in rest.urls:
            with suppress(Retriable):
                rest.worker(url)


def meant_by_all(file: ConnectFile, listing: ConnectorListing, meant: ConnectorSelection) -> tuple[str, ...]:
    """Return the connectors of a listing that are meant where none is named.

    Raises:
        UsageError: there is none.
    """
    return selection.meant_by_all(listing, meant, lambda: Migration(connect_settings(file)))


@contextmanager
def connector_operation(
    file: ConnectFile, move: ConnectorMove, request: ConnectorRequest
) -> Iterator[ConnectorOperation]:
    """Yield what does it; clients are closed at the end."""
    with Migration(connect_settings(file)) as migration:
        yield migration.operation(move, request)


def verify_connectors(file: ConnectFile, request: ConnectorRequest) -> Report:
    """Judge the connectors' own topics, and whether they go on from them. Changes nothing."""
    with Migration(connect_settings(file)) as migration:
        return migration.verify(request)


def acl_table(file: ConnectFile, names: Sequence[str], topic: str | None = None) -> list[Grant]:
    """Return the rights that a migration of these connectors needs, and they themselves after it.

    Args:
        names: of connectors; empty for every source connector.
        topic: the topic of its own that each will get, None for the one it has, or would get by itself.

    Raises:
        Retriable: no worker answers.
        UsageError: a name is not that of a source connector.
    """
    access = resolve_connect(file)
    with ConnectRest(_settings(access).rest) as rest:
        listing = _listing(access, rest)
    listing.check(names)
    chosen = [state for state in listing.connectors if state.name in (names or listing.sources)]
    ours = {Role.WORKER: _principal(access.properties), Role.ONCEOVER: principal_of(access.kafka.properties)}
    worker = access.worker
    return grants(
        AclTableRequest(
            group_id=worker.group_id,
            offsets_topic=worker.offsets_topic,
            config_topic=worker.config_topic,
            status_topic=worker.status_topic or "(status.storage.topic)",
            exactly_once=worker.exactly_once,
            our_ids=copy_ids(worker.group_id),
            run_ids=run_ids(worker.group_id),
            runs_topic=runs_topic(worker.group_id),
            connectors=[_own_topic(access, state, topic) for state in chosen],
            principals=_known(ours),
        )
    )


def _own_topic(access: ResolvedConnect, state: ConnectorState, topic: str | None) -> OwnTopic:
    client = access.offsets_client(state.name, state.config)
    cluster = WORKERS_CLUSTER if client is access.kafka else client.properties["bootstrap.servers"]
    shared = access.worker.offsets_topic
    own = topic or unasked_topic(state, shared)
    named = {
        role: _principal(access.role_properties(java, state.config)) for role, java in _CLIENT_ROLES.items()
    }
    return OwnTopic(state.name, own, cluster, _known(named))


def _principal(java: Mapping[str, str]) -> str | None:
    # Without the workers' own file nothing is known of their clients.
    return principal_of(client_of("client", java, ours=False)[0]) if "bootstrap.servers" in java else None


def _known(principals: Mapping[Role, str | None]) -> dict[Role, str]:
    return {role: principal for role, principal in principals.items() if principal}


def _listing(access: ResolvedConnect, rest: ConnectRest) -> ConnectorListing:
    version, worker = rest.any_worker().version, access.worker
    return ConnectorListing(
        access.name, version, worker.offsets_topic, worker.exactly_once, rest.connectors()
    )


def _settings(access: ResolvedConnect) -> ConnectSettings:
    auth = access.rest.auth
    rest = RestSettings(
        urls=access.rest.urls,
        username=auth.username if auth else None,
        password=auth.password if auth else None,
        ca_file=access.rest.ca,
    )
    return ConnectSettings(
        name=access.name,
        rest=rest,
        worker=access.properties,
        clients=Clients(access),
        home=connect_home(access.file),
    )
