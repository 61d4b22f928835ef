"""Worlds made by chance: whatever happens between audits, their answers are true.

A world is a flow, its two clusters and its state in memory (``tests.support.worlds.auditworld``); what
happens is drawn by hypothesis, which also finds the shortest story that shows a fault. Stories that once
did are below each rule's own test (``test_world_stories``).
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.worlds.auditstory import Event, events, live
from tests.support.worlds.auditworld import KINDS

# With the compiled code, and in soak without it.
pytestmark = pytest.mark.usefixtures("either_way")
_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=20, suppress_health_check=_QUIET, derandomize=True)
def test_answers_are_true_whatever_happens(kind: str, data: st.DataObject) -> None:
    """A hundred worlds and more, the same each time."""
    live(kind, data.draw(st.lists(events(), max_size=14)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@given(story=st.lists(events(), max_size=25))
@settings(max_examples=1_000, suppress_health_check=_QUIET, phases=tuple(Phase))
def test_answers_are_true_in_thousands_of_worlds(kind: str, story: list[Event]) -> None:
    """Others each time."""
    live(kind, story)
