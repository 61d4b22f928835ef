"""Every error of Onceover, grouped by what the caller does next.

An error says what happened, where, what was expected, what was seen, and which command or change
resolves it. It survives pickling, because errors cross Spark's worker boundary.
"""

from __future__ import annotations

import re
import traceback
from typing import Any, ClassVar, Final, Self, TypeGuard

from onceover import exitstatus
from onceover.codes import GeneralCode

_LONGEST_TEXT: Final = 500
# What a disk without room is called, by Python, by Java and by Spark, which quotes them.
FULL_DISK: Final = re.compile(r"No space left on device|Disk quota exceeded")


class OnceoverError(Exception):
    """Base of all errors; ``exit_code`` is what the command line returns for it.

    ``usual_way`` is what resolves an error of this kind that does not say it itself.
    """

    exit_code: ClassVar[int] = exitstatus.VIOLATED
    usual_way: ClassVar[str] = "run it again with ONCEOVER_LOG=DEBUG and see the log"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        where: str | None = None,
        expected: str | None = None,
        seen: str | None = None,
        resolve: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).__name__
        self.where = where
        self.expected = expected
        self.seen = seen
        self.resolve = resolve
        # Topic and number of the partitions that alone are meant: what is asked about others may work. Said
        # to the caller only, and not kept where the error crosses a process.
        self.partitions: tuple[tuple[str, int], ...] = ()

    def about(self, *partitions: tuple[str, int]) -> Self:
        """Say that only these partitions are meant, by topic and number; return the error."""
        self.partitions = partitions
        return self

    def but(self, message: str) -> Self:
        """Return the same error in other words."""
        return type(self)(message, **self._fields())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self._fields()))

    def _fields(self) -> dict[str, str | None]:
        return {
            "code": self.code,
            "where": self.where,
            "expected": self.expected,
            "seen": self.seen,
            "resolve": self.resolve,
        }

    def as_dict(self, subject: str | None = None) -> dict[str, str | None]:
        """Return the ``error`` object of the command line's JSON; what to do is always in it.

        Args:
            subject: what was being done, or to what: where it happened, unless the error knows it better.
        """
        fields = self._fields()
        fields["where"] = self.where or subject
        fields["resolve"] = self.resolve or self.usual_way
        return {"message": self.message, **fields}

    def __str__(self) -> str:
        parts = [self.message]
        for label, value in (
            ("where", self.where),
            ("expected", self.expected),
            ("seen", self.seen),
            ("to resolve", self.resolve),
        ):
            if value:
                parts.append(f"{label}: {value}")
        return "; ".join(parts)


def _rebuild(cls: type[OnceoverError], message: str, fields: dict[str, str | None]) -> OnceoverError:
    return cls(message, **fields)


class UsageError(OnceoverError):
    """Bad arguments, flow file or configuration. Nothing was changed. Exit code 2."""

    exit_code = exitstatus.USAGE
    usual_way = "correct what the message names, then run again"


class NeedsOperator(OnceoverError):
    """A person has to decide; going on would skip or repeat records. Exit code 3."""

    exit_code = exitstatus.PERSON
    usual_way = "find out what the message tells of, decide, then run again"


class Fenced(OnceoverError):
    """A newer generation of the flow has taken over; stop, do not come back. Exit code 4."""

    exit_code = exitstatus.FENCED
    usual_way = "leave it to the other one, or end that first"


class Retriable(OnceoverError):
    """Temporary: a broker is away, a leader moves. Try again under a deadline. Exit code 5."""

    exit_code = exitstatus.TEMPORARY
    usual_way = "see to it that what the message names is up and can be reached, then run again"


class NotNow(Retriable):
    """A broker answers and refuses for the moment, with a code that is known to pass; it may last, too."""


class MustReset(OnceoverError):
    """The open transaction is lost or its outcome unknown: drop the producer, begin again at fencing.

    Never reason about which batches landed (docs/protocol.md).
    """

    exit_code = exitstatus.TEMPORARY
    usual_way = Retriable.usual_way


class Unanswered(MustReset):
    """The same because an answer did not come, or too late: nobody has said anything about what was sent."""


class Superseded(OnceoverError):
    """A newer instance of the same lane and generation runs; this one ends quietly."""


class Fatal(OnceoverError):
    """A broken invariant: a bug, or a broker that breaks the protocol. Never retried."""


def unexpected(error: BaseException, *, resolve: str = "see the traceback in the log") -> Fatal:
    """Return a foreign exception as an error of ours: its type, its text and where it was raised.

    Args:
        resolve: how to learn more.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    text = str(error).strip()
    text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ..."
    return Fatal(
        f"unexpected {type(error).__name__}: {text or 'without a text'}",
        code=GeneralCode.UNEXPECTED,
        where=f"{last.filename}:{last.lineno} in {last.name}" if last else None,
        resolve=f"{resolve}; it is a bug, or something on this machine",
    )


def is_of_a_path(error: BaseException) -> TypeGuard[OSError]:
    """Tell whether ``unusable_path`` has something to say of an error: it names a file, or a disk is full."""
    return isinstance(error, OSError) and (error.filename is not None or _is_full(error))


def _is_full(error: OSError) -> bool:
    return FULL_DISK.search(error.strerror or "") is not None


def kind_of_refusal(error: OSError) -> type[UsageError] | type[NeedsOperator]:
    """Return of which kind an error of ours is that says what the operating system refused.

    A disk that is full is no bad usage: it may have become so in the middle of what was done.
    """
    return NeedsOperator if _is_full(error) else UsageError


def unusable_path(error: OSError) -> UsageError | NeedsOperator:
    """Return what the operating system refused about a file or directory as an error of ours."""
    # Who writes to a file that is open is not told which.
    where = error.filename or "a file below ONCEOVER_HOME, or a temporary one,"
    kind = kind_of_refusal(error)
    first = "make room" if kind is NeedsOperator else "let this user read and write it"
    return kind(
        f"{where} cannot be used: {error.strerror}",
        code=GeneralCode.PATH_UNUSABLE,
        where=str(where),
        resolve=f"{first}, or name another one; what Onceover itself keeps is below ONCEOVER_HOME",
    )


def unusable_amid(error: OSError) -> NeedsOperator:
    """Return the same of a run that may have led its flow by then: what was changed is no bad usage."""
    told = unusable_path(error)
    return NeedsOperator(told.message, code=told.code, where=told.where, resolve=told.resolve)
