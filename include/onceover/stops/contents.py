"""Stops over what lies in a record or a batch: refused, damaged, too large, too much for a handler. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onceover.kafka.produce.refusals import OVER_SEGMENT, TOO_LARGE, words
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.stops.codes import StopCode
from onceover.stops.record import Stop, readable_stop, stopped_in
from onceover.wire.batches.batch import BatchTooLarge, CorruptBatch

# What a target topic's configuration may be the reason of.
_OF_CONFIGURATION: Final = frozenset({StopCode.RECORD_TOO_LARGE, StopCode.RECORD_REFUSED})


def refused_by_configuration(others: Mapping[str, Any]) -> dict[TopicPartition, Stop]:
    """Return the target partitions that are stopped because their topic does not take a record.

    Args:
        others: values of the state's second partition.
    """
    stops = {tp: readable_stop(others, tp) for tp in stopped_in(others)}
    return {tp: stop for tp, stop in stops.items() if stop is not None and stop.code in _OF_CONFIGURATION}


def refused_record(flow: str, source: TopicPartition, offset: int, code: int, reason: str) -> Stop:
    """Return the stop for a record that the target does not take.

    Args:
        offset: source offset of the record; everything before it has been copied.
        code: the broker's error code.
        reason: the broker's own words, which never hold payload.
    """
    resume, skip = commands.resume(flow, source), _leave_out(flow, source, offset)
    seen = words(code, reason)
    if code in TOO_LARGE:
        # A segment's length follows the source's, a limit of batches is only ever widened.
        limit, also = (
            ("segment.bytes", f", and of {source.topic} on the source where the copy follows it")
            if code == OVER_SEGMENT
            else ("max.message.bytes", "")
        )
        return Stop(
            StopCode.RECORD_TOO_LARGE,
            f"the record at source offset {offset} is larger than the target topic allows",
            f"a record within the target's {limit}",
            seen,
            f"raise {limit} of the copy of {source.topic} on the target{also}, then {resume}; or {skip}",
            offset,
        )
    return Stop(
        StopCode.RECORD_REFUSED,
        f"the target refuses the record at source offset {offset}",
        "a record that the target topic's configuration accepts",
        seen,
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
        f"change the configuration of {topic} (max.message.bytes, segment.bytes, cleanup.policy), then "
        f"{commands.resume(flow, source)}; or {_leave_out(flow, source, offset)}",
        offset,
    )


def _leave_out(flow: str, source: TopicPartition, offset: int) -> str:
    return commands.skip_to(flow, source, offset + 1, "leave this record out")
