"""Keeping the offset map small: many records that are joined become one, while lanes go on writing.

Invariant: a merge changes no answer, wherever it is interrupted. Merged records replace the first of their
parts under its key, and the other parts get tombstones, in one transaction. No record of a lane is ever
overwritten:

- a new generation, which alone may set progress back, fences this ``transactional.id`` before its lanes
  begin, as it fences those of older lanes; and who takes the id reads the layout afterwards.
- only records whose source ends at or below the committed progress are touched, and the map is read to its
  end after the progress was. Lanes of this generation write keys at or above it from then on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from onceover.backoff import Deadline
from onceover.clock import now_ms
from onceover.errors import MustReset, NeedsOperator, Retriable, UsageError
from onceover.kafka.portions import portions
from onceover.kafka.ports import Cluster, Outgoing, Refused
from onceover.kafka.produce.producer import TransactionalProducer
from onceover.kafka.produce.rounds import OWN_BATCH_BYTES, distinct_targets
from onceover.model import TopicPartition, lane_of
from onceover.positions.index import MapIndex
from onceover.positions.store import MapStore, StoreDamaged
from onceover.state import names
from onceover.state.fenced import taking_id
from onceover.state.records.enrolment import Enrolment
from onceover.state.steps import Step, reached
from onceover.wire.batches.batch import parse_header
from onceover.wire.batches.records import encode
from onceover.wire.offsetlookup import join, mergeable
from onceover.wire.offsetmap import MapRecord, encode_map_key, encode_map_value

log = logging.getLogger(__name__)

# Three bytes a segment make 3 KB, which a lookup takes apart in 2 ms; what a record costs besides is
# then a twentieth of it.
_MAX_SEGMENTS: Final = 1024
# Time retention goes by the newest part: what a merged record holds expires at most this much late.
_MAX_SPAN_MS: Final = 24 * 3600_000
_SPANS: Final = 8  # in the time that records are kept, at least
# Fresh records would be merged again and again.
_MIN_AGE_MS: Final = 10 * 60_000
# Well below the target's default limits, and a fraction of a second of work.
_TRANSACTION_BYTES: Final = 2 << 20
_TIMEOUT_MS: Final = 15_000
_TOMBSTONE_BYTES: Final = 100
_FIRST_S: Final = 60.0
_INTERVAL_S: Final = 3600.0
_BUDGET_S: Final = 0.2


# When, what, and its value or None for a tombstone.
_Stamped: TypeAlias = tuple[int, MapRecord, bytes | None]


@dataclass(frozen=True)
class MergeRules:
    """What is merged.

    Args:
        max_segments: of a merged record.
        max_span_ms: from its first begin to its last commit.
        min_age_ms: how old a record's commit is at least.
        transaction_bytes: about how much one transaction writes.
    """

    max_segments: int = _MAX_SEGMENTS
    max_span_ms: int = _MAX_SPAN_MS
    min_age_ms: int = _MIN_AGE_MS
    transaction_bytes: int = _TRANSACTION_BYTES

    @classmethod
    def for_retention(cls, retention_ms: int) -> MergeRules:
        """Return the rules for a map topic that keeps records this long."""
        return cls(max_span_ms=min(_MAX_SPAN_MS, retention_ms // _SPANS))


def plan_runs(
    records: Iterable[MapRecord], below: int, rules: MergeRules, now_ms: int
) -> Iterator[list[MapRecord]]:
    """Yield the runs of a pair's records that become one record each.

    Args:
        records: as ``arrange`` or the store gives them.
        below: the committed progress; keys from there on belong to the lanes.
        now_ms: of the records' clock.
    """
    settled = (r for r in records if r.source_end <= below and r.commit_ms <= now_ms - rules.min_age_ms)
    runs = mergeable(settled, max_segments=rules.max_segments, max_span_ms=rules.max_span_ms)
    return (run for run in runs if len(run) > 1)


@dataclass
class _Rewrite:
    """What one transaction writes: merged records first, so that no reader meets a part's end before them."""

    merged: list[MapRecord] = field(default_factory=list)
    parts: list[MapRecord] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, run: list[MapRecord]) -> None:
        """Take in one run of joined records."""
        merged = join(run)
        self.merged.append(merged)
        self.parts += run[1:]
        self.size_bytes += len(encode_map_value(merged)) + _TOMBSTONE_BYTES * len(run)

    def outgoing(self, flow: str) -> list[Outgoing]:
        """Return the batches, in the order of each partition."""
        # Each with the time of its newest part, by which the topic's retention goes.
        stamped: list[_Stamped] = [(r.commit_ms, r, encode_map_value(r)) for r in self.merged]
        stamped += [(r.commit_ms, r, None) for r in self.parts]
        return [batch for p in range(names.MAP_PARTITIONS) for batch in _batches(flow, p, stamped)]


def _batches(flow: str, partition: int, stamped: list[_Stamped]) -> Iterator[Outgoing]:
    mine = [
        (at_ms, encode_map_key(record.key), value)
        for at_ms, record, value in stamped
        if lane_of(record.source, names.MAP_PARTITIONS) == partition
    ]
    times = {key: at_ms for at_ms, key, _ in mine}
    for piece in portions([(key, value) for _, key, value in mine], OWN_BATCH_BYTES):
        batch = encode([(times[key], key, value, ()) for key, value in piece]).batch
        yield Outgoing(TopicPartition(names.map_topic(flow), partition), parse_header(batch), batch)


class MapMerger:
    """Merges one flow's offset map. Not thread-safe. Part of a run: a newer generation fences it.

    Args:
        target: the flow's target; belongs to the caller.
        flow: its name.
        home: folder of the flow's files, for the index.
        check: raises ``Fenced`` unless this run still owns the flow, after reading the layout to its
            true end.
        enrolments: the flow's topics.
        rules: what is merged.
    """

    def __init__(
        self,
        target: Cluster,
        flow: str,
        home: Path | None,
        check: Callable[[], object],
        enrolments: Callable[[], Mapping[str, Enrolment]],
        rules: MergeRules | None = None,
    ) -> None:
        self._target = target
        self._flow = flow
        self._check = check
        self._enrolments = enrolments
        self._rules = rules or MergeRules()
        self._index = MapIndex(target, flow, home)
        self._producer: TransactionalProducer | None = None

    def close(self) -> None:
        """Close index and connections."""
        self._index.close()
        self._drop_producer()

    def steps(self) -> Iterator[int]:
        """Do one pass, in steps of well below a second; yield how many records each one did away with.

        Between two steps no transaction is open.

        Raises:
            Fenced: a newer generation runs.
            Retriable, MustReset: interrupted; another pass goes on.
            Refused: the target refuses a merged record.
            UsageError, NeedsOperator: not authorized, or a record cannot be read.
        """
        try:
            # First, because it ends at once what a killed predecessor left open, and what a broker did not
            # end (``kafka.produce.leftopen``): all who read the map to its end wait for that, this pass, too.
            # Aborted, the parts of a merge are what they were.
            yield from self._take_id()
            progress = self._progress()
            for _ in self._index.refreshing(settled=True):
                yield 0
            store = self._index.store
            if store is not None:
                for rewrite in self._rewrites(store, progress):
                    yield self._write(rewrite)
        finally:
            self._index.close()
            self._drop_producer()

    def _progress(self) -> dict[TopicPartition, int]:
        """Return the next offset to copy of every source partition."""
        committed = self._target.retry(
            # Not stable: an older position is a lower bound as well, and a live lane's is always pending.
            lambda: self._target.committed(names.progress_group(self._flow), None, stable=False)
        )
        sources = {e.target: e.source for e in self._enrolments().values()}
        return {
            TopicPartition(sources[tp.topic], tp.partition): offset.offset
            for tp, offset in committed.items()
            if tp.topic in sources
        }

    def _rewrites(self, store: MapStore, progress: Mapping[TopicPartition, int]) -> Iterator[_Rewrite]:
        rules = self._rules
        at_ms = now_ms()
        rewrite = _Rewrite()
        for pair in store.pairs():
            for run in plan_runs(store.records(pair), progress.get(pair.source, 0), rules, at_ms):
                rewrite.add(run)
                if rewrite.size_bytes >= rules.transaction_bytes:
                    yield rewrite
                    rewrite = _Rewrite()
        if rewrite.merged:
            yield rewrite

    def _take_id(self) -> Iterator[int]:
        producer = TransactionalProducer(self._target, names.map_id(self._flow), timeout_ms=_TIMEOUT_MS)
        self._producer = producer
        topic = names.map_topic(self._flow)
        written = [TopicPartition(topic, p) for p in range(names.MAP_PARTITIONS)]
        self._check()
        # Nobody waits in the driver for a broker that is away: another pass tries again.
        for _ in taking_id(self._target, producer, written, Deadline(0)):
            yield 0
            self._check()
        # After InitProducerId: a generation that fenced this id before is seen here, a later one fences it.
        self._check()

    def _write(self, rewrite: _Rewrite) -> int:
        producer = self._producer
        if producer is None:
            raise MustReset("the merger holds no producer")
        for round_ in distinct_targets(rewrite.outgoing(self._flow)):
            producer.send(round_)
            producer.drain()
        reached(Step.MERGE_SENT)
        producer.commit()
        reached(Step.MERGE_COMMITTED)
        return len(rewrite.parts)

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None


class MapUpkeep:
    """Merges now and then, beside the driver's other work. Not thread-safe.

    Args:
        merger: closed by ``close``.
        first_s: pause before the first pass.
        interval_s: pause between passes.
    """

    def __init__(
        self, merger: MapMerger, *, first_s: float = _FIRST_S, interval_s: float = _INTERVAL_S
    ) -> None:
        self._merger = merger
        self._interval_s = interval_s
        self._due_s = time.monotonic() + first_s
        self._steps: Iterator[int] | None = None
        self._merged = 0

    def tick(self) -> None:
        """Go on for a fraction of a second if there is something to do. The copy never waits for it.

        Raises:
            Fenced: a newer generation runs.
        """
        if self._steps is None and time.monotonic() >= self._due_s:
            self._steps, self._merged = self._merger.steps(), 0
        if self._steps is None:
            return
        try:
            done = self._advance(self._steps)
        except (Retriable, MustReset, NeedsOperator, UsageError, StoreDamaged, Refused) as error:
            # Nothing depends on it: the map is right as it is, only larger.
            log.warning("the offset map was not merged and will be tried again: %s", error)
            done = True
        if done:
            if self._merged:
                log.info("offset map: %d records merged into others", self._merged)
            self._steps, self._due_s = None, time.monotonic() + self._interval_s

    def _advance(self, steps: Iterator[int]) -> bool:
        """Run steps until the time is over; tell whether the pass has ended."""
        over_s = time.monotonic() + _BUDGET_S
        for count in steps:
            self._merged += count
            if time.monotonic() >= over_s:
                return False
        return True

    def close(self) -> None:
        """Close index and connections."""
        self._merger.close()
