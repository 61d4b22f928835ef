"""Telling an address that is wrong from a system that is away: one asks for a person, the other for time."""

from __future__ import annotations

import socket
from typing import Final, TypeVar

from onceover.connectors.codes import ConnectorCode
from onceover.errors import Retriable, UsageError
from onceover.kafka.ports import Cluster

E = TypeVar("E", bound=BaseException)
# A resolver that does not answer now (EAI_AGAIN) is one more system that is away.
_UNKNOWN: Final = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


def cause_of(error: BaseException | None, kind: type[E]) -> E | None:
    """Return the first error of a kind among what an error was raised for, itself included."""
    while error is not None:
        if isinstance(error, kind):
            return error
        error = error.__cause__ or error.__context__
    return None


def unknown_name(error: BaseException) -> str | None:
    """Return the resolver's words where it knows no such name; None for any other trouble."""
    found = cause_of(error, socket.gaierror)
    return str(found) if found is not None and found.errno in _UNKNOWN else None


def known_cluster_id(cluster: Cluster) -> str:
    """Return the id of a Kafka cluster.

    Raises:
        UsageError: NAME_UNKNOWN, its brokers have a name that this machine does not know.
        Retriable: no broker answers.
    """
    try:
        return cluster.cluster_id()
    except Retriable as error:
        words = unknown_name(error)
        if words is None:
            raise
        raise UsageError(
            f"this machine does not know a broker of {cluster.alias} by its name",
            code=ConnectorCode.NAME_UNKNOWN,
            where=error.where,
            expected="bootstrap.servers with names that resolve here",
            seen=words,
            resolve="correct bootstrap.servers under `kafka`, or run where the name is known",
        ) from error
