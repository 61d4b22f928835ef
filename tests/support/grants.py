"""The rights of docs/operations.md, granted to a flow's user: what it says must be enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from onceover.embed.kafka import KafkaCluster

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.BROKER,
    ResourceType.TRANSACTIONAL_ID,
)
_CLUSTER_NAME: Final = "kafka-cluster"
_TIMEOUT_S = 30.0

Right = tuple[ResourceType, str, bool, str]


def source_rights(flow: str) -> list[Right]:
    """Return resource, name, whether it is a prefix, and operations, as the first table says."""
    return [
        (TOPIC, flow, True, "READ DESCRIBE DESCRIBE_CONFIGS"),
        (GROUP, f"onceover-lag.{flow}", False, "READ"),
        (CLUSTER, _CLUSTER_NAME, False, "DESCRIBE"),
    ]


def target_rights(flow: str) -> list[Right]:
    """Return the rights on the target, those for ``topics.sync_acls`` included."""
    return [
        (TOPIC, flow, True, "WRITE READ DESCRIBE CREATE ALTER DESCRIBE_CONFIGS ALTER_CONFIGS"),
        (TOPIC, "__onceover.", True, "READ WRITE DESCRIBE CREATE"),
        (GROUP, f"onceover.{flow}", False, "READ"),
        (TRANSACTIONAL_ID, f"onceover.{flow}.", True, "WRITE DESCRIBE"),
        (CLUSTER, _CLUSTER_NAME, False, "DESCRIBE ALTER"),
    ]


def mirror_rights(flow: str, alias: str) -> tuple[list[Right], list[Right]]:
    """Return what MirrorMaker's records take in addition, as docs/mirrormaker-output.md says: on the source,
    and on the target. Groups begin with the flow's name; ``alias`` is the source's."""
    operations = "WRITE DESCRIBE CREATE DESCRIBE_CONFIGS"
    topics = (
        f"{alias}.checkpoints.internal",
        f"mm2-offset-syncs.{alias}.internal",
        "heartbeats",
        f"{alias}.heartbeats",
    )
    groups = [(GROUP, flow, True, "DESCRIBE")]
    return groups, [*groups, *((TOPIC, topic, False, operations) for topic in topics)]


def adoption_rights(source: str, target: str) -> tuple[list[Right], list[Right]]:
    """Return what taking over from MirrorMaker takes in addition, as docs/adopting-mirrormaker.md says: on
    the source, and on the target, where each is asked for in this order. Arguments are aliases."""
    topics = [f"mm2-offset-syncs.{source}.internal", f"mm2-offsets.{source}.internal"]
    topics += [f"mm2-configs.{source}.internal"]
    return [(TOPIC, f"mm2-offset-syncs.{target}.internal", False, "READ")], [
        (GROUP, f"{source}-mm2", False, "DESCRIBE"),
        *((TOPIC, topic, False, "READ") for topic in topics),
        (TRANSACTIONAL_ID, f"{source}-mm2-", True, "WRITE"),
    ]


def grant(cluster: KafkaCluster, rights: Iterable[Right]) -> None:
    """Grant ``rights`` to the cluster's ordinary user."""
    _settle(AdminClient(cluster.admin_client).create_acls, _bindings(cluster, rights))


@contextmanager
def denied(cluster: KafkaCluster, *rights: Right) -> Iterator[None]:
    """Take rights away from the cluster's ordinary user meanwhile; what was granted gives way."""
    bindings = _bindings(cluster, rights, AclPermissionType.DENY)
    filters = [
        AclBindingFilter(b.restype, b.name, b.resource_pattern_type, b.principal, b.host, b.operation,
                         b.permission_type)
        for b in bindings
    ]  # fmt: skip
    _settle(AdminClient(cluster.admin_client).create_acls, bindings)
    try:
        yield
    finally:
        _settle(AdminClient(cluster.admin_client).delete_acls, filters)


def _settle(change: Callable[[list[Any]], dict[Any, Future[Any]]], acls: list[Any]) -> None:
    for future in change(acls).values():
        future.result(_TIMEOUT_S)


def _bindings(
    cluster: KafkaCluster, rights: Iterable[Right], permission: AclPermissionType = AclPermissionType.ALLOW
) -> list[AclBinding]:
    if cluster.security is None:
        raise ValueError(f"{cluster.name} has no users")
    principal = f"User:{cluster.security.username}"
    return [
        AclBinding(
            kind,
            name,
            ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL,
            principal,
            "*",
            AclOperation[operation],
            permission,
        )
        for kind, name, prefix, operations in rights
        for operation in operations.split()
    ]
