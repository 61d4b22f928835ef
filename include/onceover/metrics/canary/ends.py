"""Where a canary meets Kafka: its topic on the source, what sends its records, and what reads their copies.

Invariant: only the topic that the flow file names is written, where it holds no records of others alone, and
only that and its copy are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from onceover.backoff import Deadline
from onceover.clock import now_ms
from onceover.drills.canary import PARTITIONS, Canary
from onceover.errors import NeedsOperator, NotNow
from onceover.kafka import calls
from onceover.kafka.admin.topics import Admin, TopicSpec, await_leaders
from onceover.kafka.logs.between import Interval, IntervalReader
from onceover.kafka.logs.fetcher import Fetcher
from onceover.kafka.logs.reading import batches_in, place
from onceover.kafka.ports import Cluster, Refused, TopicInfo
from onceover.kafka.produce.atleastonce import IdempotentProducer
from onceover.kafka.produce.refusals import own_refused
from onceover.kafka.produce.rounds import own_batches
from onceover.metrics.codes import MetricsCode
from onceover.model import TopicPartition
from onceover.wire.batches.records import decode
from onceover.wire.batches.visibility import Visible

_FETCH_BYTES: Final = 1 << 18
# How long a reader waits for the next record: a look at the clock costs that much at most.
POLL_MS: Final = 500
_ANSWER_S: Final = 10.0
_STARTING_S: Final = 3.0
_LAST_S: Final = 30.0
# Before the end of a log: markers and attempts of transactions, of which there are none on the source.
_BEFORE_END: Final = 10


def prepare(source: Cluster, topic: str, configs: Mapping[str, str], made: Callable[[], None]) -> TopicInfo:
    """Return the canary's topic; make it where there is none.

    Args:
        configs: of one that is made; ``made`` is called when it was.

    Raises:
        NeedsOperator: CANARY_TOPIC, it has too few partitions.
    """
    if topic not in source.retry(lambda: source.topics([topic])):
        Admin(source).create_topics([TopicSpec(topic, PARTITIONS, -1, configs)])
        made()
        await_leaders(source, {topic: PARTITIONS})
    info = _info(source, topic)
    if len(info.partitions) < PARTITIONS:
        raise NeedsOperator(
            f"{topic} has too few partitions for a canary",
            code=MetricsCode.CANARY_TOPIC,
            where=source.alias,
            expected=f"{PARTITIONS} or more",
            seen=str(len(info.partitions)),
            resolve="give it more, or name another topic under canary.topic",
        )
    return info


class CanarySender:
    """Sends each record once.

    Args:
        cluster: the source, with a limit to what may be waited for a record; belongs to the sender.
        topic: there.
        prepare: makes the topic, on that cluster, where it is gone.
    """

    def __init__(self, cluster: Cluster, topic: str, prepare: Callable[[Cluster], object]) -> None:
        self._cluster, self._topic, self._prepare = cluster, topic, prepare
        self._producer: IdempotentProducer | None = None
        # After a record that could not be sent: the topic may be gone.
        self._doubtful = False

    def send(self, canary: Canary) -> None:
        """Send a record and wait until it is acknowledged; after an error nobody knows if it is there.

        Raises:
            OnceoverError: as of ``IdempotentProducer``; or it is refused (OWN_RECORD_REFUSED).
        """
        # What one record was waited for in vain is not taken from the next one's time.
        self._cluster.patience.renew()
        if self._doubtful:
            self._prepare(self._cluster)
        self._doubtful = True
        self._send(canary)
        self._doubtful = False

    def _send(self, canary: Canary) -> None:
        if self._producer is None:
            producer = IdempotentProducer(self._cluster)
            # Its coordinator may be starting.
            self._cluster.retry(producer.init, Deadline(_STARTING_S))
            self._producer = producer
        to = TopicPartition(self._topic, canary.partition)
        try:
            for batch in own_batches(to, [canary.encode()], now_ms()):
                self._producer.send([batch])
            self._producer.drain()
        except Refused as error:
            raise own_refused(error) from error

    def close(self) -> None:
        """Close all connections; the next record opens others."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        self._cluster.close()


@dataclass
class CopyReader:
    """Reads the copy from where it ends when it is first there, and after that from where it was.

    Args:
        places: topic id and offset of each partition; kept up to date here.
        forget: is called where the copy is another topic by now.
    """

    target: Cluster
    topic: str
    places: dict[TopicPartition, tuple[UUID, int]]
    forget: Callable[[], None]
    _fetcher: Fetcher | None = None

    def opened(self) -> bool:
        """Tell whether the copy is read; begin to where it is there."""
        if self._fetcher is not None:
            return True
        info = self.target.retry(lambda: self.target.topics([self.topic])).get(self.topic)
        if info is None or len(info.partitions) < PARTITIONS:
            return False
        if any(topic_id != info.topic_id for topic_id, _ in self.places.values()):
            self.places.clear()
            self.forget()
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        ends = self.target.retry(lambda: self.target.list_offsets(partitions, calls.LATEST))
        fetcher = _fetcher(self.target)
        for tp, end in ends.items():
            _, offset = self.places.setdefault(tp, (info.topic_id, end))
            position = place(info, tp.partition, offset)
            if position is None:
                raise NotNow(f"{tp} has no leader at the moment", where=self.target.alias)
            fetcher.assign(tp, position)
        self._fetcher = fetcher
        return True

    def poll(self) -> list[bytes | None]:
        """Return the values that have come, in the order of each partition."""
        fetcher = self._fetcher
        if fetcher is None:
            return []
        fetcher.request(max_wait_ms=POLL_MS, min_bytes=1)
        found: list[bytes | None] = []
        read: dict[TopicPartition, tuple[UUID, int]] = {}
        for tp, answer in fetcher.poll(_ANSWER_S):
            position = fetcher.positions[tp]
            for each in batches_in(self.target.alias, tp, answer, position):
                found += _values(each)
            read[tp] = (position.topic_id, position.offset)
        # Where one partition's leader has moved, what others have answered is read again, by another reader.
        self.places |= read
        return found

    def close(self) -> None:
        """Close its connections; ``places`` stay."""
        if self._fetcher is not None:
            self._fetcher.close()


def _values(seen: Visible) -> list[bytes | None]:
    batch = seen.batch
    return [] if batch is None else [r.value for r in decode(seen.header, batch)]


def _fetcher(cluster: Cluster) -> Fetcher:
    return Fetcher(
        cluster, isolation=calls.READ_COMMITTED, max_bytes=_FETCH_BYTES, partition_max_bytes=_FETCH_BYTES
    )


def _info(cluster: Cluster, topic: str) -> TopicInfo:
    info = cluster.retry(lambda: cluster.topics([topic])).get(topic)
    if info is None:
        raise NotNow(f"{topic} is gone", where=cluster.alias)
    return info


def last_values(source: Cluster, info: TopicInfo) -> list[bytes | None]:
    """Return the values at the ends of all partitions.

    Raises:
        NeedsOperator: CANARY_TOPIC, all are of others, who would read numbers among theirs.
        Retriable: they cannot be read in half a minute, have expired in between, or nobody leads one: a
            number that is not known would be given a second time.
    """
    partitions = [TopicPartition(info.name, number) for number in info.partitions]
    starts = source.retry(lambda: source.list_offsets(partitions, calls.EARLIEST))
    ends = source.retry(lambda: source.list_offsets(partitions, calls.LATEST))
    intervals = {tp: Interval(max(starts[tp], end - _BEFORE_END), end) for tp, end in ends.items()}
    reader = IntervalReader(source, {info.name: info}, intervals, Deadline(_LAST_S), max_bytes=_FETCH_BYTES)
    values = [value for part in reader.parts() for each in part.batches for value in _values(each)]
    if values and all(Canary.decode(value) is None for value in values):
        raise NeedsOperator(
            f"{info.name} holds records, and none of a canary among the last ones",
            code=MetricsCode.CANARY_TOPIC,
            where=source.alias,
            expected="a topic of its own",
            resolve="name another topic under canary.topic",
        )
    return values
