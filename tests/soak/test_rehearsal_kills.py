"""A rehearsal killed before and behind each of its steps: the next one takes everything away, and passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from onceover.drills.rehearsing.course import STEP_NAMES
from tests.support.brokers.clusters import SharedCluster
from tests.support.drills.rehearsing import both_sides, rehearsing
from tests.support.drills.switching import trouble
from tests.support.flows.replica import Replica

KILLED: Final = -9
TIMEOUT_S: Final = 90.0

pytestmark = pytest.mark.soak


@pytest.fixture
def replica(
    tmp_path: Path,
    unique_name: str,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Replica]:
    """A flow of the test's own between the shared clusters."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    with Replica(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        yield replica


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("step", STEP_NAMES)
def test_killed_at_every_step_boundary(
    replica: Replica, capsys: pytest.CaptureFixture[str], tmp_path: Path, step: str, when: str
) -> None:
    """Both clusters are as they were before the first of the two."""
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(20))
    replica.copy()
    before = both_sides(replica)
    with rehearsing(replica, tmp_path / "drill.log", step=step, when=when) as child:
        assert child.wait(TIMEOUT_S) == KILLED, child.tail()
    code, told = replica.command(capsys, "drill", "run", str(replica.flow.path))
    assert (code, told["verdict"]) == (0, "PASS"), trouble(told)
    assert both_sides(replica) == before
