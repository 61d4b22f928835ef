"""Which topic ACLs speak of the same thing, as Kafka's authorizer reads them. Pure.

A DENY that matches wins over every ALLOW. An ALLOW of some operations implies others, a DENY denies exactly
its own; only ALL is all of them in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onceover.kafka.admin.acls import DENY, EVERY_TOPIC, LITERAL, PREFIXED, Acl

ALL: Final = "ALL"
EVERY_PRINCIPAL: Final = "User:*"
_EVERY_HOST: Final = "*"
_IMPLIED: Final[Mapping[str, str]] = {
    "READ": "DESCRIBE",
    "WRITE": "DESCRIBE",
    "DELETE": "DESCRIBE",
    "ALTER": "DESCRIBE",
    "ALTER_CONFIGS": "DESCRIBE_CONFIGS",
}


def applies(acl: Acl, topic: str) -> bool:
    """Tell whether an ACL says anything about ``topic``."""
    if acl.pattern == PREFIXED:
        return topic.startswith(acl.name)
    return acl.pattern == LITERAL and acl.name in (topic, EVERY_TOPIC)


def limits(deny: Acl, allow: Acl) -> bool:
    """Tell whether somebody may lose something of ``allow`` by ``deny``; both speak of the same topic."""
    return (
        (deny.principal == allow.principal or EVERY_PRINCIPAL in (deny.principal, allow.principal))
        and (deny.host == allow.host or _EVERY_HOST in (deny.host, allow.host))
        and (
            ALL in (deny.operation, allow.operation)
            or deny.operation in (allow.operation, _IMPLIED.get(allow.operation))
        )
    )


def stands_for(standing: Acl, deny: Acl) -> bool:
    """Tell whether everybody whom ``deny`` forbids something on its topic is forbidden it by ``standing``."""
    return (
        standing.permission == DENY
        and applies(standing, deny.name)
        and standing.principal in (deny.principal, EVERY_PRINCIPAL)
        and standing.host in (deny.host, _EVERY_HOST)
        and standing.operation in (deny.operation, ALL)
    )
