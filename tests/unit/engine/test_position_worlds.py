"""Worlds made by chance: whatever happens to a flow and to its readers, they go on at their next record.

The oracle is told by both logs which record is a copy of which (``tests.support.positionworld``); hypothesis
draws what happens, and finds the shortest story that shows a fault.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.auditstory import Event
from tests.support.auditworld import KINDS
from tests.support.positionstory import events, live

_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=30, suppress_health_check=_QUIET, derandomize=True, deadline=None)
def test_readers_go_on_at_their_next_record_whatever_happens(kind: str, data: st.DataObject) -> None:
    """A hundred worlds and more, the same each time."""
    live(kind, data.draw(st.lists(events(), min_size=5, max_size=20)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@given(story=st.lists(events(), max_size=25))
@settings(max_examples=1_000, suppress_health_check=_QUIET, phases=tuple(Phase), deadline=None)
def test_readers_go_on_at_their_next_record_in_thousands_of_worlds(kind: str, story: list[Event]) -> None:
    """Others each time."""
    live(kind, story)
