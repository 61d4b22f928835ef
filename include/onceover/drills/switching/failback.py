"""The way back behind a switchover: when the flow that leads back may go on, and when clients may. Pure.

Invariant: clients go back only to a side that holds all of what was promoted; what waits for a person is not
waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceover.drills.codes import DrillCode
from onceover.errors import NeedsOperator
from onceover.operate.states import COPIES, CopyState

# Nobody comes back from these by waiting.
_OVER: Final = (CopyState.STOPPED, CopyState.PROMOTED)
_NAMED: Final = 3


def check_all_led_back(back: str, missing: Sequence[str], then: str) -> None:
    """Refuse to go on while the flow that leads back has not taken in all that was promoted.

    Args:
        back: its name.
        missing: promoted copies that it does not copy.
        then: what is done once it does.

    Raises:
        NeedsOperator: SWITCHOVER_UNSET, there are some.
    """
    if missing:
        raise NeedsOperator(
            f"flow {back} does not take in {', '.join(missing[:_NAMED])}",
            code=DrillCode.SWITCHOVER_UNSET,
            where=f"{len(missing)} topics",
            resolve=f"have its topics.include name them, with naming: identity in both flows; then {then}",
        )


def copies_already(status: Mapping[str, Any]) -> bool:
    """Tell whether the flow that leads back runs, by its entry of ``status``: nobody has to start it."""
    return status["state"] in COPIES


def why_over(status: Mapping[str, Any]) -> str | None:
    """Return why the flow that leads back will not catch up by waiting; None while it may."""
    if status["state"] not in _OVER:
        return None
    needs = "; ".join(f"{need['message']}; {need['resolve']}" for need in status["needs"][:_NAMED])
    return f"flow {status['flow']} is {status['state']}: {needs or 'see its status'}"


def may_go_back(status: Mapping[str, Any]) -> bool:
    """Tell whether the flow that leads back has caught up, so that it can be switched over."""
    return bool(status["state"] == CopyState.CAUGHT_UP)
