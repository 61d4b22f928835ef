"""Reading an offsets topic as it is: key bytes, the last value of each, and where it stands.

Invariant: a scan holds everything that was in the log when it began, as a reader of the given isolation sees
it. It never ends before an open transaction: with one, workers read the topic to another end than we do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from onceover.backoff import Backoff, Deadline
from onceover.clock import now_ms
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import ConnectorOffsets, Isolation, RawOffset
from onceover.connectors.offsets.keys import parse_key
from onceover.errors import NeedsOperator, Retriable
from onceover.kafka import calls
from onceover.kafka.logs.between import records_between
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition

# A transaction of another connector that shares the topic ends within this; one that its owner left open is
# aborted after transaction.timeout.ms, 60 s by default.
PATIENCE_S: Final = 75.0
_LEVELS: Final = {
    Isolation.READ_COMMITTED: calls.READ_COMMITTED,
    Isolation.READ_UNCOMMITTED: calls.READ_UNCOMMITTED,
}


@dataclass(frozen=True)
class Scan:
    """An offsets topic as one reader sees it.

    Args:
        topic: where; ``isolation`` how.
        partitions: how many it has.
        latest: the last record of each key in each partition.
        topic_id: another one means that the topic was recreated.
        unkeyed: how many records have no key.
        end_offsets: how far each partition was read.
        taken_at_ms: when the scan began.
    """

    topic: str
    isolation: Isolation
    partitions: int
    latest: Mapping[tuple[bytes, int], RawOffset]
    unkeyed: int
    end_offsets: Mapping[int, int]
    taken_at_ms: int
    topic_id: UUID | None = None

    def snapshot(self, connector: str) -> ConnectorOffsets:
        """Return what it holds of one connector.

        A key of several partitions has the value that was written last by the records' times. Where values
        differ the key is among ``conflicts``: workers may see another one.
        """
        values: dict[bytes, RawOffset] = {}
        places: dict[bytes, list[int]] = {}
        conflicts: set[bytes] = set()
        sentinels: set[bytes] = set()
        for (key, partition), record in sorted(self.latest.items()):
            parsed = parse_key(key)
            if parsed is None or parsed.connector != connector:
                continue
            if parsed.is_sentinel:
                if record.value is not None:
                    sentinels.add(key)
                continue
            places.setdefault(key, []).append(partition)
            other = values.get(key)
            if other is not None and other.value != record.value:
                conflicts.add(key)
            if other is None or record.timestamp_ms > other.timestamp_ms:
                values[key] = record
        return ConnectorOffsets(
            connector=connector,
            topic=self.topic,
            isolation=self.isolation,
            values={key: record.value for key, record in values.items()},
            chosen={key: record.partition for key, record in values.items()},
            places={key: tuple(some) for key, some in places.items()},
            conflicts=frozenset(conflicts),
            sentinels=frozenset(sentinels),
            end_offsets=self.end_offsets,
            taken_at_ms=self.taken_at_ms,
        )

    def connectors(self) -> set[str]:
        """Return the names of all connectors that have an offset or a sentinel here."""
        keys = (parse_key(key) for (key, _), record in self.latest.items() if record.value is not None)
        return {key.connector for key in keys if key is not None}

    def foreign(self) -> int:
        """Return how many records are no offsets of Connect at all."""
        kinds = Counter(
            parse_key(key) is None for (key, _), record in self.latest.items() if record.value is not None
        )
        return kinds[True] + self.unkeyed


def scan_topic(
    cluster: Cluster,
    topic: str,
    isolation: Isolation,
    patience_s: float | None = PATIENCE_S,
    since: Scan | None = None,
) -> Scan:
    """Read an offsets topic from its beginning to the end that it has now.

    Args:
        patience_s: how long an open transaction is waited for; None: read as far as is stable now.
        since: an earlier scan of it, read alike: only what came after it is read. Logs only grow, and what
            compaction takes away has a newer record, or was a tombstone.

    Raises:
        Retriable: a broker is away, or OPEN_TRANSACTION.
        UsageError: not authorized.
        NeedsOperator: OFFSETS_TOPIC_MISSING.
    """
    taken_at_ms = now_ms()
    info = topic_in(cluster, topic)
    partitions = [TopicPartition(topic, number) for number in sorted(info.partitions)]
    starts = cluster.retry(lambda: cluster.list_offsets(partitions, calls.EARLIEST))
    ends = _ends(cluster, partitions, isolation, patience_s)
    latest: dict[tuple[bytes, int], RawOffset] = {}
    unkeyed = 0
    if since is not None and _continues(since, info, ends):
        starts = {tp: max(starts[tp], since.end_offsets[tp.partition]) for tp in partitions}
        latest, unkeyed = dict(since.latest), since.unkeyed
    for record in _records(cluster, starts, ends, isolation):
        if record.key:
            latest[record.key, record.partition] = record
        else:
            unkeyed += 1
    return Scan(
        topic=topic,
        isolation=isolation,
        partitions=len(partitions),
        latest=latest,
        unkeyed=unkeyed,
        end_offsets={tp.partition: end for tp, end in ends.items()},
        taken_at_ms=taken_at_ms,
        topic_id=info.topic_id,
    )


def records_since(cluster: Cluster, starts: Mapping[int, int], scan: Scan) -> Iterator[RawOffset]:
    """Yield every record from ``starts`` to the end of a scan, as its reader sees it, partition by partition.

    Raises:
        Retriable: a broker is away.
    """
    ends = {TopicPartition(scan.topic, number): end for number, end in scan.end_offsets.items()}
    earliest = cluster.retry(lambda: cluster.list_offsets(list(ends), calls.EARLIEST))
    later = {tp: max(earliest[tp], starts.get(tp.partition, 0)) for tp in ends}
    return _records(cluster, later, ends, scan.isolation)


def _continues(since: Scan, info: TopicInfo, ends: Mapping[TopicPartition, int]) -> bool:
    """Tell whether a scan is of the same log, and this log has not become shorter."""
    return since.topic_id == info.topic_id and all(
        since.end_offsets.get(tp.partition, end + 1) <= end for tp, end in ends.items()
    )


def topic_in(cluster: Cluster, topic: str) -> TopicInfo:
    """Return a topic that must be there.

    Raises:
        NeedsOperator: OFFSETS_TOPIC_MISSING.
    """
    info = cluster.retry(lambda: cluster.topics([topic])).get(topic)
    if info is None:
        raise NeedsOperator(
            f"there is no topic {topic} on {cluster.alias}",
            code=ConnectorCode.OFFSETS_TOPIC_MISSING,
            where=cluster.alias,
            resolve="check offset.storage.topic, and that the client reaches the workers' Kafka cluster",
        )
    return info


def _ends(
    cluster: Cluster, partitions: list[TopicPartition], isolation: Isolation, patience_s: float | None
) -> dict[TopicPartition, int]:
    """Return the high watermarks of now, once a reader of this isolation can read up to them."""
    if patience_s is None and isolation is Isolation.READ_COMMITTED:
        return cluster.retry(lambda: cluster.list_offsets(partitions, calls.LATEST))
    ends = cluster.retry(lambda: cluster.list_offsets(partitions, calls.LATEST, calls.READ_UNCOMMITTED))
    if isolation is Isolation.READ_UNCOMMITTED or patience_s is None:
        return ends
    backoff, deadline = Backoff(0.05, 1.0), Deadline(patience_s)
    while True:
        stable = cluster.retry(lambda: cluster.list_offsets(partitions, calls.LATEST))
        behind = [tp for tp in partitions if stable[tp] < ends[tp]]
        if not behind:
            return ends
        held = Retriable(
            f"a transaction is open in {', '.join(map(str, behind))}",
            code=ConnectorCode.OPEN_TRANSACTION,
            where=cluster.alias,
            expected=f"readable up to offset {ends[behind[0]]}",
            seen=f"readable up to offset {stable[behind[0]]}",
            resolve="wait until its producer ends it or transaction.timeout.ms is over, then run again; "
            "tasks that start meanwhile would begin at zero",
        )
        backoff.pause(deadline, held)


def _records(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    isolation: Isolation,
) -> Iterator[RawOffset]:
    for tp, end in ends.items():
        level = _LEVELS[isolation]
        for record in records_between(cluster, tp, starts[tp], end, isolation=level, compacted=True):
            yield RawOffset(tp.partition, record.offset, record.timestamp, record.key or b"", record.value)
