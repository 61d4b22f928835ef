"""What a lane writes about itself beside the data: offset map, stops, notes, progress.

Invariant: everything here is written inside the transaction of the data that it is about, and every answer is
awaited before the next request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceover.clock import now_ms
from onceover.copy.identity import LaneIdentity
from onceover.copy.partition import PartitionCopy
from onceover.kafka.calls import OffsetToCommit
from onceover.kafka.portions import portions
from onceover.kafka.ports import Outgoing, TxnProducer
from onceover.kafka.produce.rounds import OWN_BATCH_BYTES, distinct_targets
from onceover.model import TopicPartition, lane_of
from onceover.state import names
from onceover.state.steps import Step, reached
from onceover.stops.record import Stop
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.records import encode
from onceover.wire.offsetmap import MapRecord, encode_map_key, encode_map_value

# Asked for what to note about partitions that cannot be copied for now, with those that move on meanwhile:
# records of the state by key, None to remove one.
Waiting = Callable[[Collection[TopicPartition]], Mapping[str, Mapping[str, Any] | None]]


@dataclass
class Account:
    """What one session of a lane keeps of its own.

    Args:
        me: who copies.
        producer: of the lane; ``Refused`` leaves every method that writes.
        waits: asked before a commit.
        stops: partitions that stop in the next transaction, by target partition.
        resumed: target partitions whose old stop record is removed in it.
        own_writes: the producer id of now, where each partition's copies go into one target partition, in
            transactions, and nothing else of that id does; None where it is not so.
    """

    me: LaneIdentity
    producer: TxnProducer
    waits: Waiting
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    resumed: set[TopicPartition] = field(default_factory=set)
    own_writes: Callable[[], int | None] = lambda: None

    @property
    def pending(self) -> bool:
        """True when there is something to write although no partition has moved."""
        return bool(self.stops or self.resumed)

    def write_map(self, moved: Iterable[PartitionCopy], begun_ms: int) -> list[MapRecord]:
        """Write the offset map of the open transaction, begun at ``begun_ms``; return its records."""
        me, at_ms = self.me, now_ms()
        records = [
            record
            for p in moved
            for record in p.map_records(me.generation, me.lane, me.instance, begun_ms, at_ms)
        ]
        by_partition: dict[int, list[MapRecord]] = {}
        for record in records:
            by_partition.setdefault(lane_of(record.source, names.MAP_PARTITIONS), []).append(record)
        if records:
            self._write(
                {
                    TopicPartition(names.map_topic(me.flow), number): [
                        (encode_map_key(r.key), encode_map_value(r)) for r in group
                    ]
                    for number, group in by_partition.items()
                }
            )
        reached(Step.MAP_SENT)
        return records

    def write_stops(self, moved: Sequence[PartitionCopy] = ()) -> None:
        """Write who stops, who no longer does, and what there is to note about those that wait.

        Args:
            moved: partitions that move on in the same transaction.
        """
        values: list[tuple[bytes, bytes | None]] = [
            (names.stop_key(*tp).encode(), None) for tp in self.resumed if tp not in self.stops
        ]
        values += [
            (names.stop_key(*tp).encode(), json.dumps(stop.to_json()).encode())
            for tp, stop in self.stops.items()
        ]
        values += [
            (key.encode(), None if note is None else json.dumps(note).encode())
            for key, note in self.waits([p.source for p in moved]).items()
        ]
        if values:
            state = TopicPartition(names.state_topic(self.me.flow), names.STATE_OTHERS)
            self._write({state: values})
        self.stops.clear()
        self.resumed.clear()

    def write_progress(
        self, offsets: Mapping[TopicPartition, OffsetToCommit], *, moving: bool = True
    ) -> None:
        """Write positions, by target partition; ``moving`` as the producer's port says."""
        self.producer.add_offsets(names.progress_group(self.me.flow), offsets, moving=moving)

    def offsets(self, partitions: Iterable[PartitionCopy]) -> dict[TopicPartition, OffsetToCommit]:
        """Return what is to be committed for these partitions as they are now."""
        me, producer_id = self.me, self.own_writes()
        return {
            p.target: OffsetToCommit(
                p.position, p.leader_epoch, p.metadata(me.generation, me.instance, producer_id).encode()
            )
            for p in partitions
        }

    def _write(self, values: Mapping[TopicPartition, list[tuple[bytes, bytes | None]]]) -> None:
        at_ms = now_ms()
        batches = []
        for target, pairs in values.items():
            for piece in portions(pairs, OWN_BATCH_BYTES):
                batch = encode([(at_ms, key, value, ()) for key, value in piece]).batch
                batches.append(Outgoing(target, parse_header(batch), batch))
        for round_ in distinct_targets(batches):
            self.producer.send(round_)
            self.producer.drain()
