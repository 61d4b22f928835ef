"""The flow's position as an ordinary group on the source, for every lag tool (KIP-656). Best effort.

Nothing is ever resumed from it by itself. It hardly slows the copy down: it is written at most once a
second, its answer is not waited for, a failure is only noted in the log, and a coordinator that is away takes
a second of every half minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from onceover.errors import OnceoverError
from onceover.kafka import calls
from onceover.kafka.link.channel import Channel
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_LAST_ANSWER_S = 2.0
# Of the copy's time, to find the coordinator and to reach it.
_PATIENCE_S = 1.0
_FIRST_PAUSE_S = 5.0
_QUIET_S = 10.0
_PAUSE_AFTER_FAILURE_S = 30.0


class LagReporter:
    """Writes positions into one group of the source. Not thread-safe.

    Args:
        source: the source cluster.
        group: ``onceover-lag.<flow>``.
    """

    def __init__(self, source: Cluster, group: str) -> None:
        self._source = source
        self._group = group
        self._connection: Channel | None = None
        self._waiting: dict[TopicPartition, int] = {}
        self._next_s = 0.0
        self._failing_since_s: float | None = None

    def report(self, positions: Mapping[TopicPartition, int], *, now: bool = False) -> None:
        """Take new positions of source partitions; send when the last sending is long enough ago.

        Args:
            now: send at once and wait for the answer, at the end of a task.
        """
        self._waiting.update(positions)
        # What has just failed is not tried again, not even for the last time: in trouble, resets are many.
        early = time.monotonic() < self._next_s and (not now or self._failing_since_s is not None)
        if not self._waiting or early:
            return
        self._next_s = time.monotonic() + _INTERVAL_S
        try:
            self._send()
            if now and self._connection is not None and self._connection.readable(_LAST_ANSWER_S):
                self._connection.receive()
        except OnceoverError as error:
            self._failed(error)
        else:
            self._failing_since_s = None

    def _failed(self, error: OnceoverError) -> None:
        now_s = time.monotonic()
        self._failing_since_s = self._failing_since_s or now_s
        # A new cluster has no coordinator for the group in its first seconds.
        lasts = now_s - self._failing_since_s >= _QUIET_S
        level = logging.WARNING if lasts else logging.DEBUG
        log.log(level, "positions are not shown on %s: %s", self._source.alias, error)
        self._next_s = now_s + (_PAUSE_AFTER_FAILURE_S if lasts else _FIRST_PAUSE_S)
        self._drop()

    def close(self) -> None:
        """Send what is left, then close."""
        self.report({}, now=True)
        self._drop()

    def _send(self) -> None:
        if self._connection is None:
            with self._source.hasty(_PATIENCE_S) as source:
                self._connection = source.open(source.coordinator_node(self._group, calls.GROUP))
        while self._connection.in_flight:
            if not self._connection.readable(0.0):
                return
            self._connection.receive()
        offsets = {tp: calls.OffsetToCommit(offset, -1, "") for tp, offset in self._waiting.items()}
        self._connection.send(*calls.offset_commit_request(self._group, offsets))
        self._waiting = {}

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
