"""Keeps what the Onceover page shows fresh while somebody looks at it.

Invariant: nobody waits for a cluster but the very first to look, and that one for a moment only; what is
shown says how old it is. The clusters are asked by a child process, which alone is given the flows'
Connections, and nothing else of Airflow's environment. It ends with the server, or when it takes too long.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from onceover.board.page import Look
from onceover.board.samples import LagSample, Samples
from onceover.errors import Retriable
from onceover.process.children import guarded_argv
from onceover.process.guard import stripped
from onceover.shown import screen

log = logging.getLogger(__name__)

Entries = Sequence[Mapping[str, Any]]
# How old what is shown may be before the clusters are asked again; pages load themselves anew as often.
FRESH_S: Final = 10
_FIRST_S: Final = 1.5
# A cluster that is away is given up on after 5 s; a machine that is busy starts the process in as many.
_LIMIT_S: Final = 60.0
_SAID: Final = 500


class Board:
    """The newest look at all flows. Thread-safe.

    Args:
        read: asks the clusters.
        clock: seconds, of no particular beginning.
        now_ms: ms since 1970.
    """

    def __init__(
        self,
        read: Callable[[], Entries],
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._read, self._clock, self._now_ms = read, clock, now_ms
        self._lock = threading.Lock()
        self._samples = Samples()
        self._entries: Entries = ()
        self._seen_s: float | None = None
        self._problem: str | None = None
        self._asked_s: float | None = None
        self._reading: threading.Thread | None = None

    def look(self) -> Look:
        """Return what was seen last; have the clusters asked again where that is no longer fresh."""
        reading = self._start()
        if reading is not None and self._seen_s is None:
            reading.join(_FIRST_S)
        with self._lock:
            age_s = None if self._seen_s is None else self._clock() - self._seen_s
            return Look(self._entries, age_s, self._problem)

    def samples(self, flow: str) -> Sequence[LagSample]:
        """Return how a flow's lag was at each look."""
        with self._lock:
            return self._samples.of(flow)

    def _start(self) -> threading.Thread | None:
        with self._lock:
            if self._reading is not None and self._reading.is_alive():
                return self._reading
            now_s = self._clock()
            if self._asked_s is not None and now_s - self._asked_s < FRESH_S:
                return self._reading
            self._asked_s = now_s
            self._reading = threading.Thread(target=self._ask, name="onceover-board", daemon=True)
            self._reading.start()
            return self._reading

    def _ask(self) -> None:
        try:
            entries = self._read()
        except Exception as error:  # noqa: BLE001 - whatever it is, people have to see it on the page
            log.warning("the Onceover page cannot be read anew: %s", error)
            with self._lock:
                self._problem = str(error)
            return
        with self._lock:
            self._entries, self._seen_s, self._problem = entries, self._clock(), None
            self._samples.add(entries, self._now_ms())


def ask_clusters(connections: Callable[[], Mapping[str, str]]) -> Entries:
    """Return the entries of all flows, as a child process reads them.

    Args:
        connections: the variables that hand the flows' Connections to a process.

    Raises:
        Retriable: it did not come to an end.
    """
    variables = connections()
    environ = {**stripped(os.environ, ()), **variables}
    argv = guarded_argv([sys.executable, "-m", "onceover.wiring.board"], signal.SIGKILL)
    try:
        done = subprocess.run(
            argv, env=environ, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Retriable(f"the clusters were not asked within {_LIMIT_S:.0f} s") from None
    if done.returncode:
        said = screen(done.stderr.decode(errors="replace").strip()[-_SAID:])
        raise Retriable("what asks the clusters has ended", seen=f"exit code {done.returncode}: {said}")
    entries: Entries = json.loads(done.stdout)["flows"]
    return entries
