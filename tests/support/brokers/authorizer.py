"""What Kafka's StandardAuthorizer answers, for topics and ordinary users. Pure.

Written from Kafka's documentation, KIP-11 and KIP-290; it shares no code with the flow's own reading of ACLs.
A DENY that matches wins over everything, without a match nothing is allowed, and only an ALLOW implies other
operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from onceover.kafka.admin.acls import Acl

TOPIC_OPERATIONS: Final = (
    "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS",
)  # fmt: skip
# Being allowed one of these is being allowed to describe; denying one of them denies nothing else.
_IMPLIED_BY: Final = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}


class Question(NamedTuple):
    """Who wants to do what with which topic, and from where."""

    principal: str
    host: str
    operation: str
    topic: str


def allows(acls: Iterable[Acl], question: Question) -> bool:
    """Tell what a broker answers that goes by these ACLs and by nothing else."""
    said = {acl.permission for acl in acls if _matches(acl, question)}
    return "ALLOW" in said and "DENY" not in said


def _matches(acl: Acl, question: Question) -> bool:
    return (
        _names(acl, question.topic)
        and acl.principal in (question.principal, "User:*")
        and acl.host in (question.host, "*")
        and _speaks_of(acl, question.operation)
    )


def _names(acl: Acl, topic: str) -> bool:
    return topic.startswith(acl.name) if acl.pattern == "PREFIXED" else acl.name in (topic, "*")


def _speaks_of(acl: Acl, operation: str) -> bool:
    if acl.operation in (operation, "ALL"):
        return True
    return acl.permission == "ALLOW" and acl.operation in _IMPLIED_BY.get(operation, ())
