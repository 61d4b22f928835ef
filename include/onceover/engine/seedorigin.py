"""Where the positions of a seeding come from: groups, the log itself, another flow, a file, the offset map.

Each origin reads live state and offers offsets; ``engine.seed`` decides what is done with them. None writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from onceover.engine import commands, names
from onceover.engine.flowstate import FlowState, read_flow_state
from onceover.engine.peek import PartitionReader, read_topic
from onceover.engine.plan import Change, Refusal
from onceover.engine.seed import EARLIEST, Offer, Offers, Seat, SeatedTopic
from onceover.errors import NeedsOperator, UsageError
from onceover.kafka import calls
from onceover.kafka.cluster import Cluster
from onceover.model import TopicPartition
from onceover.wire.offsetmap import MapRecord, decode_map_key, decode_map_value


@dataclass(frozen=True)
class Place:
    """Where a flow runs: what origins read from."""

    flow: str
    source: Cluster
    target: Cluster


class Origin(Protocol):
    """Names offsets. ``prepare`` is called once everything of the flow is fenced, before the last look."""

    def read(self, place: Place, topics: Sequence[SeatedTopic]) -> Offers:
        """Return what is known about the topics' partitions now.

        Raises:
            Retriable: a cluster is away.
            NeedsOperator: the origin cannot be used.
        """

    def changes(self) -> Sequence[Change]:
        """Return what ``prepare`` does, for the plan; valid after ``read``."""

    def prepare(self, place: Place) -> None:
        """Stop others from writing.

        Raises:
            NeedsOperator: somebody still writes.
        """


class Passive:
    """An origin with nothing to stop."""

    def changes(self) -> Sequence[Change]:
        """Return nothing."""
        return ()

    def prepare(self, place: Place) -> None:
        """Do nothing."""


def seats_of(topics: Sequence[SeatedTopic]) -> Iterator[Seat]:
    """Yield all seats."""
    return (seat for topic in topics for seat in topic.seats)


def check_in_scope(offsets: Mapping[TopicPartition, int], topics: Sequence[SeatedTopic], where: str) -> None:
    """Refuse offsets for partitions that are not the flow's: somebody has mistyped.

    Raises:
        UsageError: there are such.
    """
    strangers = sorted(offsets.keys() - {seat.source for seat in seats_of(topics)})
    if strangers:
        raise UsageError(
            f"offsets are named for {len(strangers)} partitions that are not the flow's",
            where=where,
            expected="source partitions of topics in scope",
            seen=", ".join(map(str, strangers[:5])),
        )


@dataclass(frozen=True)
class GroupOrigin(Passive):
    """The committed offsets of a consumer group on the source."""

    group: str

    def read(self, place: Place, topics: Sequence[SeatedTopic]) -> Offers:
        """Offer what the group has committed.

        Raises:
            UsageError: GROUP_UNKNOWN, it has committed nothing at all.
        """
        committed = place.source.committed(self.group, None)
        if not committed:
            raise UsageError(
                f"group {self.group} has committed nothing on {place.source.alias}",
                code="GROUP_UNKNOWN",
                expected="a group on the source with committed offsets",
                resolve="check the name, and on which cluster the group is",
            )
        reason = f"committed by group {self.group} on {place.source.alias}"
        return Offers({tp: Offer(offset.offset, reason) for tp, offset in committed.items()})


@dataclass(frozen=True)
class LogOrigin(Passive):
    """The log itself: its start, its end, or the first record at or after a time.

    Args:
        start: ``earliest``, ``latest``, or a time in ms.
    """

    start: str | int

    def read(self, place: Place, topics: Sequence[SeatedTopic]) -> Offers:
        """Offer that place of every partition."""
        seats = list(seats_of(topics))
        if isinstance(self.start, int):
            return self._at_time(place, seats, self.start)
        if self.start == EARLIEST:
            return Offers({s.source: Offer(s.start, "start of the source's log") for s in seats})
        return Offers({s.source: Offer(s.lso, "end of the source's log now") for s in seats})

    def _at_time(self, place: Place, seats: Sequence[Seat], time_ms: int) -> Offers:
        found = place.source.list_offsets([s.source for s in seats], time_ms)
        reason, none = f"first record at or after {time_ms} ms", f"no record at or after {time_ms} ms"
        return Offers(
            {
                s.source: Offer(found[s.source], reason) if found[s.source] >= 0 else Offer(s.lso, none)
                for s in seats
            }
        )


@dataclass(frozen=True)
class FileOrigin(Passive):
    """Offsets that somebody wrote down, by source partition."""

    offsets: Mapping[TopicPartition, int]
    path: str

    def read(self, place: Place, topics: Sequence[SeatedTopic]) -> Offers:
        """Offer what the file says; a partition that is not in scope is a mistake.

        Raises:
            UsageError: the file names such a partition.
        """
        check_in_scope(self.offsets, topics, self.path)
        return Offers({tp: Offer(offset, f"from {self.path}") for tp, offset in self.offsets.items()})


@dataclass(frozen=True)
class FlowOrigin(Passive):
    """Another flow's progress, wherever its target is.

    Args:
        name: the other flow; ``target`` its target cluster, open as long as this object is used.
    """

    name: str
    target: Cluster

    def read(self, place: Place, topics: Sequence[SeatedTopic]) -> Offers:
        """Offer the other flow's next source offsets.

        Raises:
            NeedsOperator: it was never started, or copies from another cluster.
        """
        state = read_flow_state(self.target, self.name)
        self._check(state, place)
        committed = self.target.committed(names.progress_group(self.name), None)
        offers: dict[TopicPartition, Offer] = {}
        reason = f"copied by flow {self.name} to {self.target.alias}"
        for enrolment in state.enrolled.values():
            for tp in enrolment.sources():
                progress = committed.get(enrolment.target_of(tp))
                if progress is not None:
                    offers[tp] = Offer(progress.offset, reason)
        return Offers(offers)

    def _check(self, state: FlowState, place: Place) -> None:
        if state.layout is None:
            raise NeedsOperator(
                f"flow {self.name} has never been started on {self.target.alias}", code="NOT_STARTED"
            )
        seen = place.source.cluster_id()
        if state.layout.source_cluster_id != seen:
            raise NeedsOperator(
                f"flow {self.name} copies from another cluster: its offsets mean other records",
                code="FOREIGN_CLUSTER",
                expected=f"source cluster {seen}",
                seen=f"source cluster {state.layout.source_cluster_id}",
                resolve="name a flow with the same source",
            )


@dataclass(frozen=True)
class MapOrigin(Passive):
    """The flow's own offset map: the exact way to rebuild a lost progress group."""

    def read(self, place: Place, topics: Sequence[SeatedTopic]) -> Offers:
        """Offer where the newest map record of each partition ends, on both sides."""
        newest = newest_records(place.target, place.flow)
        offers: dict[TopicPartition, Offer] = {}
        refused: dict[TopicPartition, Refusal] = {}
        for topic in topics:
            for seat in topic.seats:
                answer = _from_map(place, topic, seat, newest)
                if isinstance(answer, Refusal):
                    refused[seat.source] = answer
                elif answer is not None:
                    offers[seat.source] = answer
        return Offers(offers, refused)


@dataclass(frozen=True)
class LagOrigin(Passive):
    """The group on the source that shows the flow to lag tools: at or a little behind what was copied."""

    def read(self, place: Place, topics: Sequence[SeatedTopic]) -> Offers:
        """Offer its offsets, with the bound of repeats: exact where the map knows, else up to the LSO.

        Refused where a topic is another one now: what lies before the offset would never come.
        """
        group = names.lag_group(place.flow)
        committed = GroupOrigin(group).read(place, topics).offers
        newest = newest_records(place.target, place.flow)
        offers: dict[TopicPartition, Offer] = {}
        refused: dict[TopicPartition, Refusal] = {}
        for topic in topics:
            for seat in topic.seats:
                if seat.source not in committed:
                    continue
                if is_recreated(topic):
                    refused[seat.source] = _recreated(place, seat, "LAG_GROUP_STALE", "the group was written")
                else:
                    known = _known(topic, seat, newest)
                    offers[seat.source] = _bounded(seat, committed[seat.source], known)
        return Offers(offers, refused)


def newest_records(target: Cluster, flow: str) -> dict[tuple[TopicPartition, TopicPartition], MapRecord]:
    """Return the newest map record of each pair of partitions; ranges grow within a generation.

    Raises:
        Retriable: the map cannot be read at the moment.
    """
    newest: dict[tuple[TopicPartition, TopicPartition], MapRecord] = {}
    for record in _map_records(target, flow):
        pair = (record.source, record.target)
        known = newest.get(pair)
        if known is None or _age(record) > _age(known):
            newest[pair] = record
    return newest


def _map_records(target: Cluster, flow: str) -> Iterator[MapRecord]:
    for _, record in read_topic(target, names.map_topic(flow)):
        if record.key is not None and record.value is not None:
            yield decode_map_value(decode_map_key(record.key), record.value)


def _age(record: MapRecord) -> tuple[int, int, int]:
    return record.generation, record.source_end, record.target_end


def _from_map(
    place: Place,
    topic: SeatedTopic,
    seat: Seat,
    newest: Mapping[tuple[TopicPartition, TopicPartition], MapRecord],
) -> Offer | Refusal | None:
    enrolment, copy = topic.enrolment, topic.copy
    if enrolment is None or copy is None:
        return None
    if is_recreated(topic):
        return _recreated(place, seat, "MAP_STALE", "the map was written")
    number = seat.source.partition
    record = _known(topic, seat, newest)
    end = 0 if record is None else record.target_end
    known = enrolment.start[number] if record is None else record.source_end
    beyond = _first_record(place.target, seat, end)
    if beyond is not None:
        return Refusal(
            str(seat.source),
            "TARGET_BEYOND_MAP",
            f"the target holds a record at offset {beyond}, behind all that the map knows (up to {end}): "
            "somebody else has written, or map records have expired",
            "compare both sides from there, then "
            + commands.skip_to(place.flow, seat.source, known, "go on behind what the map knows"),
        )
    start = enrolment.start[number]
    if record is None:
        return Offer(start, "nothing was copied since it was enrolled: its start offset", "none")
    if enrolment.at_ms > record.commit_ms and start != record.source_end:
        return Refusal(
            str(seat.source),
            "MAP_OLDER",
            f"its topic was seeded or reseeded after the map's newest record: it stood at {start} then, or "
            f"at {record.source_end}, where the map ends, if that was about another partition",
            f"{commands.skip_to(place.flow, seat.source, start, 'take the former')}, or "
            f"{commands.skip_to(place.flow, seat.source, record.source_end, 'take the latter')}",
        )
    reason = f"end of the offset map's newest record (generation {record.generation}), exact"
    return Offer(record.source_end, reason, "none", target_end=record.target_end)


def is_recreated(topic: SeatedTopic) -> bool:
    """Tell whether either side of an enrolled topic is another one by now than the flow has copied."""
    old = topic.enrolment
    if old is None:
        return False
    return old.source_id != topic.source.topic_id or (
        topic.copy is not None and old.target_id != topic.copy.topic_id
    )


def _recreated(place: Place, seat: Seat, code: str, since: str) -> Refusal:
    message = f"a topic was deleted and created anew since {since}: its offsets mean other records"
    return Refusal(str(seat.source), code, message, commands.reseed(place.flow, seat.source))


def _known(
    topic: SeatedTopic, seat: Seat, newest: Mapping[tuple[TopicPartition, TopicPartition], MapRecord]
) -> MapRecord | None:
    """Return the partition's newest map record that is not about a topic that is gone."""
    record = newest.get((seat.source, seat.target))
    since = {} if topic.enrolment is None else topic.enrolment.since
    return None if record is None or record.generation < since.get(seat.source.partition, 0) else record


def _first_record(target: Cluster, seat: Seat, start: int) -> int | None:
    """Return the offset of the first target record from ``start`` on; None where only markers are."""
    if max(start, seat.target_start) >= seat.target_end:
        return None
    with PartitionReader(target, seat.target, calls.READ_COMMITTED) as reader:
        found = reader.read(max(start, seat.target_start), seat.target_end, 1)
    return found[0].offset if found else None


def _bounded(seat: Seat, offer: Offer, known: MapRecord | None) -> Offer:
    if known is None:
        bound = max(0, seat.lso - offer.offset)
        reason = f"{offer.reason}; at most what lies behind it on the source comes again"
        return Offer(offer.offset, reason, "repeat" if bound else "none", bound)
    distance = offer.offset - known.source_end
    if distance >= 0:
        # The map ends with the last record; the group also follows ranges without any.
        return Offer(offer.offset, f"{offer.reason}; not behind the offset map", "none")
    reason = f"{offer.reason}; the offset map ends at {known.source_end}: `--from map` repeats nothing"
    return Offer(offer.offset, reason, "repeat", -distance)
