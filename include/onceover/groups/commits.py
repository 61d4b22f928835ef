"""What groups have committed on both sides, read for all groups together.

Invariant: a group has what it has committed, or an error of its own; one that cannot be read is never one
that has committed nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from onceover.errors import OnceoverError, Retriable
from onceover.groups.decide import Remembered
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.groups.admin import GroupAdmin
from onceover.kafka.groups.offsets import GroupOffsets
from onceover.model import TopicPartition

Committed = Mapping[TopicPartition, CommittedOffset]
_Entries = Mapping[TopicPartition, Remembered]
_NOTHING: Final = GroupOffsets({}, frozenset())
# A reader that commits in transactions has one pending now and then, for a moment.
_PENDING_S: Final = 0.25


@dataclass(frozen=True)
class Commits:
    """One group.

    Args:
        committed: on the giving side, in partitions of the flow; ``current`` what the receiving side holds.
        others: what it has committed there in other partitions.
        last: what is remembered of it, by giving partition.
        error: why it is not known what it has committed.
        seen_s: monotonic time just before its offsets were read on the giving side.
        unseen: receiving partitions of topics that may not be described, which ``current`` does not tell of.
    """

    committed: Committed
    others: Committed
    current: GroupOffsets
    last: _Entries
    error: OnceoverError | None
    seen_s: float
    unseen: Mapping[TopicPartition, OnceoverError] = field(default_factory=dict)

    @property
    def partitions(self) -> set[TopicPartition]:
        """Giving partitions that it has committed in, or that something is remembered of."""
        return self.committed.keys() | self.last.keys()


def read_commits(
    giving: GroupAdmin | OnceoverError,
    receiving: GroupAdmin,
    remembered: Mapping[str, _Entries],
    receiving_of: Mapping[TopicPartition, TopicPartition],
) -> dict[str, Commits]:
    """Return what groups have committed.

    Args:
        giving: where they have consumed; or why that cannot be asked.
        receiving: where they go on.
        remembered: what was written for each group that is asked for, by receiving partition.
        receiving_of: the flow's receiving partitions by giving partition.
    """
    giving_of = {there: here for here, there in receiving_of.items()}
    seen_s = time.monotonic()
    groups = list(remembered)
    if isinstance(giving, OnceoverError):
        found, failed = {}, dict.fromkeys(groups, giving)
    else:
        each = giving.each_committed(groups)
        found, failed = each.found, each.failed
    mine = {
        group: {tp: offset for tp, offset in found.get(group, {}).items() if tp in receiving_of}
        for group in groups
    }
    last = {
        group: {giving_of[tp]: entry for tp, entry in entries.items() if tp in giving_of}
        for group, entries in remembered.items()
    }
    # By name: of all partitions, those with nothing but a pending commit would be left out.
    asked = {group: [receiving_of[tp] for tp in mine[group].keys() | last[group].keys()] for group in groups}
    there = receiving.each_named({group: tps for group, tps in asked.items() if tps}, _PENDING_S)
    unseen = _without_hidden(receiving, asked, there)
    return {
        group: Commits(
            mine[group],
            {tp: offset for tp, offset in found.get(group, {}).items() if tp not in receiving_of},
            there.found.get(group, _NOTHING),
            last[group],
            failed.get(group) or there.failed.get(group),
            seen_s,
            unseen.get(group, {}),
        )
        for group in groups
    }


def _without_hidden(
    receiving: GroupAdmin,
    asked: Mapping[str, Collection[TopicPartition]],
    there: Each[str, GroupOffsets],
) -> dict[str, dict[TopicPartition, OnceoverError]]:
    """Ask again about groups that were refused, without the topics that may not be described; return those.

    A coordinator answers about a group's other partitions; that one is not seen is no concern of theirs.
    """
    refused = [group for group, error in there.failed.items() if error.code == KafkaCode.NOT_AUTHORIZED]
    if not refused:
        return {}
    topics = {tp.topic for group in refused for tp in asked[group]}
    cluster = receiving.cluster
    try:
        hidden = cluster.retry(lambda: cluster.hidden_topics(topics))
    except Retriable:
        return {}
    left = {group: [tp for tp in asked[group] if tp.topic not in hidden] for group in refused}
    wanted = {group: tps for group, tps in left.items() if tps and len(tps) < len(asked[group])}
    again = receiving.each_named(wanted, _PENDING_S) if wanted else Each()
    there.failed.update(again.failed)
    for group, named in again.found.items():
        there.found[group] = named
        del there.failed[group]
    return {
        group: {tp: hidden[tp.topic] for tp in asked[group] if tp.topic in hidden} for group in again.found
    }
