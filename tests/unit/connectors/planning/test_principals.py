"""What a cluster's ACLs say of a principal that we cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.connectors.model import Isolation
from onceover.connectors.planning.access import OffsetsTopic
from onceover.connectors.planning.principals import Rights, connector_rights, may_by_acls
from onceover.connectors.settings import RoleClient
from onceover.errors import Retriable, UsageError
from onceover.kafka.admin.acls import ALLOW, DENY, LITERAL, PREFIXED, Acl, AclAdmin, NoAuthorizer
from onceover.kafka.cluster import LiveCluster

TOPIC = "connect-offsets-orders"
ME = "User:orders"


def acl(operation: str, name: str = TOPIC, **changes: str) -> Acl:
    known = {"pattern": LITERAL, "principal": ME, "host": "*", "permission": ALLOW}
    return Acl(name=name, operation=operation, **{**known, **changes})


@pytest.mark.parametrize(
    ("acls", "operation", "expected"),
    [
        ([], "WRITE", None),
        ([acl("WRITE", principal="User:other")], "WRITE", None),
        ([acl("WRITE", "connect-offsets")], "WRITE", None),
        ([acl("WRITE", "connect-offsets"), acl("WRITE", principal="User:other")], "WRITE", False),
        ([acl("READ")], "WRITE", False),
        ([acl("WRITE")], "WRITE", True),
        ([acl("ALL")], "WRITE", True),
        ([acl("WRITE", "connect-offsets", pattern=PREFIXED)], "WRITE", True),
        ([acl("WRITE", "connect-offsets-orders-", pattern=PREFIXED)], "WRITE", None),
        ([acl("WRITE", "*")], "WRITE", True),
        ([acl("WRITE", principal="User:*")], "WRITE", True),
        ([acl("READ", principal="User:*")], "WRITE", None),
        ([acl("WRITE"), acl("ALL", "connect", pattern=PREFIXED, permission=DENY)], "WRITE", False),
        ([acl("WRITE"), acl("WRITE", permission=DENY, host="10.0.0.1")], "WRITE", True),
        ([acl("WRITE")], "DESCRIBE", True),
        ([acl("CREATE")], "DESCRIBE", False),
        ([acl("READ"), acl("DESCRIBE", permission=DENY)], "DESCRIBE", False),
    ],
)
def test_acls_tell_what_a_principal_may(acls: list[Acl], operation: str, expected: bool | None) -> None:
    """One that has none may be a super user: that is not known."""
    assert may_by_acls(frozenset(acls), ME, operation, TOPIC) is expected


def found(monkeypatch: pytest.MonkeyPatch, acls: Any, silent: Any = None, **client: Any) -> Rights:
    """Return what is found of a producer that cannot be asked as itself."""

    def topic_acls(_: object) -> frozenset[Acl]:
        if isinstance(acls, Exception):
            raise acls
        return frozenset(acls)

    monkeypatch.setattr(AclAdmin, "topic_acls", topic_acls)
    cluster: Any = type("Cluster", (), {"alias": "west"})()
    site = OffsetsTopic(cluster, TOPIC, Isolation.READ_COMMITTED)
    return connector_rights(
        "orders",
        site,
        [RoleClient("producer", reason="a key store", **client)],
        {} if silent is None else silent,
        LiveCluster,
    )


def test_who_cannot_be_asked_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """And refused by name."""
    rights = found(monkeypatch, [acl("READ")], principal=ME)
    assert [(r.code, r.blocks) for r in rights.refusals] == [("NOT_AUTHORIZED", True)]
    assert f"its producer ({ME}) may not WRITE topic {TOPIC} on west" in rights.refusals[0].message
    assert found(monkeypatch, [acl("WRITE")], principal=ME) == Rights()


@pytest.mark.parametrize(
    ("acls", "principal"), [([acl("WRITE")], None), ([], ME), (UsageError("not authorized"), ME)]
)
def test_what_cannot_be_known_is_said(
    monkeypatch: pytest.MonkeyPatch, acls: object, principal: str | None
) -> None:
    """With the reason, and nothing is refused: a certificate's name, a super user, ACLs that nobody shows."""
    rights = found(monkeypatch, acls, principal=principal)
    assert rights.refusals == ()
    [doubt] = rights.doubts
    assert (
        "whether its producer may use connect-offsets-orders on west is not known here (a key store)" in doubt
    )


def test_a_login_that_cannot_be_used_here_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three clients of two connectors would wait six times for brokers that only the workers reach."""
    tried = []

    def away(*_: object) -> bool:
        tried.append(1)
        raise Retriable("no broker answers")

    monkeypatch.setattr("onceover.connectors.planning.principals._may", away)
    settings = ClientConfig("a", {"bootstrap.servers": "127.0.0.1:1"})
    silent: dict[Any, str] = {}
    for _ in range(2):
        [doubt] = found(monkeypatch, [], silent, settings=settings).doubts
        assert "(asking as User:ANONYMOUS failed: no broker answers)" in doubt
    assert tried == [1]


def test_without_an_authorizer_there_is_nothing_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody may do everything."""
    assert found(monkeypatch, NoAuthorizer("none"), principal=None) == Rights()
