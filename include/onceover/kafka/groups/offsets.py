"""Committed offsets of many groups at once: as many requests as there are coordinators, not groups.

Invariant: each group has an answer that is complete, or an error of its own. What cannot be answered now
(a coordinator that moves, a transaction that is pending) is asked again behind all others, together: one
group that waits keeps nobody waiting, and a thousand wait no longer than one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from onceover.backoff import Deadline
from onceover.errors import NotNow, Retriable
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.kafka.ports import Brokers
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify

# What is asked by group: partitions, or None for all that the group has committed.
Asked: TypeAlias = Mapping[str, Collection[TopicPartition] | None]

# A group over a thousand partitions takes some 30 KB of an answer, which is bounded (100 MB).
GROUPS_AT_ONCE: Final = 200
# A transaction has written there and is not decided.
_PENDING: Final = 88


class GroupOffsets(NamedTuple):
    """What a group has committed.

    ``pending``: partitions that an open transaction commits, or has just committed, of which nothing is
    known; of a first commit only who asks for the partition by name is told.
    """

    committed: Mapping[TopicPartition, CommittedOffset]
    pending: frozenset[TopicPartition]


def fetch_committed(
    cluster: Brokers, asked: Asked, retry_s: float, pending_s: float
) -> Each[str, GroupOffsets]:
    """Return what groups have committed, nothing for a group that does not exist.

    Args:
        cluster: where the groups are.
        asked: by group. Of all partitions, each is told as it was at one of the tries; who names them is to
            write there, and is told what is committed and what is pending behind the last one.
        retry_s: how long those are asked again that could not be answered, from when all have been asked;
            ``pending_s`` likewise, those with a transaction that is not decided.

    Returns:
        Each group's stable offsets; ``failed``: ``Retriable`` where its coordinator is away, ``UsageError``
        where it may not be asked for.
    """
    each = _ask(cluster, asked)
    retry, pending = Deadline(retry_s), Deadline(pending_s)

    def ask_again() -> None:
        again = _ask(cluster, {group: asked[group] for group in _waiting(each)})
        for group in again.found:
            each.failed.pop(group, None)
        for group in again.failed:
            each.found.pop(group, None)
        for group, named in again.found.items():
            each.found[group] = named if asked[group] is not None else _joined(each.found.get(group), named)
        each.failed.update(again.failed)
        away = any(isinstance(error, Retriable) for error in each.failed.values())
        if (away and not retry.passed) or (_waiting(each) and not pending.passed):
            raise NotNow("not every group is answered")

    if _waiting(each):
        # Those that wait to the end say so by themselves.
        with suppress(Retriable):
            cluster.retry(ask_again, Deadline(max(retry_s, pending_s)))
        _renew(cluster, each, asked)
    return each


def _renew(cluster: Brokers, each: Each[str, GroupOffsets], asked: Asked) -> None:
    """Ask once more for those who are to be written to: while others were waited for they may have moved."""
    named = {group: asked[group] for group in each.found if asked[group] is not None}
    again = _ask(cluster, named)
    for group in again.failed:
        del each.found[group]
    each.found.update(again.found)
    each.failed.update(again.failed)


def _joined(before: GroupOffsets | None, now: GroupOffsets) -> GroupOffsets:
    """Keep what was told of a partition that is pending now: a moment ago it was all there was.

    A reader with many threads, each in a transaction of its own, has some pending at any moment.
    """
    known = {} if before is None else before.committed
    kept = {tp: known[tp] for tp in now.pending if tp in known}
    return GroupOffsets({**now.committed, **kept}, now.pending - kept.keys())


def _waiting(each: Each[str, GroupOffsets]) -> list[str]:
    away = [group for group, error in each.failed.items() if isinstance(error, Retriable)]
    return away + [group for group, named in each.found.items() if named.pending]


def _ask(cluster: Brokers, asked: Asked) -> Each[str, GroupOffsets]:
    """Ask once; a coordinator that does not answer is not asked about its other groups."""
    try:
        nodes = cluster.coordinator_nodes(list(asked), calls.GROUP)
    except Retriable as error:
        return Each(failed=dict.fromkeys(asked, error))
    each: Each[str, GroupOffsets] = Each(failed=dict(nodes.failed))
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


def _take(
    cluster: Brokers,
    group: str,
    answer: tuple[int, Mapping[TopicPartition, CommittedOffset]],
    each: Each[str, GroupOffsets],
) -> None:
    error, offsets = answer
    pending = frozenset(tp for tp, found in offsets.items() if found.error_code == _PENDING)
    others = ((tp, found.error_code) for tp, found in offsets.items() if tp not in pending)
    for tp, code in [(None, error), *others]:
        action = classify(Api.OFFSET_FETCH, code)
        if action is Action.REFRESH_AND_RETRY:
            cluster.forget_coordinator(group, calls.GROUP)
        if action not in (Action.OK, Action.MISSING):
            subject = f"group {group}" if tp is None else f"group {group}, {tp}"
            each.failed[group] = failure(cluster.alias, Api.OFFSET_FETCH, action, code, subject)
            return
    known = {tp: found for tp, found in offsets.items() if found.error_code == 0 and found.offset >= 0}
    each.found[group] = GroupOffsets(known, pending)


def _portions(asked: Asked) -> Iterator[Asked]:
    groups = list(asked)
    for begin in range(0, len(groups), GROUPS_AT_ONCE):
        yield {group: asked[group] for group in groups[begin : begin + GROUPS_AT_ONCE]}
