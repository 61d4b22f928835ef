"""A Kafka Connect cluster, as its YAML file describes it: where its workers answer, what they keep where.

The models are closed (an unknown key is a fault) and frozen. ``rest_auth`` and ``client`` keep their
``${NAME}`` references unread, so printing or pickling a file shows no secret.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from onceover.advice import nearest_fix
from onceover.config import values
from onceover.config.clients.clusterspec import ClusterSpec
from onceover.config.closed import Closed
from onceover.config.connect.workerfile import WORKER_KEYS
from onceover.config.document import REFERENCE, Document, substitute
from onceover.config.faults import BadConfig, Invalid
from onceover.config.files import CONNECT_FILES, by_line
from onceover.config.home import onceover_home, variables
from onceover.config.modelcheck import Key, ModelCheck
from onceover.hosts import is_http_address

log = logging.getLogger(__name__)

_EXAMPLES: Final[Mapping[Key, str]] = {
    ("connect",): "connect: flights",
    ("rest",): 'rest: ["http://127.0.0.1:8083"]',
}


def _addresses(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise Invalid("expected a list of addresses", 'name every worker, e.g. ["http://127.0.0.1:8083"]')
    addresses = tuple(_address(number, entry) for number, entry in enumerate(value, start=1))
    if len(set(addresses)) < len(addresses):
        raise Invalid("names a worker twice", "remove one")
    return addresses


def _address(number: int, entry: object) -> str:
    """Return ``http(s)://host[:port][/path]`` without a slash at the end."""
    fix = "write http://host:port or https://host:port; user and password go into rest_auth"
    problem = f"entry {number} is not the address of a worker"
    if not isinstance(entry, str) or not is_http_address(entry.strip()):
        raise Invalid(problem, fix)
    parts = urlsplit(entry.strip())
    if parts.query or parts.fragment:
        raise Invalid(problem, fix)
    return entry.strip().rstrip("/")


class RestAuth(Closed):
    """Basic authentication at the workers: user and password, or an Airflow Connection of type http."""

    username: Annotated[str | None, BeforeValidator(values.optional(values.text))] = None
    password: Annotated[str | None, BeforeValidator(values.optional(values.text))] = None
    connection: Annotated[str | None, BeforeValidator(values.optional(values.connection_id))] = None


class KafkaSpec(Closed):
    """Exactly one way to reach a Kafka cluster. ``client_file`` is absolute once loaded."""

    client: Annotated[dict[str, Any] | None, BeforeValidator(values.optional(values.mapping))] = None
    connection: Annotated[str | None, BeforeValidator(values.optional(values.connection_id))] = None
    client_file: Annotated[Path | None, BeforeValidator(values.optional(values.text))] = None

    def cluster(self, alias: str) -> ClusterSpec:
        """Return it as a flow names a cluster."""
        return ClusterSpec(
            alias=alias, client=self.client, connection=self.connection, client_file=self.client_file
        )


class ConnectorSpec(Closed):
    """What one connector needs beside its own configuration."""

    kafka: KafkaSpec


class ConnectKeys(Closed):
    """All keys of a Connect file."""

    connect: Annotated[str, BeforeValidator(values.connect_name)]
    rest: Annotated[tuple[str, ...], BeforeValidator(_addresses)]
    rest_auth: RestAuth | None = None
    rest_ca: Annotated[Path | None, BeforeValidator(values.optional(values.text))] = None
    worker_config: Annotated[Path | None, BeforeValidator(values.optional(values.text))] = None
    worker: Annotated[dict[str, Any], BeforeValidator(values.mapping)] = Field(default_factory=dict)
    kafka: KafkaSpec | None = None
    connectors: dict[str, ConnectorSpec] = Field(default_factory=dict)


class ConnectFile(ConnectKeys):
    """A loaded Connect file.

    Attributes:
        path: the file, absolute.
    """

    path: Path

    @property
    def kafka_connections(self) -> Iterator[str]:
        """Names of the Airflow Connections of type kafka that the file uses."""
        specs = [self.kafka, *(connector.kafka for connector in self.connectors.values())]
        return (spec.connection for spec in specs if spec is not None and spec.connection)


def load_connect(ref: str | Path, *, environ: Mapping[str, str] | None = None) -> ConnectFile:
    """Return the Connect file that ``ref`` names: a stem in the directory of Connect files, or a path.

    Nothing that it names is opened: that happens where we connect.

    Raises:
        UsageError: the file is missing or not in order; every fault has a line of its own.
    """
    environment = variables(environ)
    path = CONNECT_FILES.locate(ref, environment)
    _, document, faults = CONNECT_FILES.read(path)
    check = _Check(document, path, environment)
    data = check.run()
    if faults or check.faults:
        raise BadConfig(by_line(faults + check.faults))
    return ConnectFile.model_validate({**data, "path": path})


def find_connect_files(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the Connect files by name; an absent directory has none, unless it was named.

    The log names those left out.

    Raises:
        UsageError: the directory cannot be read, or ``ONCEOVER_CONNECT`` names none.
    """
    environment = variables(environ)
    misnamed = ", ".join(ascii(path.name) for path in CONNECT_FILES.misnamed(environment))
    if misnamed:
        log.warning("left out: %s: a name is to be %s", misnamed, values.NAME_RULE)
    return CONNECT_FILES.find(environment)


def connect_home(file: ConnectFile, environ: Mapping[str, str] | None = None) -> Path:
    """Return where journals and manifests of this Connect cluster are kept."""
    return onceover_home(environ) / "connect" / file.connect


class _Check(ModelCheck):
    def __init__(self, document: Document, path: Path, environ: Mapping[str, str]) -> None:
        super().__init__(document, path, environ, ConnectKeys, _EXAMPLES)

    def run(self) -> dict[str, Any]:
        """Return the keys with ``${NAME}`` replaced, ready for the model."""
        data = self.substituted(_kept)
        connectors = data.get("connectors")
        named = list(connectors) if isinstance(connectors, dict) else []
        clusters: list[Key] = [("kafka",), *(("connectors", name, "kafka") for name in named)]
        for path in [("worker_config",), ("rest_ca",), *((*key, "client_file") for key in clusters)]:
            data = self.absolute(data, path)
        self.check_model(data)
        for key in clusters:
            self.check_client(key, _at(data, key))
        self._worker(data)
        self._auth(data.get("rest_auth"))
        return data

    def is_hidden(self, key: Key) -> bool:
        """Whatever may hold a secret, or a misplaced one: an address may carry a password."""
        return key[0] in ("rest", "rest_auth", "kafka", "worker", "connectors")

    def _worker(self, data: dict[str, Any]) -> None:
        worker = data.get("worker") or {}
        if not isinstance(worker, dict):
            return
        if not worker and not data.get("worker_config"):
            self.add(
                ("worker_config",),
                "the workers' settings are needed: their topics and their group",
                "name the workers' own properties file, or write its keys under worker:",
            )
        elif not data.get("worker_config") and data.get("kafka") is None:
            self.add(
                ("kafka",),
                "is required without worker_config",
                'e.g. kafka: {client: {bootstrap.servers: "127.0.0.1:19092"}}',
            )
        for key, value in worker.items():
            if key not in WORKER_KEYS:
                self.add(("worker", key), "not a key that is read here", nearest_fix(key, WORKER_KEYS))
                continue
            try:
                WORKER_KEYS[key](str(value))
            except Invalid as error:
                self.add(("worker", key), error.problem, error.fix)

    def _auth(self, auth: object) -> None:
        if not isinstance(auth, dict):
            return
        user, password = (auth.get(key) is not None for key in ("username", "password"))
        if (auth.get("connection") is not None) == (user or password) or user != password:
            fix = 'write {username: ..., password: "${NAME}"}, or {connection: ID}'
            self.add(("rest_auth",), "username and password, or a connection, is needed", fix)
            return
        if password and not _is_reference(auth["password"]):
            problem = "a secret stands in the file, and such files live in git"
            self.add(("rest_auth", "password"), problem, 'write "${NAME}" and set the variable')
            return
        for key, value in auth.items():
            try:
                substitute(value, self.environ)
            except Invalid as error:
                self.add(("rest_auth", key), error.problem, error.fix)


def _kept(key: Key) -> bool:
    return key == ("rest_auth",) or key == ("kafka", "client") or (len(key) == 4 and key[3] == "client")


def _at(data: Mapping[str, Any], key: Key) -> Any:
    value: Any = data
    for part in key:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and REFERENCE.fullmatch(value.strip()) is not None
