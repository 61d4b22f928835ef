"""Members of a group of either protocol, with what each told when it joined; the rules of ``kafka.calls``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, TypeVar

from kafka.protocol.admin.groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from onceover.errors import OnceoverError, UsageError
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.groups.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from onceover.kafka.ports import Brokers
from onceover.txn.classify import Action, Api, classify

_VERSION: Final = 5
_CONSUMER_PROTOCOL: Final = "consumer"
_GROUP_AUTHORIZATION_FAILED: Final = 30
T = TypeVar("T")


class GroupMember(NamedTuple):
    """One member.

    Args:
        metadata: its protocol's own, of a classic group.
        topics: of the partitions that it is assigned; none where its protocol is not that of consumers.
    """

    member_id: str
    client_id: str
    client_host: str
    metadata: bytes = b""
    topics: frozenset[str] = frozenset()


class DescribedGroup(NamedTuple):
    """A group now; ``state`` in lower case, ``dead`` when there is none."""

    state: str
    protocol: str
    members: tuple[GroupMember, ...]


def describe_group(cluster: Brokers, group: str) -> DescribedGroup:
    """Return a classic group as its coordinator knows it. Try again with ``Cluster.retry``.

    Raises:
        Retriable: the coordinator is away or moves.
        UsageError: not authorized to describe the group.
    """
    request = DescribeGroupsRequest(version=_VERSION, groups=[group], include_authorized_operations=False)
    return _asked(cluster, group, request, DescribeGroupsResponse, _read_classic)


def describe_consumer_group(cluster: Brokers, group: str) -> DescribedGroup:
    """Return a group of the new protocol (KIP-848), likewise."""
    request = ConsumerGroupDescribeRequest(version=0, group_ids=[group], include_authorized_operations=False)
    return _asked(cluster, group, request, ConsumerGroupDescribeResponse, _read_consumer)


def check_may_commit(cluster: Brokers, group: str) -> None:
    """Return where nothing forbids us to commit positions of a group. Changes nothing, and reads none.

    Try again with ``Cluster.retry``. Who does not say what is allowed refuses the commit itself, later.

    Raises:
        UsageError: READ on the group is missing.
        Retriable: the coordinator is away or moves.
    """
    request = DescribeGroupsRequest(version=_VERSION, groups=[group], include_authorized_operations=True)

    def read(answer: Any) -> tuple[int, Collection[int] | None]:
        [described] = answer.groups
        return described.error_code, described.authorized_operations

    try:
        allowed = _asked(cluster, group, request, DescribeGroupsResponse, read)
    except UsageError as error:
        # READ brings along what it takes to ask.
        raise _refused(cluster, group) from error
    if allowed is not None and calls.AclOperation.READ not in allowed:
        raise _refused(cluster, group)


def _refused(cluster: Brokers, group: str) -> OnceoverError:
    code = _GROUP_AUTHORIZATION_FAILED
    return failure(cluster.alias, Api.TXN_OFFSET_COMMIT, Action.UNAUTHORIZED, code, f"group {group}")


def _asked(
    cluster: Brokers,
    group: str,
    request: Any,
    response: Any,
    read: Callable[[Any], tuple[int, T]],
) -> T:
    error_code, found = cluster.coordinator(group, calls.GROUP).call(request, response, read)
    action = classify(Api.LIST_GROUPS, error_code)
    if action is Action.REFRESH_AND_RETRY:
        cluster.forget_coordinator(group, calls.GROUP)
    if action is not Action.OK:
        raise failure(cluster.alias, Api.LIST_GROUPS, action, error_code, f"group {group}")
    return found


def _read_classic(answer: Any) -> tuple[int, DescribedGroup]:
    [group] = answer.groups
    consumers = group.protocol_type == _CONSUMER_PROTOCOL

    def topics(assignment: bytes) -> frozenset[str]:
        # A group that rebalances has assigned nothing yet.
        if not consumers or not assignment:
            return frozenset()
        assigned = ConsumerProtocolAssignment.decode(assignment).assigned_partitions
        return frozenset(calls.text(one.topic) for one in assigned)

    members = tuple(
        GroupMember(
            m.member_id,
            m.client_id,
            m.client_host,
            bytes(m.member_metadata),
            topics(bytes(m.member_assignment)),
        )
        for m in group.members
    )
    return group.error_code, DescribedGroup(group.group_state.lower(), group.protocol_data, members)


def _read_consumer(answer: Any) -> tuple[int, DescribedGroup]:
    [group] = answer.groups
    members = tuple(
        GroupMember(
            m.member_id,
            m.client_id,
            m.client_host,
            topics=frozenset(calls.text(one.topic_name) for one in m.assignment.topic_partitions),
        )
        for m in group.members
    )
    return group.error_code, DescribedGroup(group.group_state.lower(), group.assignor_name, members)
