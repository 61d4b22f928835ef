"""A topic on the target that readers of MirrorMaker 2's records know by its name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final
from uuid import UUID

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator
from onceover.kafka.admin.topics import ANY_TIME, Admin, TopicSpec
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.kafka.produce.notes import RecordWriter
from onceover.mirrormaker.codes import MirrorCode
from onceover.model import TopicPartition

_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
# Small segments: only closed ones are compacted, and MirrorClient reads checkpoints from the beginning.
_CONFIG: Final = {_POLICY: _COMPACT, "segment.bytes": str(16 << 20), "segment.ms": "3600000", **ANY_TIME}
_RETRY_S: Final = 5.0
# So much is sent again at most where an answer is lost.
_PORTION: Final = 5000
# A run that was paused and is fenced, or a MirrorMaker that still runs, may write over what is newer.
_RENEW_S: Final = 3600.0


class MirrorTopic:
    """Writes records that are news into partition 0, and all of them once an hour. Not thread-safe.

    Never a tombstone: MirrorClient fails on one. What is not true any more is overwritten or stays.

    Args:
        target: belongs to the caller.
        name: of the topic; created with one compacted partition where it is missing.
        replication_factor: for its creation.
        clock: tells the time in seconds.
    """

    def __init__(
        self,
        target: Cluster,
        name: str,
        replication_factor: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._clock = clock
        self._renewed_s = -math.inf
        self._target = target
        self._replication_factor = replication_factor
        self._topic_id: UUID | None = None
        self._written: dict[bytes, bytes] = {}
        self._writer: RecordWriter | None = None

    def write(self, records: Mapping[bytes, bytes]) -> int:
        """Write those that are not there already, durably; return how many.

        Raises:
            Retriable: the target is away; some may have been written.
            NeedsOperator: a topic of that name holds something else.
            UsageError: not authorized.
        """
        self._prepare()
        if self._clock() >= self._renewed_s + _RENEW_S:
            self._written, self._renewed_s = {}, self._clock()
        news = iter([(key, value) for key, value in records.items() if self._written.get(key) != value])
        count = 0
        while portion := list(islice(news, _PORTION)):
            self._open().write(portion)
            self._written.update(portion)
            count += len(portion)
        return count

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> RecordWriter:
        if self._writer is None:
            self._writer = RecordWriter(self._target, TopicPartition(self.name, 0))
        return self._writer

    def _prepare(self) -> None:
        """See to it that the topic is there; forget what was written into another one of its name."""
        info = self._find()
        if info is None:
            spec = TopicSpec(self.name, 1, self._replication_factor, _CONFIG)
            info = Admin(self._target).make_topics([spec], Deadline(_RETRY_S))[self.name]
        elif info.topic_id != self._topic_id:
            self._check(info)
        if info.topic_id != self._topic_id:
            # With its queue and what it knows of the partition's leader.
            self.close()
            self._topic_id, self._written = info.topic_id, {}

    def _find(self) -> TopicInfo | None:
        found = self._target.retry(lambda: self._target.topics([self.name]), Deadline(_RETRY_S))
        return found.get(self.name)

    def _check(self, info: TopicInfo) -> None:
        """Refuse a topic that is not of MirrorMaker's kind: our records would be among somebody else's."""
        configs = Admin(self._target).topic_configs([self.name])
        for error in configs.failures.values():
            raise error
        policy = configs.overrides.get(self.name, {}).get(_POLICY, "")
        if len(info.partitions) != 1 or _COMPACT not in policy:
            raise NeedsOperator(
                f"topic {self.name} is there already and is not of MirrorMaker's kind",
                code=MirrorCode.MIRROR_TOPIC_TAKEN,
                where=self._target.alias,
                expected=f"one partition, {_POLICY}={_COMPACT}",
                seen=f"{len(info.partitions)} partitions, {_POLICY}={policy or 'of the broker'}",
                resolve="move what is in it elsewhere, or switch that part of `mirrormaker` off",
            )
