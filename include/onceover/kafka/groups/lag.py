"""The flow's position as an ordinary group on the source, for every lag tool (KIP-656). Best effort.

Nothing is ever resumed from it by itself. It hardly slows the copy down: it is written at most once a
second, its answer is not waited for, a failure is only noted in the log, and a coordinator that is away takes
a second of every half minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from onceover.backoff import Deadline
from onceover.errors import OnceoverError
from onceover.kafka import calls
from onceover.kafka.answers import failure
from onceover.kafka.link.channel import Channel
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.ports import Cluster
from onceover.model import TopicPartition
from onceover.txn.classify import Action, Api, classify

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_LAST_ANSWER_S = 2.0
# Of the copy's time, to find the coordinator and to reach it.
_PATIENCE_S = 1.0
_FIRST_PAUSE_S = 5.0
_QUIET_S = 10.0
_PAUSE_AFTER_FAILURE_S = 30.0
_FOR_NOW = (Action.RETRY, Action.REFRESH_AND_RETRY)


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
        # In the request that is not answered yet.
        self._sent: dict[TopicPartition, int] = {}
        self._next_s = 0.0
        self._failing_since_s: float | None = None

    def report(self, positions: Mapping[TopicPartition, int], *, now: bool = False) -> None:
        """Take new positions of source partitions; send when the last sending is long enough ago.

        What is sent and not answered, or refused for the moment, is sent again, unless it is older by then.

        Args:
            now: send at once and wait for the answer, at the end of a task.
        """
        self._waiting.update(positions)
        # What has just failed is not tried again, not even for the last time: in trouble, resets are many.
        early = time.monotonic() < self._next_s and (not now or self._failing_since_s is not None)
        if early or not (self._waiting or (now and self._sent)):
            return
        self._next_s = time.monotonic() + _INTERVAL_S
        answer = Deadline(_LAST_ANSWER_S if now else 0.0)
        try:
            self._send(answer)
            if now:
                self._take(answer)
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

    def _send(self, answer: Deadline) -> None:
        """Send what waits, once the answer to what was sent before is there."""
        try:
            if not self._take(answer):
                return
        except ConnectionLost:
            # Brokers close what is idle, or whose session is over. Whether this one is there a new one tells.
            self._drop()
        if not self._waiting:
            return
        if self._connection is None or not self._connection.usable:
            self._drop()
            with self._source.hasty(_PATIENCE_S) as source:
                self._connection = source.open(source.coordinator_node(self._group, calls.GROUP))
        offsets = {tp: calls.OffsetToCommit(offset, -1, "") for tp, offset in self._waiting.items()}
        request = calls.offset_commit_request(self._group, offsets)
        self._connection.send(*request, read=calls.partition_codes)
        self._sent, self._waiting = self._waiting, {}

    def _take(self, answer: Deadline) -> bool:
        """Take the answer that is owed; False while there is none."""
        connection = self._connection
        if connection is None or not connection.in_flight:
            return True
        if not connection.readable(answer.left_s):
            connection.expire()
            return False
        actions = {tp: (classify(Api.OFFSET_COMMIT, code), code) for tp, code in connection.receive().items()}
        again = {tp for tp, (action, _) in actions.items() if action in _FOR_NOW}
        self._sent = {tp: offset for tp, offset in self._sent.items() if tp in again}
        # A topic that is gone has no position.
        wrong = [each for each in actions.values() if each[0] not in (Action.OK, Action.MISSING)]
        if wrong:
            subject = f"group {self._group}"
            raise failure(self._source.alias, Api.OFFSET_COMMIT, *wrong[0], subject)
        return True

    def _drop(self) -> None:
        """Begin anew, with what was not answered, and is not older by now."""
        self._waiting = {**self._sent, **self._waiting}
        self._sent = {}
        if self._connection is not None:
            self._connection.close()
            self._connection = None
