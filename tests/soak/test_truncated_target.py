"""A target that loses acknowledged records to an unclean election, and groups that stood behind the loss.

What docs/groups.md says of each leader epoch that could be committed; three brokers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers.clusters import ClusterFactory
from tests.support.brokers.truncated import KEPT, WRITTEN, truncated, write
from tests.support.drills.movers import SUBSCRIBED, Applications, Role, Said
from tests.support.raw.epochs import NO_EPOCH
from tests.support.session.wait import wait_until

JAVA = "4.3.0"
GROWN = 120
OWN_EPOCH = 0
TIMEOUT_S = 60.0

pytestmark = pytest.mark.soak


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
    with truncated(start_cluster("three", brokers=3), topic) as (epochs, bootstrap):
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
