"""The ends of the logs that an audit looks at, and what decides how long records stay in them.

Invariant: a partition of which nobody tells where its log ends, or that may not be asked about, is named, and
takes nothing from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from onceover.audit.model import Reason
from onceover.audit.records.refusals import Withheld, said
from onceover.backoff import Backoff, Deadline
from onceover.errors import OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.admin.topics import Admin
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition

T = TypeVar("T")

# A leader is elected within moments; one that is away for longer keeps only its own partitions from being
# compared.
_LED_S: Final = 10.0
# What decides how long records stay, and who gives them their time.
_KEYS: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One partition's log on one side.

    Args:
        topic_id: of the topic as it is now.
        start: first offset; ``stable`` the last stable offset; ``end`` the high watermark.
        compacted: only the latest value of a key is promised to stay.
        expires: records go by age or size; otherwise only a person removes them.
        stamped: the broker stamps records itself when they arrive.
        epoch: leader epoch that it was in at the least when it was asked where it ends.
    """

    topic_id: UUID
    start: int
    stable: int
    end: int
    compacted: bool = False
    expires: bool = True
    stamped: bool = False
    epoch: int = calls.NO_EPOCH


class AskedEnds:
    """Asks one cluster where logs begin and end.

    Args:
        others_answer: the cluster has answered already, so that silence is some brokers' alone.

    Attributes:
        away: partitions that were not answered, each with the reason; they are not asked for again.
        refused: topics of which the cluster tells nothing, likewise.
    """

    def __init__(self, cluster: Cluster, *, others_answer: bool = False) -> None:
        self.cluster = cluster
        self._others_answer = others_answer
        self.away: dict[TopicPartition, Withheld] = {}
        self.refused: dict[str, Withheld] = {}

    def why_not(self, tp: TopicPartition) -> Withheld | None:
        """Return why a partition was not answered; None where it was, or nobody has asked."""
        return self.away.get(tp) or self.refused.get(tp.topic)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return the topics that exist among ``names``; without those that are ``refused``.

        Raises:
            Retriable: the cluster is away.
        """
        each = self.cluster.retry(
            lambda: described(self.cluster, [name for name in names if name not in self.refused])
        )
        self.refuse(each.failed)
        return each.found

    def refuse(self, failed: Mapping[str, OnceoverError]) -> None:
        """Note what the cluster refuses to say of topics."""
        self.refused |= {topic: _withheld(error) for topic, error in failed.items()}

    def leave_out(self, failed: Mapping[TopicPartition, OnceoverError]) -> None:
        """Note what the cluster refuses, or fails, to say of partitions."""
        self.away |= {tp: _withheld(error) for tp, error in failed.items()}

    def at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int = calls.READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """Return the offset at a time, or EARLIEST or LATEST, of all partitions that are answered.

        Whoever has no leader is waited for a little, and then left out: ``away`` says why. Whoever may not be
        asked about is left out at once.

        Raises:
            Retriable: the cluster is away.
        """
        return self._answered(
            partitions, lambda some: self.cluster.each_offset(some, timestamp_ms, isolation)
        )

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where each leader epoch ends in the log of now, -1 where that knows no such epoch.

        Raises:
            As ``at``.
        """
        found = self._answered(
            epochs, lambda some: self.cluster.each_epoch_end({tp: epochs[tp] for tp in some})
        )
        return {tp: end for tp, (_, end) in found.items()}

    def _answered(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[Sequence[TopicPartition]], Each[TopicPartition, T]],
    ) -> dict[TopicPartition, T]:
        wanted = [tp for tp in partitions if self.why_not(tp) is None]
        found: dict[TopicPartition, T] = {}
        deadline, backoff = Deadline(_LED_S), Backoff()
        while wanted:
            each = self.cluster.retry(partial(ask, wanted))
            found |= each.found
            waiting = {tp: error for tp, error in each.failed.items() if isinstance(error, Retriable)}
            self.leave_out({tp: error for tp, error in each.failed.items() if tp not in waiting})
            wanted = list(waiting)
            if wanted and deadline.passed:
                self._leave_out(waiting, nobody_answers=not (found or self._others_answer))
                break
            if wanted:
                backoff.wait(deadline)
        return found

    def _leave_out(self, failed: Mapping[TopicPartition, Retriable], *, nobody_answers: bool) -> None:
        if nobody_answers and all(error.code != KafkaCode.NO_LEADER for error in failed.values()):
            raise next(iter(failed.values()))
        self.leave_out(failed)


def described(cluster: Cluster, topics: Sequence[str]) -> Each[str, TopicInfo]:
    """Return the topics that exist, and those beside it that the cluster refuses to describe.

    Raises:
        Retriable: a topic's metadata is not available at the moment.
    """
    each = cluster.each_topic(topics)
    for error in each.failed.values():
        if isinstance(error, Retriable):
            raise error
    return each


def _withheld(error: OnceoverError) -> Withheld:
    if isinstance(error, Retriable):
        return Withheld(Reason.NO_LEADER, error.message)
    return Withheld(Reason.UNREADABLE, said(error))


def partition_logs(ends: AskedEnds, topics: Sequence[str]) -> dict[TopicPartition, PartitionLog]:
    """Return how the logs of these topics' partitions are now; without those that ``ends`` is not told of.

    A topic whose configuration may not be read is among these: what a log cleaner may take, and who gives
    records their time, would be guesses.

    Raises:
        Retriable: the cluster is away.
    """
    infos = ends.topics(topics)
    # Also what topics inherit: brokers may stamp, expire or compact what no topic says anything about.
    configs = Admin(ends.cluster).topic_configs(infos, standing=_KEYS)
    ends.refuse(configs.failures)
    return {
        tp: _log(infos[tp.topic], tp.partition, configs.standing.get(tp.topic, {}), bounds)
        for tp, bounds in log_bounds(ends, infos).items()
    }


def settled(
    ends: AskedEnds, logs: Mapping[TopicPartition, PartitionLog], wait_s: float
) -> dict[TopicPartition, PartitionLog]:
    """Wait a little for transactions that are open; keep the high watermarks of the beginning.

    What a short transaction holds back at the start is decided in a moment; the bound stays.
    """
    found = dict(logs)
    deadline, backoff = Deadline(wait_s), Backoff()
    while True:
        waiting = [tp for tp, each in found.items() if each.stable < each.end and ends.why_not(tp) is None]
        if not waiting:
            return found
        stable = ends.at(waiting, calls.LATEST)
        found.update({tp: replace(found[tp], stable=min(at, found[tp].end)) for tp, at in stable.items()})
        if deadline.passed:
            return found
        backoff.wait(deadline)


def until(log: PartitionLog, end: int) -> PartitionLog:
    """Return a log that ends there, or earlier as it does."""
    stable = min(log.stable, end)
    return replace(log, stable=stable, end=max(stable, min(log.end, end)))


def log_bounds(
    ends: AskedEnds, topics: Mapping[str, TopicInfo]
) -> dict[TopicPartition, tuple[int, int, int]]:
    """Return the start, the last stable offset and the high watermark of all partitions that are answered."""
    tps = [TopicPartition(name, number) for name, info in topics.items() for number in info.partitions]
    # The start last: what expired meanwhile must not be looked for.
    end = ends.at(tps, calls.LATEST, calls.READ_UNCOMMITTED)
    stable = ends.at(end, calls.LATEST)
    start = ends.at(stable, calls.EARLIEST)
    return {tp: (start[tp], min(stable[tp], end[tp]), end[tp]) for tp in start}


def _log(
    info: TopicInfo, partition: int, config: Mapping[str, str], bounds: tuple[int, int, int]
) -> PartitionLog:
    policies = config.get("cleanup.policy", "delete").split(",")
    kept = config.get("retention.ms") == "-1" and config.get("retention.bytes", "-1") == "-1"
    return PartitionLog(
        info.topic_id,
        *bounds,
        compacted="compact" in policies,
        expires="delete" in policies and not kept,
        stamped=config.get("message.timestamp.type") == "LogAppendTime",
        epoch=info.partitions[partition].leader_epoch,
    )
