"""A target whose brokers overwrite timestamps by default: copies keep those of the source (G1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.replica import Replica
from tests.support.flows.waysout import commands
from tests.support.raw.rawkafka import RawRecord

OLD = RawRecord(b"k", b"v", (), 1_704_067_200_000)


def test_copies_keep_their_timestamps_whatever_the_brokers_default(
    start_cluster: ClusterFactory,
    source_cluster: SharedCluster,
    tmp_path: Path,
    unique_name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new copy at once; one that is there already once a person has followed the refusal."""
    monkeypatch.setenv("ONCEOVER_FLOWS", str(tmp_path))
    target = start_cluster("clock", config={"log.message.timestamp.type": "LogAppendTime"})
    with Replica(tmp_path, unique_name, source_cluster.client, target.client) as replica:
        new, there = replica.topic("new"), replica.topic("there")
        replica.target_topic(there)
        for topic in (new, there):
            replica.source.plain(topic, 0, [OLD])

        assert replica.copy().records == 1

        replica.assert_same(new)
        stop = next(p for p in replica.flow.status()["partitions"] if p["topic"] == there)["stop"]
        assert stop["code"] == "TARGET_RESTAMPS"
        for command in commands(stop["resolve"]):
            command.run(capsys)
        assert replica.copy().records == 1
        replica.assert_same()
