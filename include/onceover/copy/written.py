"""What the open transaction has written of a source partition, and where: its map records. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from onceover.kafka.ports import Acknowledged
from onceover.model import TopicPartition
from onceover.wire.offsetlookup import split
from onceover.wire.offsetmap import MapRecord, SegmentBuilder


@dataclass
class Written:
    """The account of one transaction; the next one begins another.

    Args:
        target_start: end of the target partition of the same number, as it was known when it began.
        bytes: of batches in that partition; ``segments`` where their records landed.
        runs: stretches of source offsets without a gap, over all target partitions.
        elsewhere: the same for each other target partition, where a handler or a dead letter has written.
    """

    target_start: int
    bytes: int = 0
    segments: SegmentBuilder = field(default_factory=SegmentBuilder)
    runs: int = 0
    elsewhere: dict[TopicPartition, Written] = field(default_factory=dict)

    def add(self, ack: Acknowledged, *, elsewhere: bool = False) -> int:
        """Note where a batch landed; return the offset behind it."""
        target, into = ack.base_offset, self
        if elsewhere:
            into = self.elsewhere.setdefault(ack.outgoing.target, Written(target))
        for first, count in ack.outgoing.source_runs:
            into.segments.add(first, target, count)
            target += count
        into.bytes += ack.outgoing.header.size_bytes
        self.runs += len(ack.outgoing.source_runs)
        return target

    def beside(self, own: MapRecord) -> list[MapRecord]:
        """Return the records of all target partitions, cut to what their topic takes.

        Args:
            own: that of the target partition of the same number.
        """
        if own.segments:
            # Where the pair ended before says nothing here: records of others may lie in between.
            own = replace(own, target_start=own.segments[0].target)
        records = [own]
        for target, other in self.elsewhere.items():
            segments = other.segments.build()
            start = segments[0].target
            records.append(
                replace(own, target=target, target_start=start, segments=segments, bytes=other.bytes)
            )
        return [part for record in records for part in split(record)]
