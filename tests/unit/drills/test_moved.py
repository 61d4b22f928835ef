"""What was committed on the source behind the cut is named, also by a run that goes on behind another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceover.drills import chain as chains
from onceover.drills.leaving import cutpositions
from onceover.drills.leaving.commits import SourceGroups
from onceover.drills.switching.steps import PlannedSteps
from onceover.model import TopicPartition
from tests.unit.drills.test_fences import Notes

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
CUT = {("billing", A0): 5, ("billing", A1): 9, ("audit", A0): 3}


def gone_on(monkeypatch: pytest.MonkeyPatch, notes: Notes, now: dict[Any, int], by: str) -> list[Any]:
    """Return what drill d2 finds, whose topics were promoted by another one."""
    monkeypatch.setattr(SourceGroups, "positions", lambda _: (now, set()))
    parts: Any = SimpleNamespace(source=None, selects=None, pause=None)
    steps = PlannedSteps(parts, "d2", by, {}, True, notes, cast(Any, None))
    steps._name_moved()
    return steps.findings


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, ()),
        ({("billing", A1): 10}, ("1 groups", "billing")),
        ({("new", A0): 1, ("audit", A0): 4}, ("2 groups", "audit, new")),
        ({("audit", A0): None}, ("1 groups", "gone")),
    ],
)
@pytest.mark.parametrize("by", ["d1", "d2"])
def test_whoever_commits_behind_the_cut_is_named_by_whoever_comes_to_it(
    monkeypatch: pytest.MonkeyPatch, change: dict[Any, int | None], named: tuple[str, ...], by: str
) -> None:
    """The first run was killed behind the promotion: only the journal has where the groups were."""
    notes = Notes()
    for said in cutpositions.noted(CUT):
        notes.chain.append(chains.next_entry(notes.chain, by, chains.PLACED, 0, said))
    now = {at: offset for at, offset in {**CUT, **change}.items() if offset is not None}
    found = gone_on(monkeypatch, notes, now, by)
    code = "NOT_COMPARED" if "gone" in named else "COMMITS_LATE"
    assert [seen for seen, _ in found] == ([code] if named else [])
    for part in named:
        assert part in found[0][1]


def test_what_nobody_has_written_down_is_not_taken_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an unplanned one, or by a release that did not: it is said."""
    notes = Notes()
    for said in cutpositions.noted(CUT):
        notes.chain.append(chains.next_entry(notes.chain, "d0", chains.PLACED, 0, said))
    ((code, text),) = gone_on(monkeypatch, notes, dict(CUT), "d1")
    assert (code, "drill d1" in text) == ("NOT_COMPARED", True)


def test_where_groups_were_put_in_place_fits_the_journal_and_names_none() -> None:
    """However many there are; none at all is not the same as not known."""
    many = {(f"group-{number}", A0): number for number in range(12_001)}
    entries = cutpositions.noted(many)
    assert [len(said["groups"]) for said in entries] == [5000, 5000, 2001]
    assert "group-7" not in str(entries)
    assert cutpositions.noted({}) == [{"groups": {}}]
