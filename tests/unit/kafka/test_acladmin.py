"""What is read of a cluster's ACLs, also of those that a later Kafka has, and what is never sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceover.errors import NeedsOperator
from onceover.kafka.acladmin import Acl, AclAdmin

READ, TWO_PHASE_COMMIT = 3, 15
LITERAL, ALLOW = 3, 3


def listing(*, pattern: int = LITERAL, operation: int = READ, permission: int = ALLOW) -> AclAdmin:
    """Return the ACLs of a cluster that answers one of these kinds."""
    acl = SimpleNamespace(principal="User:ann", host="*", operation=operation, permission_type=permission)
    resource = SimpleNamespace(pattern_type=pattern, resource_name="t", acls=[acl])
    answer = SimpleNamespace(error_code=0, resources=[resource])
    connection = SimpleNamespace(call=lambda _request, _answer, read: read(answer))
    cluster: Any = SimpleNamespace(alias="east", control=lambda: connection)
    return AclAdmin(cluster)


def test_an_operation_of_a_later_kafka_is_read_by_its_number() -> None:
    """The other ACLs of the cluster are as good as before."""
    [acl] = listing(operation=TWO_PHASE_COMMIT).topic_acls()
    assert acl == Acl("LITERAL", "t", "User:ann", "*", "UNKNOWN_15", "ALLOW")
    assert acl.is_unknown
    [known] = listing().topic_acls()
    assert not known.is_unknown


@pytest.mark.parametrize("kind", [{"pattern": 9}, {"permission": 9}])
def test_an_acl_of_which_nobody_knows_what_it_is_about_raises(kind: dict[str, int]) -> None:
    """Left out it might be the DENY that counts."""
    with pytest.raises(NeedsOperator, match="of a kind that this version does not know") as caught:
        listing(**kind).topic_acls()
    assert caught.value.code == "ACL_UNKNOWN"


@pytest.mark.parametrize("change", ["create", "delete"])
@pytest.mark.parametrize(("principal", "host"), [("User:*\0x", "*"), ("User:ann", "*\0")])
def test_an_acl_that_the_library_would_cut_is_not_sent(
    change: str, principal: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one would be created, or deleted."""
    monkeypatch.setattr("onceover.kafka.acladmin.open_admin", lambda _: None)
    cluster: Any = SimpleNamespace(alias="east", config=None)
    admin = AclAdmin(cluster)
    with pytest.raises(NeedsOperator, match="holds a NUL"):
        getattr(admin, change)([Acl("LITERAL", "t", principal, host, "READ", "ALLOW")])
