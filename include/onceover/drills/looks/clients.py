"""Who uses a flow's topics on a cluster: members of consumer groups, producers and transactions.

Invariant: what is not known is said, never counted as nobody. A producer that does not number its batches is
known to no broker: that somebody writes who is not known shows in the ends of the logs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from onceover.advice import advised
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.kafka.codes import KafkaCode
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.groups.calls import CLASSIC
from onceover.kafka.groups.members import DescribedGroup, describe_consumer_group, describe_group
from onceover.kafka.logs.usage import ActiveProducer, ListedTransaction, active_producers, transactions
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition

CONSUMER: Final = "consumer"
_DESCRIBED: Final = {CLASSIC: describe_group, CONSUMER: describe_consumer_group}
_EMPTY: Final = ("empty", "dead")
_STABLE: Final = "stable"


class Consumer(NamedTuple):
    """A member of a group that reads the flow's topics now."""

    group: str
    client_id: str
    host: str
    topics: tuple[str, ...]


class Producer(NamedTuple):
    """A producer that has written to the flow's topics, or does.

    Args:
        transactional_id: None for one without, or whose id nobody may tell us.
        last_ms: timestamp of its newest batch there, by the clock that stamps the topic's records; None where
            the leader does not know it. It says when somebody wrote, not that somebody does: leaders remember
            a producer for a day.
        open_in: partitions in which it has a transaction open.
    """

    producer_id: int
    transactional_id: str | None
    topics: tuple[str, ...]
    last_ms: int | None
    open_in: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class ClientsSeen:
    """Who was seen on one cluster.

    Args:
        alias: of the cluster.
        unseen: why some may not have been seen.
    """

    alias: str
    consumers: tuple[Consumer, ...] = ()
    producers: tuple[Producer, ...] = ()
    unseen: tuple[OnceoverError, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "cluster": self.alias,
            "consumers": [
                {"group": c.group, "client_id": c.client_id, "host": c.host, "topics": list(c.topics)}
                for c in self.consumers
            ],
            "producers": [
                {
                    "producer_id": p.producer_id,
                    "transactional_id": p.transactional_id,
                    "topics": list(p.topics),
                    "last_ms": p.last_ms,
                    "open_transaction_in": [str(tp) for tp in p.open_in],
                }
                for p in self.producers
            ],
            "unseen": [error.as_dict() for error in self.unseen],
        }

    def describe(self) -> list[str]:
        """Return it as lines of text."""
        lines = [
            f"  group {c.group}: {c.client_id} at {c.host} reads {', '.join(c.topics)}"
            for c in self.consumers
        ]
        for p in self.producers:
            name = p.transactional_id or f"producer id {p.producer_id}"
            # As the protocol has it: not every transaction that is open is known to hang.
            opened = f", with a transaction open in {', '.join(map(str, p.open_in))}" if p.open_in else ""
            lines.append(f"  {name} has written to {', '.join(p.topics)}{opened}")
        lines += [f"  not all of them are known: {advised(error.as_dict())}" for error in self.unseen]
        return lines or ["  nobody that the brokers know of"]


def look(cluster: Cluster, partitions: Collection[TopicPartition]) -> ClientsSeen:
    """Return who uses these partitions now.

    Raises:
        Retriable: no broker of the cluster answers.
    """
    topics = {tp.topic for tp in partitions}
    found, unseen = consumers(cluster, topics)
    each = active_producers(cluster, partitions)
    listed, unheard = transactions(cluster)
    producers = writers(each.found, listed)
    problems = {str(error): error for error in (*unseen, *each.failed.values(), *unheard)}
    return ClientsSeen(cluster.alias, tuple(found), tuple(producers), tuple(problems.values()))


def consumers(
    cluster: Cluster, topics: Collection[str], selects: Callable[[str], bool] = lambda _: True
) -> tuple[list[Consumer], list[OnceoverError]]:
    """Return the members of groups that read one of the topics, and why some may not have been seen.

    Args:
        selects: tells of which groups.

    Raises:
        Retriable: no broker of the cluster answers.
    """
    listing = GroupAdmin(cluster).groups()
    unseen = list(listing.unheard)
    found: list[Consumer] = []
    for name, group in sorted(listing.groups.items()):
        if group.state in _EMPTY or not selects(name):
            continue
        describe = _DESCRIBED.get(group.type)
        if describe is None:
            unseen.append(_not_asked(cluster.alias, name, group.type))
            continue
        try:
            described = describe(cluster, name)
        except OnceoverError as error:
            unseen.append(error)
            continue
        found += readers(name, described, topics)
        unseen += unsettled(cluster.alias, name, described)
    return found, unseen


def _not_asked(alias: str, group: str, kind: str) -> NeedsOperator:
    return NeedsOperator(
        f"group {group} is a {kind} group with members on {alias}, which are not asked what they read",
        code=KafkaCode.HAS_MEMBERS,
        where=alias,
        expected="groups of consumers",
        seen=f"a {kind} group",
        resolve=f"see who they are (kafka-{kind}-groups.sh --describe --members); without any it is in order",
    )


def unsettled(alias: str, name: str, group: DescribedGroup) -> list[OnceoverError]:
    """Return why members of a group may read one of the topics although nothing says so yet. Pure.

    While a group rebalances, its coordinator tells who is in it, and not what anybody reads.
    """
    if group.state == _STABLE or not group.members:
        return []
    return [
        Retriable(
            f"group {name} on {alias} is {group.state}: nobody can tell what its members read",
            code=KafkaCode.HAS_MEMBERS,
            where=alias,
            resolve="wait until it is stable, then run again",
        )
    ]


def readers(name: str, group: DescribedGroup, topics: Collection[str]) -> list[Consumer]:
    """Return the members of a group that read one of the topics. Pure."""
    return [
        Consumer(
            name, member.client_id, member.client_host.lstrip("/"), tuple(sorted(member.topics & set(topics)))
        )
        for member in group.members
        if member.topics & set(topics)
    ]


def writers(
    active: Mapping[TopicPartition, Iterable[ActiveProducer]],
    listed: Iterable[ListedTransaction],
) -> list[Producer]:
    """Return each producer once, with all that it writes to. Pure."""
    named = {one.producer_id: one.transactional_id for one in listed}
    by_id: dict[int, list[tuple[TopicPartition, ActiveProducer]]] = {}
    for tp, several in sorted(active.items()):
        for one in several:
            by_id.setdefault(one.producer_id, []).append((tp, one))
    return [
        Producer(
            producer_id,
            named.get(producer_id),
            tuple(sorted({tp.topic for tp, _ in uses})),
            max((one.last_ms for _, one in uses if one.last_ms >= 0), default=None),
            tuple(tp for tp, one in uses if one.transaction_start >= 0),
        )
        for producer_id, uses in sorted(by_id.items())
    ]
