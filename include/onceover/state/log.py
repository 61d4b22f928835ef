"""Reading a flow's state topic: the latest value of every key, and what comes after.

Invariant: a read that must not miss anything takes the high watermark when it begins, reads up to it
and waits until the LSO has passed it (docs/protocol.md): records of a transaction that is being decided are
neither missed nor believed too early. Where a broker that leads the log no more may not be believed, either,
a mark is written before: only the true leader can acknowledge it, and no read ends before it. Only the latest
value of a key is judged, and only where it is used: one that nobody can read is there as ``Illegible``. What
is kept has a ceiling, whoever writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from onceover.backoff import Backoff, Deadline
from onceover.errors import NeedsOperator, NotNow, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.logs.between import Interval, IntervalPart, IntervalReader
from onceover.kafka.logs.fetcher import Fetcher, Position
from onceover.kafka.logs.reading import OffsetGone, TopicGone, batches_in, place
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.kafka.produce.append import append
from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.codes import StateCode
from onceover.state.records.value import Illegible, parsed, parts_of
from onceover.wire.batches.records import decode
from onceover.wire.batches.visibility import Visible
from onceover.wire.hotpath import FetchedPartition

log = logging.getLogger(__name__)

_MAX_BYTES = 4 << 20
# Of one log among many: a large one takes more answers than the others.
_SHARE_BYTES = 256 << 10
_WAIT_MS = 100
# An answer from next door is there by then; one from further away is taken with the next look.
_GLANCE_S = 0.05
# A dead leader's open transaction holds the LSO until it times out (15 s); the InitProducerId that
# precedes every such read ends it at once, so this is generous.
_CATCH_UP_S = 45.0
# A leader that was elected a moment ago, and its metadata, take less to agree.
_NOT_NOW_S = 5.0


class LogCapacity(NamedTuple):
    """How much the latest values of a log may take together: bytes as JSON with their keys, and parts, each
    of which costs up to 80 bytes as an object."""

    size_bytes: int
    parts: int


# A partition takes seven parts in its topic's enrolment: a million of them, in one flow.
_OWN_ROOM: Final = LogCapacity(256 << 20, 8_000_000)
# Nobody can say how many flows there are, nor what they write: 160 MB each at worst, 250,000 partitions.
OTHERS_ROOM: Final = LogCapacity(64 << 20, 2_000_000)


class StateLog:
    """The latest values of one partition of a state topic. Not thread-safe.

    Args:
        cluster: the target.
        topic: the flow's state topic.
        partition: 0 for what the leader writes, 1 for the rest.
        isolation: ``READ_UNCOMMITTED`` only for requests, which are written without transactions.
        prefixes: of the keys whose values are kept; by default all.
        room: for what is kept.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        isolation: int = calls.READ_COMMITTED,
        *,
        prefixes: tuple[str, ...] = ("",),
        room: LogCapacity = _OWN_ROOM,
    ) -> None:
        self.values: dict[str, Any] = {}
        self._sizes: dict[str, LogCapacity] = {}
        self._taken = LogCapacity(0, 0)
        self._prefixes = prefixes
        self._room = room
        self._cluster = cluster
        self._tp = TopicPartition(topic, partition)
        self._isolation = isolation
        self._offset = 0
        self._least = 0
        self._fetcher: Fetcher | None = None
        self._topic_id: UUID | None = None

    def close(self) -> None:
        """Close the connection; what was read stays."""
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None

    def holds(self, offset: int) -> None:
        """Note that a record lies there, by its acknowledgement: who waits reads at least up to it."""
        self._least = max(self._least, offset + 1)

    def read_again(self, name: str, offset: int) -> None:
        """Forget a value that lay there: who reads on sees whether it still does, or the log has lost it.

        A log that was not read so far yet is read on from where it was.
        """
        self.values.pop(name, None)
        self._count(self._sizes.pop(name, LogCapacity(0, 0)), -1)
        self._offset = min(self._offset, offset)

    def mark(self) -> int:
        """Write a record that says nothing, and return its offset: ``holds``, for readers of this log.

        What is acknowledged by all in-sync replicas was taken by the true leader, now. A broker that was
        frozen, or is cut off, and does not know that it leads the log no more, shows nobody what lies there.

        Raises:
            Retriable: not acknowledged in time.
            UsageError: not authorized.
            NeedsOperator: OWN_RECORD_REFUSED.
        """
        # In no transaction: whoever dies now holds up no reader.
        return append(self._cluster, self._tp, (names.MARK.encode(), None))

    def read_whole(self) -> dict[str, Any]:
        """Do as ``catch_up`` for who decides by it what others may do: believe no broker that leads no more.

        Raises:
            As ``catch_up`` and ``mark``.
        """
        self.holds(self.mark())
        return self.catch_up()

    def catch_up(self, *, wait: bool = True) -> dict[str, Any]:
        """Read everything that was in the log when the call began, and return all latest values.

        A broker that led the log before may tell what it held then, as long as it has not heard that it leads
        it no more: up to what ``holds`` was told of, nothing is missed all the same.

        Args:
            wait: False reads only up to the LSO and never waits for an open transaction.

        Raises:
            Retriable: the broker is away, or the LSO did not pass the high watermark in time.
            NeedsOperator: the topic is not there.
        """
        isolation = calls.READ_UNCOMMITTED if wait else calls.READ_COMMITTED
        told = self._cluster.list_offsets([self._tp], calls.LATEST, isolation)[self._tp]
        end = max(told, self._least) if wait else told
        deadline, patience, backoff = Deadline(_CATCH_UP_S), Deadline(_NOT_NOW_S), Backoff()
        # Judged by what was read, not by how long that took: a machine that was asleep has read all the same.
        while self._offset < end:
            if deadline.passed:
                raise self._unread(told, end)
            try:
                self._step(_WAIT_MS, _CATCH_UP_S)
            except NotNow as error:
                backoff.pause(patience, error)
        return self.values

    def _unread(self, told: int, end: int) -> Retriable:
        """Return why the log could not be read up to ``end``; its leader has ``told`` of an end."""
        if told < end:
            # Looked for anew the next time, by what other brokers say.
            self.close()
            return Retriable(
                f"{self._tp} cannot be read to its end: who answers for it does not show what it holds",
                where=self._cluster.alias,
                expected=f"an end at {end} or later",
                seen=f"one at {told}, as of a broker that leads it no more and has not heard of that",
                resolve="run again; if it lasts, look for a broker that is cut off from the others",
            )
        return Retriable(
            f"{self._tp} cannot be read to its end: a transaction is open",
            expected=f"LSO at {end} or later",
            seen=f"readable up to {self._offset}",
            resolve="if it lasts, nobody ends it any more: `kafka-transactions.sh describe-producers"
            f" --topic {self._tp.topic} --partition {self._tp.partition}` tells whose it is,"
            f" `kafka-transactions.sh abort --topic {self._tp.topic} --partition {self._tp.partition}"
            f" --start-offset {self._offset}` ends it",
        )

    def poll(self, *, held_ms: int = 0) -> bool:
        """Read what has come, without waiting for a broker that is slow or silent; tell whether anything did.

        What was written just before the call may be seen by the next one only.

        Args:
            held_ms: the broker keeps the question for so long, or until there is something, and this call
                waits for nothing at all. For those who look more often than that.

        Raises:
            Retriable: the broker is away, or owes its answer for too long.
            NeedsOperator: the topic is not there.
        """
        before = self._offset
        owed = self._fetcher is not None and self._fetcher.waiting
        self._step(held_ms, 0.0 if owed or held_ms else _GLANCE_S)
        if held_ms:
            # Asked again at once: what comes now is there at the next look, not at the one behind it.
            self._step(held_ms, 0.0)
        return self._offset != before

    def _step(self, held_ms: int, wait_s: float) -> None:
        fetcher = self._open()
        position = fetcher.positions[self._tp]
        position.offset = self._offset
        try:
            fetcher.request(max_wait_ms=held_ms, min_bytes=1)
            for _, answer in fetcher.poll(timeout_s=wait_s):
                self._absorb(answer, position)
        except BaseException:
            # The broker went away, perhaps the leader moved: the next call looks for it anew. Interrupted, it
            # would wait for an answer on a connection that is closed.
            self.close()
            raise

    def _open(self) -> Fetcher:
        if self._fetcher is None:
            info = self._cluster.topics([self._tp.topic]).get(self._tp.topic)
            if info is None or self._tp.partition not in info.partitions:
                raise self._missing()
            position = place(info, self._tp.partition, self._offset)
            if position is None:
                raise NotNow(f"{self._tp} has no leader at the moment")
            self._topic_id = info.topic_id
            self._fetcher = Fetcher(
                self._cluster, isolation=self._isolation, max_bytes=_MAX_BYTES, partition_max_bytes=_MAX_BYTES
            )
            self._fetcher.assign(self._tp, position)
        return self._fetcher

    def _absorb(self, answer: FetchedPartition, position: Position) -> None:
        try:
            self._read(batches_in(self._cluster.alias, self._tp, answer, position))
        except OffsetGone:
            self._offset = self._cluster.list_offsets([self._tp], calls.EARLIEST)[self._tp]
        except TopicGone as error:
            if self._is_gone():
                raise self._missing() from error
            raise

    def _is_gone(self) -> bool:
        """Tell a topic that was deleted, or made anew, from one that a broker does not know yet."""
        info = self._cluster.topics([self._tp.topic]).get(self._tp.topic)
        return info is None or info.topic_id != self._topic_id

    def _missing(self) -> NeedsOperator:
        return NeedsOperator(
            f"the state topic {self._tp.topic} does not exist",
            code=StateCode.STATE_MISSING,
            where=self._cluster.alias,
            resolve="start the flow (`replicate`); if it was deleted, see docs/operations.md",
        )

    def _take(self, part: IntervalPart) -> bool:
        """Take over what was read together with others; False where something is in the way."""
        try:
            self._read(part.batches)
        except OnceoverError:
            return False
        self._offset = part.next_offset
        return True

    def _read(self, batches: Iterable[Visible]) -> None:
        for each in batches:
            if each.batch is not None:
                for record in decode(each.header, each.batch):
                    if record.offset >= self._offset:
                        self._put(record.key, record.value)
            self._offset = each.header.next_offset

    def _put(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode("utf-8", "replace")
        if not name.startswith(self._prefixes):
            return
        self.values.pop(name, None)
        self._count(self._sizes.pop(name, LogCapacity(0, 0)), -1)
        if value is None:
            return
        parts = parts_of(value)
        found = parsed(value, parts)
        # Of what cannot be read only that is kept.
        size = (
            LogCapacity(len(name), 1)
            if isinstance(found, Illegible)
            else LogCapacity(len(name) + len(value), parts)
        )
        self._count(size, 1)
        if any(taken > most for taken, most in zip(self._taken, self._room, strict=True)):
            self._count(size, -1)
            raise self._too_large()
        self.values[name], self._sizes[name] = found, size

    def _count(self, size: LogCapacity, sign: int) -> None:
        self._taken = LogCapacity(
            *(taken + sign * more for taken, more in zip(self._taken, size, strict=True))
        )

    def _too_large(self) -> NeedsOperator:
        size_bytes, parts = self._room
        return NeedsOperator(
            f"{self._tp} holds more than any flow writes there",
            code=StateCode.STATE_UNREADABLE,
            where=self._cluster.alias,
            expected=f"at most {size_bytes >> 20} MiB in {parts} parts, the latest value of each key",
            seen=f"more, at offset {self._offset}",
            resolve="find who else writes there; a record without a value removes what its key holds",
        )


def catch_up_together(cluster: Cluster, logs: Mapping[StateLog, tuple[TopicInfo, int]]) -> set[StateLog]:
    """Read many logs with one connection for each broker; return those that were read up to their end.

    A connection, and five requests, for each of them would be most of what a flow's start costs among some
    hundred others. Whatever is in the way of a log is left to its own ``catch_up``, which tells what it is.

    Args:
        cluster: where all of them are.
        logs: with their topics as they are now, and their ends for readers of committed records.
    """
    states = {state._tp: state for state in logs}
    reader = IntervalReader(
        cluster,
        {info.name: info for info, _ in logs.values()},
        {state._tp: Interval(state._offset, end) for state, (_, end) in logs.items()},
        Deadline(_NOT_NOW_S),
        max_bytes=_MAX_BYTES,
        share_bytes=_SHARE_BYTES,
        tolerates=(OnceoverError,),
        compacted=True,
    )
    try:
        for part in reader.parts():
            if not states[part.tp]._take(part):
                reader.leave(part.tp)
    except OnceoverError as error:
        log.debug("the others are read one by one: %s", error)
    return {state for state, (_, end) in logs.items() if state._offset >= end}
