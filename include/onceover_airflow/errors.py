"""The one failure that Airflow may answer with another try."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowException

# A cluster that is away for longer needs a person; each try has asked for half a minute already.
RETRIES: Final = 3
RETRY_DELAY: Final = timedelta(seconds=5)


class JobInterrupted(AirflowException):
    """The job was killed, or met a temporary failure (exit code 5): running it again resumes it."""


def retry_interrupted() -> dict[str, Any]:
    """Return the arguments of a task that is tried again after ``JobInterrupted`` and nothing else."""
    rules = [RetryRule(exception=JobInterrupted, action=RetryAction.RETRY)]
    policy = ExceptionRetryPolicy(rules=rules, default=RetryAction.FAIL)
    return {"retries": RETRIES, "retry_delay": RETRY_DELAY, "retry_policy": policy}
