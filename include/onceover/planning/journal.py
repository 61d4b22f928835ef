"""What ``apply`` was about to do and did: append-only JSON lines below ``ONCEOVER_HOME`` (G8).

Invariant: a change is in the journal as ``planned`` before anything is done, and as ``done`` after it.
One that is planned and neither done nor refused may or may not have happened: the process was killed in
between, and the next plan, computed from the clusters, tells. Lines are on disk when ``write`` returns.
Nothing here is ever read to decide anything (G4), and no line holds a secret (G10).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from onceover.clock import now_ms
from onceover.errors import NeedsOperator, OnceoverError, UsageError
from onceover.planning.approval import Approval
from onceover.planning.codes import PlanningCode
from onceover.planning.plan import Change, Plan, Refusal

log = logging.getLogger(__name__)

PLANNED: Final = "planned"
DONE: Final = "done"
REFUSED: Final = "refused"
FAILED: Final = "failed"


class Journal:
    """The journal of one operation of a flow. A context manager; not thread-safe.

    Args:
        path: the file; it and its directory are created when the first line is written.
        approval: what a person has said yes to; every line names that person.
    """

    def __init__(self, path: Path, approval: Approval | None = None) -> None:
        self.path = path
        consent = None if approval is None else approval.consent
        self._approved = None if consent is None else consent.document()
        self._descriptor: int | None = None
        # Of the plan that is being applied: its operation and id, which is a hash over all its changes.
        self._applying: tuple[str, str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def planned(self, plan: Plan) -> None:
        """Write down every change of a plan that is about to be applied.

        Raises:
            UsageError: JOURNAL, it cannot be written.
            NeedsOperator: as ``done``, of a plan in the place of one that was begun.
        """
        is_first, self._applying = self._applying is None, (plan.operation, plan.plan_id)
        lines = [self._line(change, PLANNED) for change in plan.changes]
        if not is_first:
            self._amid(lines)
            return
        try:
            self._write(lines)
        except OSError as error:
            raise UsageError(
                f"the journal cannot be written: {error.strerror}",
                code=PlanningCode.JOURNAL,
                where=str(self.path),
                expected="a directory that this user may write, with room",
                resolve="set ONCEOVER_HOME to one, then run again: the plan is computed anew",
            ) from error

    @contextmanager
    def applying(self, plan: Plan) -> Iterator[None]:
        """Write down a plan's changes, and what ends this before its end."""
        self.planned(plan)
        try:
            yield
        except OnceoverError as error:
            self.failed(error)
            raise

    def done(self, *changes: Change) -> None:
        """Write down that changes were made.

        Raises:
            NeedsOperator: JOURNAL, it cannot be written any more.
        """
        self._amid(self._line(change, DONE) for change in changes)

    def refused(self, refusals: Iterable[Refusal]) -> None:
        """Write down what a cluster did not do.

        Raises:
            NeedsOperator: as ``done``.
        """
        self._amid({**self._line(None, REFUSED), "error": refusal.document()} for refusal in refusals)

    def failed(self, error: OnceoverError) -> None:
        """Write down what ended the operation before its end; where that cannot be, the log has it alone.

        Whoever runs it is told of that error, and not of a disk that is full as well.
        """
        try:
            self._write([{**self._line(None, FAILED), "error": error.as_dict()}])
        except OSError as unwritten:
            log.warning("%s cannot be written (%s): %s", self.path, unwritten.strerror, error)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _line(self, change: Change | None, outcome: str) -> dict[str, Any]:
        operation, plan_id = self._applying or (None, None)
        return {
            "at_ms": now_ms(),
            "operation": operation,
            "plan_id": plan_id,
            "change": None if change is None else change.document(),
            "outcome": outcome,
            "approved": self._approved,
        }

    def _amid(self, lines: Iterable[dict[str, Any]]) -> None:
        try:
            self._write(lines)
        except OSError as error:
            # No bad usage any more: something may have been changed by now.
            raise NeedsOperator(
                f"the journal cannot be written any more: {error.strerror}",
                code=PlanningCode.JOURNAL,
                where=str(self.path),
                expected="room, and a directory that this user may write",
                seen="changes that were made since, or were not, and are not in it",
                resolve="make room, then run again: the plan is computed anew, without what was done",
            ) from error

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        if not text:
            return
        descriptor = self._open()
        while text:
            text = text[os.write(descriptor, text) :]
        os.fsync(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            size = os.fstat(self._descriptor).st_size
            # A process that was killed while it wrote leaves half a line; the next one begins anew.
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                os.write(self._descriptor, b"\n")
        return self._descriptor


# Opens the journal of an operation for what was approved.
OpenJournal = Callable[[Approval | None], Journal]
