"""The ends of the logs that an audit looks at, and what decides how long records stay in them.

Invariant: a partition of which nobody tells where its log ends is named, and takes nothing from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from onceover.backoff import Backoff, Deadline
from onceover.errors import OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.admin.topics import Admin
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import Each
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition

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
    """

    topic_id: UUID
    start: int
    stable: int
    end: int
    compacted: bool = False
    expires: bool = True
    stamped: bool = False


class AskedEnds:
    """Asks one cluster where logs begin and end.

    Args:
        others_answer: the cluster has answered already, so that silence is some brokers' alone.

    Attributes:
        away: partitions that were not answered, each with the reason; they are not asked for again.
    """

    def __init__(self, cluster: Cluster, *, others_answer: bool = False) -> None:
        self.cluster = cluster
        self._others_answer = others_answer
        self.away: dict[TopicPartition, str] = {}

    def at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation: int = calls.READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """Return the offset at a time, or EARLIEST or LATEST, of all partitions that are answered.

        Whoever has no leader is waited for a little, and then left out: ``away`` says why.

        Raises:
            Retriable: the cluster is away.
            UsageError: a topic may not be described.
        """
        wanted = [tp for tp in partitions if tp not in self.away]
        found: dict[TopicPartition, int] = {}
        deadline, backoff = Deadline(_LED_S), Backoff()
        while wanted:
            each = self._asked(wanted, timestamp_ms, isolation)
            found |= each.found
            wanted = list(each.failed)
            if wanted and deadline.passed:
                self._leave_out(each.failed, nobody_answers=not (found or self._others_answer))
                break
            if wanted:
                backoff.wait(deadline)
        return found

    def _asked(
        self, wanted: Sequence[TopicPartition], timestamp_ms: int, isolation: int
    ) -> Each[TopicPartition, int]:
        each = self.cluster.retry(lambda: self.cluster.each_offset(wanted, timestamp_ms, isolation))
        for error in each.failed.values():
            if not isinstance(error, Retriable):
                raise error
        return each

    def _leave_out(self, failed: Mapping[TopicPartition, OnceoverError], *, nobody_answers: bool) -> None:
        if nobody_answers and all(error.code != KafkaCode.NO_LEADER for error in failed.values()):
            raise next(iter(failed.values()))
        self.away |= {tp: error.message for tp, error in failed.items()}


def partition_logs(ends: AskedEnds, topics: Sequence[str]) -> dict[TopicPartition, PartitionLog]:
    """Return how the logs of these topics' partitions are now; without those that ``ends`` has ``away``.

    Raises:
        Retriable: the cluster is away.
        UsageError: a topic, or its configuration, may not be described: what a log cleaner may take, and
            who gives records their time, would be guesses.
    """
    cluster = ends.cluster
    infos = cluster.retry(lambda: cluster.topics(topics))
    # Also what topics inherit: brokers may stamp, expire or compact what no topic says anything about.
    configs = Admin(cluster).topic_configs(infos, standing=_KEYS)
    for error in configs.failures.values():
        raise error
    return {
        tp: _log(infos[tp.topic], configs.standing.get(tp.topic, {}), *bounds)
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
        waiting = [tp for tp, each in found.items() if each.stable < each.end and tp not in ends.away]
        if not waiting:
            return found
        stable = ends.at(waiting, calls.LATEST)
        found.update({tp: replace(found[tp], stable=min(at, found[tp].end)) for tp, at in stable.items()})
        if deadline.passed:
            return found
        backoff.wait(deadline)


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


def _log(info: TopicInfo, config: Mapping[str, str], start: int, stable: int, end: int) -> PartitionLog:
    policies = config.get("cleanup.policy", "delete").split(",")
    kept = config.get("retention.ms") == "-1" and config.get("retention.bytes", "-1") == "-1"
    return PartitionLog(
        info.topic_id,
        start,
        stable,
        end,
        compacted="compact" in policies,
        expires="delete" in policies and not kept,
        stamped=config.get("message.timestamp.type") == "LogAppendTime",
    )
