"""A log that a cluster refuses to an audit: its partitions cannot be compared, and all others are.

Invariant: a right that is missing on one topic is a reason, of that topic alone (G9): neither a finding nor
the end of the audit. What refuses an audit as a whole, a login or the flow's own state, is none of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from onceover.audit.model import Reason
from onceover.audit.records.batches import Unreadable
from onceover.errors import OnceoverError, UsageError
from onceover.kafka.codes import KafkaCode


class MayNotRead(Unreadable):
    """A log that may not be read, or not be described."""


class NotThere(MayNotRead):
    """A log that is gone: its topic was deleted, or made anew under its name, since the audit began."""


class Withheld(NamedTuple):
    """Why nobody tells what a log holds.

    Args:
        reason: for people to count; ``why`` is what the cluster has said.
    """

    reason: Reason
    why: str


def said(error: OnceoverError) -> str:
    """Say what cannot be compared, and where. What resolves it is the reason's affair, but for a right."""
    told = [error.message, error.where, error.expected, error.seen]
    if error.code == KafkaCode.NOT_AUTHORIZED:
        told.append(error.resolve)
    return "; ".join(text for text in told if text)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what a cluster refuses for want of a right into what its log cannot be read for.

    Raises:
        MayNotRead: a right is missing.
    """
    try:
        yield
    except UsageError as error:
        if error.code != KafkaCode.NOT_AUTHORIZED:
            raise
        raise MayNotRead(error.message, code=error.code, where=error.where, resolve=error.resolve) from error
