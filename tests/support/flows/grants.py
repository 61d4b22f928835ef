"""The rights of docs/operations.md, granted to a flow's user: what it says must be enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from onceover_lab.embed.kafka import KafkaCluster
from tests.support.session.wait import wait_until

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.BROKER,
    ResourceType.TRANSACTIONAL_ID,
)
CLUSTER_NAME: Final = "kafka-cluster"
_TIMEOUT_S = 30.0
_ANY: Final = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)

Right = tuple[ResourceType, str, bool, str]


def source_rights(flow: str) -> list[Right]:
    """Return resource, name, whether it is a prefix, and operations, as the first table says."""
    return [
        (TOPIC, flow, True, "READ DESCRIBE DESCRIBE_CONFIGS"),
        (GROUP, f"onceover-lag.{flow}", False, "READ"),
        (CLUSTER, CLUSTER_NAME, False, "DESCRIBE"),
    ]


def target_rights(flow: str) -> list[Right]:
    """Return the rights on the target, those for ``topics.sync_acls`` included."""
    return [
        (TOPIC, flow, True, "WRITE READ DESCRIBE CREATE ALTER DESCRIBE_CONFIGS ALTER_CONFIGS"),
        (TOPIC, "__onceover.", True, "READ DESCRIBE"),
        (TOPIC, f"__onceover.{flow}.", True, "WRITE CREATE DESCRIBE_CONFIGS ALTER_CONFIGS"),
        (GROUP, f"onceover.{flow}", False, "READ"),
        (TRANSACTIONAL_ID, f"onceover.{flow}.", True, "WRITE DESCRIBE"),
        (CLUSTER, CLUSTER_NAME, False, "DESCRIBE ALTER"),
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
    """Grant ``rights`` to the cluster's ordinary user; they hold when this returns."""
    _create(_admin(cluster), _bindings(cluster, rights))


@contextmanager
def granted(cluster: KafkaCluster, rights: Iterable[Right]) -> Iterator[None]:
    """Grant ``rights`` meanwhile; there may be none."""
    bindings = _bindings(cluster, rights)
    if not bindings:
        yield
        return
    admin = _admin(cluster)
    _create(admin, bindings)
    try:
        yield
    finally:
        _delete(admin, bindings)


@contextmanager
def denied(cluster: KafkaCluster, *rights: Right) -> Iterator[None]:
    """Take rights away from the cluster's ordinary user meanwhile; what was granted gives way."""
    bindings = _bindings(cluster, rights, AclPermissionType.DENY)
    admin = _admin(cluster)
    _create(admin, bindings)
    try:
        yield
    finally:
        _delete(admin, bindings)


def revoke_all(cluster: KafkaCluster) -> None:
    """Leave nobody a right, or the want of one, that was written down."""
    admin = _admin(cluster)
    admin.delete_acls([_ANY])[_ANY].result(_TIMEOUT_S)
    _await(admin, lambda held: not held, "no right is left")


def _admin(cluster: KafkaCluster) -> AdminClient:
    """Come through the brokers' own door: clients may be led elsewhere."""
    return AdminClient({"bootstrap.servers": cluster.internal_bootstrap})


def _create(admin: AdminClient, bindings: list[AclBinding]) -> None:
    for future in admin.create_acls(bindings).values():
        future.result(_TIMEOUT_S)
    _await(admin, lambda held: held >= set(bindings), "the rights hold")


def _delete(admin: AdminClient, bindings: list[AclBinding]) -> None:
    for future in admin.delete_acls([_filter(binding) for binding in bindings]).values():
        future.result(_TIMEOUT_S)
    _await(admin, lambda held: held.isdisjoint(bindings), "the brokers go by it no more")


def _await(admin: AdminClient, enough: Callable[[set[AclBinding]], bool], what: str) -> None:
    """Wait until the broker goes by it: the controller answers, the broker learns of it a bit later."""
    wait_until(lambda: enough(set(admin.describe_acls(_ANY).result(_TIMEOUT_S))), _TIMEOUT_S, what)


def _filter(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


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
