"""Changes of what a cluster keeps beside its records, such as topics and ACLs: by a connection of their own.

Changes are rare, and each logs in with what is valid then. Where another cluster answers than the one that
is meant, nothing is changed (FOREIGN_CLUSTER).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from kafka.errors import for_code
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.codes import KafkaCode
from onceover.kafka.link.channel import Channel
from onceover.kafka.ports import Cluster

T = TypeVar("T")
K = TypeVar("K")

_NOT_CONTROLLER: Final = 41
# What passes by itself: leaders, replicas or the controller are on their way (5 to 9, 13 to 16, 19, 20, 41,
# 56), a transaction is (51), or a quota is used up (89). UNKNOWN_TOPIC_OR_PARTITION is not among them: the
# callers ask metadata whether it is gone.
_TEMPORARY: Final = frozenset({5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, _NOT_CONTROLLER, 51, 56, 89})
# TOPIC_, GROUP_ and CLUSTER_AUTHORIZATION_FAILED.
_UNAUTHORIZED: Final = frozenset({29, 30, 31})
_GRANT: Final = "grant the principal the rights listed in docs/operations.md"


class AdminAnswer(NamedTuple):
    """What is answered about one thing, and in which words; the words may be missing."""

    error_code: int
    message: str

    @property
    def words(self) -> str:
        """Return the broker's words, or Kafka's name of the error, with its code."""
        return f"{self.message or for_code(self.error_code).__name__} (error {self.error_code})"


def refused(
    alias: str,
    what: str,
    answer: AdminAnswer,
    *,
    right: str,
    code: KafkaCode = KafkaCode.ADMIN_REFUSED,
    grant: str = _GRANT,
) -> OnceoverError:
    """Return the error that any answer but OK stands for: temporary, a right that is missing, or a person's.

    Args:
        alias: of the cluster that has answered.
        what: it was asked to do.
        right: which that takes, such as ``CREATE on the topic``: the broker's own words do not name it, or
            only behind a page of its inner state.
        code: of what neither passes by itself nor is about rights.
        grant: how a right that is missing is given.
    """
    if answer.error_code in _UNAUTHORIZED:
        text = f"{alias} did not {what} (error {answer.error_code}, not authorized, it takes {right})"
        return UsageError(text, code=KafkaCode.NOT_AUTHORIZED, resolve=grant)
    text = f"{alias} did not {what}: {answer.words}"
    if answer.error_code in _TEMPORARY:
        return Retriable(text, resolve=f"check that {alias} is up, then run again")
    return NeedsOperator(text, code=code)


def asked(meant: Cluster, ask: Callable[[Channel], T]) -> T:
    """Ask any broker, once one is there.

    Raises:
        Retriable: none is.
        UsageError: it does not let us in.
        NeedsOperator: FOREIGN_CLUSTER.
    """
    with _opened(meant) as cluster:
        return ask(cluster.retry(cluster.control))


def changed(meant: Cluster, ask: Callable[[Channel], Mapping[K, AdminAnswer]]) -> Mapping[K, AdminAnswer]:
    """Ask likewise for changes; in a cluster with ZooKeeper the controller makes them, and no other.

    Raises:
        As ``asked``.
    """
    with _opened(meant) as cluster:
        connection = cluster.retry(cluster.control)
        answers = ask(connection)
        if any(answer.error_code == _NOT_CONTROLLER for answer in answers.values()):
            answers = ask(cluster.control(controller(connection)))
        return answers


def controller(connection: Channel) -> int:
    """Metadata v12: the broker that changes have to go to in a cluster with ZooKeeper."""
    request = MetadataRequest(
        version=12, topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    return connection.call(request, MetadataResponse, lambda answer: int(answer.controller_id))


def _opened(meant: Cluster) -> Cluster:
    # Asked before: another one that has met no cluster yet would believe the first that answers.
    meant.cluster_id()
    return meant.another()
