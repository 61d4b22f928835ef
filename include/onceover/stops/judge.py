"""Whether a partition may go on, by what both clusters tell of it (G5). Pure.

Invariant: a partition goes on only when its next source offset is proven to be there and to follow
what is on the target. Whatever cannot be proven is a stop with what was expected, what was seen and
the command that resolves it; never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from onceover.errors import OnceoverError
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.stops.codes import StopCode
from onceover.stops.lastbatch import is_another
from onceover.stops.record import Stop
from onceover.stops.undecided import OpenTransaction, TransactionOutcome
from onceover.wire.batches.batch import BatchHeader
from onceover.wire.progress import CopiedBatch, ProgressMeta, last_before

_UNKNOWN_EPOCH = -1


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
    def outcome(self) -> TransactionOutcome | None:
        """How the transaction that was left open ended; None without one."""
        if self.left_open is None or self.meta is None:
            return None
        return self.left_open.outcome(self.meta, mixed=self.mixed)


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
    return parted(e)


def parted(e: Evidence) -> Stop | None:
    """Return why the source's log is another one than was copied up to the position, as far as it tells."""
    if e.position is None:
        return None
    if e.epoch_end is not None and e.epoch_end[1] < 0:
        return _unknown_epoch(e, e.position)
    if e.position > e.log_end or (e.epoch_end is not None and e.epoch_end[1] < e.position):
        end = min(e.log_end, e.epoch_end[1]) if e.epoch_end else e.log_end
        return _stop(
            e,
            StopCode.SOURCE_DIVERGED,
            "the source has lost records that were copied already (unclean leader election, truncated log)",
            _continuation(e),
            f"that history ends at offset {end}",
            # Put back from a copy of its disks, its new history may bear the epochs of the old one.
            "see by an audit since the start where both sides part (there; before it, if the source was put "
            "back from an older copy), then " + _what_is_there(e, end),
        )
    return _forgotten_epoch(e, e.position) or _judge_last_batch(e)


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
        + _what_is_there(e, end),
    )


def _what_is_there(e: Evidence, parted_at: int) -> str:
    """Return how to go on where a history has parted: behind what retention has taken of it by now."""
    return commands.skip_to(e.flow, e.source, max(parted_at, e.log_start), "copy what is there now")


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


def _forgotten_epoch(e: Evidence, position: int) -> Stop | None:
    """Return the stop for a log that goes past the position, and has nothing of the epoch copied last.

    It may be the one that was copied: compaction has taken all of the epoch, and replicas that were built
    anew since know only what they have. It may as well be another one, of a copy or an unclean leader. The
    last batch cannot tell: where it is still there, so is its epoch.
    """
    if e.meta is None or e.epoch_end is None or e.epoch_end[0] >= e.meta.leader_epoch:
        return None
    known, end = e.epoch_end
    return _stop(
        e,
        StopCode.SOURCE_DIVERGED,
        "the source's log has nothing any more of the leader epoch that was copied last (compacted away; or "
        "restored from an older copy, unclean leader election): nothing proves that it is what was copied",
        _continuation(e),
        f"a log of {e.log_end} offsets whose leader epoch {known} ends at offset {end}, and no such epoch",
        "see by an audit since the start whether both sides part, and where; where they do not, "
        + commands.skip_to(e.flow, e.source, position, "go on where it stands now")
        + f"; otherwise {commands.reseed(e.flow, e.source)}",
    )


def lost_on_target(e: Evidence) -> Stop | None:
    """Return why the target does not hold what was copied there; None where nothing speaks against it.

    What has expired there, as it may, is none of it.
    """
    if e.target_topic is None or e.source_topic is None:
        return _judge_topics(e)
    return _judge_target_topic(e, commands.reseed(e.flow, e.source)) or _shortened(e)


def _judge_target_log(e: Evidence) -> Stop | None:
    if e.meta is None:
        return None
    stop = _shortened(e)
    if stop is not None:
        return stop
    if e.outcome is TransactionOutcome.UNKNOWN:
        return undecided(e)
    return _dropped(e) if e.is_dropped else None


def _shortened(e: Evidence) -> Stop | None:
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
    return None


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
