"""What the offset map says about where a flow goes on, and the group on the source beside it.

Invariant: what is called exact follows from what the map, the leader's own record of what it has placed
(``Enrolment.placed``) and the target's log hold, in generations, never in times of any machine's clock. Where
the map may have expired together with what was copied, or is younger than the copy, it is refused. The map is
read to its end: what an open transaction hides would be copied again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from onceover.backoff import Deadline
from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka.codes import KafkaCode
from onceover.kafka.each import answers_in_time
from onceover.kafka.logs.between import records_between
from onceover.kafka.ports import Cluster, TopicInfo
from onceover.model import TopicPartition, lane_of
from onceover.planning import commands
from onceover.planning.plan import Refusal
from onceover.positions.reader import MapChanged, MapTopic, Point
from onceover.seeding.codes import SeedingCode
from onceover.seeding.origins import FlowClusters, GroupOrigin, Passive, unread
from onceover.seeding.plan import Seat, SeatedTopic, SeedOffset, SeedOffsets, copied_up_to, made_anew
from onceover.state import names
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.wire.offsetmap import MapRecord

# A partition of the map without a leader must not keep those waiting whose records are in the others.
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class MapOrigin(Passive):
    """The flow's own offset map: the exact way to rebuild a lost progress group.

    Args:
        handled: the flow has a handler, so that a partition's records may be anywhere in the copy.
    """

    handled: bool = False

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        """Name where the newest map record of each partition ends, on both sides."""
        ends = MapEnds(newest_records(place.target, place.flow))
        seeds: dict[TopicPartition, SeedOffset] = {}
        refused: dict[TopicPartition, Refusal] = {}
        for topic in topics:
            if topic.enrolment is None or topic.copy is None:
                continue
            asking = _Asking(place, topic.enrolment, topic.copy, ends, self.handled)
            for seat in topic.seats:
                if seat.source.partition not in topic.enrolment.start:
                    # It was added while the topic was given away: nothing of it was ever copied.
                    continue
                answer = (
                    _stale(place, topic, seat)
                    or ends.unread_of(seat.source, everywhere=self.handled)
                    or asking.permitted(seat)
                )
                if isinstance(answer, Refusal):
                    refused[seat.source] = answer
                else:
                    seeds[seat.source] = answer
        return SeedOffsets(seeds, refused)


@dataclass(frozen=True)
class LagOrigin(Passive):
    """The group on the source that shows the flow to lag tools: at or a little behind what was copied."""

    def read(self, place: FlowClusters, topics: Sequence[SeatedTopic]) -> SeedOffsets:
        """Name its offsets, with the bound of repeats: exact where the map knows, else up to the LSO.

        Refused where a topic is another one now, or where the partition was put back by hand and nothing
        tells that the group was written since: what lies before the offset would never come.
        """
        group = names.lag_group(place.flow)
        committed = GroupOrigin(group).read(place, topics).offsets
        ends = MapEnds(newest_records(place.target, place.flow))
        seeds: dict[TopicPartition, SeedOffset] = {}
        refused: dict[TopicPartition, Refusal] = {}
        for topic in topics:
            for seat in topic.seats:
                if seat.source not in committed:
                    continue
                answer = _from_group(place, topic, seat, committed[seat.source], ends)
                if isinstance(answer, Refusal):
                    refused[seat.source] = answer
                else:
                    seeds[seat.source] = answer
        return SeedOffsets(seeds, refused)


class MapEnds:
    """Where the map ends, for each partition of either side.

    Args:
        newest: the newest record of each pair of partitions, as far as the map can be read.
    """

    def __init__(self, newest: NewestMapRecords) -> None:
        self._unread = newest.unread
        self._by_source: dict[TopicPartition, list[MapRecord]] = {}
        self._by_target: dict[TopicPartition, list[MapRecord]] = {}
        for record in newest.records:
            self._by_source.setdefault(record.source, []).append(record)
            self._by_target.setdefault(record.target, []).append(record)

    def of_source(self, enrolment: Enrolment | None, source: TopicPartition) -> MapRecord | None:
        """Return a partition's newest record, wherever its records went, that is not about topics gone."""
        found = _live(enrolment, self._by_source.get(source, []))
        return max(found, key=_age, default=None)

    def unread_of(self, source: TopicPartition, *, everywhere: bool = False) -> Refusal | None:
        """Return why what the map says of a partition cannot be read now.

        Args:
            everywhere: any part of the map may tell of it.
        """
        mine = lane_of(source, names.MAP_PARTITIONS)
        numbers = sorted(self._unread) if everywhere else [mine]
        for error in (self._unread[number] for number in numbers if number in self._unread):
            text = f"what the offset map tells of it cannot be read now: {error.message}"
            return Refusal(str(source), SeedingCode.UNREADABLE, text, error.resolve or "run it again")
        return None

    def of_target(self, enrolment: Enrolment, target: TopicPartition) -> int:
        """Return the end of all that is in a target partition, whatever it is from; 0 where nothing is."""
        found = _live(enrolment, self._by_target.get(target, []))
        return max((record.target_end for record in found), default=0)


@dataclass(frozen=True)
class _Asking:
    """Questions about one topic that was copied between the topics that are there now."""

    place: FlowClusters
    enrolment: Enrolment
    copy: TopicInfo
    ends: MapEnds
    handled: bool

    def permitted(self, seat: Seat) -> SeedOffset | Refusal:
        """Return the answer, or that the copy, which is looked at for it, may not be read."""
        try:
            return self.answer(seat)
        except UsageError as error:
            if error.code != KafkaCode.NOT_AUTHORIZED:
                raise
            return unread(seat.source, "what its copy holds", error)

    def answer(self, seat: Seat) -> SeedOffset | Refusal:
        """Return where the partition goes on, or why that is not known."""
        number = seat.source.partition
        placed = self.enrolment.placed.get(number)
        record = newest = self.ends.of_source(self.enrolment, seat.source)
        if placed is not None and record is not None and record.generation < placed.generation:
            record = None
        end = max(
            0 if placed is None else placed.target_end, self.ends.of_target(self.enrolment, seat.target)
        )
        start = self.enrolment.start[number] if placed is None else placed.offset
        # Where the source has had nothing from there on, nothing was copied.
        if record is None and seat.end > start and self._is_forgotten(seat, end):
            return self._expired(seat, end)
        beyond = _first_record(self.place.target, seat, end)
        if beyond is not None and newest is None and seat.end > start:
            return self._younger(seat, beyond)
        if beyond is not None:
            return self._beyond(seat, beyond, end, start if record is None else record.source_end)
        if record is None:
            return _nothing_copied(placed, start, end)
        if placed is None and self.enrolment.at_ms > record.commit_ms and start != record.source_end:
            return self._older(seat, start, record.source_end)
        reason = f"end of the offset map's newest record (generation {record.generation}), exact"
        return SeedOffset(record.source_end, reason, "none", target_end=end)

    @cached_property
    def _is_written(self) -> bool:
        copies = [TopicPartition(self.copy.name, number) for number in self.copy.partitions]
        return any(self.place.target.list_offsets(copies, calls.LATEST).values())

    def _is_forgotten(self, seat: Seat, end: int) -> bool:
        """Tell whether something may have been copied of which neither map nor target knows any more."""
        # What a handler has made of the partition may have been anywhere.
        return self._is_written if self.handled else seat.target_start > end

    def _expired(self, seat: Seat, end: int) -> Refusal:
        where = "the copy" if self.handled else f"the target behind offset {end}"
        group = commands.seed_plan(self.place.flow, "lag-group")
        return Refusal(
            str(seat.source),
            SeedingCode.MAP_EXPIRED,
            f"the map has no record of it any more, and {where} has held records: how far it was copied is "
            "not known",
            f"{group} shows where the group on the source stands, which is a moment behind; "
            "or compare both sides, and name the offset in a file",
        )

    def _younger(self, seat: Seat, found: int) -> Refusal:
        """Of a partition that was copied, a map that was kept would know something."""
        group = commands.seed_plan(self.place.flow, "lag-group", "--topic", re.escape(seat.source.topic))
        kept = ""
        if seat.position is not None and seat.doubt is None:
            kept = (
                f"nothing, unless its own progress is wrong, which stands at source offset {seat.position}; "
            )
        return Refusal(
            str(seat.source),
            SeedingCode.MAP_YOUNGER,
            f"the map has no record of it, and the target holds records from offset {found} on: the map is "
            "younger than the copy (its topic was deleted and made anew), or somebody else has written it: "
            "how far it was copied is not known from the map",
            f"{kept}{group} shows where the group on the source stands, and how much can come again: nothing "
            "where that is the source's end; or compare both sides, and name the offset in a file",
        )

    def _beyond(self, seat: Seat, found: int, end: int, known: int) -> Refusal:
        return Refusal(
            str(seat.source),
            SeedingCode.TARGET_BEYOND_MAP,
            f"the target holds a record at offset {found}, behind all that the map knows (up to {end}): "
            "somebody else has written, or map records have expired",
            "compare both sides from there, then "
            + commands.skip_to(self.place.flow, seat.source, known, "go on behind what the map knows"),
        )

    def _older(self, seat: Seat, start: int, end: int) -> Refusal:
        """Of what an older release has enrolled or seeded, only the time tells."""
        flow = self.place.flow
        return Refusal(
            str(seat.source),
            SeedingCode.MAP_OLDER,
            f"its topic was seeded or reseeded after the map's newest record: it stood at {start} then, or "
            f"at {end}, where the map ends, if that was about another partition",
            f"{commands.skip_to(flow, seat.source, start, 'take the former')}, or "
            f"{commands.skip_to(flow, seat.source, end, 'take the latter')}",
        )


@dataclass(frozen=True)
class NewestMapRecords:
    """The newest map record of each pair of partitions.

    Args:
        records: in no order, from the partitions of the map's topic that were read to their ends.
        unread: why the others cannot be read now, or not to their ends.
    """

    records: Iterable[MapRecord] = ()
    unread: Mapping[int, OnceoverError] = field(default_factory=dict)


def newest_records(target: Cluster, flow: str) -> NewestMapRecords:
    """Return the newest map record of each pair of partitions; ranges grow within a generation.

    Everything that is in the log now is read, waiting for transactions that are open.

    Raises:
        Retriable: the target is away.
        UsageError: the topic may not be read.
    """
    topic = MapTopic.find(target, flow)
    if topic is None:
        return NewestMapRecords()
    bounds = answers_in_time(
        target.retry,
        sorted(topic.info.partitions),
        lambda some: topic.each_bounds(some, settled=True),
        Deadline(_PATIENCE_S),
    )
    unread = dict(bounds.failed)
    newest: dict[tuple[TopicPartition, TopicPartition], MapRecord] = {}
    for partition, (start, end) in bounds.found.items():
        try:
            # The older ones of a part that was read in half would be taken for where the copy ends.
            newest |= _newest_of(_map_records(topic, partition, start, end))
        except MapChanged as changed:
            unread[partition] = Retriable(str(changed))
        except (Retriable, NeedsOperator) as error:
            unread[partition] = error
    for problem in unread.values():
        if not isinstance(problem, Retriable | NeedsOperator):
            raise problem
    return NewestMapRecords(newest.values(), unread)


def _newest_of(records: Iterable[MapRecord]) -> dict[tuple[TopicPartition, TopicPartition], MapRecord]:
    newest: dict[tuple[TopicPartition, TopicPartition], MapRecord] = {}
    for record in records:
        pair = (record.source, record.target)
        known = newest.get(pair)
        if known is None or _age(record) > _age(known):
            newest[pair] = record
    return newest


def _map_records(topic: MapTopic, partition: int, start: int, end: int) -> Iterator[MapRecord]:
    for chunk in topic.read({partition: Point(start)}, {partition: end}):
        yield from (entry.record for entry in chunk.entries if entry.record is not None)


def _live(enrolment: Enrolment | None, records: Iterable[MapRecord]) -> Iterator[MapRecord]:
    since = {} if enrolment is None else enrolment.since
    return (record for record in records if record.generation >= since.get(record.source.partition, 0))


def _nothing_copied(placed: PlacedProgress | None, start: int, end: int) -> SeedOffset:
    at = "it was enrolled" if placed is None else f"generation {placed.generation} has put it there"
    return SeedOffset(start, f"nothing was copied since {at}: its start offset", "none", target_end=end)


def _age(record: MapRecord) -> tuple[int, int, int]:
    return record.generation, record.source_end, record.target_end


def _stale(place: FlowClusters, topic: SeatedTopic, seat: Seat) -> Refusal | None:
    return (
        _recreated(place, seat, SeedingCode.MAP_STALE, "the map was written")
        if any(made_anew(topic, seat))
        else None
    )


def _recreated(place: FlowClusters, seat: Seat, code: str, since: str) -> Refusal:
    message = f"a topic was deleted and created anew since {since}: its offsets mean other records"
    return Refusal(str(seat.source), code, message, commands.reseed(place.flow, seat.source))


def _first_record(target: Cluster, seat: Seat, start: int) -> int | None:
    """Return the offset of the first target record from ``start`` on; None where only markers are."""
    with closing(records_between(target, seat.target, max(start, seat.target_start), seat.target_end)) as met:
        return next((record.offset for record in met), None)


def _from_group(
    place: FlowClusters, topic: SeatedTopic, seat: Seat, seed: SeedOffset, ends: MapEnds
) -> SeedOffset | Refusal:
    if any(made_anew(topic, seat)):
        return _recreated(place, seat, SeedingCode.LAG_GROUP_STALE, "the group was written")
    if topic.enrolment is not None and topic.enrolment.placed_by_an_older_release(seat.source.partition):
        return _put_somewhere(place, topic.enrolment, seat, seed)
    known = ends.of_source(topic.enrolment, seat.source)
    unread = ends.unread_of(seat.source)
    by_hand = None if topic.enrolment is None else topic.enrolment.placed_by_hand(seat.source.partition)
    if by_hand is None or (known is not None and known.generation >= by_hand.generation):
        return _bounded(topic, seat, seed, known)
    if unread is not None:
        return unread
    text = f"generation {by_hand.generation} has put it to {by_hand.offset}"
    if seed.offset <= by_hand.offset:
        behind = SeedOffset(by_hand.offset, f"{text}, the group stands before that")
        return _bounded(topic, seat, behind, None)
    return Refusal(
        str(seat.source),
        SeedingCode.LAG_GROUP_STALE,
        f"{text}, and nothing tells whether the group, which stands at {seed.offset}, was written since",
        f"{commands.skip_to(place.flow, seat.source, by_hand.offset, 'take the former')}, or "
        f"{commands.skip_to(place.flow, seat.source, seed.offset, 'take the latter')}",
    )


def _put_somewhere(place: FlowClusters, enrolment: Enrolment, seat: Seat, seed: SeedOffset) -> Refusal:
    start = max(seat.start, enrolment.start[seat.source.partition])
    return Refusal(
        str(seat.source),
        SeedingCode.LAG_GROUP_STALE,
        f"an older release has put it elsewhere by hand, and nothing tells whether the group, which stands "
        f"at {seed.offset}, was written since",
        f"{commands.skip_to(place.flow, seat.source, start, 'begin where it was enrolled or reseeded')}, or, "
        f"if the group is newer, {commands.skip_to(place.flow, seat.source, seed.offset, 'take that')}",
    )


def _bounded(topic: SeatedTopic, seat: Seat, seed: SeedOffset, known: MapRecord | None) -> SeedOffset:
    position = copied_up_to(topic, seat)
    if known is None and position is not None:
        return seed
    if known is None:
        bound = max(0, seat.lso - seed.offset)
        reason = f"{seed.reason}; at most what lies behind it on the source comes again"
        return SeedOffset(seed.offset, reason, "repeat" if bound else "none", bound)
    distance = seed.offset - known.source_end
    if position is not None and (ahead := min(distance, seed.offset - position)) > 0:
        reason = (
            f"{seed.reason}; ahead of the progress, and of the offset map, which ends at {known.source_end}"
        )
        return SeedOffset(seed.offset, reason, "skip", ahead)
    if distance >= 0:
        # The map ends with the last record; the group also follows ranges without any.
        return SeedOffset(seed.offset, f"{seed.reason}; not behind the offset map", "none")
    reason = f"{seed.reason}; the offset map ends at {known.source_end}: `--from map` repeats nothing"
    return SeedOffset(seed.offset, reason, "repeat", -distance)
