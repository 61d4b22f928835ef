"""Reading and changing the ACLs of topics.

Invariant: a cluster that cannot say which ACLs it has (no authorizer, no right to ask) raises; an empty
set always means that there are none. So they are read through a connection of our own: confluent-kafka
2.16.1 drops the error of a DescribeAcls answer and returns an empty list (tried), which would read as
"delete them all". Changes go through confluent-kafka, which finds the controller of older clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from enum import Enum
from typing import Any, NamedTuple, TypeVar

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
from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.cluster import Cluster
from onceover.kafka.librdkafka import is_temporary, open_admin
from onceover.kafka.topicfacts import may_on_absent

LITERAL = "LITERAL"
PREFIXED = "PREFIXED"
ALLOW = "ALLOW"
DENY = "DENY"
# A topic named "*" cannot exist: this literal name stands for every topic.
EVERY_TOPIC = "*"
# Begins the name of an operation that this release has no name for, such as UNKNOWN_15.
UNKNOWN = "UNKNOWN"
# Ends a string of the library: whatever follows is cut off without an error, and another ACL is meant.
_NUL = "\0"

_TIMEOUT_S = 30.0
# The first with tagged fields; every broker from 2.5 on serves it.
_DESCRIBE_VERSION = 2
# One request carries them all; a few hundred keep it far below every broker's request limit.
_PER_REQUEST = 500


E = TypeVar("E", bound=Enum)


class Acl(NamedTuple):
    """One ACL on topics; ``operation`` and ``permission`` by Kafka's names, such as READ and ALLOW.

    An operation of a later Kafka is ``UNKNOWN_`` and its number: such an ACL can be told, not created.
    """

    pattern: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str

    @property
    def rule(self) -> str:
        """Who may or may not do what, without saying where."""
        return f"{self.permission} {self.operation} to {self.principal} from {self.host}"

    @property
    def is_cut(self) -> bool:
        """True where the library would create or delete another ACL: somebody's name holds a NUL."""
        return _NUL in self.principal or _NUL in self.host

    @property
    def as_cut(self) -> Acl:
        """The ACL that the library would make of this one; itself where no name holds a NUL."""
        principal, host = (name.split(_NUL)[0] for name in (self.principal, self.host))
        return self._replace(principal=principal, host=host)

    @property
    def is_unknown(self) -> bool:
        """True where this release does not know the operation."""
        return self.operation.startswith(UNKNOWN)

    def __str__(self) -> str:
        kind = "topics beginning with" if self.pattern == PREFIXED else "topic"
        return f"{self.rule} on {kind} {self.name}"


class _Listed(NamedTuple):
    """An ACL as a broker answers it, kinds as numbers."""

    pattern_type: int
    topic: str
    principal: str
    host: str
    operation: int
    permission: int


def _listed(answer: Any) -> tuple[int, list[_Listed]]:
    return answer.error_code, [
        _Listed(
            resource.pattern_type,
            calls.text(resource.resource_name),
            calls.text(one.principal),
            calls.text(one.host),
            one.operation,
            one.permission_type,
        )
        for resource in answer.resources
        for one in resource.acls
    ]


class NoAuthorizer(UsageError):
    """The cluster runs without an authorizer: it has no ACLs and takes none."""


class AclAdmin:
    """The topic ACLs of one cluster. Every call raises errors of Onceover and nothing of a library.

    Args:
        cluster: stays the caller's. Changes open clients of their own, when the first one is made.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client: AdminClient | None = None

    def topic_acls(self) -> frozenset[Acl]:
        """Return every ACL on topics: literal, prefixed and for all topics.

        Raises:
            NoAuthorizer: the cluster has none.
            NeedsOperator: one names topics, or allows, in a way that this release does not know: nobody can
                tell what it is about.
            UsageError: the principal may not ask.
            Retriable: no answer.
        """
        error_code, listed = self._cluster.control().call(
            DescribeAclsRequest(
                version=_DESCRIBE_VERSION,
                resource_type_filter=ResourceType.TOPIC.value,
                resource_name_filter=None,
                pattern_type_filter=ResourcePatternType.ANY.value,
                principal_filter=None,
                host_filter=None,
                operation=AclOperation.ANY.value,
                permission_type=AclPermissionType.ANY.value,
            ),
            DescribeAclsResponse,
            _listed,
        )
        if error_code:
            raise self._translated(KafkaError(error_code), "list its ACLs", "DESCRIBE")
        return frozenset(map(self._read, listed))

    def may_read(self, absent: str) -> bool:
        """Tell whether we might read a topic that does not exist: brokers look at the right first.

        Raises:
            Retriable: no answer.
        """
        return may_on_absent(self._cluster, absent, "READ")

    def may_write(self, absent: str) -> bool:
        """Tell the same of writing; nothing is written."""
        return may_on_absent(self._cluster, absent, "WRITE")

    def create(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; one that exists already is left as it is.

        Raises:
            NeedsOperator: one ``is_cut``; nothing of its request is done.
            As :meth:`topic_acls`; the ones created before the error stay.
        """
        for some in _portions(acls):
            bindings = [_exactly(AclBinding, acl) for acl in some]
            self._changed(self._open().create_acls(bindings, **_WITHIN), "create ACLs")

    def delete(self, acls: Iterable[Acl]) -> None:
        """Delete exactly these ACLs; one that is gone already is no error.

        Raises:
            As :meth:`topic_acls`; the ones deleted before the error stay deleted.
        """
        for some in _portions(acls):
            # Each of these filters matches one ACL only.
            filters = [_exactly(AclBindingFilter, acl) for acl in some]
            self._changed(self._open().delete_acls(filters, **_WITHIN), "delete ACLs")

    def _open(self) -> AdminClient:
        """Return the library's client, which takes whatever answers at an address for its cluster.

        Raises:
            NeedsOperator: FOREIGN_CLUSTER.
        """
        if self._client is None:
            self._client = open_admin(self._cluster.config)
        try:
            seen = self._client.describe_cluster(**_WITHIN).result()
        except KafkaException as error:
            raise self._translated(error.args[0], "say which cluster it is", "DESCRIBE") from error
        self._cluster.recognise(seen.cluster_id, self._cluster.config.properties["bootstrap.servers"])
        return self._client

    def _read(self, listed: _Listed) -> Acl:
        return Acl(
            self._known(ResourcePatternType, listed.pattern_type).name,
            listed.topic,
            listed.principal,
            listed.host,
            _operation(listed.operation),
            self._known(AclPermissionType, listed.permission).name,
        )

    def _known(self, kind: type[E], number: int) -> E:
        try:
            return kind(number)
        except ValueError as error:
            raise NeedsOperator(
                f"{self._cluster.alias} has an ACL of a kind that this version does not know",
                code="ACL_UNKNOWN",
                seen=f"{kind.__name__} {number}",
                resolve="set topics.sync_acls: false and sync the ACLs by hand",
            ) from error

    def _changed(self, futures: Mapping[Any, Future[Any]], what: str) -> None:
        for future in futures.values():
            try:
                future.result()
            except KafkaException as error:
                raise self._translated(error.args[0], what, "ALTER") from error

    def _translated(self, cause: Any, what: str, right: str) -> OnceoverError:
        text = f"{self._cluster.alias} did not {what}: {cause.str()}"
        if cause.code() == KafkaError.SECURITY_DISABLED:
            return NoAuthorizer(
                f"{self._cluster.alias} runs without an authorizer, so it has no ACLs and takes none",
                code="NO_AUTHORIZER",
                expected="authorizer.class.name in the brokers' configuration",
                resolve="set topics.sync_acls: false, or switch the authorizer on",
            )
        if cause.code() in (KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            return UsageError(
                text,
                code="NOT_AUTHORIZED",
                resolve=f"grant the principal {right} on the cluster {self._cluster.alias}, as listed in "
                "docs/operations.md; or set topics.sync_acls: false",
            )
        if is_temporary(cause):
            return Retriable(text, resolve=f"check that {self._cluster.alias} is up, then run again")
        return NeedsOperator(text, code="ADMIN_REFUSED")


_WITHIN: Mapping[str, float] = {"request_timeout": _TIMEOUT_S}


def _portions(acls: Iterable[Acl]) -> Iterable[list[Acl]]:
    ordered = sorted(acls)
    return (ordered[start : start + _PER_REQUEST] for start in range(0, len(ordered), _PER_REQUEST))


def _operation(number: int) -> str:
    """Return the operation's name; one that is not known must not keep the other ACLs from being read."""
    try:
        return str(AclOperation(number).name)
    except ValueError:
        return f"{UNKNOWN}_{number}"


def _exactly(kind: Callable[..., Any], acl: Acl) -> Any:
    if acl.is_cut:
        raise NeedsOperator(
            "an ACL whose principal or host holds a NUL can neither be created nor deleted from here",
            code="ACL_NUL",
            seen=str(acl),
            resolve="see to it by hand",
        )
    return kind(
        ResourceType.TOPIC,
        acl.name,
        ResourcePatternType[acl.pattern],
        acl.principal,
        acl.host,
        AclOperation[acl.operation],
        AclPermissionType[acl.permission],
    )
