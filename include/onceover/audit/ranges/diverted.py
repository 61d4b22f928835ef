"""Which records a flow has diverted, by its dead-letter topics' own word.

Invariant: a record that is missing on the target counts as diverted only when a dead-letter topic names its
partition and offset, of the very topic that is copied now, since that copy was begun; that it was diverted is
told as unverifiable, never as right. Where nobody can tell what a topic names, that is told, and nobody
concludes that it names nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from onceover.audit.model import Reason
from onceover.audit.ranges.logs import AskedEnds, PartitionLog, described, log_bounds, settled
from onceover.audit.records.batches import Unreadable
from onceover.audit.records.reader import Gone, ReadBatch, Stretch, read_batches
from onceover.audit.records.recordhash import AuditedRecord
from onceover.audit.records.refusals import MayNotRead
from onceover.errors import NeedsOperator, OnceoverError, Retriable
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord

log = logging.getLogger(__name__)

CopiedRecords: TypeAlias = Callable[[], Iterable[MapRecord]]

_FLOW: Final = b"onceover.flow"
_TOPIC: Final = b"onceover.source.topic"
_TOPIC_ID: Final = b"onceover.source.topic.id"
_PARTITION: Final = b"onceover.source.partition"
_OFFSET: Final = b"onceover.source.offset"
# Commit markers reach the topic within milliseconds of the progress; a broker may restart.
_MARKERS_S: Final = 30.0
_HIDDEN: Final = "their dead letters are behind an open transaction of the dead-letter topic"
_CLOSED: Final = "the topic {}, to which generation {} and perhaps others have diverted, {}"
# Where a right is missing, Kafka answers alike for a topic that is there and for one that is not.
_REFUSED: Final = "may not be read, if it is there: {}; grant READ on it"


class Doubt(NamedTuple):
    """Why nobody can tell whether a record was diverted.

    Args:
        reason: for people to count; ``why`` is what was seen.
        until: first source offset that it does not touch; None where it touches all.
    """

    reason: Reason
    why: str
    until: int | None = None


class CopyBegun(NamedTuple):
    """Of which topic a partition is copied now, and since when, or some time before that.

    Args:
        source_id: the topic's id.
        at_ms: since when; what was diverted earlier an earlier copy has diverted.
        enrolled_ms: of dead letters that name no topic's id, earlier ones are of another one.
    """

    source_id: UUID
    at_ms: int
    enrolled_ms: int = 0


class Letter(NamedTuple):
    """What a dead letter names.

    Args:
        offset: of the record on the source.
        topic_id: of its topic, as it is written; None where an older release has diverted it.
        at_ms: when it was diverted.
    """

    offset: int
    topic_id: bytes | None
    at_ms: int

    def of(self, copy: CopyBegun) -> bool:
        """Tell whether it names a record of the topic that is copied now, and of this copy."""
        if self.at_ms < copy.at_ms:
            return False
        if self.topic_id is None:
            return self.at_ms >= copy.enrolled_ms
        return self.topic_id == str(copy.source_id).encode()


class DeadLetters(NamedTuple):
    """What is known of the dead letters of one source partition.

    Args:
        offsets: source offsets whose records were diverted.
        hidden: those that a dead letter names which no reader of committed records sees yet.
        unread: why others may be named where nobody could read.
    """

    offsets: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()
    unread: tuple[Doubt, ...] = ()

    def doubt(self, offset: int) -> Doubt | None:
        """Return why nobody can tell whether a record that is not among ``offsets`` was diverted."""
        if offset in self.hidden:
            return Doubt(Reason.OPEN_TRANSACTION, _HIDDEN)
        return next((each for each in self.unread if each.until is None or offset < each.until), None)


NO_LETTERS: Final = DeadLetters()


class ClosedTopic(NamedTuple):
    """A topic that the flow has diverted to, of which nothing is known, or not all.

    ``reason``, ``why``: as of a doubt; ``last``: the newest generation that diverted there.
    """

    reason: Reason
    why: str
    last: int


@dataclass(frozen=True, slots=True)
class Diverted:
    """What a flow's dead-letter topics told.

    Args:
        named: what they name, by source partition.
        hidden: what they name behind an open transaction.
        unread: why not all of them was read.
        closed: topics that are not there any more, or may not be read.
    """

    named: Mapping[TopicPartition, Collection[Letter]] = field(default_factory=dict)
    hidden: Mapping[TopicPartition, Collection[Letter]] = field(default_factory=dict)
    unread: tuple[Doubt, ...] = ()
    closed: tuple[ClosedTopic, ...] = ()

    def of(self, source: TopicPartition, copy: CopyBegun, copied: CopiedRecords) -> DeadLetters:
        """Return what is known of one source partition's.

        Args:
            copied: yields what the offset map says of the partition and its counterpart; asked only where a
                topic is closed.
        """
        named, hidden = (
            frozenset(each.offset for each in letters.get(source, ()) if each.of(copy))
            for letters in (self.named, self.hidden)
        )
        closed = (Doubt(reason, why, _copied_behind(last, copied)) for reason, why, last in self.closed)
        return DeadLetters(named, hidden, (*self.unread, *closed))


def _copied_behind(generation: int, copied: CopiedRecords) -> int | None:
    """Return the first source offset that a newer generation has copied; None without one."""
    return min((each.source_start for each in copied() if each.generation > generation), default=None)


def diverted(target: Cluster, topics: Mapping[str, int], flow: str, today: str | None = None) -> Diverted:
    """Return what a flow's dead-letter topics name, up to their present ends.

    To be asked after the flow's progress was read: what is diverted later is nobody's question. A partition
    that nobody leads, or tells the end of, takes nothing from the audit but what it may name; nor does a
    topic that may not be read.

    Args:
        topics: the topics that the flow has diverted to, each with the newest generation that did.
        today: the one that it diverts to now.

    Raises:
        Retriable: the target is away.
    """
    reading = _Reading(target, flow, topics, today)
    infos = reading.topics() if topics else {}
    # The target has answered about the flow: whoever does not is away alone.
    ends = AskedEnds(target, others_answer=True)
    bounds = log_bounds(ends, infos)
    logs = {tp: PartitionLog(infos[tp.topic].topic_id, *each) for tp, each in bounds.items()}
    logs |= settled(ends, {tp: each for tp, each in logs.items() if reading.waits(tp, each)}, _MARKERS_S)
    for tp, each in logs.items():
        if tp not in ends.away:
            reading.read(tp, each)
    reading.doubts += [Doubt(*withheld) for withheld in ends.away.values()]
    return Diverted(reading.named, reading.hidden, tuple(reading.doubts), tuple(reading.closed.values()))


_Named = dict[TopicPartition, set[Letter]]


class _Reading:
    """What was read of dead-letter topics up to now, and what could not be."""

    def __init__(self, target: Cluster, flow: str, topics: Mapping[str, int], today: str | None) -> None:
        self._target = target
        self._flow = flow
        self._topics = topics
        self._today = today
        self.named: _Named = {}
        self.hidden: _Named = {}
        self.doubts: list[Doubt] = []
        self.closed: dict[str, ClosedTopic] = {}

    def topics(self) -> dict[str, TopicInfo]:
        """Return the topics that are there; note which are not."""
        each = self._target.retry(lambda: described(self._target, sorted(self._topics)))
        for topic, error in each.failed.items():
            self._refused(topic, error)
        for topic in self._topics.keys() - each.found.keys() - each.failed.keys():
            self._close(topic, Reason.DELETED, "is gone")
        return each.found

    def waits(self, tp: TopicPartition, log_: PartitionLog) -> bool:
        """Tell whether a partition names something behind an open transaction; others' are no concern."""
        behind: _Named = {}
        try:
            self._note(_undecided(tp, log_), behind)
        except OnceoverError:
            return True  # ``read`` says why
        return bool(behind)

    def read(self, tp: TopicPartition, log_: PartitionLog) -> None:
        """Note what a partition names."""
        try:
            self._note(Stretch(tp, log_.topic_id, log_.start, log_.stable), self.named)
            # Also what was aborted meanwhile: with the next audit that is decided.
            self._note(_undecided(tp, log_), self.hidden)
        except Gone as error:
            self.doubts.append(Doubt(error.reason, error.message))
        except Retriable as error:
            self.doubts.append(Doubt(Reason.NO_LEADER, error.message))
        except NeedsOperator as error:
            self._refused(tp.topic, error)

    def _refused(self, topic: str, error: OnceoverError) -> None:
        """Note that the cluster refuses a topic; the one of today may name all that is missing."""
        if topic != self._today:
            self._close(topic, Reason.UNREADABLE, _REFUSED.format(error.message))
            return
        doubt = Doubt(Reason.UNREADABLE, f"the topic {topic} {_REFUSED.format(error.message)}")
        if doubt not in self.doubts:
            self.doubts.append(doubt)

    def _close(self, topic: str, reason: Reason, how: str) -> None:
        last = self._topics[topic]
        self.closed[topic] = ClosedTopic(reason, _CLOSED.format(topic, last, how), last)

    def _note(self, stretch: Stretch, named: _Named) -> None:
        with closing(read_batches(self._target, stretch)) as reads:
            visible = (rec for read in reads if not read.aborted for rec in _of_batch(stretch, read))
            for rec in _readable(stretch, visible):
                letter = _letter(rec, self._flow)
                if letter is not None:
                    named.setdefault(letter[0], set()).add(letter[1])


def _undecided(tp: TopicPartition, log_: PartitionLog) -> Stretch:
    return Stretch(tp, log_.topic_id, max(log_.start, log_.stable), log_.end, committed=False)


def _of_batch(stretch: Stretch, read: ReadBatch) -> Iterator[AuditedRecord]:
    return _readable(stretch, read.batch.decode())


def _readable(stretch: Stretch, records: Iterator[AuditedRecord]) -> Iterator[AuditedRecord]:
    """Yield what can be read. That is not the end of the audit: records that only the rest names count as
    missing, and to readers they are."""
    try:
        yield from records
    except MayNotRead:
        raise
    except Unreadable as error:
        log.warning("dead-letter topic: %s cannot be read: %s", stretch.partition, error)


def _letter(rec: AuditedRecord, flow: str) -> tuple[TopicPartition, Letter] | None:
    """Return of which partition a record names one; None when another flow diverted it, or nobody says.

    The flow's headers follow the record's own, which may bear the same names.
    """
    begins = [index for index, (name, _) in enumerate(rec.headers) if name == _FLOW]
    said = dict(rec.headers[begins[-1] :]) if begins else {}
    topic, partition, offset = said.get(_TOPIC), said.get(_PARTITION), said.get(_OFFSET)
    if said.get(_FLOW) != flow.encode() or not topic or not partition or not offset:
        return None
    if not (partition.isdigit() and offset.isdigit()):
        return None
    source = TopicPartition(topic.decode("utf-8", "replace"), int(partition))
    return source, Letter(int(offset), said.get(_TOPIC_ID), rec.timestamp_ms)
