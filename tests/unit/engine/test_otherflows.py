"""Which flows copy this one's copies back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceover.engine.enrolment import Enrolment
from onceover.engine.naming import IDENTITY, PREFIX, Naming
from onceover.engine.otherflows import OtherFlow, loops, writers
from onceover.engine.topicplan import Loop
from tests.unit.engine.topicworld import leave, source_id, target_id


def back(source: str = "t", target: str = "t") -> OtherFlow:
    """Return a flow from west to east that copies ``source`` to ``target``."""
    enrolment = Enrolment(source, target, source_id(source), target_id(target), {0: 0}, 7)
    return OtherFlow("back", ("WEST", "EAST"), (enrolment,))


def found(flow: OtherFlow, policy: str = IDENTITY) -> dict[str, Loop]:
    """Return the loops that a flow from east to west sees."""
    return loops([flow], Naming(policy, "east", "west"), "EAST", "WEST")


def test_opposite_flow_with_the_same_names_is_a_loop() -> None:
    """Named with its enrolment's time, by which two at once settle who gives way."""
    assert found(back()) == {"t": Loop("back", 7)}


def test_opposite_flow_whose_clusters_are_not_known_counts_as_one() -> None:
    """Written by another version: better left out than round for ever."""
    assert found(replace(back(), clusters=(None, None))) == {"t": Loop("back", 7)}


@pytest.mark.parametrize(
    "near_miss",
    [
        replace(back(), clusters=("NORTH", "EAST")),
        replace(back(), clusters=("WEST", "NORTH")),
        replace(back(), enrolments=(leave(back().enrolments[0]),)),
        back("t", "west.t"),
    ],
    ids=["from another cluster", "to another cluster", "has left it", "under another name"],
)
def test_near_misses_are_no_loops(near_miss: OtherFlow) -> None:
    """Each of them leaves the topic alone, or ends somewhere else."""
    assert found(near_miss) == {}


def test_prefixed_names_make_no_loop_with_the_same_name() -> None:
    """Our copy of t is east.t: only a flow that copies that back to t would close the circle."""
    assert found(back(), PREFIX) == {}
    assert found(back("east.t", "t"), PREFIX) == {"t": Loop("back", 7)}


def test_writer_of_a_target_topic_is_known_also_when_it_has_left_it() -> None:
    """It may return, and its progress stands for what is in the topic."""
    assert writers([replace(back(), enrolments=(leave(back().enrolments[0]),))]) == {"t": "back"}
