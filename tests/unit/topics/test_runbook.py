"""docs/operations.md tells about every stop and nothing else; a test follows the way out of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onceover.stops.codes import StopCode
from onceover.topics.codes import TopicCode

PROJECT = Path(__file__).parents[3]
RUNBOOK = (PROJECT / "docs" / "operations.md").read_text()
STOPS = "## When a partition is stopped"
REFUSALS = "## When a topic is not taken in"
TRIED = (
    "stops/test_stops.py",
    "stops/test_ways_out.py",
    "guarded/test_rights.py",
    "copying/test_failing.py",
    "stops/test_left_open.py",
    "topics/test_rings.py",
)
# Commands of the table, without their arguments; the shell knows them all (tests/unit/test_cli.py).
COMMANDS = {"partition resume", "partition skip-to", "partition reseed", "seed plan", "seed apply"}


def rows(heading: str) -> dict[str, str]:
    """Return the first table below a heading: what to do, by code."""
    lines = RUNBOOK.split(f"{heading}\n", 1)[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    found = {}
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        code, _, fix = (cell.strip() for cell in line.strip("|").split("|"))
        found[code] = fix
    return found


def test_the_runbook_has_exactly_the_stops_that_there_are() -> None:
    """No code undocumented, none documented that does not exist; one line each."""
    assert list(rows(STOPS)) == list(StopCode)


def test_the_runbook_has_exactly_the_refusals_of_topics_that_there_are() -> None:
    """The same for topics that are not taken in, and for notes about them."""
    assert set(rows(REFUSALS)) == set(TopicCode)


@pytest.mark.parametrize("code", TopicCode)
def test_every_refusal_of_a_topic_says_what_to_do(code: TopicCode) -> None:
    """In the table."""
    assert rows(REFUSALS)[code]


@pytest.mark.parametrize("code", StopCode)
def test_every_line_says_what_to_do_with_commands_that_exist(code: StopCode) -> None:
    """Nothing but the commands of messages, so that following a message is following the line."""
    fix = rows(STOPS)[code]
    named = {" ".join(text.split()[:2]) for text in re.findall(r"`((?:partition|seed) [^`]+)`", fix)}
    assert named and named <= COMMANDS


@pytest.mark.parametrize("code", StopCode)
def test_every_way_out_is_followed_on_real_brokers(code: StopCode) -> None:
    """By a test that takes the commands out of the stop's own text."""
    tests = [(PROJECT / "tests" / "integration" / name).read_text() for name in TRIED]
    # Two of them differ in the side only.
    shown = [f'"{code}"', f'{{side.upper()}}_{code.partition("_")[2]}"']
    assert any(one in text for text in tests for one in shown), f"no test makes {code}"
