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

        Args:
            groups: a partition for each that exists on the cluster.
        """
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
            failed |= self.settle({group: tp})
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
