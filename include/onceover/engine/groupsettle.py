"""Having a group's coordinator take a write, before what it tells is acted upon (``engine.told`` says why).

Invariant: nothing is left of the write, and nobody's commit is touched by it: it is aborted.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from onceover.errors import MustReset, NotNow, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.backoff import Backoff, Deadline
from onceover.kafka.calls import NO_EPOCH, OffsetToCommit
from onceover.kafka.cluster import Cluster
from onceover.kafka.connection import ConnectionLost
from onceover.kafka.producer import TransactionalProducer
from onceover.model import TopicPartition

# Should we be killed in between, readers that start wait for as long before they see their offset, where it
# is theirs that was written for.
_TIMEOUT_MS: Final = 10_000
# As for every other request to a group's coordinator.
_RETRY_S: Final = 5.0
_OFFSETS: Final = "__consumer_offsets"


class GroupSettler:
    """Writes and aborts. Not thread-safe; the cluster belongs to the caller.

    Args:
        cluster: where the groups are.
        transactional_id: two processes at once take it from each other, and try again.
        at: a partition that no reader asks for, so that none ever waits for a write of ours; None where the
            cluster has none of the flow's own, and each group's is used.
        retry_s: seconds to try again for, over all groups.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        at: TopicPartition | None = None,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._at = at
        self._retry_s = retry_s
        self._producer: TransactionalProducer | None = None
        self._is_left_open = False

    def close(self) -> None:
        """Close the connections."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def settle(self, groups: Mapping[str, TopicPartition]) -> dict[str, OnceoverError]:
        """Return when the coordinators of all groups have taken a write; why not, for those that have not.

        Groups in one partition of the brokers' own topic of offsets have one log: a write for one of them is
        one for all. Logs that take none are tried again behind all others, together.

        Args:
            groups: a partition for each that exists on the cluster.
        """
        failed: dict[str, OnceoverError] = {}
        waiting = self._by_log(list(groups)) if groups else []
        deadline, backoff = Deadline(self._retry_s), Backoff()
        while waiting:
            refused = self._round({log[0]: groups[log[0]] for log in waiting}, deadline)
            again: list[list[str]] = []
            is_over = deadline.passed or not self._cluster.patience.left_s
            for log in waiting:
                error = refused.get(log[0])
                # What is said of one group's rights is not said of its neighbours'; that it is away is.
                if isinstance(error, Retriable):
                    if is_over:
                        failed |= dict.fromkeys(log, error)
                    else:
                        again.append(log)
                elif error is not None:
                    failed[log[0]] = error
                    again += [log[1:]] if log[1:] else []
            waiting = again
            if waiting and any(isinstance(error, Retriable) for error in refused.values()):
                with suppress(Retriable):
                    backoff.pause(deadline, NotNow("not every log has taken a write"))
        return failed

    def _by_log(self, groups: list[str]) -> list[list[str]]:
        """Return the groups by the log that they are kept in; each for itself where that is not shown."""
        try:
            info = self._cluster.retry(lambda: self._cluster.topics([_OFFSETS]), Deadline(self._retry_s)).get(
                _OFFSETS
            )
        except OnceoverError:
            info = None
        if info is None:
            return [[group] for group in groups]
        logs: dict[int, list[str]] = {}
        for group in groups:
            logs.setdefault(offsets_partition(group, len(info.partitions)), []).append(group)
        return list(logs.values())

    def _round(self, groups: Mapping[str, TopicPartition], deadline: Deadline) -> dict[str, OnceoverError]:
        """Have the coordinator of each group take a write, once; return why not, for those that have not.

        One that refuses it takes nothing from the others, which go on in another transaction.
        """
        try:
            nodes = self._cluster.coordinator_nodes(list(groups), calls.GROUP)
        except OnceoverError as error:
            return dict.fromkeys(groups, error)
        refused = dict(nodes.failed)
        silent: dict[int, OnceoverError] = {}
        for group, node in nodes.found.items():
            if node not in silent:
                problem = self._take(group, groups[group], deadline)
                if problem is None:
                    continue
                refused[group] = problem
                # Each further wait for this broker would be as long as the first one.
                if isinstance(problem.__cause__, ConnectionLost):
                    silent[node] = problem
            else:
                refused[group] = silent[node]
        self._end(deadline)
        return refused

    def _take(self, group: str, tp: TopicPartition, deadline: Deadline) -> OnceoverError | None:
        """Write for a group in the open transaction; return why it was not taken."""
        try:
            producer = self._ready(deadline)
            # Not again and again: a coordinator that refuses a write begins to read its log anew.
            producer.add_offsets(group, {self._at or tp: OffsetToCommit(0, NO_EPOCH, "")}, moving=False)
        except MustReset as error:
            self._drop()
            again = Retriable(error.message, code=error.code, where=error.where)
            again.__cause__ = error.__cause__
            return again
        except OnceoverError as error:
            self._drop()
            return error
        return None

    def _end(self, deadline: Deadline) -> None:
        """Abort what was written; what was taken is taken, whatever becomes of this."""
        try:
            if self._producer is not None:
                self._producer.abort()
            elif self._is_left_open:
                self._ready(deadline)
        except OnceoverError:
            self._drop()

    def _drop(self) -> None:
        self._is_left_open = True
        self.close()

    def _ready(self, deadline: Deadline) -> TransactionalProducer:
        """Return a producer; its beginning aborts what an earlier one has left open."""
        if self._producer is None:
            self._producer = self._cluster.retry(self._begun, deadline)
            self._is_left_open = False
        return self._producer

    def _begun(self) -> TransactionalProducer:
        made = TransactionalProducer(self._cluster, self._id, timeout_ms=_TIMEOUT_MS)
        try:
            if made.init():
                return made
        except OnceoverError:
            made.close()
            raise
        made.close()
        raise Retriable(f"{self._id} is not ready yet")


def offsets_partition(group: str, partitions: int) -> int:
    """Return the partition of the brokers' topic of offsets that a group is kept in, as brokers have it."""
    code = 0
    units = group.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code & 0x80000000 else code
    # As Kafka's Utils.abs: what has no counterpart above zero is zero.
    return 0 if signed == -(1 << 31) else abs(signed) % partitions
