"""Writing MirrorMaker 2's records beside a running copy, for programs that read those.

Invariant: the copy never waits for it and never fails because of it. It has a thread and connections of its
own; what it cannot do becomes a remark in ``status``.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from onceover.errors import OnceoverError, Retriable
from onceover.kafka.ports import Cluster
from onceover.mirrormaker.look import CheckpointRound, FlowView, HeartbeatRound, OffsetSyncRound
from onceover.mirrormaker.records import MirrorSettings
from onceover.planning.background import begin
from onceover.planning.plan import Refusal
from onceover.positions.store import StoreDamaged

log = logging.getLogger(__name__)

# A cluster that is away is asked again this soon; what a person has to put right, less often.
_AGAIN_S: Final = 5.0
_CLUSTERS: Final = "clusters"
_REFUSED_S: Final = 60.0
# The last round of a run that ended; longer than a cluster with thousands of groups takes.
_FINISH_S: Final = 20.0
# A request that is being answered; a cluster that does not answer is left to the process's end.
_CLOSE_S: Final = 5.0


class Round(Protocol):
    """One kind of record."""

    @property
    def name(self) -> str:
        """The key that switches it on."""

    def wanted(self, settings: MirrorSettings) -> bool:
        """Tell whether it is switched on."""

    def run(self, settings: MirrorSettings) -> float:
        """Look and write; return the pause until the next look, in seconds."""

    def close(self) -> None:
        """Close everything."""


# Opens rounds in the thread that uses them, and closes them.
Rounds = Callable[[], AbstractContextManager[Sequence[Round]]]


@contextmanager
def open_rounds(
    flow: str,
    open_clusters: Callable[[], tuple[Cluster, Cluster]],
    home: Path,
    replication_factor: int,
    *,
    handled: bool = False,
) -> Iterator[Sequence[Round]]:
    """Open every round of a flow, over connections of its own.

    Args:
        flow: its name.
        open_clusters: returns source and target, which are closed here.
        home: folder of the flow's files, for the index of the offset map.
        replication_factor: of topics that are created.
        handled: the flow has a handler.
    """
    source, target = open_clusters()
    with source, target, ExitStack() as opened:
        view = FlowView(flow, source, target)
        opened.callback(view.close)
        rounds: list[Round] = [
            HeartbeatRound(view, replication_factor),
            CheckpointRound(flow, view, home, replication_factor, handled=handled),
            OffsetSyncRound(flow, view, home, replication_factor),
        ]
        for each in rounds:
            opened.callback(each.close)
        yield rounds


class MirrorOutput:
    """Checkpoints, offset syncs and heartbeats of one run. Its methods belong to the driver's thread.

    Args:
        settings: asked at every ``tick``, so that the flow file may change meanwhile.
        rounds: called in the thread that writes.
    """

    def __init__(self, settings: Callable[[], MirrorSettings], rounds: Rounds) -> None:
        self._settings = settings
        self._rounds = rounds
        self._current: MirrorSettings | None = None
        self._remarks: dict[str, Refusal] = {}
        self._told: dict[str, str] = {}
        self._wake = threading.Event()
        self._closing = self._once_more = False
        self._thread: threading.Thread | None = None

    @property
    def refused(self) -> list[Refusal]:
        """What is not written, and why."""
        return [remark for _, remark in sorted(self._remarks.copy().items())]

    def tick(self) -> None:
        """Hand over the settings as they are now. Never waits."""
        settings = self._settings()
        if settings != self._current:
            self._current = settings
            self._wake.set()
        if settings.enabled and self._thread is None:
            thread = threading.Thread(target=self._work, name="mirrormaker", daemon=True)
            begin(thread)
            self._thread = thread

    def finish(self) -> None:
        """Write what the run has ended with, within some seconds, and close everything."""
        self._once_more = True
        self._end(_FINISH_S)

    def close(self) -> None:
        """End what is being done and close everything."""
        self._once_more = False
        self._end(_CLOSE_S)

    def _end(self, timeout_s: float) -> None:
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                log.warning("MirrorMaker's records are still being written: a cluster does not answer")

    # ---- in the thread

    def _work(self) -> None:
        while True:
            # Before the flags are looked at, as in ``_repeat``.
            self._wake.clear()
            settings = self._current
            if settings is None or not settings.enabled:
                self._settle(_CLUSTERS)
            elif self._opened():
                return
            if self._closing:
                return
            # A client file that is not in order may be in a minute.
            self._wake.wait(_REFUSED_S)

    def _opened(self) -> bool:
        """Do what there is to do until the end; return False where the clusters cannot be opened."""
        try:
            with self._rounds() as rounds:
                self._settle(_CLUSTERS)
                self._repeat(rounds)
        except OnceoverError as error:
            self._remark(_CLUSTERS, error)
            return False
        return True

    def _repeat(self, rounds: Sequence[Round]) -> None:
        due_s: dict[str, float] = {}
        known = self._current
        while True:
            # Before the flags are looked at, so that nothing that is set afterwards is missed.
            self._wake.clear()
            if self._closing:
                break
            if self._current != known:
                known, due_s = self._current, {}
            self._run_due(rounds, due_s)
            self._wake.wait(max(0.0, min(due_s.values()) - time.monotonic()) if due_s else None)
        if self._once_more:
            self._run_due(rounds, {})

    def _run_due(self, rounds: Sequence[Round], due_s: dict[str, float]) -> None:
        settings = self._current
        for each in rounds:
            if settings is None or not each.wanted(settings):
                due_s.pop(each.name, None)
                self._settle(each.name)
            elif time.monotonic() >= due_s.get(each.name, -math.inf):
                due_s[each.name] = time.monotonic() + self._run(each, settings)

    def _run(self, each: Round, settings: MirrorSettings) -> float:
        try:
            pause_s = each.run(settings)
        except (Retriable, StoreDamaged) as error:
            self._tell(each.name, error)
            return _AGAIN_S
        except OnceoverError as error:
            self._remark(each.name, error)
            return _REFUSED_S
        self._settle(each.name)
        return pause_s

    def _settle(self, name: str) -> None:
        """Forget what was wrong."""
        self._remarks.pop(name, None)
        self._told.pop(name, None)

    def _remark(self, name: str, error: OnceoverError) -> None:
        resolve = error.resolve or "see docs/mirrormaker-output.md"
        message = f"{error.message} (seen: {error.seen})" if error.seen else error.message
        self._remarks[name] = Refusal(f"mirrormaker.{name}", error.code, message, resolve, blocks=False)
        self._tell(name, error)

    def _tell(self, name: str, error: Exception) -> None:
        """Log what is wrong once, not at every try."""
        if self._told.get(name) != str(error):
            self._told[name] = str(error)
            log.warning("mirrormaker.%s: not written, and tried again: %s", name, error)
