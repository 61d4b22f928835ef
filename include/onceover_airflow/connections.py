"""The Airflow side of a flow's clients: resolve its Connections, and hide every secret in the logs."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException
from airflow.sdk.log import mask_secret

from onceover.config.clients import resolve_clients
from onceover.config.connection import variable_of
from onceover.config.flowfile import Flow
from onceover_airflow.secrets import environment, secret_texts


def connection_environment(flow: Flow) -> dict[str, str]:
    """Return the variables that hand the flow's Airflow Connections to a process.

    Every secret of the flow's clients, wherever it is written, is masked in the task's log first.

    Raises:
        AirflowFailException: a Connection does not exist.
        UsageError: a client is not in order; the message shows no value.
    """
    names = {spec.connection for spec in (flow.source, flow.target) if spec.connection}
    variables = {variable_of(name): _read(name, flow) for name in sorted(names)}
    with environment(variables):
        for client in resolve_clients(flow):
            _mask(secret_texts(client.properties))
    return variables


def _read(name: str, flow: Flow) -> str:
    try:
        connection = Connection.get(name)
    except AirflowNotFoundException as error:
        raise AirflowFailException(
            f"Airflow has no Connection {name}; where: flow {flow.flow}, {flow.path}; expected: a Connection "
            "of type kafka; to resolve: create it under Admin > Connections, or change the flow file"
        ) from error
    _mask(secret_texts(connection.extra_dejson))
    text: str = connection.as_json()
    mask_secret(text)
    return text


def _mask(texts: Iterable[str]) -> None:
    for text in texts:
        mask_secret(text)
