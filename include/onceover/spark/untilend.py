"""Whether a run until caught-up has come to its end: what was on the source when it began is on the target.

Asked in a thread, with connections of its own: the driver's loop, whose sign of life others wait for, is not
held up while a partition without a leader is waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from onceover.config.flow.flowfile import Flow
from onceover.errors import OnceoverError, unexpected
from onceover.lead.ends import EndCheck
from onceover.model import TopicPartition
from onceover.planning.background import begin
from onceover.wiring.flows import open_clusters

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.3
# A look at thousands of partitions costs the target more than one at three.
_REST: Final = 5
# Of a partition whose end nobody tells yet: its lane copies on, until the driver says that it is over.
_UNKNOWN: Final = (1 << 63) - 1


class UntilEnd:
    """Use as a context manager; its clusters are opened and closed by it.

    Args:
        flow: what is copied.
        run: the run of it that copies.
        wake: called when there is news.
    """

    def __init__(self, flow: Flow, run: str, wake: Callable[[], None]) -> None:
        self._check = EndCheck(flow.flow, run)
        self._flow, self._wake = flow, wake
        self._over = threading.Event()
        self._reached = False
        self._error: OnceoverError | None = None
        self._ends: dict[TopicPartition, int] = {}
        # Daemon: a cluster that does not answer must not keep a run from ending.
        self._thread = threading.Thread(target=self._run, name="onceover-until-end", daemon=True)

    def __enter__(self) -> UntilEnd:
        self._check.open(*open_clusters(self._flow))
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if not self._thread.is_alive():
            self._check.close()

    def begin(self) -> Mapping[TopicPartition, int]:
        """Fix what "caught up" means: the source's LSO now.

        Returns:
            where each partition ends, for the lanes.

        Raises:
            Retriable: the source tells of no partition.
        """
        self._ends = self._check.ends()
        return {**self._ends, **dict.fromkeys(self._check.left_out, _UNKNOWN)}

    def reached(self) -> bool:
        """Tell whether it is over, by looks that begin when this is asked first.

        What is true before every lane has looked may be so no more behind it: a stop that was mended is none.

        Raises:
            OnceoverError: it cannot be found out, or nothing is left but what nobody leads.
        """
        if self._thread.ident is None:
            begin(self._thread)
        if self._error is not None:
            raise self._error
        return self._reached

    def left(self) -> list[TopicPartition]:
        """Return what is not copied up to its end, stopped or not, once the lanes are over.

        What was left out because it was stopped may have been resumed as the run ended: then it is stopped
        no more, and copied in part.

        Raises:
            Retriable: the target does not answer.
        """
        # It has nothing left to do but to close what both use.
        self._thread.join()
        try:
            return sorted(self._check.left(self._ends))
        finally:
            self._check.close()

    def _run(self) -> None:
        rest_s = 0.0
        try:
            while not self._over.wait(rest_s) and not self._reached:
                begun_s = time.monotonic()
                self._reached = self._check.reached(self._ends)
                rest_s = max(_LOOK_S, _REST * (time.monotonic() - begun_s))
        except OnceoverError as error:
            self._error = error
        except Exception as error:
            log.exception("whether the run has come to its end")
            self._error = unexpected(error)
        finally:
            self._check.close()
            self._wake()
