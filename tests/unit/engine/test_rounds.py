"""In which portions the flow's own records are sent."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.engine import names
from onceover.engine.enrolment import Enrolment
from onceover.engine.leader import FlowIdentity, Leader
from onceover.engine.rounds import pieces
from tests.unit.engine.protocol import FLOW, FakeCluster, faked_world

pairs = st.lists(st.tuples(st.binary(max_size=8), st.none() | st.binary(max_size=20)), max_size=40)


@given(pairs, st.integers(1, 60))
def test_pieces_hold_everything_in_order_and_keep_to_the_limit(
    wanted: list[tuple[bytes, bytes | None]], limit: int
) -> None:
    """A pair that is larger than the limit comes alone."""
    found = list(pieces(wanted, limit))
    assert [pair for piece in found for pair in piece] == wanted
    for piece in found:
        assert len(piece) == 1 or sum(len(key) + len(value or b"") for key, value in piece) <= limit


def test_thousands_of_enrolments_go_in_batches_that_a_topic_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one transaction all the same: the fake refuses larger ones, and shows what was committed."""
    world = faked_world(monkeypatch)
    source, target = FakeCluster(world), FakeCluster(world)
    source.alias = "east"
    leader = Leader(FlowIdentity(FLOW, 1, "0" * 64), source, target)  # type: ignore[arg-type]
    leader.start()
    commits = len(world.log)
    enrolments = [
        Enrolment(f"{n:0200}", f"{n:0200}", UUID(int=n), UUID(int=n), {0: 0}, 1) for n in range(3000)
    ]
    leader.enrol(enrolments, {})
    assert {names.enrolment_key(e.target) for e in enrolments} <= world.values.keys()
    assert [what for what in world.log[commits:] if what.startswith("commit")] == ["commit"]
