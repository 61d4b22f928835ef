"""The one protocol of everything that changes something: plan, approve, apply, outcome. Pure.

An operation is made with all that it needs, clusters that its caller has opened and closes among it, so one
can be made of others. The command line and Airflow's tasks drive every operation in the same way, each
through one skin.

Invariant: ``plan`` changes nothing. ``apply`` plans anew, announces that plan before it does anything of it,
does only what the approval covers, and writes each change into the operation's journal. Interrupted
anywhere it can be run again, and goes on from what was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from onceover.planning.approval import Approval, Item
from onceover.planning.counted import Counted, uncounted
from onceover.planning.plan import Change, Refusal

# Hears of progress, a line of text at a time.
Tell = Callable[[str], None]
# Waits so many seconds; True when it was asked to stop meanwhile.
Pause = Callable[[float], bool]


class Planned(Protocol):
    """A plan as whoever applies it sees it; those of the rooms say more (``planning.plan.Plan``)."""

    @property
    def title(self) -> str:
        """First line of the text."""

    @property
    def changes(self) -> Sequence[Change]:
        """What would be done, in its order."""

    @property
    def refused(self) -> Sequence[Refusal]:
        """What is left out, and why."""

    @property
    def items(self) -> Sequence[Item]:
        """What a person approves; changes that need nobody's approval are none of it."""

    @property
    def exit_code(self) -> int:
        """What the command line returns for it."""

    @property
    def counts(self) -> Mapping[str, Any]:
        """Names, ids and counts: what is kept of it where everybody may look."""

    def document(self) -> dict[str, Any]:
        """Return the plan's JSON."""

    def describe(self) -> str:
        """Return the plan as text."""


class Outcome(Protocol):
    """What became of an operation."""

    @property
    def exit_code(self) -> int:
        """5 when running it again may help, 3 when somebody has to decide, 0 when it is done."""

    @property
    def waiting(self) -> Sequence[Refusal]:
        """What waits for somebody's decision, and what resolves it; the rest is done."""

    @property
    def counts(self) -> Mapping[str, Any]:
        """Names, ids and counts: what is kept of it where everybody may look."""

    def document(self) -> dict[str, Any]:
        """Return its JSON."""

    def describe(self) -> str:
        """Return it as text; the plan was announced before."""


def _silent(line: str) -> None:
    pass


def wait(seconds: float) -> bool:
    """Wait; a process that is to end meanwhile is ended by a signal."""
    time.sleep(seconds)
    return False


@dataclass(frozen=True)
class Caller:
    """What an operation needs of whoever has it applied.

    Args:
        announce: shown each plan before anything of it is done; raises to leave it undone. There is more than
            one plan where something else has changed meanwhile.
        tell: hears of progress.
        counted: told how many of how many things are done.
        pause: waits where an operation has to look twice.
    """

    announce: Callable[[Planned], None]
    tell: Tell = _silent
    counted: Counted = uncounted
    pause: Pause = wait


P_co = TypeVar("P_co", bound=Planned, covariant=True)
O_co = TypeVar("O_co", bound=Outcome, covariant=True)


class Operation(Protocol[P_co, O_co]):
    """Something that is planned, approved and applied."""

    def plan(self) -> P_co:
        """Return what would be done now. Changes nothing.

        Raises:
            Retriable: a cluster is away.
            UsageError: what was asked for makes no sense, or may not be looked at.
            NeedsOperator: somebody has to decide something first.
        """

    def apply(self, caller: Caller, approval: Approval | None = None) -> O_co:
        """Do what a plan computed now says.

        Args:
            approval: what somebody has said yes to; None for what ``caller`` is shown first.

        Raises:
            NeedsOperator: PLAN_CHANGED, it would be something else than was approved.
            Fenced: another start was newer.
            Others as ``plan``; what was done until then is in the journal.
        """
