"""Why a partition stops and asks the operator (G5): codes, messages, and the judgement on resume. Pure.

Invariant: a partition goes on only when its next source offset is proven to be there and to follow
what is on the target. Whatever cannot be proven is a stop with what was expected, what was seen and
the command that resolves it; never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum, auto
from typing import Any
from uuid import UUID

from onceover.engine import commands
from onceover.engine.lastbatch import is_another
from onceover.engine.statevalue import mapping, record
from onceover.engine.undecided import OpenTransaction, Verdict
from onceover.errors import OnceoverError
from onceover.model import TopicPartition
from onceover.wire.batch import BatchHeader, BatchTooLarge, CorruptBatch
from onceover.wire.progress import CopiedBatch, ProgressMeta, last_before

VERSION = 1
_UNKNOWN_EPOCH = -1


class StopCode(StrEnum):
    """Every reason why a partition stops; docs/operations.md has a line for each."""

    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name

    SOURCE_TRUNCATED = auto()
    SOURCE_DIVERGED = auto()
    SOURCE_MISSING = auto()
    SOURCE_RECREATED = auto()
    SOURCE_SHRUNK = auto()
    TARGET_MISSING = auto()
    TARGET_RECREATED = auto()
    TARGET_SHRUNK = auto()
    TARGET_SHORTENED = auto()
    TARGET_UNDECIDED = auto()
    TARGET_DROPPED = auto()
    PROGRESS_MISSING = auto()
    PROGRESS_FOREIGN = auto()
    PROGRESS_UNREADABLE = auto()
    RECORD_REFUSED = auto()
    RECORD_TOO_LARGE = auto()
    HANDLER_FAILED = auto()
    DEAD_LETTER_REFUSED = auto()
    SOURCE_DAMAGED = auto()
    RECORDS_RETURN = auto()
    MEMORY_TOO_SMALL = auto()
    SOURCE_UNAUTHORIZED = auto()
    SOURCE_UNREADABLE = auto()
    TARGET_UNAUTHORIZED = auto()
    TARGET_UNWRITABLE = auto()
    TRANSACTIONS_FAIL = auto()


@dataclass(frozen=True)
class Stop:
    """A stopped partition, as written under ``stop/<topic>/<partition>`` and shown by ``status``."""

    code: str
    message: str
    expected: str
    seen: str
    resolve: str
    position: int | None
    at_ms: int = 0
    generation: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the state value."""
        return {"v": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Stop:
        """Read what ``to_json`` wrote; unknown fields of later versions are ignored.

        Raises:
            NeedsOperator: it is no stop.
        """
        return record(cls, mapping(value, "stop"), "stop")

    @property
    def name(self) -> dict[str, int | None]:
        """What tells it from any other stop of the partition: compared for equality, never by time, since
        the clocks of workers and of people differ."""
        return {"generation": self.generation, "at_ms": self.at_ms, "position": self.position}

    def is_meant_by(self, request: object) -> bool:
        """Tell whether a request to look again speaks of this very stop."""
        return isinstance(request, Mapping) and request.get("stop") == self.name


@dataclass(frozen=True)
class TopicSeen:
    """A topic as it is now."""

    topic_id: UUID
    partitions: int


@dataclass(frozen=True)
class Evidence:
    """All that is known about one enrolled partition when a lane wants to resume it.

    Args:
        flow: name of the flow, for the commands in messages.
        source: source partition; ``target`` its counterpart.
        enrolled_source_id: topic id of the source at enrolment; ``enrolled_target_id`` likewise.
        position: committed next source offset, None when there is no progress.
        meta: metadata beside the progress, None when there is none.
        doubt: why the progress cannot be believed; None when it can, or there is none.
        source_topic: the source topic now, None when it does not exist; ``target_topic`` likewise.
        log_start: first offset in the source's log; ``log_end`` its high watermark.
        epoch_end: (epoch, end offset) that the source's leader answers for the stored epoch; (-1, -1) when
            it does not know such an epoch, None when none is stored.
        target_end: high watermark of the target partition now.
        target_epoch_end: what the target's leader answers for the epoch of its own that is stored; likewise.
        left_open: what a transaction of the lane's own has left open there; None without.
        mixed: what the lane writes there need not come from this source partition.
        is_dropped: the target has aborted the last record that the progress knows of.
        last_batch: what the source holds now at the last offset before the position; None where that is not
            known, or was not asked for.
    """

    flow: str
    source: TopicPartition
    target: TopicPartition
    enrolled_source_id: UUID
    enrolled_target_id: UUID
    position: int | None
    meta: ProgressMeta | None
    source_topic: TopicSeen | None
    target_topic: TopicSeen | None
    log_start: int = 0
    log_end: int = 0
    epoch_end: tuple[int, int] | None = None
    target_end: int = 0
    target_epoch_end: tuple[int, int] | None = None
    doubt: OnceoverError | None = None
    left_open: OpenTransaction | None = None
    mixed: bool = False
    is_dropped: bool = False
    last_batch: BatchHeader | None = None

    @property
    def last_copied(self) -> CopiedBatch | None:
        """The batch of the source that holds the last offset before the position, as it was copied."""
        if self.meta is None or self.position is None:
            return None
        return last_before(self.position, self.meta.batch)

    @property
    def verdict(self) -> Verdict | None:
        """How the transaction that was left open ended; None without one."""
        if self.left_open is None or self.meta is None:
            return None
        return self.left_open.verdict(self.meta, mixed=self.mixed)


def judge(e: Evidence) -> Stop | None:
    """Return why the partition may not go on, or None when it may."""
    return _judge_topics(e) or _judge_source_log(e) or _judge_target_log(e)


def _judge_topics(e: Evidence) -> Stop | None:
    reseed = commands.reseed(e.flow, e.source)
    if e.source_topic is None:
        return _stop(
            e,
            StopCode.SOURCE_MISSING,
            f"source topic {e.source.topic} has been deleted",
            f"topic id {e.enrolled_source_id}",
            "no such topic",
            f"add {e.source.topic} to topics.exclude of the flow file, which keeps what was copied; "
            f"or create it again on the source, then {reseed}",
        )
    # The enrolment may have been renewed by a reseed of another partition of the same topic: the ids
    # beside this partition's own progress say what *its* position was counted in.
    source_id = e.meta.source_topic_id if e.meta else str(e.enrolled_source_id)
    if str(e.source_topic.topic_id) != source_id or e.source_topic.topic_id != e.enrolled_source_id:
        return _stop(
            e,
            StopCode.SOURCE_RECREATED,
            f"source topic {e.source.topic} was deleted and created anew: its offsets mean other records now",
            f"topic id {source_id}",
            f"topic id {e.source_topic.topic_id}",
            reseed,
        )
    if e.source.partition >= e.source_topic.partitions:
        return _stop(
            e,
            StopCode.SOURCE_SHRUNK,
            f"source topic {e.source.topic} has fewer partitions than were enrolled",
            f"partition {e.source.partition}",
            f"{e.source_topic.partitions} partitions",
            f"{reseed}; where the source has no such partition it is taken out of the flow",
        )
    return _judge_target_topic(e, reseed)


def _judge_target_topic(e: Evidence, reseed: str) -> Stop | None:
    if e.target_topic is None:
        return _stop(
            e,
            StopCode.TARGET_MISSING,
            f"target topic {e.target.topic} has been deleted, and the copied records with it",
            f"topic id {e.enrolled_target_id}",
            "no such topic",
            f"{reseed}; it creates the topic again, for all its partitions",
        )
    target_id = e.meta.target_topic_id if e.meta else str(e.enrolled_target_id)
    if str(e.target_topic.topic_id) != target_id or e.target_topic.topic_id != e.enrolled_target_id:
        return _stop(
            e,
            StopCode.TARGET_RECREATED,
            f"target topic {e.target.topic} was deleted and created anew: what was copied is gone",
            f"topic id {target_id}",
            f"topic id {e.target_topic.topic_id}",
            f"{reseed}; all partitions of the topic with it",
        )
    if e.target.partition >= e.target_topic.partitions:
        return _stop(
            e,
            StopCode.TARGET_SHRUNK,
            f"target topic {e.target.topic} has too few partitions",
            f"partition {e.target.partition}",
            f"{e.target_topic.partitions} partitions",
            f"{reseed}; it adds the partitions that are missing",
        )
    return None


def _judge_source_log(e: Evidence) -> Stop | None:
    if e.position is None:
        return _stop(
            e,
            StopCode.PROGRESS_MISSING,
            "the partition is enrolled, but its progress is gone: where to go on is not known",
            f"a committed offset of group onceover.{e.flow}",
            "none (expired, or deleted with the group or the topic)",
            f"{commands.seed_plan(e.flow, 'map')} shows where the offset map says that it was, "
            f"{commands.seed_apply(e.flow, 'map')} writes it; if the map is gone, too: "
            f"{commands.seed_apply(e.flow, 'lag-group')} may repeat a moment",
        )
    if e.doubt is not None:
        return _in_doubt(e, e.position, e.doubt)
    if e.position < e.log_start:
        return _stop(
            e,
            StopCode.SOURCE_TRUNCATED,
            f"the source has deleted {e.log_start - e.position} offsets that were not copied yet",
            f"offset {e.position} in the log",
            f"the log starts at {e.log_start}",
            commands.skip_to(e.flow, e.source, e.log_start, "accept their loss"),
        )
    if e.epoch_end is not None and e.epoch_end[1] < 0:
        return _unknown_epoch(e, e.position)
    diverged = e.epoch_end is not None and (
        (e.meta is not None and e.epoch_end[0] < e.meta.leader_epoch) or e.epoch_end[1] < e.position
    )
    if diverged or e.position > e.log_end:
        end = min(e.log_end, e.epoch_end[1]) if e.epoch_end else e.log_end
        return _stop(
            e,
            StopCode.SOURCE_DIVERGED,
            "the source has lost records that were copied already (unclean leader election, truncated log)",
            _continuation(e),
            f"that history ends at offset {end}",
            # Put back from a copy of its disks, its new history may bear the epochs of the old one.
            "see by an audit since the start where both sides part (there; before it, if the source was put "
            "back from an older copy), then "
            + commands.skip_to(e.flow, e.source, end, "copy what is there now"),
        )
    return _judge_last_batch(e)


def _judge_last_batch(e: Evidence) -> Stop | None:
    copied, seen = e.last_copied, e.last_batch
    if copied is None or seen is None or not is_another(copied, seen):
        return None
    end = min(copied.base_offset, seen.base_offset)
    return _stop(
        e,
        StopCode.SOURCE_DIVERGED,
        "the source has lost records that were copied already, and others are in their place (restored from "
        "an older copy)",
        f"the batch that was copied last: {_batch_text(copied)}",
        f"another one at offset {(e.position or 0) - 1}: {_batch_text(seen)}",
        # From here it is only known that they have parted by then.
        "see by an audit since the start where both sides part (there, or before it), then "
        + commands.skip_to(e.flow, e.source, end, "copy what is there now"),
    )


def _batch_text(batch: BatchHeader | CopiedBatch) -> str:
    return f"offsets {batch.base_offset} to {batch.next_offset - 1}, CRC-32C {batch.crc:#010x}"


def _continuation(e: Evidence) -> str:
    epoch = f" after leader epoch {e.meta.leader_epoch}" if e.meta else ""
    return f"the log to continue at offset {e.position}{epoch}"


def _in_doubt(e: Evidence, position: int, doubt: OnceoverError) -> Stop:
    origin = ("map", "--topic", re.escape(e.source.topic), "--replace")
    skip = commands.skip_to(e.flow, e.source, position, "go on where it stands now")
    first = f"{doubt.resolve}; or " if doubt.resolve else ""
    return _stop(
        e,
        StopCode(doubt.code),
        f"{doubt.message}: offset {position} may be right or not",
        doubt.expected or "",
        doubt.seen or "",
        f"{first}{commands.seed_plan(e.flow, *origin)} shows where the offset map says that it was, "
        f"{commands.seed_apply(e.flow, *origin)} writes it; or {skip}",
    )


def _unknown_epoch(e: Evidence, position: int) -> Stop:
    """Return the stop for a source that was restored from a copy: where the histories part is not known."""
    here = min(position, e.log_end)
    return _stop(
        e,
        StopCode.SOURCE_DIVERGED,
        "the source has lost records that were copied already (restored from an older copy, or rebuilt)",
        _continuation(e),
        f"a log of {e.log_end} offsets that knows no such epoch",
        "compare both sides, then "
        + commands.skip_to(e.flow, e.source, here, "copy what is there from that offset on")
        + f"; or {commands.reseed(e.flow, e.source)}",
    )


def _judge_target_log(e: Evidence) -> Stop | None:
    if e.meta is None:
        return None
    # After an unclean election others, or markers, may have filled it up again: what then ends too early is
    # the history. (-1, -1) is no answer: such a log may hold everything.
    _, history_end = e.target_epoch_end or (0, -1)
    shortened = 0 <= history_end < e.meta.target_end
    if shortened or e.target_end < e.meta.target_end:
        return _stop(
            e,
            StopCode.TARGET_SHORTENED,
            "the target has lost records that were copied already",
            f"log end at offset {e.meta.target_end} or later"
            + (f" in leader epoch {e.meta.target_epoch}" if shortened else ""),
            f"that history ends at offset {history_end}" if shortened else f"log end {e.target_end}",
            f"{commands.reseed(e.flow, e.source)}; what the target still holds of it will be there twice, "
            f"unless target topic {e.target.topic} is deleted before: then the same command creates it "
            "again, for all its partitions",
        )
    if e.verdict is Verdict.UNKNOWN:
        return undecided(e)
    return _dropped(e) if e.is_dropped else None


def undecided(e: Evidence) -> Stop:
    """Return the stop for a transaction of the lane that was left open, and that nobody here may end."""
    first = e.left_open.first if e.left_open else 0
    known_end = e.meta.target_end if e.meta else 0
    tool = (
        f"end it with Kafka's own tool (kafka-transactions.sh ... abort --topic {e.target.topic} "
        f"--partition {e.target.partition} --start-offset {first})"
    )
    again = (
        commands.resume(e.flow, e.source)
        if first >= known_end and not e.mixed
        else f"{commands.reseed(e.flow, e.source)}; what else the target holds of it will be there twice, "
        f"unless target topic {e.target.topic} is deleted before"
    )
    return _stop(
        e,
        StopCode.TARGET_UNDECIDED,
        f"a transaction of the flow ended while nobody led {e.target}, and was left open there",
        "every transaction of the flow that is over to be over in the log, too",
        f"one from offset {first} on, for which readers wait; copied are the offsets before {known_end}",
        f"{tool}, then {again}",
    )


def _dropped(e: Evidence) -> Stop:
    known_end = e.meta.target_end if e.meta else 0
    return _stop(
        e,
        StopCode.TARGET_DROPPED,
        "the target has dropped records whose transaction it said was committed",
        f"the record before target offset {known_end} to be committed",
        "it was aborted: its transaction ended while nobody led the partition, and a later one was aborted",
        f"{commands.reseed(e.flow, e.source)}; what the target still holds of it will be there twice, "
        f"unless target topic {e.target.topic} is deleted before: then the same command creates it "
        "again, for all its partitions",
    )


def _stop(e: Evidence, code: StopCode, message: str, expected: str, seen: str, resolve: str) -> Stop:
    return Stop(code, message, expected, seen, resolve, e.position)


def needs_epoch(meta: ProgressMeta | None) -> bool:
    """Tell whether the stored leader epoch can be compared at all."""
    return meta is not None and meta.leader_epoch != _UNKNOWN_EPOCH


def refused_record(
    flow: str, source: TopicPartition, offset: int, code: int, reason: str, *, too_large: bool = False
) -> Stop:
    """Return the stop for a record that the target does not take.

    Args:
        offset: source offset of the record; everything before it has been copied.
        code: the broker's error code.
        reason: the broker's own words, which never hold payload.
    """
    resume, skip = commands.resume(flow, source), _leave_out(flow, source, offset)
    if too_large:
        return Stop(
            StopCode.RECORD_TOO_LARGE,
            f"the record at source offset {offset} is larger than the target topic allows",
            "a record within the target's max.message.bytes",
            f"error {code}",
            f"raise max.message.bytes of the copy of {source.topic} on the target, then {resume}; or {skip}",
            offset,
        )
    return Stop(
        StopCode.RECORD_REFUSED,
        f"the target refuses the record at source offset {offset}",
        "a record that the target topic's configuration accepts",
        f"error {code}: {reason or 'no reason given'}",
        "change the target topic's configuration, and that of the source topic where the copy follows it"
        f" (or set topics.sync_configs to false in the flow file, before it), then {resume}; or {skip}",
        offset,
    )


def damaged_batch(flow: str, source: TopicPartition, offset: int, error: CorruptBatch) -> Stop:
    """Return the stop for a batch of the source that cannot be read; ``offset`` is its first."""
    behind = max(offset + 1, error.behind or 0)
    skip = commands.skip_to(flow, source, behind, f"leave out the offsets before {behind}")
    return Stop(
        StopCode.SOURCE_DAMAGED,
        f"the batch at source offset {offset} is damaged on the source",
        "a batch whose CRC-32C fits",
        str(error),
        f"repair the source's log, then {commands.resume(flow, source)}; or {skip}",
        offset,
    )


def records_return(
    flow: str, source: TopicPartition, target: TopicPartition, position: int, offsets: tuple[int, ...]
) -> Stop:
    """Return the stop for a source that gets records again and again, as a ring of clusters does.

    Args:
        offsets: where one and the same record lies on the source.
    """
    return Stop(
        StopCode.RECORDS_RETURN,
        f"the source gets the same records again and again: something may copy {target} back to {source}",
        "each record once, or a few times after an interruption",
        f"the record at source offset {offsets[0]} again at {', '.join(map(str, offsets[1:]))}: time, key, "
        "value and headers, each time after newer ones",
        f"find what writes to {source.topic} on the source (MirrorMaker, or a flow whose state is not seen "
        f"from here), take the topic out of it, then {commands.resume(flow, source)}; where a producer "
        "repeats records on purpose, the same command takes them as they are for the rest of the run",
        position,
    )


def memory_too_small(flow: str, source: TopicPartition, offset: int, error: BatchTooLarge) -> Stop:
    """Return the stop for a record that the lane cannot take apart; those before ``offset`` are copied."""
    behind = max(offset + 1, error.behind or 0)
    skip = commands.skip_to(flow, source, behind, f"leave out the offsets before {behind}")
    return Stop(
        StopCode.MEMORY_TOO_SMALL,
        f"the record at source offset {offset} takes more memory than limits.memory_per_lane leaves for it",
        error.expected or "less",
        f"{error.message}: {error.seen}",
        f"raise limits.memory_per_lane in the flow file, then {commands.resume(flow, source)}; or {skip}",
        offset,
    )


def handler_failed(flow: str, source: TopicPartition, offset: int, name: str, seen: str) -> Stop:
    """Return the stop for a record that the flow's handler fails on.

    Args:
        offset: source offset of the record; everything before it has been copied.
        name: the handler, as the flow file says.
        seen: the exception's type and place, or what is wrong with the output; never payload.
    """
    return Stop(
        StopCode.HANDLER_FAILED,
        f"handler {name} fails on the record at source offset {offset}",
        "records, or none",
        seen,
        "correct the handler and start the flow again (running workers keep the old code), or, where the "
        f"cause has gone, {commands.resume(flow, source)}; or {_leave_out(flow, source, offset)}",
        offset,
    )


def listener_failed(flow: str, source: TopicPartition, offset: int, name: str, seen: str) -> Stop:
    """Return the stop for a partition that the handler's ``partitions_gained`` did not take."""
    return Stop(
        StopCode.HANDLER_FAILED,
        f"partitions_gained of handler {name} fails",
        "no exception",
        seen,
        f"correct the handler and start the flow again, or {commands.resume(flow, source)}",
        offset,
    )


def dead_letter_refused(flow: str, source: TopicPartition, offset: int, topic: str, seen: str) -> Stop:
    """Return the stop for a record that neither its target nor the dead-letter topic takes."""
    return Stop(
        StopCode.DEAD_LETTER_REFUSED,
        f"dead-letter topic {topic} refuses the record at source offset {offset}, too",
        "a record that the dead-letter topic's configuration accepts",
        seen,
        f"change the configuration of {topic} (max.message.bytes, cleanup.policy), then "
        f"{commands.resume(flow, source)}; or {_leave_out(flow, source, offset)}",
        offset,
    )


def _leave_out(flow: str, source: TopicPartition, offset: int) -> str:
    return commands.skip_to(flow, source, offset + 1, "leave this record out")
