"""The command line's skin over every operation: show the plan, have it applied, show what became of it."""

from __future__ import annotations

import sys
from typing import Final

from onceover.cli.terminal.display import Counter
from onceover.cli.terminal.output import CommandResult, say
from onceover.planning.approval import Approval
from onceover.planning.operation import Caller, Operation, Outcome, Pause, Planned, wait
from onceover.shown import visible

# Of commands whose last word says whether it is done.
APPLY_INSTEAD: Final = "the same command with `apply` instead of `plan` does it"
ADD_APPLY: Final = "add --apply to do it"


def planned(operation: Operation[Planned, Outcome], how: str = APPLY_INSTEAD) -> CommandResult:
    """Return what ``plan`` prints: the plan, and how to have it done where there is something to do."""
    plan = operation.plan()
    text = plan.describe()
    if plan.changes:
        text += f"\nnothing was changed; {how}"
    return CommandResult(plan.document(), text, plan.exit_code)


def applied(
    operation: Operation[Planned, Outcome],
    *,
    as_json: bool,
    counting: str = "",
    pause: Pause = wait,
    approval: Approval | None = None,
) -> CommandResult:
    """Have an operation applied; people see its plan before anything is done.

    Args:
        as_json: stdout is for the one document at the end.
        counting: what is done one after the other, to show how many are; empty for nothing.
        approval: of a plan that was shown before and agreed to; None for what is shown now.
    """

    def announce(plan: Planned) -> None:
        if approval is None:
            say(plan.describe(), aside=as_json)

    def tell(line: str) -> None:
        # Minutes pass, in a job's log as well: what is read by programs stays on stdout by itself.
        say(f"  {visible(line)}", aside=as_json or not sys.stdout.isatty())

    with Counter(counting, wanted=bool(counting) and not as_json) as counted:
        outcome = operation.apply(Caller(announce, tell, counted, pause), approval)
    return CommandResult(outcome.document(), outcome.describe(), outcome.exit_code)
