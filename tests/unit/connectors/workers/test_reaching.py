"""A name that nobody knows is a mistake in a file; a cluster that is away is not."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.connectors.workers.reaching import known_cluster_id, unknown_name
from onceover.errors import OnceoverError, Retriable, UsageError


def raised_for(cause: OSError) -> Retriable:
    """Return what a Kafka client says of a broker that it cannot reach."""
    try:
        try:
            raise cause
        except OSError as error:
            raise Retriable("no broker answers", where="nobody:9092") from error
    except Retriable as error:
        return error


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (socket.gaierror(socket.EAI_NONAME, "not known"), UsageError),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), Retriable),
        (ConnectionRefusedError(111, "refused"), Retriable),
    ],
)
def test_brokers_whose_name_is_unknown_are_a_mistake(cause: OSError, kind: type[OnceoverError]) -> None:
    """Whoever is away, and a resolver that is, may be back the next time."""

    def fail() -> str:
        raise raised_for(cause)

    with pytest.raises(kind) as caught:
        known_cluster_id(cast(Any, SimpleNamespace(alias="kafka", cluster_id=fail)))
    assert caught.value.where == "nobody:9092"
    assert (caught.value.code == "NAME_UNKNOWN") is (kind is UsageError)


def test_only_a_resolver_says_that_a_name_is_unknown() -> None:
    """An error without a cause says nothing."""
    assert unknown_name(Retriable("away")) is None
