"""What the offset map says about where a flow goes on: exact, or refused with the reason, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.errors import NeedsOperator, OnceoverError, Retriable, UsageError
from onceover.kafka.calls import CommittedOffset
from onceover.kafka.each import Each
from onceover.model import TopicPartition, lane_of
from onceover.planning.plan import Refusal
from onceover.positions.reader import Chunk, MapChanged, MapEntry, MapTopic, Point
from onceover.seeding import frommap as seedmap
from onceover.seeding.frommap import LagOrigin, MapOrigin, NewestMapRecords, newest_records
from onceover.seeding.origins import FlowClusters
from onceover.seeding.plan import Choice, Seat, SeatedTopic, SeedOffsets, plan_seed
from onceover.state import names
from onceover.state.records.enrolment import Enrolment, PlacedProgress
from onceover.topics.plan import TopicPlan
from onceover.wire.offsetmap import MapRecord
from tests.support.fakes.fakecluster import FakeCluster
from tests.unit.seeding.test_plan import seat, topic

AWAY = Retriable("nobody leads it")
PARTS = [lane_of(TopicPartition("a", number), names.MAP_PARTITIONS) for number in range(2)]


def record(partition: int, end: int, generation: int = 1) -> MapRecord:
    tp = TopicPartition("a", partition)
    return MapRecord(
        source=tp,
        target=tp,
        source_start=0,
        source_end=end,
        target_start=0,
        segments=(),
        bytes=0,
        generation=generation,
        lane=0,
        batch=0,
        attempt=0,
        begin_ms=1,
        commit_ms=1,
    )


def enrolled(
    *seats: Seat, placed: Mapping[int, PlacedProgress] | None = None, by_hand: bool = False
) -> SeatedTopic:
    one = topic(*seats, enrolled=True)
    old = cast(Enrolment, one.enrolment)
    at = placed if placed is not None else {s.source.partition: PlacedProgress(1, 0, 0) for s in seats}
    changed = dict.fromkeys(at, "approval") if by_hand else {}
    return replace(one, enrolment=replace(old, placed=at, changed=changed))


def asked(
    patch: pytest.MonkeyPatch,
    newest: NewestMapRecords,
    one: SeatedTopic,
    *,
    beyond: int | None = None,
    origin: Any = None,
    lag: Mapping[int, int] | None = None,
) -> SeedOffsets:
    """Ask for offsets; ``beyond``: a record stands on the target behind what the map knows."""
    patch.setattr(seedmap, "newest_records", lambda *_: newest)
    patch.setattr(seedmap, "_first_record", lambda *_: beyond)
    known = {TopicPartition("a", n): CommittedOffset(0, o, -1, "") for n, o in (lag or {}).items()}
    source = SimpleNamespace(alias="east", committed=lambda *_: known)
    return (origin or MapOrigin()).read(
        FlowClusters("f", cast(Any, source), cast(Any, SimpleNamespace())), [one]
    )


def only(seeds: SeedOffsets) -> Refusal:
    assert not seeds.offsets
    (refusal,) = seeds.refused.values()
    return refusal


def test_a_map_that_is_younger_than_the_copy_is_told_from_somebody_elses_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No command begins the copy again: neither from the enrolment's start nor from anywhere before."""
    held = seat(0, target_end=100)
    refusal = only(asked(monkeypatch, NewestMapRecords(), enrolled(held), beyond=0))
    assert refusal.code == "MAP_YOUNGER"
    assert "skip-to" not in refusal.resolve and "reseed" not in refusal.resolve
    assert "`onceover seed plan f --from lag-group --topic a`" in refusal.resolve
    # With its progress there, nothing has to be done at all.
    kept = only(asked(monkeypatch, NewestMapRecords(), enrolled(replace(held, position=70)), beyond=0))
    assert kept.code == "MAP_YOUNGER" and "source offset 70" in kept.resolve
    # The map tells of it up to an end: what is behind is somebody else's.
    known = only(asked(monkeypatch, NewestMapRecords([record(0, 60)]), enrolled(held), beyond=80))
    assert known.code == "TARGET_BEYOND_MAP" and " 60`" in known.resolve
    # The source has had nothing: neither is what stands on the target its copy.
    nothing = only(
        asked(monkeypatch, NewestMapRecords(), enrolled(replace(held, end=0, lso=0)), beyond=0),
    )
    assert nothing.code == "TARGET_BEYOND_MAP"


def test_a_part_of_the_map_that_cannot_be_read_refuses_its_own_partitions_for_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = enrolled(seat(0), seat(1))
    newest = NewestMapRecords([record(0, 60), record(1, 30)], {PARTS[1]: AWAY})
    found = asked(monkeypatch, newest, one)
    assert {tp.partition: seed.offset for tp, seed in found.offsets.items()} == {0: 60}
    assert {tp.partition: refusal.code for tp, refusal in found.refused.items()} == {1: "UNREADABLE"}
    plan = plan_seed("seed", "f", [one], found, TopicPlan(operation="topics", flow="f"), Choice())
    assert plan.exit_code == Retriable.exit_code
    assert [change.to for change in plan.changes if change.what == "position"] == [60]
    # With a handler, any part may tell of what is in any partition.
    handled = asked(monkeypatch, newest, one, origin=MapOrigin(handled=True))
    assert {refusal.code for refusal in handled.refused.values()} == {"UNREADABLE"}
    assert not handled.offsets
    decided = replace(plan, refused=(*plan.refused, Refusal("b:0", "MAP_EXPIRED", "no", "no")))
    assert decided.exit_code == NeedsOperator.exit_code


def test_of_a_partition_that_was_never_copied_the_map_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic has grown while it was given away: whoever decides says where that begins."""
    one = enrolled(seat(0), seat(1))
    old = cast(Enrolment, one.enrolment)
    grown = replace(one, enrolment=replace(old, start={0: 0}, placed={0: old.placed[0]}))
    found = asked(monkeypatch, NewestMapRecords([record(0, 60)]), grown)
    assert {tp.partition: seed.offset for tp, seed in found.offsets.items()} == {0: 60}
    assert not found.refused


def test_the_lag_group_is_not_weighed_against_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether lanes have gone on since it was placed by hand stands in the map."""
    one = enrolled(seat(0), placed={0: PlacedProgress(3, 20, 0)}, by_hand=True)
    unread = NewestMapRecords((), {PARTS[0]: AWAY})
    found = asked(monkeypatch, unread, one, origin=LagOrigin(), lag={0: 40})
    assert only(found).code == "UNREADABLE"
    found = asked(monkeypatch, unread, enrolled(seat(0)), origin=LagOrigin(), lag={0: 40})
    (seed,) = found.offsets.values()
    assert (seed.offset, seed.risk, seed.records) == (40, "repeat", 60)


@pytest.mark.parametrize(
    ("position", "end", "group", "expected"),
    [
        pytest.param(50, 50, 70, ("skip", 20), id="somebody has moved the group"),
        pytest.param(60, 50, 70, ("skip", 10), id="and the progress is ahead of the map"),
        pytest.param(20, 60, 60, ("none", None), id="an older position was put back"),
        pytest.param(
            20, 60, 40, ("repeat", 20), id="an older position was put back, and the group is behind"
        ),
        pytest.param(60, 60, 40, ("repeat", 20), id="the group is behind"),
        pytest.param(60, None, 40, ("repeat", 20), id="without a map"),
        pytest.param(30, None, 40, ("skip", 10), id="without a map, moved ahead"),
        pytest.param(None, 50, 70, ("none", None), id="the group follows ranges without records"),
    ],
)
def test_the_lag_group_is_weighed_against_the_progress_where_the_map_does_not_tell(
    monkeypatch: pytest.MonkeyPatch,
    position: int | None,
    end: int | None,
    group: int,
    expected: tuple[str, int | None],
) -> None:
    """What it is ahead of both is skipped: nobody knows of a copy of it."""
    one = enrolled(seat(0, position=position))
    newest = NewestMapRecords([] if end is None else [record(0, end)])
    found = asked(monkeypatch, newest, one, origin=LagOrigin(), lag={0: group})
    planned = plan_seed(
        "seed", "f", [one], found, TopicPlan(operation="topics", flow="f"), Choice(replace=True)
    )
    assert (planned.changes[0].risk, planned.changes[0].records) == expected


class Topic:
    """The map's topic, with one record in each partition; some cannot be read."""

    def __init__(self, unled: Mapping[int, OnceoverError], unread: Mapping[int, Exception]) -> None:
        self.info = SimpleNamespace(partitions=dict.fromkeys(range(names.MAP_PARTITIONS)))
        self.unled, self.unread = unled, unread
        self.settled: set[bool] = set()

    def each_bounds(self, partitions: list[int], *, settled: bool = False) -> Each[int, tuple[int, int]]:
        self.settled.add(settled)
        led = [partition for partition in partitions if partition not in self.unled]
        return Each(dict.fromkeys(led, (0, 10)), {p: self.unled[p] for p in partitions if p in self.unled})

    def read(self, points: Mapping[int, Point], ends: Mapping[int, int]) -> Iterator[Chunk]:
        for partition in points:
            if partition in self.unread:
                raise self.unread[partition]
            entries = [record(partition, end) for end in (5, 9, 7)]
            yield Chunk(partition, [MapEntry(0, each.key, each) for each in entries], 10, 0)


@pytest.mark.parametrize(
    ("unled", "unread"),
    [
        ({1: AWAY}, {}),
        ({}, {1: Retriable("a transaction is open")}),
        ({}, {1: NeedsOperator("a record is damaged")}),
        ({}, {1: MapChanged(1)}),
    ],
)
def test_the_newest_records_are_read_part_by_part_and_to_their_ends(
    monkeypatch: pytest.MonkeyPatch, unled: dict[int, OnceoverError], unread: dict[int, Exception]
) -> None:
    read = Topic(unled, unread)
    monkeypatch.setattr(MapTopic, "find", lambda *_: read)
    newest = newest_records(FakeCluster(), "f")
    assert set(newest.unread) == {1}
    assert {(r.source.partition, r.source_end) for r in newest.records} == {(0, 9), (2, 9), (3, 9)}
    assert read.settled == {True}


class HalfRead(Topic):
    """The map's topic, with partition 0 in the part of which only the beginning can be read."""

    def read(self, points: Mapping[int, Point], ends: Mapping[int, int]) -> Iterator[Chunk]:
        for partition in points:
            each = record(0, 20) if partition == PARTS[0] else record(10 + partition, 60)
            yield Chunk(partition, [MapEntry(0, each.key, each)], 5, 0)
            if partition == PARTS[0]:
                raise AWAY


def test_a_part_of_the_map_that_was_read_in_half_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was copied up to 60 would seem to end at 20, and a group at 40 to repeat nothing."""
    monkeypatch.setattr(MapTopic, "find", lambda *_: HalfRead({}, {}))
    newest = newest_records(FakeCluster(), "f")
    assert newest.unread == {PARTS[0]: AWAY}
    assert sorted(r.source_end for r in newest.records) == [60, 60, 60]
    found = asked(monkeypatch, newest, enrolled(seat(0)), origin=LagOrigin(), lag={0: 40})
    (seed,) = found.offsets.values()
    assert (seed.offset, seed.risk, seed.records) == (40, "repeat", 60)


def test_without_a_map_nothing_is_known_and_without_rights_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MapTopic, "find", lambda *_: None)
    assert newest_records(FakeCluster(), "f") == NewestMapRecords()
    barred = Topic(dict.fromkeys(range(4), UsageError("not authorized")), {})
    monkeypatch.setattr(MapTopic, "find", lambda *_: barred)
    with pytest.raises(UsageError):
        newest_records(FakeCluster(), "f")
