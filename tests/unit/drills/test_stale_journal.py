"""The journal of drills, told by a broker that led it before and has not heard that it does no more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from onceover.errors import Fenced
from tests.support.fakes.fakecluster import FakeCluster
from tests.support.fakes.fakelogs import FakeLog
from tests.unit.drills.journals import journal

SOON: Final = 10


def test_an_entry_follows_the_last_one_that_is_there(west: FakeCluster, log: FakeLog, tmp_path: Path) -> None:
    """Behind one of before it would take the place of another entry, and the chain would be damaged."""
    with journal(west, tmp_path) as first:
        first.begin("d1", {})
        log.past_end = log.end
        first.append("d1", "look", {})
    with journal(west, tmp_path) as second:
        log.past_answers = SOON
        second.append("d1", "fence", {})
        log.past_answers = 0
        assert [each.what for each in second.read()] == ["begun", "look", "fence"]


def test_a_drill_that_was_ended_goes_on_by_no_journal_of_before(
    west: FakeCluster, log: FakeLog, tmp_path: Path
) -> None:
    """What it does next cannot be taken back by whoever has ended it."""
    with journal(west, tmp_path) as drill, journal(west, tmp_path) as other:
        drill.begin("d1", {})
        log.past_end = log.end
        other.append("d1", "ended", {"result": "died"})
        log.past_answers = SOON
        with pytest.raises(Fenced):
            drill.check("d1")
