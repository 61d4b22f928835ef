"""What our own principal must be allowed to do, asked before anything is changed.

A missing right is one message with principal, operation and resource. Asking fences nobody: what would be
fenced is named with a producer id that never existed, and the broker checks the right before the id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from onceover.errors import Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.admin.topicfacts import may_on_absent, topic_facts
from onceover.kafka.admin.topics import Admin, TopicSpec
from onceover.kafka.answers import failure
from onceover.kafka.codes import KafkaCode
from onceover.kafka.ports import ClientSettings, Cluster
from onceover.txn.classify import Action, Api, classify

# No coordinator hands it out: ids grow from 0 in blocks of 1000.
_NO_PRODUCER: Final = ((1 << 62) + 1, 0)


def named_principal(settings: ClientSettings) -> str:
    """Return the principal that a client appears as, as far as its own settings tell."""
    username = settings.properties.get("sasl.username")
    if username:
        return f"User:{username}"
    if settings.properties.get("ssl.certificate.location") or settings.properties.get(
        "ssl.keystore.location"
    ):
        return "the principal of the client's certificate"
    if settings.properties.get("sasl.mechanism") or settings.properties.get("sasl.mechanisms"):
        return "the principal of the client's login"
    return "User:ANONYMOUS"


@contextmanager
def needing(settings: ClientSettings, operation: str, resource: str) -> Iterator[None]:
    """Name who lacks which right where the broker only says "not authorized"."""
    try:
        yield
    except UsageError as error:
        if error.code != KafkaCode.NOT_AUTHORIZED:
            raise
        raise missing(settings, operation, resource) from error


def missing(settings: ClientSettings, operation: str, resource: str) -> UsageError:
    """Return the error for one missing right."""
    who = named_principal(settings)
    return UsageError(
        f"{who} may not {operation} {resource} on {settings.alias}",
        code=KafkaCode.NOT_AUTHORIZED,
        where=settings.alias,
        expected=f"ALLOW {operation} on {resource} for {who}",
        seen="refused by the broker",
        resolve="grant it; `connectors acls` lists what every principal needs",
    )


def check_topic(cluster: Cluster, topic: str, operations: Sequence[str]) -> None:
    """Check that we may do each of these operations on a topic that exists.

    Raises:
        UsageError: NOT_AUTHORIZED.
        Retriable: the cluster does not answer.
    """
    with needing(cluster.config, "DESCRIBE", f"topic {topic}"):
        allowed = cluster.retry(lambda: topic_facts(cluster, topic)).operations
    for operation in operations:
        if operation not in allowed:
            raise missing(cluster.config, operation, f"topic {topic}")


def check_new_topic(cluster: Cluster, spec: TopicSpec) -> None:
    """Check that we may create a topic that does not exist, write to it and read it. Changes nothing.

    Raises:
        UsageError: NOT_AUTHORIZED.
        NeedsOperator: it could not be created.
        Retriable: the cluster does not answer.
    """
    settings, topic = cluster.config, f"topic {spec.name}"
    admin = Admin(cluster)
    with needing(settings, "CREATE", topic):
        for error in admin.try_create([spec], validate_only=True).values():
            if error.code != KafkaCode.TOPIC_EXISTS:
                raise error
    for operation in ("WRITE", "READ"):
        if not may_on_new_topic(cluster, spec.name, operation):
            raise missing(settings, operation, topic)
    with needing(settings, "DESCRIBE_CONFIGS", topic):
        for error in admin.topic_configs([spec.name]).failures.values():
            raise error


def may_on_new_topic(cluster: Cluster, topic: str, operation: str) -> bool:
    """Tell whether we might READ from or WRITE to a topic that does not exist.

    Raises:
        Retriable: the cluster does not answer.
    """
    return cluster.retry(lambda: may_on_absent(cluster, topic, operation))


def check_transactional_ids(cluster: Cluster, names: Sequence[str]) -> None:
    """Check that we may write as each of these transactional ids; nothing is fenced or aborted.

    Raises:
        UsageError: NOT_AUTHORIZED.
        Retriable: a coordinator is away.
    """
    for name in names:
        with needing(cluster.config, "WRITE", f"transactional id {name}"):
            cluster.retry(partial(_probe, cluster, name))


def _probe(cluster: Cluster, name: str) -> None:
    connection = cluster.coordinator(name, calls.TRANSACTION)
    answer = calls.end_txn(connection, name, _NO_PRODUCER, commit=False, version=3)
    action = classify(Api.END_TXN, answer.error_code)
    if action is Action.UNAUTHORIZED:
        raise failure(cluster.alias, Api.END_TXN, action, answer.error_code, name)
    if action is Action.REFRESH_AND_RETRY:
        cluster.forget_coordinator(name, calls.TRANSACTION)
        raise Retriable(f"the coordinator of {name} moves")
