"""The end of a run: nothing stays open, whoever is still alive."""

from __future__ import annotations

from pathlib import Path

from onceover.state import steps
from onceover.state.steps import Step
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.flows import InlineFlow, write_flow


def test_the_end_is_written_before_the_lanes_are_fenced(
    source_cluster: SharedCluster, target_cluster: SharedCluster, unique_name: str, tmp_path: Path
) -> None:
    """A fenced lane reads the layout again; only one that has ended keeps it from beginning anew."""
    path = write_flow(tmp_path, unique_name, source_cluster.client, target_cluster.client, ["none"])
    seen: list[Step] = []
    with InlineFlow(path).running() as (lead, _):
        steps.listen(seen.append)
        try:
            lead.end()
        finally:
            steps.listen(lambda _: None)
    assert [s for s in seen if s in (Step.ENDED, Step.FENCE_LANE)] == [
        Step.ENDED,
        Step.FENCE_LANE,
        Step.FENCE_LANE,
    ]
