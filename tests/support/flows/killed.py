"""Commands that are killed in the middle, in a process of their own."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onceover.state.steps import Step
from tests.support.flows import template

_TIMEOUT_S: Final = 60.0


def killed_command(step: Step, count: int, arguments: Sequence[str], log: Path) -> None:
    """Run ``onceover`` with these arguments until it kills itself with -9 at a step; fail if it ends before.

    Args:
        count: at which occurrence of the step.
        log: where its output goes.
    """
    child = template.shared().start([step.name, str(count), *arguments], log, "topics_process")
    try:
        assert child.wait(_TIMEOUT_S) == -signal.SIGKILL, child.tail()
    finally:
        child.kill()
