"""In which portions the flow's own records are sent."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.kafka.portions import portions
from onceover.lead.leader import FlowIdentity, Leader
from onceover.state import names
from onceover.state.records.enrolment import MOST_PARTITIONS, Enrolment, PlacedProgress
from tests.unit.copy.protocol import FLOW, cluster_in, faked_world

pairs = st.lists(st.tuples(st.binary(max_size=8), st.none() | st.binary(max_size=20)), max_size=40)


@given(pairs, st.integers(1, 60))
def test_pieces_hold_everything_in_order_and_keep_to_the_limit(
    wanted: list[tuple[bytes, bytes | None]], limit: int
) -> None:
    """A pair that is larger than the limit comes alone."""
    found = list(portions(wanted, limit))
    assert [pair for piece in found for pair in piece] == wanted
    for piece in found:
        assert len(piece) == 1 or sum(len(key) + len(value or b"") for key, value in piece) <= limit


def test_thousands_of_enrolments_go_in_batches_that_a_topic_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one transaction all the same: the fake refuses larger ones, and shows what was committed."""
    world = faked_world(monkeypatch)
    source, target = cluster_in(world, "east"), cluster_in(world)
    leader = Leader(FlowIdentity(FLOW, 1, "0" * 64), source, target)
    leader.start()
    commits = len(world.log)
    enrolments = [
        Enrolment(f"{n:0200}", f"{n:0200}", UUID(int=n), UUID(int=n), {0: 0}, 1) for n in range(3000)
    ]
    leader.enrol(enrolments, {})
    assert {names.enrolment_key(e.target) for e in enrolments} <= world.values.keys()
    assert [what for what in world.log[commits:] if what.startswith("commit")] == ["commit"]


def largest_enrolment(partitions: int) -> Enrolment:
    """Return the record of a topic of which every partition was repaired on its own after a recreation."""
    noise = random.Random(1)

    def anywhere() -> int:
        return noise.randrange(10**12)

    numbers = range(partitions)
    return Enrolment(
        "s" * 249,
        "t" * 249,
        UUID(int=noise.getrandbits(128)),
        UUID(int=noise.getrandbits(128)),
        {p: anywhere() for p in numbers},
        1_800_000_000_000,
        since={p: noise.randrange(1000) for p in numbers},
        changed={p: f"{noise.getrandbits(48):012x}" for p in numbers},
        former=dict.fromkeys(numbers, (str(UUID(int=noise.getrandbits(128))), str(UUID(int=7)))),
        placed={p: PlacedProgress(noise.randrange(1000), anywhere(), anywhere()) for p in numbers},
        begun=frozenset(numbers),
    )


def test_the_largest_record_of_a_topic_fits_into_a_batch_that_a_topic_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plain it would take 3.6 MB, and be refused when everything but the record is done."""
    world = faked_world(monkeypatch)
    source, target = cluster_in(world, "east"), cluster_in(world)
    leader = Leader(FlowIdentity(FLOW, 1, "0" * 64), source, target)
    leader.start()
    largest = largest_enrolment(MOST_PARTITIONS)
    leader.enrol([largest], {})
    assert Enrolment.from_json(world.values[names.enrolment_key(largest.target)]) == largest


def test_a_hundred_thousand_daily_positions_fit_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a flow's are in one record."""
    world = faked_world(monkeypatch)
    source, target = cluster_in(world, "east"), cluster_in(world)
    leader = Leader(FlowIdentity(FLOW, 1, "0" * 64), source, target)
    leader.start()
    noise = random.Random(1)
    positions = {f"some.topic.name.{n // 50}:{n % 50}": noise.randrange(10**12) for n in range(100_000)}
    leader.note(names.POSITIONS, {"v": 1, "positions": positions})
    assert world.values[names.POSITIONS]["positions"] == positions
