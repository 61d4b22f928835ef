"""Committed offsets of many groups at once: as many requests as there are coordinators, not groups.

Invariant: each group has an answer that is complete, or an error of its own. What cannot be answered now
(a coordinator that moves, a transaction that is pending) is asked again behind all others, together: one
group that waits keeps nobody waiting, and a thousand wait no longer than one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from onceover.errors import OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.backoff import Deadline
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.cluster import Cluster
from onceover.kafka.each import Each
from onceover.model import TopicPartition

# What is asked by group: partitions, or None for all that the group has committed.
Asked: TypeAlias = Mapping[str, Collection[TopicPartition] | None]
Committed: TypeAlias = dict[TopicPartition, CommittedOffset]

# A group over a thousand partitions takes some 30 KB of an answer, which is bounded (100 MB).
GROUPS_AT_ONCE: Final = 200


def fetch_committed(cluster: Cluster, asked: Asked, retry_s: float) -> Each[str, Committed]:
    """Return what groups have committed, nothing for a group that does not exist.

    Args:
        cluster: where the groups are.
        asked: by group; of partitions that are named, a first commit that is pending is noticed, too.
        retry_s: how long those are asked again that could not be answered, from when all have been asked.

    Returns:
        Each group's stable offsets; ``failed``: ``Retriable`` where its coordinator is away or a transaction
        stays open, ``UsageError`` where it may not be asked for.
    """
    each = _ask(cluster, asked)

    def ask_again() -> None:
        waiting = {group: asked[group] for group in _waiting(each)}
        again = _ask(cluster, waiting)
        for group in again.found:
            del each.failed[group]
        each.found.update(again.found)
        each.failed.update(again.failed)
        for error in _waiting(each).values():
            raise error

    if _waiting(each):
        # Those that wait to the end have their error beside them.
        with suppress(Retriable):
            cluster.retry(ask_again, Deadline(retry_s))
    return each


def _waiting(each: Each[str, Committed]) -> dict[str, Retriable]:
    return {group: error for group, error in each.failed.items() if isinstance(error, Retriable)}


def _ask(cluster: Cluster, asked: Asked) -> Each[str, Committed]:
    """Ask once; a coordinator that does not answer is not asked about its other groups."""
    try:
        nodes = cluster.coordinator_nodes(list(asked), calls.GROUP)
    except Retriable as error:
        return Each(failed=dict.fromkeys(asked, error))
    each: Each[str, Committed] = Each(failed=dict(nodes.failed))
    for node in sorted(set(nodes.found.values())):
        mine = {group: asked[group] for group, found in nodes.found.items() if found == node}
        try:
            for some in _portions(mine):
                answers = calls.offset_fetch(cluster.control(node), some, stable=True)
                for group, answer in answers.items():
                    _take(cluster, group, answer, each)
        except Retriable as error:
            for group in mine.keys() - each.found.keys() - each.failed.keys():
                cluster.forget_coordinator(group, calls.GROUP)
                each.failed[group] = error
    return each


def _take(cluster: Cluster, group: str, answer: tuple[int, Committed], each: Each[str, Committed]) -> None:
    try:
        each.found[group] = cluster.answered_offsets(group, *answer).whole()
    except OnceoverError as error:
        each.failed[group] = error


def _portions(asked: Asked) -> Iterator[Asked]:
    groups = list(asked)
    for begin in range(0, len(groups), GROUPS_AT_ONCE):
        yield {group: asked[group] for group in groups[begin : begin + GROUPS_AT_ONCE]}
