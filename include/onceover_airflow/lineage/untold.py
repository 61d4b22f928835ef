"""A run that no catalogue of lineage is told of, and what one that is told of can do."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self


class LineageRun:
    """What a job's task tells while it runs. This one tells nobody: lineage is not configured.

    Used as a context around the job; an exception that leaves it is the end of the run.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def copies(self, topics: Mapping[str, str]) -> None:
        """Tell which topics are copied now, source name to target name."""

    def saw(self, report: Mapping[str, Any]) -> None:
        """Tell what the job has reported at its end."""
