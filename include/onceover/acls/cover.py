"""Which topic ACLs speak of the same thing, as Kafka's authorizer reads them. Pure.

A DENY that matches wins over every ALLOW. An ALLOW of some operations implies others, a DENY denies exactly
its own; only ALL is all of them in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
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


class AclsByTopic:
    """ACLs, found by a topic that they speak of: each looked at for each topic, thousands of both take many
    seconds, in which a driver shows no sign of life."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._literal: defaultdict[str, list[Acl]] = defaultdict(list)
        self._prefixed: defaultdict[str, list[Acl]] = defaultdict(list)
        for acl in acls:
            if acl.pattern in (LITERAL, PREFIXED):
                (self._prefixed if acl.pattern == PREFIXED else self._literal)[acl.name].append(acl)

    def of(self, topic: str) -> list[Acl]:
        """Return those that ``applies`` is true of."""
        beginnings = (topic[:length] for length in range(len(topic) + 1))
        found = [acl for name in {topic, EVERY_TOPIC} for acl in self._literal.get(name, ())]
        return found + [acl for name in beginnings for acl in self._prefixed.get(name, ())]


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
