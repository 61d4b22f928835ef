"""The enrolment record, and which lane copies what."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from onceover.errors import NeedsOperator
from onceover.model import TopicPartition, lane_of
from onceover.state.records.enrolment import (
    Enrolment,
    GaveWay,
    LeftAt,
    PlacedProgress,
    owned,
    read_enrolments,
)

ENROLLED = Enrolment("t", "t", UUID(int=1), UUID(int=2), {0: 5, 1: 6}, 1)
GIVEN_AWAY = ENROLLED.as_promoted("d1", LeftAt(3, 30), {0: 7}, {0: 5})


def test_enrolment_round_trip_and_version() -> None:
    """Partition numbers are text in JSON and numbers again afterwards."""
    assert Enrolment.from_json(ENROLLED.to_json()) == ENROLLED
    assert read_enrolments({"topic/t": ENROLLED.to_json(), "layout": {}}) == {"t": ENROLLED}
    left = replace(ENROLLED, active=False)
    assert Enrolment.from_json(left.to_json()) == left
    promoted = ENROLLED.as_promoted("d1", LeftAt(3, 30), {0: 9, 1: 8}, {0: 3})
    assert Enrolment.from_json(promoted.to_json()) == promoted
    assert (promoted.active, promoted.is_promoted, promoted.back().is_promoted) == (False, True, False)
    older = {key: value for key, value in ENROLLED.to_json().items() if key != "active"}
    assert Enrolment.from_json(older).active
    with pytest.raises(NeedsOperator, match="another version"):
        Enrolment.from_json({**ENROLLED.to_json(), "v": 2})


def test_a_partition_keeps_the_topics_it_was_copied_between_until_it_is_placed_itself() -> None:
    """Its neighbour's repair accepts new ones for the neighbour alone, also twice."""
    old, new = ENROLLED.ids, (str(UUID(int=3)), str(UUID(int=2)))
    once = ENROLLED.between(UUID(int=3), UUID(int=2), [0])
    assert (once.ids, once.ids_of(0), once.ids_of(1)) == (new, new, old)
    assert Enrolment.from_json(once.to_json()) == once
    twice = once.between(UUID(int=4), UUID(int=2), [0])
    assert twice.ids_of(1) == old
    assert twice.between(UUID(int=4), UUID(int=2), [1]).former == {}
    # Back to what it was copied from, as after a restored cluster, it is no stranger.
    assert once.between(UUID(int=1), UUID(int=2), []).former == {0: new}


def test_what_an_older_release_wrote_has_no_places() -> None:
    placed = replace(ENROLLED, placed={0: PlacedProgress(3, 5, 7)})
    assert Enrolment.from_json(placed.to_json()) == placed
    older = {key: value for key, value in placed.to_json().items() if key not in ("placed", "former")}
    assert Enrolment.from_json(older) == ENROLLED


@pytest.mark.parametrize(
    ("record", "placed", "anew", "begins"),
    [
        pytest.param(ENROLLED, PlacedProgress(4, 5, 7), False, False, id="put back amid its copy"),
        pytest.param(ENROLLED, PlacedProgress(4, 5, 7), True, True, id="between other topics"),
        pytest.param(ENROLLED, PlacedProgress(4, 8, 7), True, False, id="there, but not at its start"),
        pytest.param(replace(ENROLLED, start={1: 6}), PlacedProgress(4, 5, 7), False, True, id="new"),
        pytest.param(GIVEN_AWAY, PlacedProgress(4, 5, 7), False, True, id="given away"),
        pytest.param(
            replace(GIVEN_AWAY, placed={0: PlacedProgress(4, 5, 7)}),
            PlacedProgress(5, 5, 9),
            False,
            False,
            id="taken back already",
        ),
    ],
)
def test_what_was_there_is_nobodys_unless_the_copy_of_a_partition_was_under_way(
    record: Enrolment, placed: PlacedProgress, *, anew: bool, begins: bool
) -> None:
    """What a flow has copied into the topic itself is its own, wherever it is put then."""
    record = replace(record, begun=frozenset({0, 1}))
    begun = record.begun_with({0: placed}, [0] if anew else [], {0: 5, 1: 6})
    assert begun == ({0, 1} if begins else {1})
    after = replace(record, placed={**record.placed, 0: placed}, begun=begun)
    assert after.began(0) == (placed.target_end if begins else None)
    assert Enrolment.from_json(after.to_json()) == after
    older = {key: value for key, value in after.to_json().items() if key != "begun"}
    assert Enrolment.from_json(older).began(0) is None


def test_a_topic_that_gave_way_waits_until_each_partition_was_placed_since() -> None:
    """What older releases wrote did not give way, as far as it says."""
    left = ENROLLED.left_to("other", LeftAt(7, 70))
    assert (left.active, left.waits_to_be_placed) == (False, True)
    assert Enrolment.from_json(left.to_json()) == left
    assert "gave_way" not in ENROLLED.to_json() and not ENROLLED.waits_to_be_placed
    assert left.left_to("another", LeftAt(8, 80)) == left
    for generations, waits in (((8, 7), True), ((8, 8), False)):
        placed = replace(left, placed={p: PlacedProgress(g, 5, 7) for p, g in enumerate(generations)})
        assert placed.waits_to_be_placed is waits
    again = placed.left_to("another", LeftAt(9, 90))
    assert (again.gave_way, again.left) == (GaveWay(9, "another"), LeftAt(7, 70))
    assert placed.back() == replace(ENROLLED, placed=placed.placed)
    with pytest.raises(NeedsOperator, match="enrolment"):
        Enrolment.from_json({**left.to_json(), "gave_way": [7]})


def test_a_topic_that_was_left_before_another_flow_stopped_copying_it_back_gave_way() -> None:
    """As much as if the other one had been seen. One that was never left then, or afterwards, did not."""
    left = ENROLLED.leaving(LeftAt(7, 70))
    assert Enrolment.from_json(left.to_json()) == left
    assert left.leaving(LeftAt(8, 80)) == left
    assert left.after("other", 71).gave_way == GaveWay(7, "other")
    assert left.after("other", 70) == left
    assert ENROLLED.after("other", 71) == ENROLLED
    older = replace(ENROLLED, active=False)
    assert older.after("other", 71) == older


@pytest.mark.parametrize("lanes", [1, 2, 3, 7])
def test_every_partition_is_owned_by_exactly_one_lane(lanes: int) -> None:
    """Two ids that copy one partition would move its progress back."""
    enrolments = [
        replace(ENROLLED, source=f"t{n}", target=f"t{n}", start=dict.fromkeys(range(5), 0)) for n in range(9)
    ]
    shares = [owned(enrolments, lane, lanes) for lane in range(lanes)]
    everything = [tp for share in shares for tp in share]
    assert len(everything) == len(set(everything)) == 45
    assert all(lane_of(tp, lanes) == lane for lane, share in enumerate(shares) for tp in share)


def test_topics_that_left_are_owned_by_nobody() -> None:
    """Their lane knows them, but does not copy them."""
    left = replace(ENROLLED, active=False)
    assert owned([left], 0, 1) == {}
    assert list(owned([left], 0, 1, active=False)) == left.sources()
    assert owned([ENROLLED], 0, 1, active=False) == {}


def test_lane_of_is_the_same_everywhere() -> None:
    """crc32("flights") = 2969110823: a number that no salted hash gives."""
    assert [lane_of(TopicPartition("flights", p), 4) for p in range(5)] == [
        (lane_of(TopicPartition("flights", 0), 4) + p) % 4 for p in range(5)
    ]
    assert lane_of(TopicPartition("a", 0), 1 << 40) == 0xE8B7BE43


@pytest.mark.parametrize(
    ("left", "end", "source_id", "since"),
    [
        (LeftAt(3, 60), 9, 1, True),
        # Two clocks differ; the other flow has copied on behind this promotion, which tells.
        (LeftAt(3, 60), 4, 1, False),
        # Offsets of a topic that is gone say nothing.
        (LeftAt(3, 60), 4, 8, True),
        (LeftAt(3, 40), 9, 1, False),
        (None, 9, 1, False),
    ],
)
def test_the_later_one_of_two_promotions_is_told(
    left: LeftAt | None, end: int, source_id: int, since: bool
) -> None:
    """Of a topic that goes over and back again and again both flows have one on record."""
    other = replace(ENROLLED, source_id=UUID(int=source_id))
    other = other.as_promoted("d1", LeftAt(9, 50), {0: 9, 1: 9}, {0: 5, 1: 5})
    mine = replace(ENROLLED, source_id=UUID(int=2), target_id=UUID(int=1))
    mine = replace(mine.as_promoted("d2", LeftAt(3, 60), {0: 9, 1: end}, {}), left=left)
    assert mine.is_promoted_since(other) is since
    # Who copies again is nobody that was promoted.
    assert not mine.back().is_promoted_since(other)
    assert not mine.is_promoted_since(other.back())
