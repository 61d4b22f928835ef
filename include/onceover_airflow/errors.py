"""The one failure that Airflow may answer with another try."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException


class JobInterrupted(AirflowException):
    """The job was killed, or met a temporary failure (exit code 5): running it again resumes it.

    Args:
        message: what interrupted it.
        killed: whether its processes were killed, or crashed.
    """

    def __init__(self, message: str, *, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed
