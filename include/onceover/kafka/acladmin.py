"""Reading and changing the ACLs of topics, through confluent-kafka's admin client.

Invariant: a cluster that cannot say which ACLs it has (no authorizer, no right to ask) raises; an empty
set always means that there are none. Used on the driver and the command line only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.cluster import ClientSettings

LITERAL = "LITERAL"
PREFIXED = "PREFIXED"
ALLOW = "ALLOW"
DENY = "DENY"
# A topic named "*" cannot exist: this literal name stands for every topic.
EVERY_TOPIC = "*"

_TIMEOUT_S = 30.0
# One request carries them all; a few hundred keep it far below every broker's request limit.
_PER_REQUEST = 500


class Acl(NamedTuple):
    """One ACL on topics; ``operation`` and ``permission`` by Kafka's names, such as READ and ALLOW."""

    pattern: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        kind = "topics beginning with" if self.pattern == PREFIXED else "topic"
        return (
            f"{self.permission} {self.operation} to {self.principal} from {self.host} on {kind} {self.name}"
        )


class NoAuthorizer(UsageError):
    """The cluster runs without an authorizer: it has no ACLs and takes none."""


class AclAdmin:
    """The topic ACLs of one cluster. Every call raises errors of Onceover and nothing of the library."""

    def __init__(self, settings: ClientSettings) -> None:
        self.alias = settings.alias
        self._client = AdminClient({**settings.properties, "socket.timeout.ms": int(_TIMEOUT_S * 1000)})

    def topic_acls(self) -> frozenset[Acl]:
        """Return every ACL on topics: literal, prefixed and for all topics.

        Raises:
            NoAuthorizer: the cluster has none.
            UsageError: the principal may not ask.
            Retriable: no answer in time.
        """
        future = self._client.describe_acls(_filter(None), request_timeout=_TIMEOUT_S)
        bindings: list[AclBinding] = self._result(future, "list its ACLs")
        return frozenset(_read(binding) for binding in bindings)

    def create(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; one that exists already is left as it is.

        Raises:
            As :meth:`topic_acls`; the ones created before the error stay.
        """
        for some in _portions(acls):
            self._all(self._client.create_acls([_binding(acl) for acl in some], **_WITHIN), "create ACLs")

    def delete(self, acls: Iterable[Acl]) -> None:
        """Delete exactly these ACLs; one that is gone already is no error.

        Raises:
            As :meth:`topic_acls`; the ones deleted before the error stay deleted.
        """
        for some in _portions(acls):
            self._all(self._client.delete_acls([_filter(acl) for acl in some], **_WITHIN), "delete ACLs")

    def _all(self, futures: Mapping[Any, Future[Any]], what: str) -> None:
        for future in futures.values():
            self._result(future, what)

    def _result(self, future: Future[Any], what: str) -> Any:
        try:
            return future.result()
        except KafkaException as error:
            raise self._translated(error.args[0], what) from error

    def _translated(self, cause: Any, what: str) -> OnceoverError:
        text = f"{self.alias} did not {what}: {cause.str()}"
        if cause.code() == KafkaError.SECURITY_DISABLED:
            return NoAuthorizer(
                f"{self.alias} runs without an authorizer, so it has no ACLs and takes none",
                code="NO_AUTHORIZER",
                expected="authorizer.class.name in the brokers' configuration",
                resolve="set topics.sync_acls: false, or switch the authorizer on",
            )
        if cause.code() in (KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            return UsageError(
                text,
                code="NOT_AUTHORIZED",
                resolve="grant the principal the cluster rights for ACLs listed in docs/operations.md",
            )
        if cause.retriable() or cause.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            return Retriable(text, resolve=f"check that {self.alias} is up, then run again")
        return NeedsOperator(text, code="ADMIN_REFUSED")


_WITHIN: Mapping[str, float] = {"request_timeout": _TIMEOUT_S}


def _portions(acls: Iterable[Acl]) -> Iterable[list[Acl]]:
    ordered = sorted(acls)
    return (ordered[start : start + _PER_REQUEST] for start in range(0, len(ordered), _PER_REQUEST))


def _binding(acl: Acl) -> AclBinding:
    return _exactly(AclBinding, acl)


def _filter(acl: Acl | None) -> AclBindingFilter:
    """Return the filter that matches this one ACL only, or every ACL on topics."""
    if acl is not None:
        return _exactly(AclBindingFilter, acl)
    return AclBindingFilter(
        ResourceType.TOPIC,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def _exactly(kind: Callable[..., Any], acl: Acl) -> Any:
    return kind(
        ResourceType.TOPIC,
        acl.name,
        ResourcePatternType[acl.pattern],
        acl.principal,
        acl.host,
        AclOperation[acl.operation],
        AclPermissionType[acl.permission],
    )


def _read(binding: AclBinding) -> Acl:
    return Acl(
        binding.resource_pattern_type.name,
        binding.name,
        binding.principal,
        binding.host,
        binding.operation.name,
        binding.permission_type.name,
    )
