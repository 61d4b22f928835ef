"""A target that loses acknowledged records to an unclean election, and groups that stood behind the loss.

What docs/groups.md says of each leader epoch that could be committed; three brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, Producer

from tests.support.clusters import ClusterFactory
from tests.support.epochs import NO_EPOCH, Epochs, epochs_of
from tests.support.movers import SUBSCRIBED, Applications, Role, Said
from tests.support.wait import wait_until

JAVA = "4.3.0"
KEPT, WRITTEN, GROWN = 50, 100, 120
OWN_EPOCH = 0
TIMEOUT_S = 60.0

pytestmark = pytest.mark.soak


def write(bootstrap: str, topic: str, count: int) -> None:
    """Write so many records."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        producer.produce(topic, value=b"v", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


@contextmanager
def truncated(start_cluster: ClusterFactory, topic: str) -> Iterator[tuple[Epochs, str]]:
    """Yield the two brokers that are left of three: KEPT of WRITTEN records, the last of which were lost."""
    cluster = start_cluster("three", brokers=3)
    first, second, _ = cluster.nodes
    with epochs_of(cluster.bootstrap) as epochs:
        epochs.create(topic, [1, 2])
        write(cluster.bootstrap, topic, KEPT)
        second.stop()
        wait_until(lambda: epochs.partition(topic)["isr_nodes"] == [1], TIMEOUT_S, "broker 1 is alone")
        write(cluster.bootstrap, topic, WRITTEN - KEPT)
    first.kill()
    second.start()
    left = ",".join(cluster.bootstrap.split(",")[1:])
    with epochs_of(left) as epochs:
        wait_until(lambda: epochs.elected(topic, 2, ElectionType.UNCLEAN), TIMEOUT_S, "broker 2 leads")
        yield epochs, left


def first_said(bootstrap: str, folder: Path, topic: str, groups: list[str]) -> dict[str, Said]:
    """Return what each group's consumer says first."""
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "none"}
    roles = {group: Role(group, SUBSCRIBED, topic, settings=settings) for group in groups}
    applications = Applications(list(roles.values()), folder, JAVA)
    applications.start()
    try:
        wait_until(
            lambda: all(applications.said(r) for r in roles.values()), TIMEOUT_S, "each says something"
        )
        return {group: applications.said(role)[0] for group, role in roles.items()}
    finally:
        applications.end()


def test_a_group_without_an_epoch_does_not_notice_and_one_with_the_targets_own_does(
    start_cluster: ClusterFactory, tmp_path: Path, unique_name: str
) -> None:
    """Out of range while the log ends before it; read on in the middle of what is new once it does not."""
    topic, none, own = (f"{unique_name}.{each}" for each in ("t", "none", "own"))
    with truncated(start_cluster, topic) as (epochs, bootstrap):
        assert epochs.partition(topic)["leader_epoch"] > OWN_EPOCH
        epochs.commit(none, topic, WRITTEN, NO_EPOCH)
        epochs.commit(own, topic, WRITTEN, OWN_EPOCH)
        said = first_said(bootstrap, tmp_path / "short", topic, [none, own])
        assert "OffsetOutOfRangeException" in said[none].words
        assert "LogTruncationException" in said[own].words
        write(bootstrap, topic, GROWN - KEPT)
        said = first_said(bootstrap, tmp_path / "grown", topic, [none, own])
        assert (said[none].what, said[none].offset) == ("read", WRITTEN)
        assert "LogTruncationException" in said[own].words
