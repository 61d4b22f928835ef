"""Whether writers are off: the ends of the source's logs, of all partitions, also ones that appear meanwhile.

Invariant: what counts as written is a batch with records, committed or not. A marker that ends a transaction
is none: a transaction that was open when the fence came may end late.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from onceover.backoff import Deadline
from onceover.drills.codes import DrillCode
from onceover.errors import NeedsOperator, OnceoverError
from onceover.kafka import calls
from onceover.kafka.each import Each, answers_in_time
from onceover.kafka.logs.between import records_between
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.shown import some
from onceover.state.records.enrolment import Enrolment

Ends = Mapping[TopicPartition, int]
_LOOK_S: Final = 0.2
# Brokers go by an ACL a moment after the controller has it, and a producer may have a batch under way.
SETTLES_S: Final = 10.0
_NAMED: Final = 3
# Records are read and counted among so many offsets.
_COUNTED: Final = 20_000
# A broker that is told to end hands its partitions over within it.
_ELECTION_S: Final = 5.0


@dataclass(frozen=True)
class SourceWatch:
    """Watches some topics of the source.

    Args:
        source: belongs to the caller.
        topics: their names.
        pause: waits so many seconds.
    """

    source: Cluster
    topics: Collection[str]
    pause: Callable[[float], object]

    def ends(self) -> dict[TopicPartition, int]:
        """Return the high watermarks of all partitions that are there now.

        Raises:
            Retriable: the source is away.
        """
        infos = self.source.retry(lambda: self.source.topics(sorted(self.topics)))
        partitions = [
            TopicPartition(info.name, number) for info in infos.values() for number in info.partitions
        ]
        return self.source.retry(
            lambda: self.source.list_offsets(partitions, calls.LATEST, calls.READ_UNCOMMITTED)
        )

    def settle(self, quiet_s: float, deadline: Deadline) -> dict[TopicPartition, int]:
        """Return the ends once nothing was written for ``quiet_s``.

        Raises:
            NeedsOperator: FENCE_LEAKS, somebody still writes after ``SETTLES_S``; LOG_CHANGED.
            Retriable: the source is away.
        """
        settles = Deadline(min(SETTLES_S, deadline.left_s))
        base, quiet = self.ends(), Deadline(quiet_s)
        while not quiet.passed:
            self.pause(min(_LOOK_S, quiet.left_s))
            now = self.ends()
            grown = self._grown(base, now, deadline)
            if grown and settles.passed:
                raise leaks(self.source.alias, grown)
            if grown:
                quiet = Deadline(quiet_s)
            base = now
        return base

    def check(self, before: Ends, deadline: Deadline) -> dict[TopicPartition, int]:
        """Return the ends as they are now, where nothing was written since ``before``.

        Raises:
            NeedsOperator: FENCE_LEAKS.
            Retriable: the source is away.
        """
        now = self.ends()
        grown = self._grown(before, now, deadline)
        if grown:
            raise leaks(self.source.alias, grown)
        return now

    def _grown(self, before: Ends, now: Ends, deadline: Deadline) -> dict[TopicPartition, int]:
        """Return as ``came_behind``; a log that has become shorter is another one by now.

        Raises:
            NeedsOperator: LOG_CHANGED; or a partition cannot be read.
            Retriable, UsageError: likewise.
        """
        shorter = sorted(tp for tp, end in before.items() if now.get(tp, -1) < end)
        if shorter:
            raise NeedsOperator(
                f"the log of {shorter[0]} on {self.source.alias} is shorter than it was a moment ago",
                code=DrillCode.LOG_CHANGED,
                where=str(shorter[0]),
                expected=f"an end at {before[shorter[0]]} or behind",
                seen=str(now.get(shorter[0], "no such partition")),
                resolve="find out who has deleted the topic, or cut its log; then plan again",
            )
        return came_behind(self.source, before, now, deadline).whole()


def came_behind(source: Cluster, before: Ends, now: Ends, deadline: Deadline) -> Each[TopicPartition, int]:
    """Return how many records came behind ``before`` until ``now``, by partition, without those with none.

    A partition that was not there before is looked at from its beginning. What the log does not hold any more
    counts by its offsets, and so does everything where it is more than ``_COUNTED``: whoever writes that much
    writes faster, perhaps, than it can be read.
    """
    grown = {tp: end - before.get(tp, 0) for tp, end in now.items() if end > before.get(tp, 0)}
    if not grown or sum(grown.values()) > _COUNTED:
        return Each(grown)
    starts = _offsets(source, sorted(grown), calls.EARLIEST, deadline)
    each = Each[TopicPartition, int](failed=starts.failed)
    for tp, start in starts.found.items():
        begin = before.get(tp, 0)
        held_from = max(begin, start)
        try:
            met = records_between(source, tp, held_from, now[tp], deadline, isolation=calls.READ_UNCOMMITTED)
            count = held_from - begin + sum(1 for _ in met)
        except OnceoverError as error:
            each.failed[tp] = error
        else:
            if count:
                each.found[tp] = count
    return each


def _offsets(
    cluster: Cluster, partitions: Collection[TopicPartition], timestamp_ms: int, deadline: Deadline
) -> Each[TopicPartition, int]:
    """Return where logs begin or end; an election is waited for, and no partition without a leader longer."""
    return answers_in_time(
        cluster.retry,
        partitions,
        lambda some: cluster.each_offset(some, timestamp_ms, calls.READ_UNCOMMITTED),
        # Whatever does not answer leaves time to count what does.
        Deadline(min(_ELECTION_S, deadline.left_s / 3)),
    )


class BehindCut(NamedTuple):
    """What stands behind the cut on the source.

    Args:
        written: how many records, by partition, as ``came_behind``.
        lost: topics that are gone, or others by now.
        unread: of which partitions nobody knows, and why.
    """

    written: dict[TopicPartition, int]
    lost: list[str]
    unread: dict[TopicPartition, OnceoverError]

    @property
    def total(self) -> int | None:
        """How many records there are in all; None where that is not known of a partition."""
        return None if self.unread else sum(self.written.values())

    @property
    def unknown(self) -> set[str]:
        """The topics of which not everything is known."""
        return {*self.lost, *(tp.topic for tp in self.unread)}


def written_behind(
    source: Cluster,
    promoted: Sequence[Enrolment],
    copied: Mapping[TopicPartition, int],
    deadline: Deadline,
) -> BehindCut:
    """Return what stands behind the cut on the source.

    Of a topic that was made anew all that it holds is behind it. One partition that cannot be read takes
    nothing from the others: it is behind the point of no return that this is asked.

    Args:
        promoted: the topics' records; ``copied`` how far they were copied, where those do not tell.

    Raises:
        Retriable: the source is away.
    """
    infos = source.retry(lambda: source.topics([each.source for each in promoted]))
    lost = [e.source for e in promoted if e.source not in infos or infos[e.source].topic_id != e.source_id]
    # Progress goes with a copy that is deleted, and says nothing of the source then.
    told = {
        tp: each.promoted.cuts[tp.partition]
        for each in promoted
        if each.promoted is not None
        for tp in each.sources()
        if tp.partition in each.promoted.cuts
    }
    cuts = {tp: at for tp, at in {**copied, **told}.items() if tp.topic not in lost}
    there = [TopicPartition(info.name, number) for info in infos.values() for number in info.partitions]
    ends = _offsets(source, sorted(there), calls.LATEST, deadline)
    came = came_behind(source, cuts, ends.found, deadline)
    return BehindCut(came.found, sorted(lost), {**ends.failed, **came.failed})


def leaks(alias: str, grown: Mapping[TopicPartition, int]) -> NeedsOperator:
    """Return what is wrong where somebody goes around the fence. Pure."""
    named = some((f"{tp} ({count} records)" for tp, count in sorted(grown.items())), _NAMED)
    return NeedsOperator(
        f"somebody still writes on {alias}: {named}",
        code=DrillCode.FENCE_LEAKS,
        where=alias,
        expected="no record behind the fence",
        seen=f"{sum(grown.values())} records",
        resolve="find out who it is (`drill plan` names the producers that brokers know; no ACL "
        "keeps a super user off), stop that one, then run it again",
    )
