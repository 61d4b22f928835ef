"""A person's yes, at a terminal or on the command line, to what was shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from onceover.cli.terminal.output import say
from onceover.drills.codes import DrillCode
from onceover.errors import UsageError
from onceover.planning.approval import Approval, Consent, Item
from onceover.wiring.flows import login


def asked_person(flow: str, what: str, items: Sequence[Item], *, approved: bool) -> Approval:
    """Have a person say yes to what was shown, on a terminal or by ``--approve``.

    Raises:
        UsageError: NOT_APPROVED; nothing was done.
    """
    approval = Approval.of(items)
    if approved:
        return approval
    if sys.stdin.isatty():
        say(f"Type the flow's name ({flow}) to do this: ", aside=True)
        asked_s = time.monotonic()
        if sys.stdin.readline().strip() == flow:
            who, waited_s = login(), round(time.monotonic() - asked_s, 3)
            return replace(approval, consent=Consent(who, who, "a terminal", waited_s))
    raise UsageError(
        f"nobody has approved {what}; nothing was done",
        code=DrillCode.NOT_APPROVED,
        resolve="read the plan, then add `--approve`",
    )
