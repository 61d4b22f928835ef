"""The failures of a task: one that Airflow may answer with another try, and one that it does not.

Invariant: Airflow's log shows an error with all its causes, and no name in any of them does anything there.
"""

from __future__ import annotations

import copy

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from onceover.errors import OnceoverError
from onceover.shown import screen


class JobInterrupted(AirflowException):
    """The job was killed, or met a temporary failure (exit code 5): running it again resumes it.

    Args:
        message: what interrupted it.
        killed: whether its processes were killed, or crashed.
        ran_s: how long they had run; None: as long as the try.
    """

    def __init__(self, message: str, *, killed: bool = False, ran_s: float | None = None) -> None:
        super().__init__(screen(message))
        self.killed, self.ran_s = killed, ran_s


class TaskFailed(AirflowFailException):
    """Another try would not help."""

    def __init__(self, message: str) -> None:
        super().__init__(screen(message))


def shown(error: OnceoverError) -> OnceoverError:
    """Return an error of ours as the cause of one for Airflow."""
    found = copy.copy(error)
    found.message = screen(error.message)
    for field in ("where", "expected", "seen", "resolve"):
        text = getattr(error, field)
        setattr(found, field, text and screen(text))
    return found.with_traceback(error.__traceback__)
