"""Members of a classic group, with what each of them told it when it joined; the rules of ``kafka.calls``."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafka.protocol.admin.groups import DescribeGroupsRequest, DescribeGroupsResponse

from onceover.kafka import calls
from onceover.kafka.cluster import Cluster, failure
from onceover.txn.classify import Action, Api, classify

_VERSION: Final = 5


class GroupMember(NamedTuple):
    """One member; ``metadata`` is its protocol's own."""

    member_id: str
    client_host: str
    metadata: bytes


class DescribedGroup(NamedTuple):
    """A group now; ``state`` in lower case, ``dead`` when there is none."""

    state: str
    protocol: str
    members: tuple[GroupMember, ...]


def describe_group(cluster: Cluster, group: str) -> DescribedGroup:
    """Return a group as its coordinator knows it. Try again with ``Cluster.retry``.

    Raises:
        Retriable: the coordinator is away or moves.
        UsageError: not authorized to describe the group.
    """
    request = DescribeGroupsRequest(version=_VERSION, groups=[group], include_authorized_operations=False)
    error_code, found = cluster.coordinator(group, calls.GROUP).call(request, DescribeGroupsResponse, _read)
    action = classify(Api.LIST_GROUPS, error_code)
    if action is Action.REFRESH_AND_RETRY:
        cluster.forget_coordinator(group, calls.GROUP)
    if action is not Action.OK:
        raise failure(cluster.alias, Api.LIST_GROUPS, action, error_code, f"group {group}")
    return found


def _read(answer: Any) -> tuple[int, DescribedGroup]:
    [group] = answer.groups
    members = tuple(
        [GroupMember(m.member_id, m.client_host, bytes(m.member_metadata)) for m in group.members]
    )
    return group.error_code, DescribedGroup(group.group_state.lower(), group.protocol_data, members)
