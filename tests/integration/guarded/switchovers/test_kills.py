"""A switchover killed before and behind each of its steps: undone by `drill abort`, or gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.drills.switching.course import STEP_NAMES
from tests.support.drills.switching import Switched, undone_or_gone_on_with

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("step", [step for step in STEP_NAMES if step != "reverse"])
def test_killed_at_every_step_boundary(
    replica: Switched, capsys: pytest.CaptureFixture[str], tmp_path: Path, step: str, when: str
) -> None:
    """Before the promotion nothing of it stays; behind it it goes on; then it passes."""
    undone_or_gone_on_with(replica, capsys, tmp_path / "drill.log", step, when)
