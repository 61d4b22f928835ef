"""Reading a stretch of one partition as a reader of committed records does, batch by batch.

Invariant: a batch is visible exactly when librdkafka would show its records: no control batch, not of an
aborted transaction, below the last stable offset. Batches stay in the receive buffer: a view is valid until
the next batch is asked for that a further answer brings.

The next answer is on its way while the batches of the one before are looked at.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from onceover.audit.model import Reason
from onceover.audit.records.batches import Batch, Unreadable, unreadable, walk
from onceover.audit.records.fetch import Fetched, Wanted, decode_fetch, encode_fetch
from onceover.audit.records.refusals import refusals
from onceover.backoff import Backoff, Deadline
from onceover.errors import OnceoverError, Retriable
from onceover.kafka.answers import failure
from onceover.kafka.link.channel import LARGEST_BATCH_BYTES, Channel
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify

# Large enough that a round trip costs nothing, small enough for two to a task in any executor.
FETCH_BYTES: Final = 4 << 20
_WAIT_MS: Final = 500
# A broker may restart, a leader move.
_PATIENCE_S: Final = 60.0
_ABORT_MARKER: Final = 0
# What a broker answers that stumbles over its own log: corrupt message, unknown server error.
_CANNOT_READ: Final = frozenset({2, -1})


class Gone(OnceoverError):
    """The log no longer holds what is asked for: it cannot be compared (and is no finding)."""

    def __init__(self, message: str, reason: Reason = Reason.RETENTION) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type[Gone], tuple[str, Reason]]:
        return type(self), (self.message, self.reason)


class ReadBatch(NamedTuple):
    """A batch; ``aborted`` when its transaction was, so that no reader of committed records sees it.

    A transaction's marker is such a batch, too, for who asks for markers.
    """

    batch: Batch
    aborted: bool


class Stretch(NamedTuple):
    """What is read: ``[start, end)`` of a partition of the topic with this id.

    ``markers``: they count, too. ``committed``: False for whoever wants to see what is not decided yet; of
    that, nobody says what was aborted.
    """

    partition: TopicPartition
    topic_id: UUID
    start: int
    end: int
    markers: bool = False
    committed: bool = True


def read_batches(
    cluster: Cluster, stretch: Stretch, *, fetch_bytes: int = FETCH_BYTES
) -> Generator[ReadBatch]:
    """Yield the batches with records that touch the stretch, aborted ones too, in order.

    The first and the last may reach over its ends: the caller cuts them.

    Raises:
        Gone: retention or a person removed the beginning, or the topic, meanwhile.
        Unreadable: a batch is damaged; what comes before it was yielded. Or a right is missing.
        Retriable: the broker is away for longer than a minute.
    """
    offset, backoff, deadline = stretch.start, Backoff(), Deadline(_PATIENCE_S)
    while offset < stretch.end:
        try:
            with _Pump(cluster, stretch, offset, fetch_bytes) as pump:
                for read in pump:
                    yield read
                    offset = read.batch.last_offset + 1
                    backoff, deadline = Backoff(), Deadline(_PATIENCE_S)
                offset = max(offset, pump.offset)
        except Retriable as error:
            backoff.pause(deadline, error)


def readable(records: memoryview) -> tuple[list[Batch], Unreadable | None]:
    """Return the batches of an answer up to the first damaged one, and what is wrong with that."""
    batches: list[Batch] = []
    try:
        batches.extend(walk(records))
    except Unreadable as damage:
        return batches, damage
    return batches, None


class _Pump:
    """One connection's worth of reading; a context manager, iterated once.

    Attributes:
        offset: where the next answer begins.
    """

    def __init__(self, cluster: Cluster, stretch: Stretch, offset: int, fetch_bytes: int) -> None:
        self.offset = offset
        self._cluster = cluster
        self._stretch = stretch
        self._fetch_bytes = fetch_bytes
        self._leader_epoch = -1
        self._connection = self._open()

    def __enter__(self) -> _Pump:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[ReadBatch]:
        self._ask()
        while self._connection.in_flight:
            answer: Fetched = self._connection.receive()
            self._check(answer)
            # Views into the buffer, which the next answer will overwrite: not before it is received.
            batches, damage = readable(answer.records)
            before = self.offset
            if batches:
                self.offset = max(before, batches[-1].last_offset + 1)
            if damage is not None and self.offset < self._stretch.end:
                yield from self._visible(batches, answer, before)
                raise damage
            if self.offset == before and before < self._stretch.end and answer.records:
                # A broker sends one whole batch at least, and none that ends before what was asked for.
                raise unreadable(before, "a batch that reaches it", "a length or offset that leads elsewhere")
            if self.offset == before and before < self._stretch.end:
                raise Retriable(
                    f"{self._stretch.partition} cannot be read from offset {before} at the moment"
                )
            if self.offset < self._stretch.end:
                self._ask()
            yield from self._visible(batches, answer, before)

    def _visible(self, batches: list[Batch], answer: Fetched, position: int) -> Iterator[ReadBatch]:
        # The broker lists every aborted transaction that reaches into the answer (KIP-98).
        waiting = sorted(((first, producer) for producer, first in answer.aborted), reverse=True)
        aborted: set[int] = set()
        for batch in batches:
            if batch.last_offset < position or batch.base_offset >= self._stretch.end:
                continue
            while waiting and waiting[-1][0] <= batch.last_offset:
                aborted.add(waiting.pop()[1])
            if batch.is_control:
                if batch.records and batch.control_type() == _ABORT_MARKER:
                    aborted.discard(batch.producer_id)
                if self._stretch.markers:
                    yield ReadBatch(batch, aborted=True)
            elif batch.records:
                yield ReadBatch(batch, batch.is_transactional and batch.producer_id in aborted)

    def _open(self) -> Channel:
        tp = self._stretch.partition
        with refusals():
            info = self._cluster.topics([tp.topic]).get(tp.topic)
        leader = None if info is None else info.partitions.get(tp.partition)
        if info is None or leader is None or info.topic_id != self._stretch.topic_id:
            raise Gone(f"{tp} is not on {self._cluster.alias} any more", Reason.DELETED)
        if leader.leader < 0:
            raise Retriable(f"{tp} has no leader on {self._cluster.alias} at the moment", where=str(tp))
        self._leader_epoch = leader.leader_epoch
        return self._cluster.open(leader.leader)

    def _ask(self) -> None:
        connection, stretch = self._connection, self._stretch
        correlation_id = connection.next_correlation_id()
        frame = encode_fetch(
            Wanted(stretch.topic_id, stretch.partition.partition, self.offset, self._leader_epoch),
            correlation_id=correlation_id,
            client_id=connection.client_id,
            max_bytes=self._fetch_bytes,
            max_wait_ms=_WAIT_MS,
            committed=stretch.committed,
        )
        most = self._fetch_bytes + LARGEST_BATCH_BYTES
        connection.send_frame([frame], correlation_id, decode_fetch, max_answer_bytes=most)

    def _check(self, answer: Fetched) -> None:
        tp, alias = self._stretch.partition, self._cluster.alias
        match classify(Api.FETCH, answer.error_code):
            case Action.OK:
                return
            case Action.OUT_OF_RANGE:
                raise Gone(f"{tp} on {alias} no longer begins at or before offset {self.offset}")
            case Action.MISSING:
                raise Gone(f"{tp} is not on {alias} any more", Reason.DELETED)
            case Action.OPERATOR | Action.FATAL if answer.error_code in _CANNOT_READ:
                seen = f"error {answer.error_code} from {alias}"
                raise unreadable(self.offset, "records that the broker can read itself", seen)
            case Action.RETRY | Action.REFRESH_AND_RETRY:
                raise Retriable(f"{tp} cannot be read from {alias} at the moment (error {answer.error_code})")
            case action:
                with refusals():
                    raise failure(alias, Api.FETCH, action, answer.error_code, str(tp))
