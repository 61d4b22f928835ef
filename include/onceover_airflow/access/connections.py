"""The Airflow side of clients: resolve Connections of flows and of Connect, hide every secret in the logs."""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Iterable
from typing import Final

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from onceover.config import home
from onceover.config.clients.connection import variable_of
from onceover.config.connect.connectclients import resolve_connect
from onceover.config.connect.connectfile import ConnectFile
from onceover.config.flow.flowfile import Flow
from onceover.config.flow.sides import resolve_clients
from onceover_airflow.access.secrets import environment, secret_texts
from onceover_airflow.errors import TaskFailed

# Of a worker's own file: everything else in it is no secret, and masking short values would hide whole logs.
_SECRET_KEY: Final = re.compile(r"password|secret|jaas|\.key$", re.IGNORECASE)


def connection_environment(flow: Flow) -> dict[str, str]:
    """Return the variables that hand the flow's Airflow Connections to a process.

    Every secret of the flow's clients, wherever it is written, is masked in the task's log first.

    Raises:
        TaskFailed: a Connection does not exist.
        UsageError: a client is not in order; the message shows no value.
    """
    names = {spec.connection for spec in (flow.source, flow.target) if spec.connection}
    where = f"flow {flow.flow}, {flow.path}"
    variables = {variable_of(name): _read(name, where, "kafka") for name in sorted(names)}
    for client in resolve_clients(flow, ChainMap(variables, dict(home.variables()))):
        _mask(secret_texts(client.properties))
    return variables


def connections_given(wanted: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return Connections by name as what hands them to a process; by name too, why there is none.

    For the web server, whose logs hold nothing of them: they are not told to its masker, which would look for
    every line of every certificate in all that it logs.
    """
    given: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name in wanted:
        try:
            given[name] = str(Connection.get(name).as_json())
        except AirflowNotFoundException:
            missing[name] = _why_none(name)
        except Exception as error:  # noqa: BLE001 - a store of secrets may raise anything, about this one alone
            # Without its text, which is the store's own.
            missing[name] = f"Airflow could not give Connection {name} ({type(error).__name__})"
    return given, missing


def connect_environment(file: ConnectFile) -> dict[str, str]:
    """Return the variables that hand a Connect file's Airflow Connections to a process.

    Every secret of its clients, and of the workers' own file, is masked in the task's log first.

    Raises:
        TaskFailed: a Connection does not exist.
        UsageError: something that the file names is not in order; the message shows no value.
    """
    where = f"Connect file {file.path}"
    variables = {
        variable_of(name): _read(name, where, "kafka") for name in sorted(set(file.kafka_connections))
    }
    rest = file.rest_auth.connection if file.rest_auth else None
    if rest:
        variables[variable_of(rest)] = _read(rest, where, "http")
    with environment(variables):
        access = resolve_connect(file)
    _mask(secret_texts(access.kafka.properties))
    _mask(secret_texts({key: value for key, value in access.properties.items() if _SECRET_KEY.search(key)}))
    if access.rest.auth is not None:
        mask_secret(access.rest.auth.password)
    return variables


def _read(name: str, where: str, kind: str) -> str:
    try:
        connection = Connection.get(name)
    except AirflowNotFoundException as error:
        way = "correct that variable" if _is_in_environment(name) else "create it under Admin > Connections"
        raise TaskFailed(
            f"{_why_none(name)}; where: {where}; expected: a Connection of type {kind}; "
            f"to resolve: {way}, or change the file"
        ) from error
    if connection.password:
        mask_secret(connection.password)
    extra = connection.extra_dejson
    # Anything else that is JSON is refused by who reads the client's keys, in words for people.
    if isinstance(extra, dict):
        _mask(secret_texts(extra))
    text: str = connection.as_json()
    mask_secret(text)
    return text


def _why_none(name: str) -> str:
    """Say why Airflow gives no Connection: one that it cannot read in the environment it passes over."""
    if _is_in_environment(name):
        place = f"it stands in {variable_of(name)}, which is no JSON object, and no URI"
        return f"Airflow cannot read Connection {name}: {place}"
    return f"Airflow has no Connection {name}"


def _is_in_environment(name: str) -> bool:
    return bool(os.environ.get(variable_of(name), "").strip())


def _mask(texts: Iterable[str]) -> None:
    for text in texts:
        mask_secret(text)
