"""The requests about consumer groups that only the moving of groups needs; the rules of ``kafka.calls``.

The version of ListGroups is chosen by what the very broker says that it speaks: before v5 (Kafka 3.8) there
are no types, and every group is a classic one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer.group import OffsetDeleteRequest, OffsetDeleteResponse

from onceover.kafka import calls
from onceover.kafka.link.channel import Channel
from onceover.model import TopicPartition

LIST_GROUPS_KEY: Final = 16
_TYPES_SINCE: Final = 5
_STATES_SINCE: Final = 4
CLASSIC: Final = "classic"


class ListedGroup(NamedTuple):
    """One group as ListGroups names it; type and state in lower case."""

    group_id: str
    type: str
    state: str


def list_groups(connection: Channel, version: int) -> tuple[int, list[ListedGroup]]:
    """ListGroups v4 or v5: error code, and the groups that this very broker coordinates.

    A group that the principal may not describe is left out, without an error.
    """
    request = ListGroupsRequest(version=version, states_filter=[], types_filter=[])

    def read(answer: Any) -> tuple[int, list[ListedGroup]]:
        return answer.error_code, [
            ListedGroup(
                calls.text(g.group_id),
                g.group_type.lower() if version >= _TYPES_SINCE else CLASSIC,
                g.group_state.lower(),
            )
            for g in answer.groups
        ]

    return connection.call(request, ListGroupsResponse, read)


def lists_all_groups(connection: Channel) -> bool:
    """DescribeCluster v0: whether ListGroups leaves none out, as for who may describe the cluster."""
    request = DescribeClusterRequest(version=0, include_cluster_authorized_operations=True)

    def read(answer: Any) -> bool:
        # The codec has taken the bit field apart.
        return answer.error_code == 0 and calls.AclOperation.DESCRIBE in (answer.authorized_operations or ())

    return connection.call(request, DescribeClusterResponse, read)


def list_groups_version(connection: Channel) -> int:
    """Return the newest version of ListGroups that both sides speak."""
    newest = calls.api_versions(connection).newest.get(LIST_GROUPS_KEY, _STATES_SINCE)
    return max(_STATES_SINCE, min(_TYPES_SINCE, newest))


def delete_group(connection: Channel, group: str) -> int:
    """DeleteGroups v2: the group's error code."""
    request = DeleteGroupsRequest(version=2, groups_names=[group])
    return connection.call(request, DeleteGroupsResponse, lambda answer: int(answer.results[0].error_code))


def offset_delete(
    connection: Channel, group: str, partitions: Iterable[TopicPartition]
) -> tuple[int, dict[TopicPartition, int]]:
    """OffsetDelete v0: the group's error code, and that of each partition."""
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    request = OffsetDeleteRequest(
        version=0,
        group_id=group,
        topics=[(topic, [(p,) for p in numbers]) for topic, numbers in topics.items()],
    )
    return connection.call(
        request, OffsetDeleteResponse, lambda answer: (answer.error_code, calls.partition_codes(answer))
    )
