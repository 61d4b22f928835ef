"""A flow in memory with all that can happen to it between audits, and the truth about every record.

The flow copies rightly, and then something may go wrong with what it has copied: the world keeps book of
which source record is where, which never came, and which record on the target has no business there. Audits
run through the real code, from the snapshot to the watermarks, over ``fakelogs``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, NamedTuple
from uuid import UUID

from onceover.audit.ranges.snapshot import AuditSnapshot
from onceover.handlers.load import Handler
from onceover.handlers.record import Record
from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from onceover.positions.reader import Chunk, MapEntry
from onceover.positions.store import MapStore
from onceover.state import names
from onceover.state.read import FlowState
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.state.records.layout import Layout
from onceover.state.records.verdicts import Verdicts
from onceover.state.records.verified import Watermark
from onceover.wire.offsetmap import MapRecord, SegmentBuilder
from onceover.wire.progress import ProgressMeta
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog, FakeTopic
from tests.support.raw.mutations import Content

FLOW: Final = "dr"
SOURCE: Final = "orders"
LETTERS: Final = "letters"
# Values that make the flow's handler fail, or a record that its target refuses.
BAD: Final = b"bad"
KEYS: Final = (b"a", b"b", b"c")
EPOCH_MS: Final = 1_600_000_000_000
_SHA: Final = "0" * 64

Place = tuple[int, int]  # partition and offset


class Kind(NamedTuple):
    """What sort of flow it is.

    Args:
        compacted: both topics are.
        handled: a handler spreads each record over the target's partitions.
        repeats: delivery is at_least_once.
        target: name of the target topic.
    """

    compacted: bool = False
    handled: bool = False
    repeats: bool = False
    target: str = SOURCE


KINDS: Final = {
    "record": Kind(),
    "prefix": Kind(target=f"east.{SOURCE}"),
    "compacted": Kind(compacted=True),
    "handler": Kind(handled=True),
    "handler-compacted": Kind(compacted=True, handled=True),
    "at-least-once": Kind(repeats=True),
    "handler-at-least-once": Kind(handled=True, repeats=True),
}


def spread(record: Record) -> list[Record]:
    """Be the flow's handler: some records go nowhere, some to two partitions."""
    if record.value == BAD:
        raise ValueError("a record that nobody can handle")
    digit = record.timestamp_ms % 4
    if digit == 0:
        return []
    places = {(digit + record.partition) % 3, record.timestamp_ms % 3} if digit == 3 else {digit - 1}
    return [record.replace(partition=each) for each in sorted(places)]


@dataclass
class Truth:
    """What is so, whatever anybody says about it.

    Args:
        homes: where each source record's copies are, by partition and offset of the source.
        lost: source records of which a copy should be on the target and is not.
        surplus: places on the target where something stands that does not belong there.
        again: places on the target where at_least_once has repeated a record.
        skipped: source offsets that an operator passed over; ``diverted`` those in the dead-letter topic.
    """

    homes: dict[Place, list[Place]] = field(default_factory=dict)
    lost: set[Place] = field(default_factory=set)
    surplus: set[Place] = field(default_factory=set)
    again: set[Place] = field(default_factory=set)
    skipped: set[Place] = field(default_factory=set)
    diverted: set[Place] = field(default_factory=set)


class World:
    """Both clusters, the flow, its state and the truth."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.truth = Truth()
        self.now_ms = count(1_700_000_000_000)
        self._numbers = count(1)
        policy = {"cleanup.policy": "compact"} if kind.compacted else {}
        self.target_partitions = 3 if kind.handled else 2
        self.source = FakeCluster("east", {SOURCE: _topic(1, 2, policy)})
        self.target = FakeCluster("west", {kind.target: _topic(2, self.target_partitions, policy)})
        self.target.all_topics[LETTERS] = _topic(3, 1, {})
        self.enrolment = Enrolment(SOURCE, kind.target, UUID(int=1), UUID(int=2), {0: 0, 1: 0}, 1)
        self.positions = [0, 0]
        self.target_ends = [0, 0]
        self.generation = 1
        # Each with the newest generation that diverted to it; the last one is today's.
        self.letter_topics = {LETTERS: 1}
        self.maps: list[MapRecord] = []
        self.stops: dict[str, Any] = {}
        self.watermarks: dict[TopicPartition, Watermark] = {}
        self.verdicts: Verdicts | None = None
        self.named: set[Place] = set()
        self.forgot = False
        self.overlooked: set[int] = set()
        self.diverged: set[int] = set()
        self.lost_ends = False
        self.copied_again: set[Place] = set()
        self.older_release = False
        self.refuses = True
        self._begun_ms = 0
        self._sent: set[Place] = set()
        self._twin: Content | None = None
        for partition in range(2):
            self._commit(partition)

    # ---- looking

    def here(self, partition: int) -> FakeLog:
        """Return a source partition's log."""
        return self.source.all_topics[SOURCE].logs[partition]

    def there(self, partition: int) -> FakeLog:
        """Return a target partition's log."""
        return self.target.all_topics[self.kind.target].logs[partition]

    @property
    def letters(self) -> FakeLog:
        """The log of today's dead-letter topic, which has one partition."""
        return self.target.all_topics[next(reversed(self.letter_topics))].logs[0]

    def state(self) -> FlowState:
        """Return the flow's state as its topic would tell it."""
        layout = Layout(
            generation=self.generation,
            run="r",
            lanes=1,
            fence_up_to=1,
            ready=True,
            source_cluster_id="east-id",
            target_cluster_id="west-id",
            flow_sha256=_SHA,
            started_at_ms=1,
            host="box",
            delivery="at_least_once" if self.kind.repeats else "exactly_once",
            letters=dict(self.letter_topics),
        )
        marks = {names.verified_key(*tp): mark.to_json() for tp, mark in self.watermarks.items()}
        leader = {
            names.LAYOUT: layout.to_json(),
            names.enrolment_key(self.kind.target): self.enrolment.to_json(),
        }
        return FlowState(leader, {**marks, **self.stops})

    def store(self) -> MapStore:
        """Return the offset map as it is now."""
        store = MapStore(None)
        entries = [MapEntry(number, each.key, each) for number, each in enumerate(self.maps)]
        store.apply(Chunk(0, entries, len(entries), 0), None)
        return store

    def handler(self) -> Handler | None:
        """Return the flow's handler, loaded for an audit."""
        if not self.kind.handled:
            return None
        return Handler("spread", False, spread, lambda _: 3, lambda _: None, lambda _: None)

    def handler_changed(self, snapshot: AuditSnapshot) -> bool:
        """Tell whether the flow file is another than the flow was started with."""
        return snapshot.layout.flow_sha256 != _SHA

    # ---- the source

    def content(self, key: int, *, value: bytes | None = b"") -> Content:
        """Return a record that is like no other; ``value`` empty makes one up."""
        number = next(self._numbers)
        made = b"%d" % number if value == b"" else value
        return Content(KEYS[key % len(KEYS)], made, (), EPOCH_MS + number)

    def produce(self, partition: int, records: int, variant: int) -> None:
        """Append records to the source: plain, or a transaction that commits or aborts."""
        contents = [self.content(variant + index) for index in range(records)]
        if variant % 5 == 1 and self.kind.compacted:
            contents[-1] = contents[-1]._replace(value=None)
        if variant % 5 == 2:
            # A producer may send the same again.
            self._twin = self._twin or contents[0]
            contents[0] = self._twin
        log, producer = self.here(partition), 7 if variant % 3 else -1
        if producer in log.pending:
            producer = -1
        offsets = log.append(contents, producer)
        if producer >= 0:
            log.decide(producer, commit=variant % 3 == 1)
        # Behind an election that has taken what was copied, others stand at offsets that are passed.
        passed = {
            (partition, offset)
            for offset, content in zip(offsets, contents, strict=True)
            if offset < self.positions[partition] and self._becomes(partition, offset, content)
        }
        # What the map does not speak of since an operator has skipped counts as skipped, whatever is there.
        self.truth.lost |= passed - self.truth.skipped

    def bad(self, partition: int) -> None:
        """Append a record that is going to be diverted."""
        (offset,) = self.here(partition).append([self.content(0, value=BAD)])
        if offset < self.positions[partition]:
            self.truth.lost |= {(partition, offset)} - self.truth.skipped

    def grow(self) -> None:
        """Add a partition to the source, with a record, before the flow has noticed."""
        log = FakeLog()
        log.append([self.content(0)])
        self.source.all_topics[SOURCE].logs.append(log)

    def hang(self, partition: int, variant: int) -> None:
        """Open a transaction on the source, or end the one that is open."""
        log = self.here(partition)
        if 8 in log.pending:
            log.decide(8, commit=variant % 2 == 0)
        else:
            log.append([self.content(variant)], 8)

    # ---- the flow

    def copy(self, partition: int, records: int, fault: str = "") -> None:
        """Copy up to so many records in one transaction; then let something go wrong with one of them."""
        if names.stop_key(self.kind.target, partition) in self.stops:
            return
        log, begin = self.here(partition), self.positions[partition]
        if log.start > begin or self._hidden(partition):
            return
        visible = [(o, c) for o, c in log.visible() if o >= begin]
        self._begun_ms = next(self.now_ms)
        taken, end = visible[:records], log.stable
        if len(taken) < len(visible):
            end = taken[-1][0] + 1
        if end <= begin:
            return
        written = self._write(partition, taken)
        self._note(partition, (begin, end), written)
        # Whatever becomes of the second copy of what was sent ahead, the first one is right.
        once = [each for each in written if (partition, each[0]) not in self._sent]
        if fault and once:
            FAULTS[fault](self, partition, once)

    def ahead(self, partition: int, records: int) -> None:
        """With at_least_once: send records and be killed before their progress is committed."""
        begin, log = self.positions[partition], self.here(partition)
        if self.kind.repeats and log.start <= begin:
            for offset, content in [e for e in log.visible() if e[0] >= begin][:records]:
                if content.value != BAD:
                    made = self._made(partition, offset, content)
                    for target, each in made:
                        (place,) = self.there(target).append([each])
                        self.truth.again.add((target, place))
                    self.truth.homes.setdefault((partition, offset), [])
                    self._sent.add((partition, offset))

    def _hidden(self, partition: int) -> bool:
        return self.here(partition).stable < self.positions[partition]

    def _write(self, partition: int, taken: list[tuple[int, Content]]) -> list[tuple[int, Place]]:
        """Write what becomes of records; return each copy's source offset and place."""
        by_target: dict[int, list[tuple[int, Content]]] = {}
        for offset, content in taken:
            for target, made in self._made(partition, offset, content):
                by_target.setdefault(target, []).append((offset, made))
        written = []
        producer = -1 if self.kind.repeats else 100 + partition
        for target, entries in by_target.items():
            places = self.there(target).append([made for _, made in entries], producer)
            written += [(o, (target, place)) for (o, _), place in zip(entries, places, strict=True)]
            if producer >= 0:
                self.there(target).decide(producer, commit=True)
        for offset, place in written:
            self._settle((partition, offset), place)
        return written

    def _settle(self, origin: Place, place: Place) -> None:
        """Note where a record was copied to: at home there, unless its copy of before is still there."""
        homes = self.truth.homes.setdefault(origin, [])
        homes[:] = [(target, at) for target, at in homes if at >= self.there(target).start]
        if homes and not self.kind.handled and not self.kind.repeats:
            self.truth.surplus.add(place)
            self.copied_again.add(place)
            return
        homes.append(place)
        self.truth.lost.discard(origin)

    def _made(self, partition: int, offset: int, content: Content) -> list[tuple[int, Content]]:
        if content.value == BAD and self.refuses:
            self._divert(partition, offset, content)
            return []
        if not self.kind.handled:
            return [(partition, content)]
        record = Record(SOURCE, partition, offset, content.timestamp_ms, content.key, content.value)
        return [(out.partition, content) for out in spread(record)]

    def _divert(self, partition: int, offset: int, content: Content) -> None:
        headers: tuple[tuple[bytes, bytes], ...] = (
            (b"onceover.flow", FLOW.encode()),
            (b"onceover.source.topic", SOURCE.encode()),
            (b"onceover.source.topic.id", str(self.enrolment.source_id).encode()),
            (b"onceover.source.partition", b"%d" % partition),
            (b"onceover.source.offset", b"%d" % offset),
        )
        if self.older_release:
            headers = tuple(each for each in headers if each[0] != b"onceover.source.topic.id")
        letter = content._replace(headers=(*content.headers, *headers), timestamp_ms=next(self.now_ms))
        producer = -1 if self.kind.repeats else 100 + partition
        self.letters.append([letter], producer)
        if producer >= 0:
            self.letters.decide(producer, commit=True)
        self.truth.diverted.add((partition, offset))

    def _note(self, partition: int, span: tuple[int, int], written: list[tuple[int, Place]]) -> None:
        """Commit the map and the progress of a transaction."""
        by_target: dict[int, SegmentBuilder] = {partition: SegmentBuilder()}
        for offset, (target, place) in written:
            by_target.setdefault(target, SegmentBuilder()).add(offset, place, 1)
        for target, builder in by_target.items():
            segments = builder.build()
            start = self.target_ends[partition]
            if self.kind.handled and segments:
                start = segments[0].target
            self.maps.append(self._map_record((partition, target), span, start, segments))
            if target == partition and segments:
                self.target_ends[partition] = segments[-1].target_end
        self.positions[partition] = span[1]
        self._commit(partition)

    def _map_record(
        self, pair: tuple[int, int], span: tuple[int, int], start: int, segments: Any
    ) -> MapRecord:
        return MapRecord(
            source=TopicPartition(SOURCE, pair[0]),
            target=TopicPartition(self.kind.target, pair[1]),
            source_start=span[0],
            source_end=span[1],
            target_start=start,
            segments=segments,
            bytes=100 * len(segments),
            generation=self.generation,
            lane=0,
            batch=1,
            attempt=0,
            begin_ms=self._begun_ms,
            commit_ms=next(self.now_ms),
        )

    def _commit(self, partition: int) -> None:
        ids = str(self.enrolment.source_id), str(self.enrolment.target_id)
        end, position = self.target_ends[partition], self.positions[partition]
        epochs = [log.epochs[-1][0] for log in (self.here(partition), self.there(partition))]
        meta = ProgressMeta(*ids, epochs[0], end, self.generation, (1, 0), position, epochs[1])
        group = self.target.groups.setdefault(names.progress_group(FLOW), {})
        tp = TopicPartition(self.kind.target, partition)
        group[tp] = CommittedOffset(0, position, -1, meta.encode())

    # ---- what people and time do

    def skip(self, partition: int, records: int) -> None:
        """Let an operator pass over records: a new generation goes on behind them."""
        log, begin = self.here(partition), self.positions[partition]
        end = min(max(begin + records, log.start), log.stable)
        if end > begin and partition not in self.overlooked | self.diverged:
            self.truth.skipped |= {(partition, offset) for offset in range(begin, end)}
            self.put(partition, end)

    def put_by(self, partition: int, offsets: int) -> None:
        """Let an operator move the flow so far ahead, or back, as far as its source allows it.

        What it has to copy again is copied at once: until then all that is behind it looks like nobody's.
        """
        log, begin = self.here(partition), self.positions[partition]
        if self.kind.handled or self.kind.repeats or self._hidden(partition) or partition in self.overlooked:
            return
        if self.there(partition).pending or (self.forgot and self.lost_ends):
            return
        end = min(begin + offsets, log.stable)
        if self.there(partition).end < self.target_ends[partition]:
            # The target has lost some of what was copied: nobody goes on behind that.
            end = min([end, *(place[1] for place in self.truth.lost if place[0] == partition)])
        end = max(log.start, end)
        self.truth.skipped |= {(partition, offset) for offset in range(begin, end)}
        self.put(partition, end)
        if end < begin:
            self.copy(partition, begin - end)

    def put(self, partition: int, offset: int) -> None:
        """Let an operator put the flow somewhere in its source: what lies behind is copied, perhaps again."""
        self._start_again(next(reversed(self.letter_topics)))
        end = self.there(partition).end
        placed = {partition: PlacedProgress(self.generation, offset, end)}
        changed = {partition: f"approval-{self.generation}"}
        self.enrolment = replace(
            self.enrolment,
            placed={**self.enrolment.placed, **placed},
            changed={**self.enrolment.changed, **changed},
        )
        self.positions[partition], self.target_ends[partition] = offset, end
        self.stops.pop(names.stop_key(self.kind.target, partition), None)
        self.diverged.discard(partition)
        self._commit(partition)

    def _start_again(self, letters: str) -> None:
        """Let a new generation begin, which diverts there."""
        self.generation += 1
        self.letter_topics[letters] = self.generation

    def rename_letters(self) -> None:
        """Let somebody name another dead-letter topic, and start the flow again."""
        name = f"{LETTERS}-{self.generation}"
        self.target.all_topics[name] = _topic(100 + next(self._numbers), 1, {})
        self._start_again(name)

    def remove_letters(self) -> None:
        """Let somebody delete the oldest dead-letter topic, unless it is today's."""
        there = [name for name in self.letter_topics if name in self.target.all_topics]
        for name in there[:-1][:1]:
            del self.target.all_topics[name]

    def overlook(self, partition: int, records: int) -> None:
        """Let a faulty flow go past records without copying them, and without saying so in its map."""
        log, begin = self.here(partition), self.positions[partition]
        end = min(begin + records, log.stable)
        passed = [(o, c) for o, c in log.visible() if begin <= o < end]
        # What was sent ahead of its progress is on the target, whoever goes past it then.
        if any((partition, offset) in self._sent for offset, _ in passed):
            return
        # Nobody can tell one from the other where an operator has skipped records of the partition, too.
        if begin < end and log.start <= begin and partition not in self.enrolment.changed:
            self.overlooked.add(partition)
            self.truth.lost |= {(partition, o) for o, c in passed if self._becomes(partition, o, c)}
            self.positions[partition] = end
            self._commit(partition)

    def _becomes(self, partition: int, offset: int, content: Content) -> bool:
        """Tell whether anything of a record should be on the target."""
        if not self.kind.handled or content.value == BAD:
            return True
        return bool(spread(Record(SOURCE, partition, offset, content.timestamp_ms, None, content.value)))

    def expire(self, partition: int, records: int, *, target: bool) -> None:
        """Let retention take the oldest offsets of one side."""
        log = self.there(partition) if target else self.here(partition)
        before = dict(self.there(partition).visible())
        log.expire(log.start + records)
        if target:
            self._outlive(partition, before)

    def _outlive(self, partition: int, before: dict[int, Content]) -> None:
        """Let a second copy that is still there stand for the first one that has expired."""
        start = self.there(partition).start
        for homes in self.truth.homes.values():
            for index, (target, place) in enumerate(homes):
                if target == partition and place < start and place in before:
                    equal = (o for o, c in before.items() if o >= start and c == before[place])
                    at = next((o for o in equal if (partition, o) in self.copied_again), None)
                    if at is not None:
                        homes[index] = partition, at
                        self.truth.surplus.discard((partition, at))

    def _can_be_told(self, partition: int) -> bool:
        """Tell whether it shows what a source has lost: not by a dead letter, nor amid what was skipped."""
        diverted = any(place[0] == partition for place in self.truth.diverted)
        return not diverted and not (self.forgot and partition in self.enrolment.changed)

    def elect(self, partition: int, batches: int, *, target: bool) -> None:
        """Let a replica lead that has missed the last batches; the flow stops where that were copied ones."""
        if self.kind.repeats or not (target or self._can_be_told(partition)):
            return
        log = self.there(partition) if target else self.here(partition)
        log.lose(batches)
        truth, self.lost_ends = self.truth, True
        if target:
            for place, homes in truth.homes.items():
                kept = [home for home in homes if home[0] != partition or home[1] < log.end]
                if kept != homes:
                    homes[:] = kept
                    truth.lost.add(place)
            truth.surplus = {at for at in truth.surplus if at[0] != partition or at[1] < log.end}
            is_copied = log.end < self.target_ends[partition]
        else:
            for place in [at for at in truth.homes if at[0] == partition and at[1] >= log.end]:
                truth.surplus |= set(truth.homes.pop(place))
            for places in (truth.lost, truth.diverted):
                places -= {at for at in places if at[0] == partition and at[1] >= log.end}
            is_copied = log.end < self.positions[partition]
        if self.kind.handled and target:
            # All of them may have written there, and grown again it looks like another log.
            for number in range(2):
                self.stops[names.stop_key(self.kind.target, number)] = _stop(self.positions[number])
                self.diverged.add(number)
        elif is_copied:
            self.stops[names.stop_key(self.kind.target, partition)] = _stop(self.positions[partition])
            self.diverged.add(partition)

    def clean(self, partition: int, variant: int, *, target: bool) -> None:
        """Let a log cleaner run on one side of a compacted topic."""
        if self.kind.compacted:
            log = self.there(partition) if target else self.here(partition)
            before = dict(self.there(partition).visible())
            log.clean(tombstones=variant % 2 == 1)
            if target:
                self._follow(partition, before)

    def _follow(self, partition: int, before: dict[int, Content]) -> None:
        """Let the equal copy that a cleaner has kept in its place stand for one that it has taken."""
        kept = dict(self.there(partition).visible())
        for homes in self.truth.homes.values():
            for index, (target, taken) in enumerate(homes):
                if target != partition or taken not in before or taken in kept:
                    continue
                equal = (o for o, c in kept.items() if o > taken and c == before[taken])
                place = next((o for o in equal if (partition, o) in self.truth.surplus), None)
                if place is not None and not any(taken < o < place for o in kept):
                    homes[index] = partition, place
                    self.truth.surplus.discard((partition, place))

    def forget(self, records: int) -> None:
        """Let the offset map's retention take its oldest records."""
        if self.lost_ends:
            return
        self.forgot |= bool(self.maps[:records])
        self.maps = self.maps[records:]

    def leave(self) -> None:
        """Let the topic leave the filter and come back before the flow has run."""
        self.enrolment = replace(self.enrolment, active=not self.enrolment.active)

    def stop(self, partition: int) -> None:
        """Stop a partition, or let it go on."""
        key = names.stop_key(self.kind.target, partition)
        if partition in self.diverged:
            return
        if self.stops.pop(key, None) is None:
            self.stops[key] = _stop(self.positions[partition])

    def recreate(self, *, target: bool) -> None:
        """Delete a topic and make another one of its name; the flow stops by itself."""
        side, name = (self.target, self.kind.target) if target else (self.source, SOURCE)
        old = side.all_topics[name]
        side.all_topics[name] = _topic(100 + next(self._numbers), len(old.logs), old.config)
        for partition in range(2):
            self.stops[names.stop_key(self.kind.target, partition)] = _stop(self.positions[partition])

    def copy_anew(self, *, source: bool = True, target: bool = True) -> None:
        """Copy all again from what the source still holds, an hour later; nobody knows of what was before.

        Args:
            source: the source topic was made anew for it; ``target`` the target topic.
        """
        for is_target in [False] * source + [True] * target:
            self.recreate(target=is_target)
        self.now_ms = count(next(self.now_ms) + 3_600_000)
        self._start_again(next(reversed(self.letter_topics)))
        both = {0: self.generation, 1: self.generation}
        self.enrolment = replace(
            self.enrolment,
            source_id=self.source.all_topics[SOURCE].id,
            target_id=self.target.all_topics[self.kind.target].id,
            since=both if source or target else self.enrolment.since,
            changed={partition: f"approval-{self.generation}" for partition in both},
            start={partition: self.here(partition).start for partition in both},
        )
        self.positions = [self.here(partition).start for partition in both]
        self.stops, self.truth, self.diverged = {}, Truth(), set()
        if target:
            self.target_ends = [0, 0]
        for partition in both:
            self._commit(partition)

    def damage(self, partition: int, variant: int, *, target: bool) -> None:
        """Damage a batch on a broker's disk: its readers find out, or already the broker does."""
        log = self.there(partition) if target else self.here(partition)
        data = [each for each in log.batches if each.kind is None and each.records]
        if data:
            batch = data[variant % len(data)]
            batch.damaged, batch.refused = True, variant % 2 == 1

    # ---- what others do to the target

    def foreign(self, partition: int, variant: int) -> None:
        """Let somebody else write into the target topic."""
        value = None if variant % 3 == 0 else b""
        (offset,) = self.there(partition).append([self.content(variant, value=value)])
        self.truth.surplus.add((partition, offset))

    def foreign_transaction(self, partition: int, variant: int) -> None:
        """Let somebody else open a transaction on the target, or abort it."""
        log = self.there(partition)
        if 9 in log.pending:
            log.decide(9, commit=False)
        else:
            log.append([self.content(variant)], 9)

    def hold_letters(self, variant: int) -> None:
        """Let somebody open a transaction on the dead-letter topic, or end it."""
        if 9 in self.letters.pending:
            self.letters.decide(9, commit=variant % 2 == 0)
        else:
            self.letters.append([self.content(variant)], 9)

    def leak(self, partition: int) -> None:
        """Let a record of an aborted transaction be visible on the target."""
        log = self.here(partition)
        seen = dict(log.visible())
        hidden = [c for b in log.batches for o, c in b.records.items() if o not in seen and o < log.stable]
        if hidden:
            (offset,) = self.there(partition).append(hidden[:1])
            self.truth.surplus.add((partition, offset))

    def change(self, place: Place, changed: Content | None) -> None:
        """Put another record at a place of the target; None takes it away."""
        for batch in self.there(place[0]).batches:
            if place[1] in batch.records:
                if changed is None:
                    del batch.records[place[1]]
                else:
                    batch.records[place[1]] = changed

    def at(self, place: Place) -> Content:
        """Return the record at a place of the target."""
        return next(b.records[place[1]] for b in self.there(place[0]).batches if place[1] in b.records)


# ---- what goes wrong with a copy

_Fault = Callable[[World, int, list[tuple[int, Place]]], None]


def _lose(world: World, partition: int, written: list[tuple[int, Place]]) -> None:
    offset, place = written[0]
    world.change(place, None)
    world.truth.lost.add((partition, offset))
    world.truth.homes[partition, offset].remove(place)


def _repeat(world: World, partition: int, written: list[tuple[int, Place]]) -> None:
    _, place = written[0]
    (again,) = world.there(place[0]).append([world.at(place)])
    # With at_least_once nobody can tell who delivered it again.
    (world.truth.again if world.kind.repeats else world.truth.surplus).add((place[0], again))


def _alter(world: World, partition: int, written: list[tuple[int, Place]]) -> None:
    offset, place = written[-1]
    was = world.at(place)
    world.change(place, was._replace(headers=((b"x", b"1"),)))
    world.truth.surplus.add(place)
    world.truth.lost.add((partition, offset))


def _swap(world: World, partition: int, written: list[tuple[int, Place]]) -> None:
    (first, one), (second, other) = written[0], written[-1]
    if one[0] == other[0] and world.at(one) != world.at(other):
        here, there = world.at(one), world.at(other)
        world.change(one, there)
        world.change(other, here)
        world.truth.surplus |= {one, other}
        world.truth.lost |= {(partition, first), (partition, second)}


def _misroute(world: World, partition: int, written: list[tuple[int, Place]]) -> None:
    _, place = written[0]
    moved = world.at(place)
    _lose(world, partition, written)
    other = (place[0] + 1) % world.target_partitions
    (at,) = world.there(other).append([moved])
    world.truth.surplus.add((other, at))


FAULTS: Final[dict[str, _Fault]] = {
    "lose": _lose,
    "repeat": _repeat,
    "alter": _alter,
    "swap": _swap,
    "misroute": _misroute,
}


def _topic(number: int, partitions: int, config: dict[str, str]) -> FakeTopic:
    return FakeTopic(UUID(int=number), [FakeLog() for _ in range(partitions)], dict(config))


def _stop(position: int) -> dict[str, Any]:
    text = {"code": "X", "message": "stopped", "expected": "a", "seen": "b", "resolve": "c"}
    return {"v": 1, **text, "position": position, "at_ms": 0, "generation": 0}
