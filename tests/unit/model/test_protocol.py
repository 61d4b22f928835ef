"""The protocol keeps its promises in every state that can be reached, and each rule is needed for that."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.unit.model.explore import Found, search, violation_of
from tests.unit.model.model import Model
from tests.unit.model.scenario import Rule, Scenario
from tests.unit.model.scenarios import FOR_PEACE, INSTANCES, LARGE, MIDDLING, SMALL, WITHOUT

PROTOCOL: Final = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
# What one search of the large scenarios may hold in memory: about 3 GB.
_MOST_STATES: Final = 2_000_000
# Rules without which nothing wrong is done, and nothing ends either.
_FOR_AN_END: Final = {
    Rule.LAYOUT_DECIDES,
    Rule.READY_IS_SEEN_BEFORE_LANES,
    Rule.INSTANCES_WITHIN_A_GENERATION,
    Rule.STOPS_BESIDE_THE_LAYOUT,
}


def told(found: Found) -> str:
    """Return what was found, for people."""
    return "\n".join([str(found.violation), f"{found.states} states", *found.trace])


@pytest.mark.parametrize(
    "scenario",
    [*SMALL, *(pytest.param(each, marks=pytest.mark.soak) for each in MIDDLING)],
    ids=lambda each: each.name,
)
def test_every_promise_is_kept_and_a_way_to_the_end_is_left(scenario: Scenario) -> None:
    """Every state keeps the guarantees, and from every one all that is missing can still be copied."""
    found = search(Model(scenario))
    assert (found.violation, found.complete, found.stuck) == (None, True, 0), told(found)


@pytest.mark.parametrize("rule", WITHOUT, ids=lambda each: each.name)
def test_each_rule_is_needed(rule: Rule) -> None:
    """Without it a guarantee breaks, or something never ends."""
    model = Model(WITHOUT[rule], rule)
    if rule in _FOR_AN_END:
        found = search(model)
        assert found.complete
        assert found.stuck > 0
    else:
        assert violation_of(model) is not None


def test_who_gives_way_between_two_tasks_is_no_question_of_safety() -> None:
    """The older one ends for the sake of peace: without the rule both go on, and nothing is wrong."""
    found = search(Model(INSTANCES, FOR_PEACE))
    assert (found.violation, found.complete, found.stuck) == (None, True, 0), told(found)


def test_each_rule_is_told_in_the_docs() -> None:
    """By its name, with what it prevents."""
    assert set(WITHOUT) | {FOR_PEACE} == set(Rule)
    assert [rule.name for rule in Rule if f"`{rule.name}`" not in PROTOCOL] == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", LARGE, ids=lambda each: each.name)
def test_larger_scenarios_keep_every_promise(scenario: Scenario) -> None:
    """Where a search is cut, what was seen is kept; where it is complete, everything can still end."""
    found = search(Model(scenario), _MOST_STATES)
    assert (found.violation, found.stuck) == (None, 0), told(found)
