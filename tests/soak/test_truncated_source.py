"""An old source that has lost copied records to an unclean election, and grew on: another log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.brokers.truncated import KEPT, WRITTEN, truncated, write
from tests.support.drills.orphaned import DECIDE, Capture, orphaned
from tests.support.flows.replica import read_records

GROWN = 120

pytestmark = pytest.mark.soak


def test_what_grew_behind_an_unclean_election_is_neither_exported_nor_gone_on_with(
    start_cluster: ClusterFactory,
    target_cluster: SharedCluster,
    tmp_path: Path,
    unique_name: str,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends behind the cut again; nothing of it is deleted, and nobody begins behind the promotion."""
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    source = start_cluster("three", brokers=3)
    topic = f"{unique_name}.a"
    # The third one stays.
    doors = source.bootstrap.split(",")[-1], target_cluster.bootstrap
    with orphaned(tmp_path, unique_name, source.client, target_cluster.client, unsecured=doors) as replica:

        def copied() -> None:
            replica.copy()
            assert len(read_records(replica.target_client, topic)) == WRITTEN
            replica.switch_over(capsys)

        with truncated(source, topic, copied) as (epochs, left):
            write(left, topic, GROWN - KEPT)
            assert epochs.partition(topic)["leader_epoch"] > 0
            code, plan = replica.orphans(capsys, "plan")
            assert (code, [(r["object"], r["code"]) for r in plan["refused"]]) == (
                DECIDE,
                [(f"{topic}:0", "LOG_CHANGED")],
            )
            assert plan["orphans"] == 0
            code, done = replica.orphans(capsys, "apply", "--rebuild")
            assert (code, done["written"], done["rebuilt"]) == (DECIDE, 0, [])
            code, told = replica.seed_back(capsys, replica.back())
            assert (code, [(r["object"], r["code"]) for r in told["refused"]]) == (
                DECIDE,
                [(f"{topic}:0", "SOURCE_DIVERGED")],
            )
            assert len(read_records({"bootstrap.servers": left}, topic)) == GROWN
