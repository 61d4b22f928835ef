"""Worlds made by chance: whatever happens to a flow and to its readers, they go on at their next record.

The oracle is told by both logs which record is a copy of which (``tests.support.worlds.positionworld``);
hypothesis draws what happens, and finds the shortest story that shows a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from onceover.groups import decide as groups
from onceover.groups import view as groupview
from onceover.operate import repairapply
from onceover.positions.translate import Translator
from onceover.wire.offsetlookup import Translated
from tests.support.session.examples import examples
from tests.support.worlds.auditstory import Event
from tests.support.worlds.auditworld import KINDS
from tests.support.worlds.positionstory import events, journeys, live

_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=examples(30), suppress_health_check=_QUIET, derandomize=True, deadline=None)
def test_readers_go_on_at_their_next_record_whatever_happens(kind: str, data: st.DataObject) -> None:
    """A hundred worlds and more, the same each time."""
    live(kind, data.draw(st.lists(events(), min_size=5, max_size=20)))


@pytest.mark.parametrize("kind", ["record", "compacted", "at-least-once"])
@given(st.data())
@settings(max_examples=examples(30), suppress_health_check=_QUIET, derandomize=True, deadline=None)
def test_a_group_that_goes_over_and_back_passes_over_nothing(kind: str, data: st.DataObject) -> None:
    """Wherever logs begin by then, and whoever remembers it."""
    live(kind, data.draw(journeys()))


_COPIED = [Event("produce", 0, 4, 0), Event("produce", 1, 4, 0), Event("copy", 0, 4), Event("copy", 1, 4)]
_ANEW = [*_COPIED, Event("source made anew", 0, 2)]
# Over to where the log begins behind the group, and back again: its own offset has to be still there.
_FAR = [*_COPIED, *_COPIED, Event("read on the source", 0, 1)]
_CUT = [*_FAR, Event("target expires", 0, 4), Event("fail over", 0, 1), Event("fail back", 0, 1)]
# Home to where the log begins behind the group, and over again.
_CUT_BACK = [
    *(*_FAR, Event("fail over", 0, 1), Event("source expires", 0, 4)),
    *(Event("fail back", 0, 1), Event("fail over", 0, 1)),
]


def _one_further(patch: pytest.MonkeyPatch) -> None:
    """A reader would miss a record."""
    real = Translator.to_target

    def further(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named)
        return Translated(found.offset + 1) if isinstance(found, Translated) else found

    patch.setattr(Translator, "to_target", further)


def _one_before(patch: pytest.MonkeyPatch) -> None:
    """A reader that goes back would read a record again."""
    real = Translator.to_source

    def before(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named)
        return Translated(max(0, found.offset - 1)) if isinstance(found, Translated) else found

    patch.setattr(Translator, "to_source", before)


def _another_topic(patch: pytest.MonkeyPatch) -> None:
    """Positions of a topic are taken for those of another one of its name."""
    patch.setattr(groupview, "_is_there", lambda *_: True)


def _old_map(patch: pytest.MonkeyPatch) -> None:
    """What the map says of a topic that is gone is believed of its successor."""
    patch.setattr(repairapply, "replace", lambda each, **named: replace(each, **{**named, "since": {}}))


def _as_if_exact(patch: pytest.MonkeyPatch) -> None:
    """Where a log begins is taken for what a group has read that was put there."""
    patch.setattr(groups, "_stands", lambda *_: {})
    patch.setattr(groups.PartitionFacts, "skipped", 0)


def _not_told(patch: pytest.MonkeyPatch) -> None:
    """What an older release has put there is taken for what the group has read."""
    patch.setattr(groups.PartitionFacts, "skipped", 0)


@pytest.mark.parametrize(
    ("fault", "story"),
    [
        (_one_further, _COPIED),
        (_one_before, _COPIED),
        # A log that is shorter than what was copied is noticed by that.
        (_another_topic, [*_ANEW, Event("produce", 0, 4)]),
        (_old_map, [*_ANEW, Event("mend", 0, 1, 6)]),
        (_as_if_exact, _CUT),
        (_as_if_exact, _CUT_BACK),
        (_not_told, [*_CUT[:-1], Event("an older release has remembered", 0, 1)]),
    ],
    ids=lambda each: each.__name__.strip("_") if callable(each) else "",
)
def test_a_fault_that_is_put_back_is_found(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], story: list[Event]
) -> None:
    """By a short story, which is true without it."""
    live("record", story)
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        live("record", story)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@given(story=st.lists(events(), max_size=25) | journeys())
@settings(max_examples=1_000, suppress_health_check=_QUIET, phases=tuple(Phase), deadline=None)
def test_readers_go_on_at_their_next_record_in_thousands_of_worlds(kind: str, story: list[Event]) -> None:
    """Others each time."""
    live(kind, story)
