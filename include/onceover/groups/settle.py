"""Having a group's coordinator take a write, before what it tells is acted upon (``resume.told`` says why).

Invariant: nothing is left of the write, and nobody's commit is touched by it: it is aborted.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from onceover.backoff import Backoff, Deadline
from onceover.errors import MustReset, NotNow, OnceoverError, Retriable
from onceover.kafka import calls
from onceover.kafka.calls import NO_EPOCH, OffsetToCommit
from onceover.kafka.groups.admin import OFFSETS_TOPIC
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.ports import Cluster
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.model import TopicPartition

# Should we be killed in between, readers that start wait for as long before they see their offset, where it
# is theirs that was written for.
_TIMEOUT_MS: Final = 10_000
# As for every other request to a group's coordinator.
_RETRY_S: Final = 5.0
# An abort takes milliseconds where all of its logs are written to.
_CLOSING_S: Final = 1.0
# Logs that are written to at the same time; of a connection or two each.
_APART_AT_ONCE: Final = 50
# Of a broker that is silent, over all that is asked of it for one log.
_ALONE_S: Final = 20.0


class _StillClosing(Retriable):
    """An earlier transaction is not ended yet, or the coordinator is not ready."""


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
        self._is_stuck = False
        self._logs: int | None = None

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
        self._is_stuck = False
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
            info = self._cluster.retry(
                lambda: self._cluster.topics([OFFSETS_TOPIC]), Deadline(self._retry_s)
            ).get(OFFSETS_TOPIC)
        except OnceoverError:
            info = None
        self._logs = None if info is None else len(info.partitions)
        if self._logs is None:
            return [[group] for group in groups]
        logs: dict[int, list[str]] = {}
        for group in groups:
            logs.setdefault(offsets_partition(group, self._logs), []).append(group)
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
        apart: list[str] = []
        for group, node in nodes.found.items():
            if node in silent:
                refused[group] = silent[node]
                continue
            try:
                producer = self._ready(deadline)
                if producer is None:
                    apart.append(group)
                else:
                    self._write(producer, group, groups[group])
            except OnceoverError as error:
                self._drop()
                refused[group] = _again(error)
                # Each further wait for this broker would be as long as the first one.
                if isinstance(error.__cause__, ConnectionLost):
                    silent[node] = refused[group]
        self._end(deadline)
        return refused | self._apart({group: groups[group] for group in apart})

    def _write(self, producer: TransactionalProducer, group: str, tp: TopicPartition) -> None:
        # Not again and again: a coordinator that refuses a write begins to read its log anew.
        producer.add_offsets(group, {self._at or tp: OffsetToCommit(0, NO_EPOCH, "")}, moving=False)

    def _apart(self, groups: Mapping[str, TopicPartition]) -> dict[str, OnceoverError]:
        """Write for each in a transaction of its log's own, while that of all is held up by another log.

        At the same time: brokers take 5 s to refuse a write that they cannot replicate.
        """
        if not groups:
            return {}
        with ThreadPoolExecutor(min(len(groups), _APART_AT_ONCE)) as pool:
            became = zip(groups, pool.map(self._alone, groups.keys(), groups.values()), strict=True)
            return {group: error for group, error in became if error is not None}

    def _alone(self, group: str, tp: TopicPartition) -> OnceoverError | None:
        producer = None
        with self._cluster.hasty(_ALONE_S) as cluster:
            try:
                log = offsets_partition(group, self._logs or 1)
                producer = _begun(cluster, f"{self._id}.{log}")
                self._write(producer, group, tp)
                producer.abort()
            except OnceoverError as error:
                return _again(error)
            finally:
                if producer is not None:
                    producer.close()
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
        # Begun anew, the next one is told at once whether this one has come to an end.
        self.close()

    def _drop(self) -> None:
        self._is_left_open = True
        self.close()

    def _ready(self, deadline: Deadline) -> TransactionalProducer | None:
        """Return a producer; its beginning aborts what an earlier one has left open.

        None where that does not come to an end: brokers hold it up as long as a log that it has written to
        cannot take its marker, and the other logs need not wait for that one.
        """
        if self._is_stuck:
            return None
        if self._producer is None:
            can_go_apart = self._at is not None and self._logs is not None
            patience = Deadline(min(deadline.left_s, _CLOSING_S)) if can_go_apart else deadline
            try:
                self._producer = self._cluster.retry(lambda: _begun(self._cluster, self._id), patience)
            except _StillClosing:
                self._is_stuck = can_go_apart
                if not can_go_apart:
                    raise
            else:
                self._is_left_open = False
        return self._producer


def _begun(cluster: Cluster, transactional_id: str) -> TransactionalProducer:
    made = TransactionalProducer(cluster, transactional_id, timeout_ms=_TIMEOUT_MS)
    try:
        if made.init():
            return made
    except OnceoverError:
        made.close()
        raise
    made.close()
    raise _StillClosing(f"{transactional_id} is not ready yet")


def _again(error: OnceoverError) -> OnceoverError:
    """Return what it means for the next try: a lost transaction is begun again."""
    if not isinstance(error, MustReset):
        return error
    again = Retriable(error.message, code=error.code, where=error.where)
    again.__cause__ = error.__cause__
    return again


def offsets_partition(group: str, partitions: int) -> int:
    """Return the partition of the brokers' topic of offsets that a group is kept in, as brokers have it."""
    code = 0
    units = group.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code & 0x80000000 else code
    # As Kafka's Utils.abs: what has no counterpart above zero is zero.
    return 0 if signed == -(1 << 31) else abs(signed) % partitions
