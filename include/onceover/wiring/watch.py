"""The flow file that somebody follows while it runs."""

from __future__ import annotations

import logging
import os
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from onceover.config.flow.flowfile import Flow
from onceover.config.flow.load import load_flow
from onceover.config.flow.runsettings import RunSettings
from onceover.errors import UsageError

log = logging.getLogger(__name__)

# Beside what ``RunSettings`` keeps: where a run is, and what it has begun with.
FIXED: Final = ("flow", "source", "target", "lanes", "spark.master", "state")


class FlowWatch:
    """The flow file as it is now: re-read when it changes, kept as it was while it is broken.

    Changes that need a restart (lanes, clusters, name) are named in the log and not applied, until the file
    is as it was when the run began.

    Args:
        path: the flow file.
        run: the settings that the run was started with; None where the run starts: those of the file.
        begun_with: the flow as the run was started with it; in effect until the file says something else
            that is in order. None where the run starts: the file has to be in order.

    Attributes:
        flow: the newest valid version that was read.
        run: what stays as it was when the run began.
    """

    def __init__(self, path: Path, run: RunSettings | None = None, begun_with: Flow | None = None) -> None:
        self._path = path
        self._stamp = self._stat() if begun_with is None else None
        self.flow: Flow = begun_with or load_flow(path)
        self._begun = _fixed(self.flow)
        self.run: RunSettings = run or RunSettings.of(self.flow)

    def current(self) -> Flow:
        """Return the newest valid version."""
        stamp = self._stat()
        if stamp != self._stamp:
            self._stamp = stamp
            self._reload()
        return self.flow

    def _reload(self) -> None:
        try:
            fresh = load_flow(self._path)
        except UsageError as error:
            log.warning("the changed flow file is not in order; the last good one stays in effect: %s", error)
            return
        now = _fixed(fresh)
        changed = [key for key in FIXED if now[key] != self._begun[key]]
        needs_restart = sorted(changed + self.run.changed(RunSettings.of(fresh)))
        if needs_restart:
            log.warning("changed in the flow file, in effect after a restart: %s", ", ".join(needs_restart))
        self.flow = fresh

    def _stat(self) -> tuple[int, ...]:
        try:
            stat = os.stat(self._path)
        except OSError:
            return ()
        # With what changes its mode: it may be readable now, and was not a moment ago.
        return (stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns)


def _fixed(flow: Flow) -> dict[str, Any]:
    return {key: attrgetter(key)(flow) for key in FIXED}
