"""Whether a log is still the one that was copied, by the last batch before the position. Pure.

A source that is put back from a copy of its disks counts on with the leader epochs that its other life had
(KIP-320 knows nothing of copies), and grows past the position: what lies behind where both lives part, the
batch before the position among it, is all that tells them apart. A batch is what a producer sent at one
moment: its checksum covers times, producer and sequence beside the records.
"""

from __future__ import annotations

from onceover.kafka.logs.batchat import BatchPlace
from onceover.kafka.ports import TopicInfo
from onceover.model import TopicPartition
from onceover.wire.batches.batch import DELETE_HORIZON, BatchHeader
from onceover.wire.progress import CopiedBatch


def place_of(batch: CopiedBatch, position: int, source: TopicPartition, topic: TopicInfo) -> BatchPlace:
    """Return where to look for the batch that was copied last; the partition is led."""
    leader = topic.partitions[source.partition]
    return BatchPlace(topic.topic_id, leader.leader, leader.leader_epoch, position - 1, batch.size_bytes)


def is_another(copied: CopiedBatch, seen: BatchHeader) -> bool:
    """Tell whether the batch that lies there now is proven to be another one than was copied.

    Compaction rewrites batches, takes records out of them or marks them, and keeps their first and last
    offset: with these, such a batch proves nothing.
    """
    if (seen.base_offset, seen.next_offset) != (copied.base_offset, copied.next_offset):
        return True
    is_rewritten = seen.has_holes or bool(seen.attributes & DELETE_HORIZON)
    return seen.crc != copied.crc and not is_rewritten
