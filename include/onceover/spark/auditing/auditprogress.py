"""How far an audit is, told by its driver to whoever started it: one small file, for people to look at.

Invariant: nothing depends on it. A reader finds the old state or the new one, never half of one.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceover.errors import Retriable
from onceover.planning.background import begin

log = logging.getLogger(__name__)

DOING: Final = "doing"
DONE: Final = "done"
TOTAL: Final = "total"
# People read it; Spark tells of a task when it ends, which is about as often.
_INTERVAL_S: Final = 0.5


class AuditProgressFile:
    """Writes what an audit is doing.

    Args:
        path: the file; None when nobody looks, and nothing is written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def tell(self, doing: str, numbers: Mapping[str, int] | None = None) -> None:
        """Replace what was told before."""
        if self._path is None:
            return
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps({DOING: doing, **(numbers or {})}))
            fresh.replace(self._path)
        except OSError as error:
            log.warning("how far the audit is cannot be told: %s", error.strerror)

    @contextmanager
    def counting(self, doing: str, total: int, done: Callable[[], int]) -> Iterator[None]:
        """Tell while the block runs how much of ``total`` is done."""
        if self._path is None:
            yield
            return
        ended = threading.Event()

        def watch() -> None:
            self.tell(doing, {DONE: done(), TOTAL: total})
            while not ended.wait(_INTERVAL_S):
                self.tell(doing, {DONE: done(), TOTAL: total})

        watcher = threading.Thread(target=watch, name="audit-progress")
        try:
            begin(watcher)
        except Retriable as error:
            log.warning("how far the audit is cannot be told: %s", error.message)
            yield
            return
        try:
            yield
        finally:
            ended.set()
            watcher.join()


@dataclass(frozen=True)
class AuditProgress:
    """What an audit is doing, and how many ranges of how many are done; None where they are not counted."""

    doing: str
    done: int | None = None
    total: int | None = None


def last_told(path: Path) -> AuditProgress | None:
    """Return what was told last; None when nothing was."""
    try:
        told: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return AuditProgress(told[DOING], told.get(DONE), told.get(TOTAL))
