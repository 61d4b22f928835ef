"""What it means that a broker does not take a record, and what to do about one of Onceover's own."""

from __future__ import annotations

import socket
from typing import Final

from onceover.errors import MustReset, NeedsOperator, OnceoverError
from onceover.kafka.codes import KafkaCode
from onceover.kafka.ports import Refused

# Than a segment of the topic holds, whatever the topic takes in a batch.
OVER_SEGMENT: Final = 18
# Than the topic takes in a batch, or than fits into one of its segments.
TOO_LARGE: Final = frozenset({10, OVER_SEGMENT})
_INVALID_TIMESTAMP: Final = 32
_INVALID_RECORD: Final = 87
ABOUT_A_RECORD: Final = (*TOO_LARGE, _INVALID_TIMESTAMP, _INVALID_RECORD)


def words(code: int, reason: str) -> str:
    """Return the broker's words, which never hold payload, with its code."""
    return f"error {code}: {reason or 'no reason given'}"


def write_refused(text: str, where: str, refused: Refused) -> NeedsOperator:
    """Return the error for records of our own that would be refused again; ``text`` says which."""
    return NeedsOperator(
        f"{text}: {words(refused.code, refused.reason)}",
        code=KafkaCode.WRITE_REFUSED,
        where=where,
        resolve=f"{_way_out(refused)}, then run again",
    )


def _way_out(refused: Refused) -> str:
    """Return what a person does about a record of our own that would be refused again, for ``resolve``.

    It carries the time of the machine that calls this: a clock that is wrong is the first thing to look at.
    """
    topic = refused.outgoing.target.topic
    if refused.code == _INVALID_TIMESTAMP:
        return (
            f"set the clock of {socket.gethostname()} right, and remove what was set on {topic} about "
            "timestamps, such as message.timestamp.after.max.ms"
        )
    limit = "segment.bytes" if refused.code == OVER_SEGMENT else "max.message.bytes"
    return f"remove what was set on {topic} since, such as {limit}"


def own_refused(refused: Refused) -> OnceoverError:
    """Return what it means that a topic does not take a record of the flow's own.

    ``NeedsOperator`` where it will be refused again, ``MustReset`` where it may not be.
    """
    topic = refused.outgoing.target.topic
    text = f"{topic} does not take a record of the flow's own"
    if refused.code not in ABOUT_A_RECORD:
        return MustReset(f"{text}: {refused}")
    return NeedsOperator(
        text,
        code=KafkaCode.OWN_RECORD_REFUSED,
        where=topic,
        expected="a topic with the configuration that the flow created it with",
        seen=words(refused.code, refused.reason),
        resolve=f"{_way_out(refused)}, then start again",
    )
