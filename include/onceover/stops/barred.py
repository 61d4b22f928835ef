"""Stops of partitions that cannot be read, written or copied, although they are there. Pure."""

from __future__ import annotations

from onceover.errors import OnceoverError, UsageError
from onceover.model import TopicPartition
from onceover.planning import commands
from onceover.stops.aside import TroubleSide
from onceover.stops.codes import StopCode
from onceover.stops.record import Stop

_RIGHTS = {TroubleSide.SOURCE: "READ and DESCRIBE", TroubleSide.TARGET: "WRITE, READ and DESCRIBE"}


def barred(
    flow: str,
    source: TopicPartition,
    target: TopicPartition,
    side: TroubleSide,
    error: OnceoverError,
    position: int | None,
) -> Stop:
    """Return the stop for trouble that does not pass.

    Args:
        side: where it is.
        error: as it was seen last.
        position: next source offset to copy, None where it cannot be read.
    """
    again = commands.resume(flow, source)
    if side is TroubleSide.COPY:
        return _failing(flow, source, error, position)
    # What the error is about may be another partition than the copy: where a handler writes, or dead letters.
    named = [TopicPartition(*one) for one in error.partitions] if side is TroubleSide.TARGET else []
    rights = _RIGHTS[side] if not named or named[0].topic == target.topic else "WRITE and DESCRIBE"
    if named and target not in named:
        target = named[0]
    topic = source.topic if side is TroubleSide.SOURCE else target.topic
    seen = error.message if error.where is None else f"{error.message} ({error.where})"
    if isinstance(error, UsageError):
        code, deed = StopCode.TARGET_UNAUTHORIZED, "write"
        if side is TroubleSide.SOURCE:
            code, deed = StopCode.SOURCE_UNAUTHORIZED, "read"
        return Stop(
            code,
            f"the flow's principal may not {deed} {side} topic {topic}",
            f"{rights} on {topic}",
            seen,
            f"grant them (docs/operations.md lists all rights), then {again}",
            position,
        )
    if side is TroubleSide.SOURCE:
        code, message = (
            StopCode.SOURCE_UNREADABLE,
            f"{source} cannot be read on the source, and that does not pass",
        )
        fix = "see to the broker that leads it: its log says why"
    else:
        code, message = (
            StopCode.TARGET_UNWRITABLE,
            f"{target} cannot be written on the target, and that does not pass",
        )
        fix = "see to the broker that leads it, to its replicas and to the topic's configuration"
    return Stop(code, message, "answers without an error", seen, f"{fix}; then {again}", position)


def _failing(flow: str, source: TopicPartition, error: OnceoverError, position: int | None) -> Stop:
    behind = (
        "" if position is None else f"; or {commands.skip_to(flow, source, position + 1, 'leave it out')}"
    )
    return Stop(
        StopCode.TRANSACTIONS_FAIL,
        f"transactions that copy {source} from offset {position} fail again and again, others do not",
        "a transaction that is committed",
        error.message,
        "see to what is special about the records there (their size, or a handler's work on them), then "
        f"{commands.resume(flow, source)}{behind}",
        position,
    )
