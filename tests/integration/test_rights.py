"""A right that is missing on one topic of two: that topic says so and waits, the other one goes on (G5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.grants import TOPIC, denied
from tests.support.guarded import Pair, guarded_clusters, guarded_replica
from tests.support.replica import Replica

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def guarded(session_home: Path) -> Iterator[Pair]:
    """Two clusters on which the flow's user may do nothing that was not granted."""
    with guarded_clusters(session_home) as pair:
        yield pair


@pytest.fixture
def replica(guarded: Pair, tmp_path: Path, unique_name: str) -> Iterator[Replica]:
    """A flow with exactly the rights of docs/operations.md."""
    with guarded_replica(guarded, tmp_path, unique_name) as replica:
        yield replica


@pytest.mark.parametrize("side", ["source", "target"])
def test_right_that_is_taken_from_one_topic_is_said_and_hides_nothing_of_the_other(
    guarded: Pair, replica: Replica, capsys: Capture, side: str
) -> None:
    """The cluster leaves such a topic out of all: it is neither gone nor fine, and asked for by name."""
    shut, fine = replica.topic("shut"), replica.topic("fine")
    for topic in (shut, fine):
        replica.source.plain(topic, 0, replica.source.records(5))
    replica.copy()
    replica.source.plain(fine, 0, replica.source.records(3))
    with denied(guarded[side == "target"], (TOPIC, shut, False, "DESCRIBE")):
        code, document = replica.command(capsys, "status", replica.name)
        (flow,) = document["flows"]
        (need,) = flow["needs"]
        assert (code, need["code"], flow[side]["error"]["where"]) == (2, "NOT_AUTHORIZED", shut)
        assert shut in need["message"] and "grant" in need["resolve"]
        found = {p["topic"]: p for p in flow["partitions"]}
        assert (found[fine]["lag_offsets"], found[fine]["stop"]) == (3, None)
        assert (found[shut]["lag_offsets"], found[shut]["stop"]) == (None, None)
        assert found[shut]["position"] == (5 if side == "source" else None)
        assert (flow["state"], flow["run"]["state"]) == ("stopped", "ended")
        assert flow["lag_offsets"] is None
    assert replica.command(capsys, "status", replica.name)[0] == 0


def test_a_new_topic_whose_configuration_cannot_be_read_waits_and_says_so(
    guarded: Pair, replica: Replica, capsys: Capture
) -> None:
    """A person learns of it, and nothing has to be started anew when the right is there."""
    shut, fine = replica.topic("shut"), replica.topic("fine")
    for topic in (shut, fine):
        replica.source.plain(topic, 0, replica.source.records(5))
    with denied(guarded[0], (TOPIC, shut, False, "DESCRIBE_CONFIGS")):
        assert replica.copy().records == 5
        code, document = replica.command(capsys, "status", replica.name)
        (entry,) = [p for p in document["flows"][0]["partitions"] if p["topic"] == shut]
        assert (code, entry["state"], entry["stop"]["code"]) == (3, "not_enrolled", "CONFIG_UNREADABLE")
        assert "rights" in entry["stop"]["resolve"]
    replica.assert_same(fine)
    assert replica.copy().records == 5
    assert replica.command(capsys, "status", replica.name)[0] == 0

    with denied(guarded[0], (TOPIC, shut, False, "DESCRIBE_CONFIGS")):
        replica.source.plain(shut, 0, replica.source.records(5))
        assert replica.copy().records == 5, "what is enrolled goes on"
        code, document = replica.command(capsys, "status", replica.name)
        notes = [(note["object"], note["code"]) for note in document["flows"][0]["notes"]]
        assert (code, notes) == (0, [(shut, "CONFIG_UNREADABLE")])
    replica.assert_same()
