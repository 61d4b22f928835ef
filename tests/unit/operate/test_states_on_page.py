"""docs/operations.md tells which states of a copy each state of its run may come with."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from onceover.operate import statusshape
from onceover.operate.states import CopyState, PartitionState
from onceover.state.records.runstate import FlowRun, RunState

PAGE: Final = Path(__file__).parents[3] / "docs" / "operations.md"


def told() -> dict[str, set[str]]:
    """Return the states of each row of the page's table."""
    table = PAGE.read_text().partition("| run | state | meaning |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\w+) \| ([\w, ]+) \|", table, re.MULTILINE)
    return {run: set(states.split(", ")) for run, states in rows}


def states_of(run: RunState) -> set[str]:
    """Return what a flow may be said to be, whatever else is so."""
    found = set()
    # Who shows signs of life has fenced everybody before.
    readies = (False, True) if run is RunState.STARTING else (True,)
    for ready, away, partition in product(readies, (None, "away"), PartitionState):
        facts = SimpleNamespace(
            state=SimpleNamespace(layout=SimpleNamespace(ready=ready)),
            source=SimpleNamespace(error=away),
            target=SimpleNamespace(error=None),
        )
        state = statusshape._state(cast(Any, facts), FlowRun(state=run), [{"state": str(partition)}])
        found.add(str(state))
    return found


def test_the_page_has_every_state_that_comes_with_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other, whether a lane has begun or not."""
    may: dict[str, set[str]] = {}
    for begun in (False, True):
        monkeypatch.setattr(statusshape, "_has_begun", lambda _, begun=begun: begun)
        may |= {run: may.get(run, set()) | states_of(run) for run in RunState}
    assert may == told()
    assert {state for states in may.values() for state in states} == set(CopyState)
