"""docs/first-flow.md with all that it starts: two Spark jobs take longer than everything else on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands.firstflow import walk
from tests.support.commands.newcomer import Machine

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


def test_a_first_flow_of_ones_own_goes_as_its_page_says(session_home: Path, tmp_path: Path) -> None:
    """On clusters that nothing else has been on; what is printed stands on the page."""
    machine = Machine(session_home / "first")
    try:
        machine.up()
        walk(machine, tmp_path, spark=True)
    finally:
        machine.ask("clusters down")
