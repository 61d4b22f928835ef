"""Resolve how a Connect cluster and its Kafka clusters are reached, in the process that connects.

What is made here holds secrets and shows none when printed or logged. Invariant: only what people have
written into files on this machine names its variables. A connector's configuration is anybody's who may write
one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onceover.config.clients.clusterspec import ClusterSpec
from onceover.config.clients.connection import read_http_connection, variable_of
from onceover.config.clients.resolve import ClientConfig, literal_client, resolve_client
from onceover.config.clients.rules import endpoints
from onceover.config.codes import ConfigCode
from onceover.config.connect.connectfile import ConnectFile, KafkaSpec
from onceover.config.connect.workerfile import (
    WorkerSettings,
    check_worker,
    client_of,
    logins_in_files,
    role_properties,
    with_variables,
    worker_settings,
)
from onceover.config.document import substitute
from onceover.config.faults import BadConfig, Fault, Invalid
from onceover.config.files import decoded, read_bytes
from onceover.config.home import variables
from onceover.config.properties import parse_properties
from onceover.errors import UsageError

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ADMIN: Final = "admin"
ROLES: Final = (PRODUCER, CONSUMER, ADMIN)
_SERVERS: Final = "bootstrap.servers"
_OWN_CLIENT: Final = "name how Onceover reaches this cluster under kafka:"


@dataclass(frozen=True)
class BasicAuth:
    """User and password of the workers' REST API."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class RestAccess:
    """Where the workers answer; ``ca`` is a file of certificates to trust beside the system's."""

    urls: tuple[str, ...]
    auth: BasicAuth | None
    ca: Path | None


@dataclass(frozen=True)
class ResolvedConnect:
    """Everything that is needed to work on a Connect cluster.

    Args:
        name: of the Connect file, in messages and paths.
        file: the Connect file.
        rest: how its workers are reached; ``kafka`` how their Kafka cluster is.
        worker: what their configuration says.
        properties: the workers' configuration by Java's names, as far as it is known; may hold secrets.
        environ: what ``${NAME}`` and Connections are read from.
    """

    name: str
    file: ConnectFile
    rest: RestAccess
    kafka: ClientConfig
    worker: WorkerSettings
    properties: Mapping[str, str] = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)

    def offsets_client(self, connector: str, config: Mapping[str, str]) -> ClientConfig:
        """Return the client of the cluster where the connector's own offsets topic is.

        That is where its producer writes (KIP-618): another cluster than the workers' when its
        configuration, or the workers', says so.

        Args:
            connector: its name.
            config: its configuration, as the workers tell it.

        Raises:
            UsageError: its producer, consumer and admin client name different servers; or the client
                cannot be read from the configuration, and the Connect file names none.
        """
        roles = {role: self.role_properties(role, config) for role in ROLES}
        named = {role: properties.get(_SERVERS, "") for role, properties in roles.items()}
        ours = self.kafka.properties[_SERVERS]
        servers = named[PRODUCER] or ours
        self._same_servers(connector, {role: text or ours for role, text in named.items()})
        spec = self.file.connectors.get(connector)
        if spec is not None:
            return self._resolve(spec.kafka, f"{self.name}.{connector}", f"connectors.{connector}.kafka")
        overridden = named[PRODUCER] != with_variables(self.properties, self.environ).get(_SERVERS, "")
        if not overridden or endpoints(_compact(servers)) & endpoints(ours):
            return self.kafka
        return self._of_producer(connector, config)

    def role_properties(self, role: str, config: Mapping[str, str]) -> dict[str, str]:
        """Return the Java settings of one of a connector's own clients; only the workers' name our variables.

        Args:
            role: one of ``ROLES``.
            config: the connector's configuration.
        """
        return role_properties(with_variables(self.properties, self.environ), role, config)

    def role_client(self, role: str, config: Mapping[str, str]) -> ClientConfig:
        """Return one of a connector's own clients.

        Args:
            role: one of ``ROLES``.
            config: the connector's configuration.

        Raises:
            UsageError: what it logs in with cannot be read here.
        """
        name = config.get("name", "")
        client, missing = self._client(name, role, config)
        if missing:
            raise UsageError(f"its {role}'s " + "; ".join(f"{key} {reason}" for key, reason in missing))
        return literal_client(_alias(f"{self.name}.{name}"), client, where=f"connector {name}: {role}")

    def _same_servers(self, connector: str, servers: Mapping[str, str]) -> None:
        parts = [endpoints(_compact(text)) for text in servers.values()]
        # Lists of one cluster's servers may differ; what they have in common tells that it is one.
        if all(one & other for one in parts for other in parts):
            return
        raise UsageError(
            f"connector {connector}: its clients name different Kafka servers, so that it would write "
            "its offsets to one cluster and read them from another",
            code=ConfigCode.OVERRIDES_DISAGREE,
            where=f"connector {connector}",
            expected="the same bootstrap.servers for its producer, consumer and admin client",
            seen="; ".join(f"{role}: {_compact(text)}" for role, text in sorted(servers.items())),
            resolve="set producer.override., consumer.override. and admin.override.bootstrap.servers alike",
        )

    def _client(
        self, connector: str, role: str, config: Mapping[str, str]
    ) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """Return the keys of one of its clients, and what of its settings cannot be read here."""
        client, missing = client_of(connector, self.role_properties(role, config), ours=False)
        return client, missing + logins_in_files(role, config)

    def _of_producer(self, connector: str, config: Mapping[str, str]) -> ClientConfig:
        client, missing = self._client(connector, PRODUCER, config)
        if missing:
            raise UsageError(
                f"connector {connector} keeps its offsets on another Kafka cluster, and its client settings "
                f"cannot be used here: {'; '.join(f'{key} {reason}' for key, reason in missing)}",
                code=ConfigCode.CLIENT_UNREADABLE,
                where=f"connector {connector}",
                resolve=f"name how Onceover reaches that cluster in {self.file.path}, under "
                f"connectors.{connector}.kafka",
            )
        where = f"connector {connector}: producer.override"
        return literal_client(_alias(f"{self.name}.{connector}"), client, where=where)

    def _resolve(self, spec: KafkaSpec, name: str, key: str) -> ClientConfig:
        where = f"{self.file.path}: {key}"
        return resolve_client(spec.cluster(_alias(name)), where=where, environ=self.environ)


def resolve_connect(file: ConnectFile, *, environ: Mapping[str, str] | None = None) -> ResolvedConnect:
    """Read what the Connect file names: worker configuration, secrets, Connections.

    Raises:
        UsageError: every fault in one error; no message shows a value.
    """
    environment = variables(environ)
    properties, faults = check_worker(_worker_properties(file))
    if faults:
        place = str(file.worker_config or f"{file.path}: worker")
        raise BadConfig(Fault(place, key, error.problem, error.fix) for key, error in faults)
    auth = _auth(file, environment)
    kafka = _kafka(file, properties, environment)
    rest = RestAccess(file.rest, auth, file.rest_ca)
    return ResolvedConnect(
        file.connect, file, rest, kafka, worker_settings(properties), properties, environment
    )


def _worker_properties(file: ConnectFile) -> dict[str, str]:
    inline = {key: str(value) for key, value in file.worker.items()}
    path = file.worker_config
    if path is None:
        return inline
    try:
        entries = parse_properties(decoded(read_bytes(path, "file of worker properties"), path))
    except Invalid as error:
        problem, fix = error.problem, error.fix
    else:
        # As Java reads it: of a key that is given twice the last one counts.
        return {**{entry.key: entry.value for entry in entries}, **inline}
    # Outside the handler: an exception's context must not carry text from the file.
    raise BadConfig([Fault(str(path), "", problem, fix)])


def _kafka(file: ConnectFile, properties: Mapping[str, str], environ: Mapping[str, str]) -> ClientConfig:
    alias = _alias(file.connect)
    if file.kafka is not None:
        return resolve_client(file.kafka.cluster(alias), where=f"{file.path}: kafka", environ=environ)
    client, missing = client_of(alias, properties, ours=True)
    if missing:
        raise BadConfig(Fault(str(file.worker_config), key, reason, _OWN_CLIENT) for key, reason in missing)
    spec = ClusterSpec(alias=alias, client=client)
    return resolve_client(spec, where=str(file.worker_config), environ=environ)


def _auth(file: ConnectFile, environ: Mapping[str, str]) -> BasicAuth | None:
    auth = file.rest_auth
    if auth is None:
        return None
    try:
        if auth.connection is not None:
            return BasicAuth(*read_http_connection(auth.connection, environ))
        return BasicAuth(str(substitute(auth.username, environ)), str(substitute(auth.password, environ)))
    except Invalid as error:
        problem, fix = error.problem, error.fix
    named = f" ({variable_of(auth.connection)})" if auth.connection else ""
    raise BadConfig([Fault(str(file.path), f"rest_auth{named}", problem, fix)])


def _alias(name: str) -> str:
    """Return ``name`` as an alias: it names a cluster in messages, and has no blanks or dots."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", name).lstrip("-_") or "connect"


def _compact(servers: str) -> str:
    """Return servers as a client normalises them."""
    return ",".join(entry.strip() for entry in servers.split(",") if entry.strip())
