"""The requests that read and change the ACLs of topics; the rules of ``kafka.calls``.

Names go as they are, whatever characters they hold: who creates or deletes means this ACL and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

from onceover.kafka import calls
from onceover.kafka.admin.changes import AdminAnswer
from onceover.kafka.link.channel import Channel

# The first with tagged fields; every broker from 2.5 on serves it.
_VERSION: Final = 2


class CodedAcl(NamedTuple):
    """An ACL on topics, its kinds as the protocol's numbers."""

    pattern: int
    topic: str
    principal: str
    host: str
    operation: int
    permission: int


def describe_topic_acls(connection: Channel) -> tuple[AdminAnswer, list[CodedAcl]]:
    """DescribeAcls v2: every ACL on topics. A cluster that cannot tell answers with an error."""
    request = DescribeAclsRequest(
        version=_VERSION,
        resource_type_filter=ACLResourceType.TOPIC,
        resource_name_filter=None,
        pattern_type_filter=ACLResourcePatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
    )
    return connection.call(request, DescribeAclsResponse, _described)


def create_topic_acls(connection: Channel, acls: Sequence[CodedAcl]) -> dict[CodedAcl, AdminAnswer]:
    """CreateAcls v2: an answer for each; one that is there already is created."""
    request = CreateAclsRequest(version=_VERSION, creations=_rows(acls))
    return connection.call(
        request,
        CreateAclsResponse,
        lambda answer: dict(zip(acls, map(_answer, answer.results), strict=True)),
    )


def delete_topic_acls(connection: Channel, acls: Sequence[CodedAcl]) -> dict[CodedAcl, AdminAnswer]:
    """DeleteAcls v2: an answer for each; one that is gone already is deleted."""
    # Each of these filters matches one ACL only.
    request = DeleteAclsRequest(version=_VERSION, filters=_rows(acls))
    return connection.call(
        request,
        DeleteAclsResponse,
        lambda answer: dict(zip(acls, map(_deleted, answer.filter_results), strict=True)),
    )


def _rows(acls: Iterable[CodedAcl]) -> list[tuple[object, ...]]:
    topic = ACLResourceType.TOPIC
    return [(topic, a.topic, a.pattern, a.principal, a.host, a.operation, a.permission) for a in acls]


def _described(answer: Any) -> tuple[AdminAnswer, list[CodedAcl]]:
    return _answer(answer), [
        CodedAcl(
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


def _deleted(result: Any) -> AdminAnswer:
    """Return the answer to a filter: its own, or that to an ACL which it found and which stays."""
    answers = [_answer(result), *map(_answer, result.matching_acls)]
    return next((answer for answer in answers if answer.error_code), answers[0])


def _answer(result: Any) -> AdminAnswer:
    return AdminAnswer(int(result.error_code), str(result.error_message or ""))
