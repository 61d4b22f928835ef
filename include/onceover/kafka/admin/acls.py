"""Reading and changing the ACLs of topics.

Invariant: a cluster that cannot say which ACLs it has (no authorizer, no right to ask) raises; an empty
set always means that there are none. What is created or deleted is what is named, to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar
from uuid import uuid4

from kafka.protocol.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType

from onceover.errors import NeedsOperator, OnceoverError, UsageError
from onceover.kafka.admin import aclcalls
from onceover.kafka.admin.aclcalls import CodedAcl
from onceover.kafka.admin.changes import AdminAnswer, changed, refused
from onceover.kafka.admin.topicfacts import may_on_absent
from onceover.kafka.codes import KafkaCode
from onceover.kafka.link.channel import Channel
from onceover.kafka.ports import Cluster

LITERAL = "LITERAL"
PREFIXED = "PREFIXED"
ALLOW = "ALLOW"
DENY = "DENY"
# A topic named "*" cannot exist: this literal name stands for every topic.
EVERY_TOPIC = "*"
# Begins the name of an operation that this release has no name for, such as UNKNOWN_15.
UNKNOWN = "UNKNOWN"

# Kafka's SECURITY_DISABLED: there is no authorizer.
_NO_AUTHORIZER = 54
# One request carries them all; a few hundred keep it far below every broker's request limit.
_PER_REQUEST = 500


E = TypeVar("E", bound=Enum)
_Request = Callable[[Channel, Sequence[CodedAcl]], Mapping[CodedAcl, AdminAnswer]]


class Acl(NamedTuple):
    """One ACL on topics; ``operation`` and ``permission`` by Kafka's names, such as READ and ALLOW.

    An operation of a later Kafka is ``UNKNOWN_`` and its number.
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
    def is_unknown(self) -> bool:
        """True where this release does not know the operation."""
        return self.operation.startswith(UNKNOWN)

    def __str__(self) -> str:
        kind = "topics beginning with" if self.pattern == PREFIXED else "topic"
        return f"{self.rule} on {kind} {self.name}"


class NoAuthorizer(UsageError):
    """The cluster runs without an authorizer: it has no ACLs and takes none."""


class AclAdmin:
    """The topic ACLs of one cluster. Every call raises errors of Onceover and nothing of a library.

    Args:
        cluster: stays the caller's. Each change has a connection of its own.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def topic_acls(self) -> frozenset[Acl]:
        """Return every ACL on topics: literal, prefixed and for all topics.

        Raises:
            NoAuthorizer: the cluster has none.
            NeedsOperator: one names topics, or allows, in a way that this release does not know: nobody can
                tell what it is about.
            UsageError: the principal may not ask.
            Retriable: no answer.
        """
        answer, coded = aclcalls.describe_topic_acls(self._cluster.control())
        if answer.error_code:
            raise self._translated(answer, "list its ACLs", "DESCRIBE")
        return frozenset(map(self._read, coded))

    def may_read(self, absent: str) -> bool:
        """Tell whether we might read a topic that does not exist: brokers look at the right first.

        Raises:
            Retriable: no answer.
        """
        return may_on_absent(self._cluster, absent, "READ")

    def may_write(self, absent: str) -> bool:
        """Tell the same of writing; nothing is written."""
        return may_on_absent(self._cluster, absent, "WRITE")

    def check_may_change(self) -> None:
        """Return where this login may change ACLs; one is deleted that nobody can have.

        Raises:
            As :meth:`delete`.
        """
        self.delete([Acl(LITERAL, "onceover", f"User:{uuid4()}", "*", "READ", ALLOW)])

    def create(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; one that exists already is left as it is.

        Raises:
            As :meth:`topic_acls`, and NeedsOperator: FOREIGN_CLUSTER, another one answers; the ones created
                before the error stay.
        """
        self._change(acls, aclcalls.create_topic_acls, "create ACLs")

    def delete(self, acls: Iterable[Acl]) -> None:
        """Delete exactly these ACLs; one that is gone already is no error.

        Raises:
            As :meth:`create`; the ones deleted before the error stay deleted.
        """
        self._change(acls, aclcalls.delete_topic_acls, "delete ACLs")

    def _change(self, acls: Iterable[Acl], request: _Request, what: str) -> None:
        for some in _portions(acls):
            for answer in self._answers(some, request):
                if answer.error_code:
                    raise self._translated(answer, what, "ALTER")

    def _answers(self, some: Sequence[Acl], request: _Request) -> Collection[AdminAnswer]:
        coded = [_coded(acl) for acl in some]
        return changed(self._cluster, lambda connection: request(connection, coded)).values()

    def _read(self, coded: CodedAcl) -> Acl:
        return Acl(
            self._known(ACLResourcePatternType, coded.pattern).name,
            coded.topic,
            coded.principal,
            coded.host,
            _operation(coded.operation),
            self._known(ACLPermissionType, coded.permission).name,
        )

    def _known(self, kind: type[E], number: int) -> E:
        try:
            return kind(number)
        except ValueError as error:
            raise NeedsOperator(
                f"{self._cluster.alias} has an ACL of a kind that this version does not know",
                code=KafkaCode.ACL_UNKNOWN,
                seen=f"{kind.__name__} {number}",
                resolve="set topics.sync_acls: false and sync the ACLs by hand",
            ) from error

    def _translated(self, answer: AdminAnswer, what: str, right: str) -> OnceoverError:
        if answer.error_code == _NO_AUTHORIZER:
            return NoAuthorizer(
                f"{self._cluster.alias} runs without an authorizer, so it has no ACLs and takes none",
                code=KafkaCode.NO_AUTHORIZER,
                expected="authorizer.class.name in the brokers' configuration",
                resolve="set topics.sync_acls: false, or switch the authorizer on",
            )
        grant = (
            f"grant the principal {right} on the cluster {self._cluster.alias}, as listed in "
            "docs/operations.md; or set topics.sync_acls: false"
        )
        return refused(self._cluster.alias, what, answer, right=f"{right} on the cluster", grant=grant)


def _portions(acls: Iterable[Acl]) -> Iterable[list[Acl]]:
    ordered = sorted(acls)
    return (ordered[start : start + _PER_REQUEST] for start in range(0, len(ordered), _PER_REQUEST))


def _operation(number: int) -> str:
    """Return the operation's name; one that is not known must not keep the other ACLs from being read."""
    try:
        return str(ACLOperation(number).name)
    except ValueError:
        return f"{UNKNOWN}_{number}"


def _coded(acl: Acl) -> CodedAcl:
    return CodedAcl(
        ACLResourcePatternType[acl.pattern],
        acl.name,
        acl.principal,
        acl.host,
        _operation_code(acl.operation),
        ACLPermissionType[acl.permission],
    )


def _operation_code(name: str) -> int:
    """Return the number that ``_operation`` has read."""
    known = ACLOperation.__members__.get(name)
    return int(name.removeprefix(f"{UNKNOWN}_")) if known is None else int(known)
