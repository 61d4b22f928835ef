"""What may be written over a verified watermark, and who can read it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings

from onceover.model import TopicPartition
from onceover.state import names
from onceover.state.records.enrolment import PlacedProgress
from onceover.state.records.verified import Watermark, read_watermarks
from tests.support.raw.junk import damaged
from tests.support.session.examples import examples

MARK = Watermark(
    offset=10, target_offset=12, source_id=UUID(int=1), target_id=UUID(int=2), timestamp_ms=3, at_ms=4
)


def test_value_is_read_back_by_its_target_partition() -> None:
    """Other keys of the state are none; another version's value is passed over."""
    state = {
        names.verified_key("b", 3): MARK.to_json(),
        names.verified_key("b", 4): {**MARK.to_json(), "v": 2},
        names.stop_key("b", 3): {},
    }
    assert read_watermarks(state) == {TopicPartition("b", 3): MARK}


def test_it_never_goes_back() -> None:
    """Further on, or the same again later."""
    assert MARK.advances(None)
    assert replace(MARK, offset=11).advances(MARK)
    assert not replace(MARK, offset=9, at_ms=99).advances(MARK)
    assert replace(MARK, at_ms=5).advances(MARK)
    assert not MARK.advances(MARK)


def test_another_topic_of_the_same_name_begins_anew() -> None:
    """What was proven of the old one says nothing about it."""
    anew = replace(MARK, offset=1, source_id=UUID(int=9))
    assert anew.advances(MARK)
    assert not MARK.of(UUID(int=9), MARK.target_id)


def test_one_of_an_older_release_is_of_a_partition_that_nobody_has_put_anywhere() -> None:
    """It does not say what it was proven under; nor does a later one that an older release leaves out."""
    added = {"approval", "source_epoch", "target_epoch"}
    old = {key: value for key, value in MARK.to_json().items() if key not in added}
    assert Watermark.from_json(old) == MARK
    assert MARK.stands("", None)
    assert not MARK.stands("by an older release", None)


@pytest.mark.parametrize(
    ("placed", "target_start", "stands"),
    [
        (PlacedProgress(2, 10, 12), 0, True),
        (PlacedProgress(2, 4, 12), 0, True),
        (PlacedProgress(2, 4, 11), 0, False),
        (PlacedProgress(2, 4, 12), 12, False),
        (PlacedProgress(2, 10, 12), 12, True),
    ],
    ids=["ahead", "back", "the target had lost its end", "nothing of it is left", "expired since"],
)
def test_what_stands_since_an_operator_has_put_the_partition_somewhere(
    placed: PlacedProgress, target_start: int, *, stands: bool
) -> None:
    """As long as the copy that was proven is there; under the same approval it always is."""
    assert MARK.stands("later", placed, target_start) is stands
    assert replace(MARK, approval="later").stands("later", placed, target_start)


def test_one_of_before_an_operators_hand_is_not_written_over_a_later_one() -> None:
    """Lower than the one before it may be; an audit that was overtaken writes nothing."""
    later = replace(MARK, offset=4, approval="later", at_ms=5)
    assert later.advances(MARK)
    assert not MARK.advances(later)


@settings(max_examples=examples(50))
@given(damaged({names.verified_key("b", 3): MARK.to_json(), names.verified_key("b", 4): MARK.to_json()}))
def test_one_that_cannot_be_read_proves_nothing_and_can_be_written_over(state: dict[str, Any]) -> None:
    """An audit does not fail over what somebody else has written."""
    found = read_watermarks(state)
    assert MARK in found.values()
    for known in found.values():
        MARK.advances(known)
