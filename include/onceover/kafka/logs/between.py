"""Reading logs from one offset to another, as a consumer of committed records would: the one way to do it.

Invariant: what is not read is told. A read comes to its end, or it raises, or it names the partition whose
rest is missing, where the caller has said that it can do without. It is of one log: one that was cut, or made
anew, while it is read is told, too (KIP-320).

Apart on purpose are the copy's reader and the audit's (``kafka.logs.reading``), and those that follow a log
without an end: ``state.log`` and ``metrics.canary.ends``.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Final, NamedTuple

from onceover.backoff import Deadline, StallLimit
from onceover.errors import NotNow, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.codes import KafkaCode
from onceover.kafka.logs.fetcher import Fetcher, Position
from onceover.kafka.logs.reading import TopicGone, batches_in, place
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.wire.batches.records import DecodedRecord, decode
from onceover.wire.batches.visibility import Visible
from onceover.wire.hotpath import FetchedPartition

# Of all answers that are taken together: from far away, each round trip should bring as much as it may.
_MAX_BYTES: Final = 4 << 20
# A broker without anything holds the question for so long: what becomes readable is told at once.
_HELD_MS: Final = 100
_ANSWER_S: Final = 5.0
# Who does not get on for so long will not without help: a killed lane's transaction holds up its readers for
# 15 s, an election takes less.
STALL_S: Final = 30.0
# A topic that was made a moment ago is known to all brokers by then.
_YOUNG_S: Final = 5.0


class Interval(NamedTuple):
    """What of a log is read.

    Args:
        start: the first offset; ``end`` the one behind the last: not behind the last stable offset, or, of
            uncommitted records, the high watermark, or what is there later is waited for.
        epoch: leader epoch of what was read before it, of the same log; by default nothing is compared.
    """

    start: int
    end: int
    epoch: int = calls.NO_EPOCH


_ANYWHERE: Final = Interval(0, 0)


class IntervalPart(NamedTuple):
    """What one answer has brought of an interval.

    Args:
        batches: in order; those in which a consumer meets nothing come without bytes. The first may begin
            before the interval, the last may end behind it. Bytes are valid until the next part is asked for.
        next_offset: where reading goes on, and the leader ``epoch`` of what was read before it.
        error: why the rest of it is not read.
    """

    tp: TopicPartition
    batches: list[Visible]
    next_offset: int
    epoch: int
    error: OnceoverError | None = None


class IntervalReader:
    """Reads intervals of several partitions side by side, once. Not thread-safe.

    Args:
        cluster: where they are.
        topics: of all of them, as the caller knows them: a namesake that was made since is not read.
        intervals: by partition.
        limit: a ``Deadline`` for all of it, or a ``StallLimit`` for intervals of any length.
        isolation: ``READ_COMMITTED``, or ``READ_UNCOMMITTED`` for everything that was written.
        max_bytes: of answers that are taken together; ``share_bytes`` of one partition among many.
        tolerates: errors about one partition that are given beside its last part. All others are raised.
        compacted: the topics are compacted, so that nothing may be left before an end, and nothing tells of
            it. Of others an empty answer is none: a broker gives one, too, while it still looks for records
            in remote storage (KIP-405), which compacted topics do not have.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Mapping[str, TopicInfo],
        intervals: Mapping[TopicPartition, Interval],
        limit: Deadline,
        *,
        isolation: int = calls.READ_COMMITTED,
        max_bytes: int = _MAX_BYTES,
        share_bytes: int | None = None,
        tolerates: tuple[type[OnceoverError], ...] = (),
        compacted: bool = False,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._limit = limit
        self._is_committed = isolation == calls.READ_COMMITTED
        self._tolerates = tolerates
        self._compacted = compacted
        # Nothing is asked about an empty one.
        self._intervals = {tp: each for tp, each in intervals.items() if each.start < each.end}
        self._positions: dict[TopicPartition, Position] = {}
        # Those that wait for the end of a transaction.
        self._held: set[TopicPartition] = set()
        self._fetcher = Fetcher(
            cluster,
            isolation=isolation,
            max_bytes=max_bytes,
            partition_max_bytes=max_bytes if share_bytes is None else share_bytes,
        )

    def parts(self) -> Generator[IntervalPart, None, None]:
        """Yield what is read, an answer of a partition at a time, until everything is.

        Answers with nothing in them are given, too: whoever waits for a transaction can do something else
        meanwhile. At its end, or once it is closed, the connections are closed.

        Raises:
            Retriable: a broker is away, or it takes longer than ``limit``. Of one partition: ``NotNow``,
                nobody leads it or its leader has moved; ``TopicGone``; ``OffsetGone``, ``start`` or what
                comes next is not in the log.
            UsageError, NeedsOperator: not authorized; a batch is damaged.
        """
        with closing(self._fetcher):
            yield from self._placed()
            while self._fetcher.positions:
                self._fetcher.request(max_wait_ms=_HELD_MS, min_bytes=1)
                # Nobody who has a limit waits longer for one silent broker.
                answers = self._fetcher.poll(min(_ANSWER_S, self._limit.left_s))
                # A broker that has filled its answer with one partition gives nothing of the next.
                is_idle = self._compacted and not any(answer.records for _, answer in answers)
                before = {tp: self._positions[tp].offset for tp, _ in answers}
                for tp, answer in answers:
                    if tp in self._fetcher.positions:
                        yield from self._taken(tp, answer, is_idle=is_idle)
                # Only now: what the caller does with it takes nothing from the time.
                if any(self._positions[tp].offset > offset for tp, offset in before.items()):
                    self._limit.got_on()
                if self._limit.passed:
                    yield from self._late()

    def leave(self, tp: TopicPartition) -> None:
        """Read no more of a partition."""
        self._fetcher.remove(tp)

    def go_on(self, tp: TopicPartition, offset: int) -> None:
        """Read a partition from this offset of its interval on, also after an error about another one."""
        # Nobody knows the epoch of what is passed over.
        position = replace(self._positions[tp], offset=offset, last_fetched_epoch=calls.NO_EPOCH)
        self._positions[tp] = position
        self._fetcher.assign(tp, position)

    def _placed(self) -> Iterator[IntervalPart]:
        for tp, interval in self._intervals.items():
            position = _place(self._topics, tp, interval)
            if position is None:
                error = _unled(self._cluster.alias, self._topics, tp)
                yield from self._given(IntervalPart(tp, [], interval.start, interval.epoch, error))
            else:
                self._positions[tp] = position
                self._fetcher.assign(tp, position)

    def _taken(
        self, tp: TopicPartition, answer: FetchedPartition, *, is_idle: bool
    ) -> Iterator[IntervalPart]:
        """Yield what an answer has brought; read no more of the partition where that is the last of it."""
        position, end = self._positions[tp], self._intervals[tp].end
        given = position.offset
        batches: list[Visible] = []
        error: OnceoverError | None = None
        try:
            for each in batches_in(self._cluster.alias, tp, answer, position, keeps_epochs=True):
                if each.header.base_offset >= end:
                    # It is not given: whoever goes on from here is to meet it. Of its epoch the log is there.
                    position.offset = max(end, given)
                    break
                batches.append(each)
                given = each.header.next_offset
                if given >= end:
                    # Whatever is wrong with the next one, nobody has asked for it.
                    break
        except OnceoverError as problem:
            error = problem
        readable = answer.last_stable_offset if self._is_committed else answer.high_watermark
        if error is None and is_idle and readable >= end:
            # Compaction has taken all of the rest.
            position.offset = end
        if error is not None or position.offset >= end:
            self._fetcher.remove(tp)
        if self._is_committed and readable < end <= answer.high_watermark:
            self._held.add(tp)
        else:
            self._held.discard(tp)
        yield from self._given(IntervalPart(tp, batches, position.offset, position.last_fetched_epoch, error))

    def _late(self) -> Iterator[IntervalPart]:
        for tp in list(self._fetcher.positions):
            position, end = self._positions[tp], self._intervals[tp].end
            why = "a transaction is open" if tp in self._held else "it took too long"
            error = Retriable(
                f"{tp} on {self._cluster.alias} cannot be read to offset {end}: {why}",
                where=str(tp),
                seen=f"read up to {position.offset}",
            )
            self._fetcher.remove(tp)
            yield from self._given(IntervalPart(tp, [], position.offset, position.last_fetched_epoch, error))

    def _given(self, part: IntervalPart) -> Iterator[IntervalPart]:
        """Yield a part; raise its error behind it where the caller cannot do without the rest."""
        if part.error is None or isinstance(part.error, self._tolerates):
            yield part
            return
        if part.batches:
            yield part._replace(error=None)
        raise part.error


def batches_between(
    cluster: Cluster,
    tp: TopicPartition,
    start: int,
    end: int,
    limit: Deadline | None = None,
    *,
    isolation: int = calls.READ_COMMITTED,
    topics: Mapping[str, TopicInfo] | None = None,
    max_bytes: int = _MAX_BYTES,
    compacted: bool = False,
) -> Generator[Visible, None, None]:
    """Yield the batches that reach into ``[start, end)``, as a consumer meets them.

    Those in which it meets nothing come without bytes. The bytes are valid until the next one is asked for. A
    batch may begin before ``start``, or end behind ``end``. Whoever does not take all of them closes the
    iterator.

    Args:
        start, end: as of ``Interval``.
        limit: without one a ``StallLimit``.
        topics: as of ``IntervalReader``. Without them they are asked for, and a leader is waited for within
            the limit, as of a topic that was made a moment ago.
        isolation, max_bytes, compacted: as of ``IntervalReader``.

    Raises:
        As ``IntervalReader.parts``.
    """
    if start >= end:
        return
    limit = limit or StallLimit(STALL_S)
    topics = led_topics(cluster, [tp], limit) if topics is None else topics
    intervals = {tp: Interval(start, end)}
    reader = IntervalReader(
        cluster, topics, intervals, limit, isolation=isolation, max_bytes=max_bytes, compacted=compacted
    )
    with closing(reader.parts()) as parts:
        for part in parts:
            yield from part.batches


def records_between(
    cluster: Cluster,
    tp: TopicPartition,
    start: int,
    end: int,
    limit: Deadline | None = None,
    *,
    isolation: int = calls.READ_COMMITTED,
    topics: Mapping[str, TopicInfo] | None = None,
    compacted: bool = False,
) -> Generator[DecodedRecord, None, None]:
    """Yield the committed records of ``[start, end)``, in order; with ``READ_UNCOMMITTED`` all of them.

    Args:
        As ``batches_between``.

    Raises:
        As ``batches_between``.
    """
    found = batches_between(
        cluster, tp, start, end, limit, isolation=isolation, topics=topics, compacted=compacted
    )
    with closing(found):
        for each in found:
            if each.batch is not None:
                records = decode(each.header, each.batch)
                yield from (record for record in records if start <= record.offset < end)


def read_topic(cluster: Cluster, topic: str) -> Iterator[tuple[TopicPartition, DecodedRecord]]:
    """Yield every committed record that a small compacted topic held when the call began; nothing without it.

    Raises:
        As ``batches_between``.
    """
    topics = cluster.topics([topic])
    if topic not in topics:
        return
    partitions = [TopicPartition(topic, number) for number in sorted(topics[topic].partitions)]
    starts = cluster.list_offsets(partitions, calls.EARLIEST)
    ends = cluster.list_offsets(partitions, calls.LATEST)
    for tp in partitions:
        for record in records_between(cluster, tp, starts[tp], ends[tp], topics=topics, compacted=True):
            yield tp, record


def stable_ends(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the last stable offsets of partitions: up to where committed records can be read now."""
    return cluster.retry(lambda: cluster.list_offsets(partitions, calls.LATEST, calls.READ_COMMITTED))


def stable_end(cluster: Cluster, tp: TopicPartition) -> int:
    """Return the last stable offset of one partition."""
    return stable_ends(cluster, [tp])[tp]


def led_topics(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    limit: Deadline,
    *,
    missing_s: float = _YOUNG_S,
) -> dict[str, TopicInfo]:
    """Return the topics of partitions once somebody leads each of these.

    Args:
        missing_s: how long a partition that is not there is waited for: one that was made a moment ago is
            known to all brokers within seconds, hundreds of topics later.

    Raises:
        NotNow: nobody does within the limit; ``TopicGone``: there is no such partition.
        Retriable: the cluster is away.
    """
    names = sorted({tp.topic for tp in partitions})

    def attempt() -> dict[str, TopicInfo]:
        topics = cluster.topics(names)
        for tp in partitions:
            if _place(topics, tp, _ANYWHERE) is None:
                raise _unled(cluster.alias, topics, tp)
        return topics

    if not names:
        return {}
    try:
        return cluster.retry(attempt, Deadline(min(missing_s, limit.left_s)))
    except TopicGone:
        raise
    except Retriable:
        return cluster.retry(attempt, limit)


def _place(topics: Mapping[str, TopicInfo], tp: TopicPartition, interval: Interval) -> Position | None:
    info = topics.get(tp.topic)
    return None if info is None else place(info, tp.partition, interval.start, interval.epoch)


def _unled(alias: str, topics: Mapping[str, TopicInfo], tp: TopicPartition) -> NotNow:
    """Return why a partition cannot be read at all."""
    info = topics.get(tp.topic)
    if info is None or tp.partition not in info.partitions:
        return TopicGone(f"{tp} does not exist on {alias}", code=KafkaCode.MISSING, where=str(tp))
    return NotNow(f"{tp} has no leader on {alias} at the moment", code=KafkaCode.NO_LEADER, where=str(tp))
