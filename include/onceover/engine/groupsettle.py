"""Having a group's coordinator take a write, before what it tells is acted upon (``engine.told`` says why).

Invariant: nothing is left of the write, and nobody's commit is touched by it: it is aborted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onceover.errors import MustReset, OnceoverError, Retriable
from onceover.kafka.backoff import Deadline
from onceover.kafka.calls import NO_EPOCH, OffsetToCommit
from onceover.kafka.cluster import Cluster
from onceover.kafka.producer import TransactionalProducer
from onceover.model import TopicPartition

# Should we be killed in between, readers that start wait for as long before they see their offset.
_TIMEOUT_MS: Final = 10_000
# As for every other request to a group's coordinator.
_RETRY_S: Final = 5.0
_OFFSETS: Final = "__consumer_offsets"


class GroupSettler:
    """Writes and aborts. Not thread-safe; the cluster belongs to the caller.

    Args:
        cluster: where the groups are.
        transactional_id: two processes at once take it from each other, and try again.
        retry_s: seconds to try again for.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, retry_s: float = _RETRY_S) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._retry_s = retry_s
        self._producer: TransactionalProducer | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def settle(self, groups: Mapping[str, TopicPartition]) -> dict[str, OnceoverError]:
        """Return when the coordinators of all groups have taken a write; why not, for those that have not.

        Groups in one partition of the brokers' own topic of offsets have one log: a write for one of them is
        one for all.

        Args:
            groups: a partition for each that exists on the cluster.
        """
        failed: dict[str, OnceoverError] = {}
        waiting = self._by_log(list(groups)) if groups else []
        while waiting:
            refused = self._settled({log[0]: groups[log[0]] for log in waiting})
            failed |= refused
            # What is said of one group's rights is not said of its neighbours'; that it is away is.
            for log in waiting:
                if isinstance(refused.get(log[0]), Retriable):
                    failed |= dict.fromkeys(log, refused[log[0]])
            waiting = [log[1:] for log in waiting if log[0] in refused and log[1:] and log[1] not in failed]
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

    def _settled(self, groups: Mapping[str, TopicPartition]) -> dict[str, OnceoverError]:
        try:
            self._retry(groups)
        except OnceoverError as error:
            if len(groups) == 1:
                return dict.fromkeys(groups, error)
        else:
            return {}
        # One of them: the others are not held responsible.
        failed: dict[str, OnceoverError] = {}
        for group, tp in groups.items():
            failed |= self._settled({group: tp})
        return failed

    def _retry(self, groups: Mapping[str, TopicPartition]) -> None:
        self._cluster.retry(lambda: self._once(groups), Deadline(self._retry_s))

    def _once(self, groups: Mapping[str, TopicPartition]) -> None:
        try:
            producer = self._ready()
            for group, tp in groups.items():
                # Not again and again: a coordinator that refuses a write begins to read its log anew.
                producer.add_offsets(group, {tp: OffsetToCommit(0, NO_EPOCH, "")}, moving=False)
            producer.abort()
        except MustReset as error:
            self.close()
            raise Retriable(error.message, code=error.code, where=error.where) from error
        except OnceoverError:
            self.close()
            raise

    def _ready(self) -> TransactionalProducer:
        if self._producer is None:
            made = TransactionalProducer(self._cluster, self._id, timeout_ms=_TIMEOUT_MS)
            if not made.init():
                made.close()
                raise Retriable(f"{self._id} is not ready yet")
            self._producer = made
        return self._producer


def offsets_partition(group: str, partitions: int) -> int:
    """Return the partition of the brokers' topic of offsets that a group is kept in, as brokers have it."""
    code = 0
    units = group.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code & 0x80000000 else code
    # As Kafka's Utils.abs: what has no counterpart above zero is zero.
    return 0 if signed == -(1 << 31) else abs(signed) % partitions
