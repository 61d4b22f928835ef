"""A dry run of a flow's handler over some live records of the source. Writes nothing anywhere.

Invariant: the records take the very way of a copy (same decoding, same calls, its listener's among them, same
encoding), so what is shown is what the target would get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from onceover.backoff import StallLimit
from onceover.handlers.calling import NotBack, limited
from onceover.handling.handling import (
    MAX_BATCH_BYTES,
    BadRecord,
    Group,
    Handled,
    Handling,
    Request,
    groups,
)
from onceover.handling.lanehandler import HandlerUse, LaneHandler
from onceover.handling.obstacles import RecordProblem
from onceover.kafka import calls
from onceover.kafka.logs.between import Interval, IntervalPart, IntervalReader
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition
from onceover.stops.codes import StopCode
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.records import DecodedRecord, decode, decode_payload
from onceover.wire.batches.unpack import READERS, Ceiling

# A source that does not answer for so long is looked at another time.
_TIMEOUT_S: Final = 15.0
_FETCH_BYTES: Final = 8 << 20
_PARTITION_BYTES: Final = 256 << 10

KEPT: Final = "kept"
CHANGED: Final = "changed"
REMOVED: Final = "removed"
MULTIPLIED: Final = "multiplied"
FAILED: Final = "failed"


class PlacedRecord(NamedTuple):
    """A record that the target would get, and in which partition."""

    partition: int
    record: DecodedRecord


@dataclass(frozen=True)
class SampleOutcome:
    """What becomes of one record.

    Args:
        source: its partition.
        record: as it is on the source.
        outputs: as the target would get it, in order.
        failure: why the handler fails on it, None when it does not.
    """

    source: TopicPartition
    record: DecodedRecord
    outputs: tuple[PlacedRecord, ...] = ()
    failure: str | None = None

    @property
    def kind(self) -> str:
        """Return kept, changed, removed, multiplied or failed."""
        if self.failure is not None:
            return FAILED
        if not self.outputs:
            return REMOVED
        if len(self.outputs) > 1:
            return MULTIPLIED
        return CHANGED if self.fields else KEPT

    @property
    def fields(self) -> tuple[str, ...]:
        """Return what the first output has otherwise than the source."""
        if not self.outputs:
            return ()
        partition, record = self.outputs[0]
        changed = [n for n in ("key", "value", "headers", "timestamp") if _differs(record, self.record, n)]
        return (*changed, *(["partition"] if partition != self.source.partition else []))


@dataclass
class _Wanted:
    """A partition to read from: ``left`` records before offset ``end``; ``refusal``: it was not taken."""

    handling: Handling
    start: int
    end: int
    left: int
    refusal: str | None = None
    outcomes: list[SampleOutcome] = field(default_factory=list)


def sample(
    source: Cluster,
    topics: Sequence[TopicInfo],
    count: int,
    use: HandlerUse,
    counts: Callable[[int], int],
) -> list[SampleOutcome]:
    """Return what the handler makes of the newest committed records, spread over the partitions.

    Args:
        source: read with read_committed; no group is joined, nothing is committed.
        topics: the flow's topics on the source.
        count: how many records at most.
        use: how a lane uses the handler.
        counts: how many partitions a target topic has for so many of the source.

    Raises:
        Retriable: the source does not answer in time, or has no leader for a partition.
    """
    found = {t.name: t for t in topics}
    partitions = [TopicPartition(t.name, p) for t in topics for p in sorted(t.partitions)]
    starts = source.list_offsets(partitions, calls.EARLIEST)
    ends = source.list_offsets(partitions, calls.LATEST)
    filled = [tp for tp in partitions if ends[tp] > starts[tp]]
    share = -(-count // max(1, len(filled)))
    # Markers and aborted records take offsets, too.
    reach = 2 * share + 10
    wanted = {
        tp: _Wanted(
            use.form(tp, counts(len(found[tp.topic].partitions))),
            max(starts[tp], ends[tp] - reach),
            ends[tp],
            share,
        )
        for tp in filled[:count]
    }
    lane = LaneHandler(use=use)
    try:
        _assign(lane, wanted)
        _read(source, found, wanted)
    finally:
        lane.released()
    return [outcome for one in wanted.values() for outcome in one.outcomes][:count]


def _assign(lane: LaneHandler, wanted: Mapping[TopicPartition, _Wanted]) -> None:
    """Tell the handler of its partitions one by one: what it does not take is named, and the others go on."""
    held: dict[TopicPartition, int] = {}
    for tp, one in wanted.items():
        stop = lane.assigned({**held, tp: one.start}).get(tp)
        if stop is None:
            held[tp] = one.start
        else:
            one.refusal = f"{stop.message}: {stop.seen}"


def _read(source: Cluster, topics: Mapping[str, TopicInfo], wanted: dict[TopicPartition, _Wanted]) -> None:
    reader = IntervalReader(
        source,
        topics,
        {tp: Interval(one.start, one.end) for tp, one in wanted.items()},
        StallLimit(_TIMEOUT_S),
        max_bytes=_FETCH_BYTES,
        share_bytes=_PARTITION_BYTES,
    )
    for part in reader.parts():
        one = wanted[part.tp]
        for outcome in _outcomes(part, one):
            if one.left and outcome.record.offset < one.end:
                one.outcomes.append(outcome)
                one.left -= 1
        if not one.left:
            reader.leave(part.tp)


def _outcomes(part: IntervalPart, one: _Wanted) -> Iterator[SampleOutcome]:
    for group in groups(part.batches, Ceiling(one.handling.group_bytes, READERS.record_bytes)):
        if not group.batches:
            continue
        if one.refusal is None:
            yield from handled(part.tp, one.handling, group, one.start)
            continue
        for unpacked in group.batches:
            for record in decode_payload(unpacked, one.start):
                yield SampleOutcome(part.tp, record, failure=one.refusal)


def handled(source: TopicPartition, handling: Handling, group: Group, start: int) -> Iterator[SampleOutcome]:
    """Yield what the handler makes of each record of ``group`` from offset ``start`` on."""
    result = _processed(
        handling,
        group,
        Request(start, None, {}, MAX_BATCH_BYTES, READERS.record_bytes, stop_at_bad=False),
    )
    outputs: dict[int, list[PlacedRecord]] = {}
    for partition, encoded in result.outputs:
        offsets = [first + n for first, count in encoded.source_runs for n in range(count)]
        records = decode(parse_header(encoded.batch), encoded.batch)
        for offset, record in zip(offsets, records, strict=True):
            outputs.setdefault(offset, []).append(PlacedRecord(partition, record))
    failures = {bad.record.offset: bad.reason.message for bad in result.bad}
    for unpacked in group.batches:
        for record in decode_payload(unpacked, start):
            out = tuple(outputs.get(record.offset, ()))
            yield SampleOutcome(source, record, out, failures.get(record.offset))


def _processed(handling: Handling, group: Group, wanted: Request) -> Handled:
    """Hand a group over as a copy does: record by record where it does not come back."""
    with suppress(NotBack):
        return limited(partial(handling.process, group, wanted))
    together = Handled()
    for batch in group.apart():
        for record in decode_payload(batch.batches[0], wanted.from_offset):
            one = wanted._replace(from_offset=record.offset, to_offset=record.offset + 1)
            try:
                found = limited(partial(handling.process, batch, one))
            except NotBack as error:
                problem = RecordProblem(StopCode.HANDLER_FAILED, str(error))
                found = Handled(bad=[BadRecord(record, problem)])
            together.outputs += found.outputs
            together.bad += found.bad
    return together


def _differs(one: DecodedRecord, other: DecodedRecord, name: str) -> bool:
    return bool(getattr(one, name) != getattr(other, name))
