"""Requests to a broker, made as a client would: the only proof that it is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from onceover.errors import Fatal, Retriable

REQUEST_TIMEOUT_S: Final = 0.5
SCRAM_TIMEOUT_S: Final = 30.0
# The least that Kafka accepts: the passwords are random and live as long as a trial.
SCRAM_ITERATIONS: Final = 4096
_SCRAM: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}


def await_ready(
    address: str, node_id: int, find_fault: Callable[[], str | None], timeout_s: float, name: str
) -> None:
    """Return when the broker at ``address`` answers, lists itself as a live member, and has no fault.

    ``find_fault`` is called between attempts: it says what is still missing, None for nothing, and raises
    when waiting makes no sense any more.

    Raises:
        Retriable: no such answer within ``timeout_s`` seconds.
    """
    client = _admin(address)
    deadline = time.monotonic() + timeout_s
    seen = "no answer"
    while time.monotonic() < deadline:
        fault = find_fault()
        try:
            brokers = client.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
        except KafkaException as error:
            seen = str(error)
            continue
        if node_id in brokers and fault is None:
            return
        seen = fault or f"it lists brokers {sorted(brokers)}"
    raise Retriable(
        f"{name} did not become ready within {timeout_s:g} s",
        where=address,
        expected=f"an answer that lists broker {node_id}",
        seen=seen,
    )


def create_scram_users(bootstrap: str, mechanism: str, users: Mapping[str, str]) -> None:
    """Create or replace the users' credentials.

    By request, not with the storage tool's ``--add-scram``: command lines are visible to everybody.

    Raises:
        Fatal: the cluster refused.
    """
    info = ScramCredentialInfo(_SCRAM[mechanism], SCRAM_ITERATIONS)
    changes = [UserScramCredentialUpsertion(user, info, secret.encode()) for user, secret in users.items()]
    # Held until the answers are in: a client that is garbage ends its requests.
    client = _admin(bootstrap)
    results = client.alter_user_scram_credentials(changes, request_timeout=SCRAM_TIMEOUT_S)
    for user, future in results.items():
        try:
            future.result(timeout=SCRAM_TIMEOUT_S)
        except KafkaException as error:
            raise Fatal(
                f"the SCRAM user {user} could not be created", where=bootstrap, seen=str(error)
            ) from error


def _admin(bootstrap: str) -> AdminClient:
    # A broker that is still starting refuses connections: no reason to back off for seconds (the
    # default grows to 10 s) or to write each refusal to stderr.
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
