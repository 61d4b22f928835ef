"""How long a silent cluster holds its caller up, and how tries are spaced."""

from __future__ import annotations

import pytest

from onceover.backoff import Backoff, Deadline, Patience
from onceover.config.clients.resolve import ClientConfig
from onceover.errors import Retriable
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.link.channel import Address


def test_without_a_limit_attempts_wait_as_usual() -> None:
    """Those who copy have all the time of the world."""
    patience = Patience()
    patience.spend(1e9)

    assert patience.share_s(40.0) == 40.0
    assert patience.left_s == float("inf")


def test_every_attempt_gets_half_of_what_is_left() -> None:
    """One silent broker leaves time for the others."""
    patience = Patience(8.0)

    assert patience.share_s(40.0) == 4.0
    assert patience.share_s(1.0) == 1.0
    patience.spend(4.0)
    assert patience.share_s(40.0) == 2.0


def test_when_it_is_over_a_healthy_broker_still_has_time_to_answer() -> None:
    """What is left over of the others is still read, in a moment each."""
    patience = Patience(2.0)
    patience.spend(5.0)

    assert patience.left_s == 0.0
    assert patience.share_s(40.0) == 0.25


def test_pauses_stay_below_their_cap_however_often_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane may wait for its cluster for a day."""
    paused: list[float] = []
    monkeypatch.setattr("onceover.backoff.time.sleep", paused.append)
    backoff, deadline = Backoff(first_s=0.05, cap_s=2.0), Deadline(1e9)
    for _ in range(3000):
        backoff.pause(deadline, Retriable("away"))
    assert max(paused) <= 2.0 and paused[0] <= 0.05 and min(paused[100:]) >= 1.0


def test_whoever_waits_long_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A command that says nothing for half a minute looks as if it hung."""

    def away() -> None:
        raise Retriable("no broker of east answers (refused)")

    cluster = LiveCluster(ClientConfig("east", {"bootstrap.servers": "127.0.0.1:1"}))
    for silent_s, told in ((60.0, 0), (0.0, 1)):
        monkeypatch.setattr("onceover.kafka.cluster._SILENT_S", silent_s)
        with pytest.raises(Retriable):
            cluster.retry(away, Deadline(0.3))
        assert len(caplog.messages) == told
    assert caplog.messages[0].startswith("no broker of east answers (refused); trying for 0.")


def test_who_looks_again_and_again_does_not_ask_the_same_broker_each_time() -> None:
    """One that is behind the others would tell the same. Whoever copies keeps to the order that was given."""
    cluster = LiveCluster(ClientConfig("east", {"bootstrap.servers": "a:1,b:1,c:1"}))
    assert {cluster._bootstrap()[0] for _ in range(200)} == {Address("a", 1)}
    assert {str(cluster.hasty(2.0)._bootstrap()[0]) for _ in range(200)} == {"a:1", "b:1", "c:1"}
    assert len(cluster.hasty(2.0)._bootstrap()) == 3
