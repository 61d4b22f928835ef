"""Topics that are deleted and made anew while a planned switchover is running."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from onceover.backoff import Deadline
from onceover.drills.leaving import commits
from onceover.drills.switching.steps import PlannedSteps
from tests.support.brokers.clusters import SharedCluster
from tests.support.drills.orphaned import Capture, Orphaned, orphaned
from tests.support.drills.switching import step_of
from tests.support.flows.replica import delete_topics

SOURCE, TARGET = "source", "target"


@pytest.fixture
def replica(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, target_cluster: SharedCluster
) -> Iterator[Orphaned]:
    """A flow whose writers and clients a program moves."""
    with orphaned(tmp_path, unique_name, source_cluster.client, target_cluster.client) as replica:
        how = {"fence": "command", "redirect": "command", "command": ["./switch"], "quiet": "500ms"}
        replica.configure(switchover=how)
        yield replica


@pytest.mark.parametrize(
    ("side", "step", "code"),
    [
        (SOURCE, "redirect", "WRITTEN_BEHIND"),
        pytest.param(SOURCE, "promote", "LOG_CHANGED", marks=pytest.mark.soak),
        pytest.param(TARGET, "promote", "LOG_CHANGED", marks=pytest.mark.soak),
        pytest.param(TARGET, "redirect", "LOG_CHANGED", marks=pytest.mark.soak),
    ],
)
def test_a_topic_that_is_made_anew_hides_nothing(
    replica: Orphaned, capsys: Capture, monkeypatch: pytest.MonkeyPatch, side: str, step: str, code: str
) -> None:
    """As long as it is by the cut: before the promotion nothing is promoted, behind it that is named."""
    monkeypatch.setattr(commits, "COMMITS_S", 0.5)
    topic = replica.topic()
    replica.source.plain(topic, 0, replica.source.records(10))
    replica.copy()
    real = getattr(PlannedSteps, step)

    def act(steps: PlannedSteps, deadline: Deadline) -> Mapping[str, Any]:
        cluster = replica.source if side == SOURCE else replica.target
        delete_topics(replica.source_client if side == SOURCE else replica.target_client, [topic])
        cluster.create_topic(topic, 1, {})
        if side == SOURCE:
            cluster.plain(topic, 0, cluster.records(10))
        found: Mapping[str, Any] = real(steps, deadline)
        return found

    monkeypatch.setattr(PlannedSteps, step, act)
    path = str(replica.flow.path)
    _, told = replica.command(capsys, "drill", "run", path, "--mode", "planned", "--approve")
    assert told["verdict"] == "FAIL"
    found = {each["code"]: each["text"] for each in told["findings"]}
    if step == "promote":
        assert step_of(told, "promote")["error"]["code"] == code
        assert step_of(told, "undo")["evidence"]["promoted"] is False
    else:
        assert topic in found[code]
    # A copy that is gone says nothing of the source.
    assert ("WRITTEN_BEHIND" in found) == (code == "WRITTEN_BEHIND")
    assert "10 records" in found.get("WRITTEN_BEHIND", "10 records")
