"""Who needs which right where, for a migration and for the connector after it. Pure.

Invariant: one list makes the table in docs/connectors.md and what ``onceover connectors acls`` prints, so
that they never differ. Sources: KIP-618 ("Worker principal permissions", "Connector principal permissions"),
and what Kafka's brokers ask for: InitProducerId and EndTxn want WRITE on the transactional id, finding its
coordinator DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

_HEADINGS: Final = ("principal", "cluster", "resource", "operations", "why")
WORKERS_CLUSTER: Final = "workers'"


class Role(StrEnum):
    """Who logs in."""

    WORKER = "worker"
    PRODUCER = "connector's producer"
    CONSUMER = "connector's consumer"
    ADMIN = "connector's admin"
    ONCEOVER = "onceover"


@dataclass(frozen=True)
class Grant:
    """Operations on one resource that a principal has to be allowed.

    Args:
        role: who logs in; ``principal`` as brokers know it, None where the configuration does not tell.
        cluster: where: the workers' Kafka cluster, or the one that a connector's overrides name.
        kind: ``Topic``, ``Group`` or ``TransactionalId``.
        name: of the resource; ``prefixed`` when every name that begins so is meant.
        operations: as ``kafka-acls.sh`` calls them.
        why: what they are for.
    """

    role: Role
    principal: str | None
    cluster: str
    kind: str
    name: str
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False

    def document(self) -> dict[str, Any]:
        """Return it as it is printed."""
        return asdict(self)

    @property
    def row(self) -> tuple[str, ...]:
        """Its cells, as people read them."""
        who = f"{self.role} ({self.principal})" if self.principal else str(self.role)
        what = f"{self.kind} {self.name}{'*' if self.prefixed else ''}"
        return who, self.cluster, what, ", ".join(self.operations), self.why


@dataclass(frozen=True)
class OwnTopic:
    """A connector and the topic of its own.

    Args:
        connector: its name; ``topic`` where its offsets are, or will be.
        cluster: the Kafka cluster of that topic, in the words of the table.
        principals: of its own clients, as far as known.
    """

    connector: str
    topic: str
    cluster: str = WORKERS_CLUSTER
    principals: Mapping[Role, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AclTableRequest:
    """For what the table is made.

    Args:
        group_id: of the workers.
        offsets_topic: the shared offsets topic; ``config_topic``, ``status_topic`` the other two.
        exactly_once: whether the workers have it enabled.
        our_ids: what the transactional ids of Onceover's own copy begin with.
        run_ids: the same of its runs, which hold one connector each.
        runs_topic: where runs are written down.
        connectors: those that are to be migrated.
        principals: of the workers and of Onceover, as far as known.
    """

    group_id: str
    offsets_topic: str
    config_topic: str
    status_topic: str
    exactly_once: bool
    our_ids: str
    run_ids: str
    runs_topic: str
    connectors: Sequence[OwnTopic]
    principals: Mapping[Role, str] = field(default_factory=dict)


def grants(request: AclTableRequest) -> list[Grant]:
    """Return every right, by principal."""
    found = [*_worker(request)]
    for own in request.connectors:
        found += [*_connector(request, own)]
    found += [*_onceover(request)]
    for own in request.connectors:
        found += [*_onceover_connector(request, own)]
    order = list(Role)
    return sorted(_merged(found), key=lambda grant: order.index(grant.role))


def _merged(found: Iterable[Grant]) -> list[Grant]:
    """Return one row for each principal and resource."""
    rows: dict[tuple[object, ...], Grant] = {}
    for grant in found:
        key = grant.role, grant.principal, grant.cluster, grant.kind, grant.name, grant.prefixed
        known = rows.get(key)
        if known is not None:
            operations = (*known.operations, *(o for o in grant.operations if o not in known.operations))
            why = known.why if grant.why in known.why else f"{known.why}; {grant.why}"
            grant = replace(known, operations=operations, why=why)
        rows[key] = grant
    return list(rows.values())


def table(found: Iterable[Grant]) -> list[str]:
    """Return the rights as lines of text."""
    rows = [_HEADINGS, *(grant.row for grant in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _worker(request: AclTableRequest) -> Iterator[Grant]:
    def grant(kind: str, name: str, operations: tuple[str, ...], why: str) -> Grant:
        principal = request.principals.get(Role.WORKER)
        return Grant(Role.WORKER, principal, WORKERS_CLUSTER, kind, name, operations, why)

    for topic in (request.offsets_topic, request.config_topic, request.status_topic):
        operations = ("Read", "Write", "Create", "Describe", "DescribeConfigs")
        yield grant("Topic", topic, operations, "its internal topics, as ever")
    yield grant("Group", request.group_id, ("Read",), "the workers' membership, as ever")
    if request.exactly_once:
        name = f"connect-cluster-{request.group_id}"
        yield grant("TransactionalId", name, ("Write", "Describe"), "the leader writes the config topic")


def _connector(request: AclTableRequest, own: OwnTopic) -> Iterator[Grant]:
    def grant(
        role: Role, kind: str, name: str, operations: tuple[str, ...], why: str, *, prefixed: bool = False
    ) -> Grant:
        principal = own.principals.get(role)
        return Grant(role, principal, own.cluster, kind, name, operations, why, prefixed)

    tasks = f"{request.group_id}-{own.connector}-"
    yield grant(Role.PRODUCER, "Topic", own.topic, ("Write", "Describe"), "commits offsets")
    yield grant(Role.CONSUMER, "Topic", own.topic, ("Read", "Describe"), "reads offsets when tasks start")
    operations = ("Describe", "DescribeConfigs", "Create")
    yield grant(Role.ADMIN, "Topic", own.topic, operations, "reads to the end; Create unless it exists")
    if not request.exactly_once:
        return
    # Under exactly-once a task writes the shared topic by itself, on the cluster that its producer writes to.
    shared, until = request.offsets_topic, "until the migration, and after a downgrade"
    yield grant(Role.PRODUCER, "Topic", shared, ("Write", "Describe"), until)
    yield grant(Role.CONSUMER, "Topic", shared, ("Read", "Describe"), until)
    yield grant(Role.ADMIN, "Topic", shared, ("Describe", "DescribeConfigs"), until)
    ids = "TransactionalId"
    yield grant(Role.PRODUCER, ids, tasks, ("Write", "Describe"), "its tasks' transactions", prefixed=True)
    name = f"{request.group_id}-{own.connector}"
    yield grant(Role.PRODUCER, ids, name, ("Write", "Describe"), "REST calls that alter offsets")
    yield grant(Role.ADMIN, ids, tasks, ("Write", "Describe"), "fences earlier tasks", prefixed=True)


def _onceover(request: AclTableRequest) -> Iterator[Grant]:
    def grant(
        name: str, operations: tuple[str, ...], why: str, kind: str = "Topic", *, prefixed: bool = False
    ) -> Grant:
        principal = request.principals.get(Role.ONCEOVER)
        return Grant(Role.ONCEOVER, principal, WORKERS_CLUSTER, kind, name, operations, why, prefixed)

    yield grant(request.offsets_topic, ("Read", "Describe", "DescribeConfigs"), "the snapshot (Read)")
    yield grant(request.offsets_topic, ("Write",), "a downgrade (Write)")
    yield grant(request.config_topic, ("Read", "Describe"), "how many tasks are to be fenced")
    yield grant(request.group_id, ("Describe",), "whether every worker is there", kind="Group")
    ids, operations = "TransactionalId", ("Write", "Describe")
    yield grant(request.our_ids, operations, "its own transactions", ids, prefixed=True)
    state = ("Read", "Write", "Create", "Describe", "DescribeConfigs")
    yield grant(request.runs_topic, state, "what a run found and did; Create unless it exists")
    yield grant(request.run_ids, operations, "one run at a time for a connector", ids, prefixed=True)


def _onceover_connector(request: AclTableRequest, own: OwnTopic) -> Iterator[Grant]:
    def grant(
        kind: str, name: str, operations: tuple[str, ...], why: str, *, prefixed: bool = False
    ) -> Grant:
        principal = request.principals.get(Role.ONCEOVER)
        return Grant(Role.ONCEOVER, principal, own.cluster, kind, name, operations, why, prefixed)

    operations = ("Read", "Write", "Create", "Describe", "DescribeConfigs")
    yield grant("Topic", own.topic, operations, "the copy, and proving it; Create unless it exists")
    ids = "TransactionalId"
    yield grant(ids, request.our_ids, ("Write", "Describe"), "its own transactions", prefixed=True)
    if request.exactly_once:
        shared = request.offsets_topic
        yield grant("Topic", shared, ("Read", "Describe", "DescribeConfigs"), "the snapshot (Read)")
        yield grant("Topic", shared, ("Write",), "a downgrade (Write)")
        name = f"{request.group_id}-{own.connector}-"
        yield grant(ids, name, ("Write", "Describe"), "fences tasks that only seem stopped", prefixed=True)
