"""A switchover killed before and behind each of its steps: undone by `drill abort`, or gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.drills.switching.course import STEP_NAMES
from tests.support.guarded import Pair, guarded_clusters
from tests.support.switching import Switched, switched, undone_or_gone_on_with

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def guarded(session_home: Path) -> Iterator[Pair]:
    """Two clusters with authorizers."""
    with guarded_clusters(session_home) as pair:
        yield pair


@pytest.fixture
def replica(
    guarded: Pair, tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Switched]:
    """A flow of the test's own."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    with switched(guarded, tmp_path, unique_name) as replica:
        yield replica


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("step", [step for step in STEP_NAMES if step != "reverse"])
def test_killed_at_every_step_boundary(
    replica: Switched, capsys: pytest.CaptureFixture[str], tmp_path: Path, step: str, when: str
) -> None:
    """Before the promotion nothing of it stays; behind it it goes on; then it passes."""
    undone_or_gone_on_with(replica, capsys, tmp_path / "drill.log", step, when)
