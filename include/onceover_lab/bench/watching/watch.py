"""Watches the target while a system copies: a sample of the committed end every 100 ms."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from onceover.errors import Retriable
from onceover_lab.bench.clients.topics import Topics
from onceover_lab.bench.stats import Sample, first_at_least

SAMPLE_INTERVAL_S: Final = 0.1
_START_TIMEOUT_S: Final = 180.0
_STALL_TIMEOUT_S: Final = 60.0
# Longer than the longest transaction interval in use (1 s), twice over: the end has then been reached,
# although markers hide how many records the offsets stand for.
_QUIET_S: Final = 2.5


class ProgressWatch:
    """A thread that samples the sum of the last stable offsets of one target topic, until ``close``."""

    def __init__(self, target: Topics, topic: str, partitions: int) -> None:
        self._target = target
        self._topic = topic
        self._partitions = partitions
        self._samples: list[Sample] = []
        self._error: Retriable | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"watch-{topic}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the sampling; the samples stay readable."""
        self._stop.set()
        self._thread.join()

    def samples(self) -> list[Sample]:
        return list(self._samples)

    def wait_for_first(self, check_alive: Callable[[], None]) -> Sample:
        """Return the first sample in which something was committed.

        Raises:
            Retriable: nothing came for three minutes, or the target could not be asked. ``check_alive`` may
                raise too.
        """
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            found = first_at_least(self.samples(), 1)
            if found is not None:
                return found
            if self._error is not None:
                raise self._error
            check_alive()
            if self._stop.wait(SAMPLE_INTERVAL_S / 2) or time.monotonic() > deadline_s:
                raise Retriable(f"nothing was copied to {self._topic} in {_START_TIMEOUT_S:.0f} s")

    def wait_until_quiet(self, records: int, check_alive: Callable[[], None]) -> None:
        """Return when the end has passed ``records`` and grows no more.

        Raises:
            Retriable: nothing came for a minute, or for three minutes at the start; or the target could not
                be asked. ``check_alive`` may raise too.
        """
        changed_s, last, limit_s = time.monotonic(), 0.0, _START_TIMEOUT_S
        while not self._stop.wait(SAMPLE_INTERVAL_S):
            if self._error is not None:
                raise self._error
            now_s, end = time.monotonic(), self._end()
            if end != last:
                changed_s, last, limit_s = now_s, end, _STALL_TIMEOUT_S
            elif end >= records and now_s - changed_s >= _QUIET_S:
                return
            elif now_s - changed_s > limit_s:
                raise Retriable(
                    f"no progress on the target for {limit_s:.0f} s",
                    where=self._topic,
                    expected=f"{records} records",
                    seen=f"end offsets sum up to {end:.0f}",
                )
            check_alive()

    def _end(self) -> float:
        return self._samples[-1].value if self._samples else 0.0

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                ends = self._target.end_offsets(self._topic, self._partitions)
            except Retriable as error:
                self._error = error
                return
            self._samples.append(Sample(time.monotonic(), float(sum(ends.values()))))
            self._stop.wait(SAMPLE_INTERVAL_S)
