"""What is read of a cluster's ACLs, also of those that a later Kafka has, and what is sent to change them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.admin.acls import Acl, AclAdmin, NoAuthorizer

READ, TWO_PHASE_COMMIT = 3, 15
LITERAL, ALLOW = 3, 3


def listing(*, pattern: int = LITERAL, operation: int = READ, permission: int = ALLOW) -> AclAdmin:
    """Return the ACLs of a cluster that answers one of these kinds."""
    acl = SimpleNamespace(principal="User:ann", host="*", operation=operation, permission_type=permission)
    resource = SimpleNamespace(pattern_type=pattern, resource_name="t", acls=[acl])
    answer = SimpleNamespace(error_code=0, error_message=None, resources=[resource])
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


class Answering:
    """A connection whose every change is answered with these codes; ``sent`` is what went over the wire."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *codes: int, on_one: int = 0) -> None:
        self.codes, self.on_one, self.sent = codes, on_one, list[tuple[object, ...]]()
        monkeypatch.setattr("onceover.kafka.admin.acls.changed", lambda _, ask: ask(self))
        cluster: Any = SimpleNamespace(alias="east", config=None)
        self.admin = AclAdmin(cluster)

    def call(self, request: Any, _response: Any, read: Any) -> Any:
        whole = type(request).decode(bytes(request.encode()), version=request.version)
        rows = whole.creations if hasattr(whole, "creations") else whole.filters
        self.sent += [self._row(row) for row in rows]
        codes = self.codes or (0,) * len(rows)
        found = [SimpleNamespace(error_code=self.on_one, error_message="on one")]
        results = [
            SimpleNamespace(error_code=code, error_message=None, matching_acls=found if self.on_one else [])
            for code in codes
        ]
        return read(SimpleNamespace(results=results, filter_results=results))

    @staticmethod
    def _row(row: Any) -> tuple[object, ...]:
        if hasattr(row, "principal"):
            return row.resource_type, row.resource_name, row.principal, row.host, row.operation
        return (
            row.resource_type_filter, row.resource_name_filter, row.principal_filter, row.host_filter,
            row.operation,
        )  # fmt: skip


CHANGES = pytest.mark.parametrize("change", ["create", "delete"])


@CHANGES
@pytest.mark.parametrize(("principal", "host"), [("User:*\0x", "*"), ("User:ann", "*\0"), ("User:ä", "")])
def test_names_are_sent_to_the_letter(
    change: str, principal: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they hold: another ACL would be created, or deleted."""
    answering = Answering(monkeypatch)
    getattr(answering.admin, change)([Acl("LITERAL", "t", principal, host, "UNKNOWN_15", "ALLOW")])
    assert answering.sent == [(2, "t", principal, host, TWO_PHASE_COMMIT)]


@CHANGES
def test_a_great_many_go_in_portions(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them once."""
    answering = Answering(monkeypatch)
    many = [Acl("LITERAL", "t", f"User:{n:04}", "*", "READ", "ALLOW") for n in range(1200)]
    getattr(answering.admin, change)(many)
    assert [row[2] for row in answering.sent] == [acl.principal for acl in many]


@CHANGES
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (31, UsageError),  # CLUSTER_AUTHORIZATION_FAILED
        (54, NoAuthorizer),  # SECURITY_DISABLED
        (41, Retriable),  # NOT_CONTROLLER
        (7, Retriable),  # REQUEST_TIMED_OUT
        (89, Retriable),  # THROTTLING_QUOTA_EXCEEDED
        (42, NeedsOperator),  # INVALID_REQUEST
        (-1, NeedsOperator),
    ],
)
def test_one_that_is_refused_raises_what_its_code_means(
    change: str, code: int, kind: type[OnceoverError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the others are done."""
    answering = Answering(monkeypatch, 0, code)
    with pytest.raises(kind) as caught:
        getattr(answering.admin, change)(
            [Acl("LITERAL", "t", f"User:{n}", "*", "READ", "ALLOW") for n in "ab"]
        )
    assert type(caught.value) is kind and "east" in caught.value.message


def test_one_that_is_found_and_stays_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter has done what it should, the deletion has not."""
    answering = Answering(monkeypatch, on_one=31)
    with pytest.raises(UsageError, match=r"did not delete ACLs \(error 31"):
        answering.admin.delete([Acl("LITERAL", "t", "User:a", "*", "READ", "ALLOW")])
