"""A target that was put back from an older copy of its disks, or has lost the map's end to an unclean
election: neither files of the flow's home nor what is left answer for the log that is gone (G4, G7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.config.home import HOME_VARIABLE
from onceover.model import TopicPartition, lane_of
from onceover.positions.translate import UNTOLD
from onceover.state import names
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.brokers.disks import lose_ends, restart
from tests.support.flows.replica import Replica

DONE = 0


@pytest.fixture
def target(start_cluster: ClusterFactory) -> KafkaCluster:
    """A cluster of its own."""
    return start_cluster("target")


@pytest.fixture
def replica(
    source_cluster: SharedCluster,
    target: KafkaCluster,
    tmp_path: Path,
    unique_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Replica]:
    """A flow there, with a home of its own."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "var"))
    with Replica(tmp_path, unique_name, source_cluster.client, target.client) as replica:
        yield replica


@pytest.mark.soak
def test_the_map_s_index_is_not_that_of_a_log_that_was_put_back_and_has_grown_again(
    target: KafkaCluster, replica: Replica, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy and what it replaces have the same leader epochs; the map grows past the index unasked."""
    topic = replica.topic()

    def fed(records: int, times: int) -> None:
        for _ in range(times):
            replica.source.plain(topic, 0, replica.source.records(records))
            replica.copy()

    def asked() -> list[int | None]:
        """Translate every offset by command, with the index that is kept."""
        offsets = [str(offset) for offset in range(max(replica.source_records(topic)) + 1)]
        code, told = replica.command(capsys, "translate", str(replica.flow.path), f"{topic}:0", *offsets)
        assert code == DONE
        return [answer.get("translated") for answer in told["answers"]]

    def true() -> list[int | None]:
        """Say where the records lie: behind the one before, as no marker is met."""
        places = list(replica.target_records(topic))
        return [0, *(place + 1 for place in places[:-1])]

    fed(10, 1)
    restart(target, keep=tmp_path / "kept")
    fed(8, 2)
    assert asked() == true()
    restart(target, restore=tmp_path / "kept")
    fed(2, 4)
    assert asked() == true()


@pytest.mark.soak
def test_no_place_behind_a_map_that_has_lost_its_end_is_taken_for_the_copy_s_end(
    target: KafkaCluster, replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copied records lie there: a reader would have been sent back to the first of them."""
    topic = replica.topic()
    for _ in range(2):
        replica.source.plain(topic, 0, replica.source.records(10))
        replica.copy()
    tp = TopicPartition(topic, 0)
    # The last transaction's record, and its marker.
    lose_ends(target, {TopicPartition(names.map_topic(replica.name), lane_of(tp, names.MAP_PARTITIONS)): 2})
    places = sorted(replica.target_records(topic))
    inside, behind = places[10:], places[-1] + 1
    command = "translate", str(replica.flow.path), str(tp), *map(str, [*inside, behind]), "--to", "source"
    code, told = replica.command(capsys, *command)
    assert code == DONE
    *others, end = told["answers"]
    assert [(answer["covered"], answer["why"]) for answer in others] == [(False, UNTOLD)] * 10
    # It stands beside the position, too.
    assert end["translated"] == 20
