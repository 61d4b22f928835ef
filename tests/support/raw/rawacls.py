"""ACLs as a client of any language can create them: names with any character, operations by number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import CreateAclsRequest, CreateAclsResponse

from onceover.kafka.ports import Cluster

READ: Final = 3
WRITE: Final = 4
DESCRIBE: Final = 8
TWO_PHASE_COMMIT: Final = 15
DENIED, ALLOWED = 2, 3
_TOPIC: Final = 2
_LITERAL: Final = 3
_VERSION: Final = 2


class RawAcl(NamedTuple):
    """One ACL on a topic."""

    topic: str
    principal: str
    host: str = "*"
    operation: int = READ
    permission: int = ALLOWED


def create_raw(cluster: Cluster, acls: Iterable[RawAcl]) -> None:
    """Create ACLs as they are written; the broker has taken them when this returns."""
    request = CreateAclsRequest(
        version=_VERSION,
        creations=[
            (_TOPIC, acl.topic, _LITERAL, acl.principal, acl.host, acl.operation, acl.permission)
            for acl in acls
        ],
    )
    codes = cluster.control().call(request, CreateAclsResponse, _codes)
    assert set(codes) == {0}, codes


def _codes(answer: Any) -> list[int]:
    return [result.error_code for result in answer.results]
