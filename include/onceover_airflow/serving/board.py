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
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceover.board.page import Look
from onceover.board.samples import LagSample, Samples
from onceover.board.talk import GIVEN, MISSING
from onceover.clock import now_ms
from onceover.errors import Retriable
from onceover.operate.statusshape import broken_entry
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
        now_ms: Callable[[], int] = now_ms,
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
        # The one who is first alone: others would keep the server's threads from everybody else.
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
        """Return what asks the clusters, where it was this call that began it."""
        with self._lock:
            now_s = self._clock()
            runs = self._reading is not None and self._reading.is_alive()
            if runs or (self._asked_s is not None and now_s - self._asked_s < FRESH_S):
                return None
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
                self._problem = str(error) or type(error).__name__
            return
        with self._lock:
            self._entries, self._seen_s, self._problem = entries, self._clock(), None
            self._samples.add(entries, self._now_ms())


@dataclass(frozen=True)
class Asking:
    """Asks the clusters of all flows, in a child process.

    Args:
        connections: by their names, returns what hands Connections to a process, and what there are none of.
        limit_s: of what is not told by then, the entry says so.
    """

    connections: Callable[[Sequence[str]], tuple[Mapping[str, str], Mapping[str, str]]]
    limit_s: float = _LIMIT_S

    def __call__(self) -> Entries:
        """Return the entries of all flows, in the order of their files.

        Raises:
            Retriable: it has said nothing.
        """
        argv = guarded_argv([sys.executable, "-m", "onceover.wiring.board"], signal.SIGKILL)
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(
                argv,
                env=stripped(os.environ, ()),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
            limit = threading.Timer(self.limit_s, child.kill)
            limit.start()
            try:
                with child:
                    paths, lines = self._talk(child)
            finally:
                limit.cancel()
            if paths is None:
                said.seek(0)
                words = screen(said.read().decode(errors="replace").strip()[-_SAID:])
                code = child.returncode
                raise Retriable("what asks the clusters has ended", seen=f"exit code {code}: {words}")
        found = {str(entry["path"]): entry for entry in lines}
        return [found.get(path) or self._late(path) for path in paths]

    def _talk(self, child: subprocess.Popen[str]) -> tuple[Sequence[str] | None, Sequence[Mapping[str, Any]]]:
        """Hand over the Connections that it asks for; return the paths of the flows, and entries of them."""
        if child.stdin is None or child.stdout is None:
            return None, ()
        question = _document(child.stdout.readline())
        if question is None:
            return None, ()
        given, missing = self.connections(question["connections"])
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps({GIVEN: dict(given), MISSING: dict(missing)}) + "\n")
            child.stdin.close()
        entries = [entry for line in child.stdout if (entry := _document(line)) is not None]
        return question["paths"], entries

    def _late(self, path: str) -> Mapping[str, Any]:
        error = Retriable(
            f"its clusters were not asked to the end within {self.limit_s:.0f} s",
            resolve=f"`onceover status {Path(path).stem}` waits longer",
        )
        return {**broken_entry(Path(path).stem, path, error), "drills": None, "drills_error": None}


def _document(line: str) -> dict[str, Any] | None:
    """Return what a line says; None for the half line of one that was ended."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
