"""The logs that groups stand in: all are asked together, and nobody waits for what is only shown."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.groups.logs import Logs, read_logs
from onceover.model import TopicPartition
from tests.support.fakes.fakecluster import FakeCluster

PAIRS = {TopicPartition("orders", p): TopicPartition("east.orders", p) for p in range(100)}
AWAY = Retriable("nobody leads it")


def brokers(
    away: Mapping[TopicPartition, OnceoverError] | None = None, times: int | None = None
) -> FakeCluster:
    """Return a cluster whose logs reach from 10 to 50.

    Args:
        away: what each partition's leader says instead.
        times: how often; without end where it is None.
    """
    made = FakeCluster()
    made.tries = 5
    for topic in ("orders", "east.orders"):
        for log in made.add_topic(topic, UUID(int=1), [50] * len(PAIRS)).logs:
            log.start = 10
    made.away.update(away or {})

    def heard(*_: str) -> None:
        if times is not None and made.log.count("ListOffsets") > times:
            made.away.clear()

    made.heard = heard
    return made


def asked(cluster: FakeCluster) -> int:
    """Return how often it was asked where logs end, or begin."""
    return cluster.log.count("ListOffsets")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceover.backoff.time.sleep", lambda _: None)


def logs(here: FakeCluster, there: FakeCluster) -> Logs:
    return read_logs(here, there, PAIRS)


def test_dead_leaders_of_the_giving_side_cost_the_lag_only_and_are_asked_once() -> None:
    """Five of six partitions have another leader; the sixth needs nothing of the source either."""
    dead = {tp: AWAY for tp in PAIRS if tp.partition % 6 == 0}
    here, there = brokers(dead), brokers()
    found = logs(here, there)
    assert found.giving_ends == {tp: 50 for tp in PAIRS if tp not in dead}
    assert (found.missing, found.not_asked, found.unread) == (len(dead), AWAY, {})
    assert found.starts == dict.fromkeys(PAIRS.values(), 10)
    assert found.ends == dict.fromkeys(PAIRS.values(), 50)
    assert (asked(here), asked(there)) == (1, 2)


def test_a_giving_side_that_is_gone_takes_nothing_else() -> None:
    here, there = brokers(), brokers()

    def gone(*_: str) -> None:
        raise AWAY

    here.heard = gone
    found = logs(here, there)
    assert (found.giving_ends, found.missing, found.not_asked) == ({}, 100, AWAY)
    assert found.ends == dict.fromkeys(PAIRS.values(), 50)


def test_moving_leaders_of_the_receiving_side_are_asked_again_together() -> None:
    moving = {tp: AWAY for tp in PAIRS.values() if tp.partition < 30}
    there = brokers(moving, times=3)
    found = logs(brokers(), there)
    assert found.unread == {}
    assert asked(there) == 5


def test_what_stays_unread_there_takes_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceover.groups.logs._RETRY_S", 0.0)
    first, *others = PAIRS.values()
    found = logs(brokers(), brokers({first: AWAY}))
    assert found.unread == {first: AWAY}
    assert found.ends == dict.fromkeys(others, 50)


def test_a_missing_right_there_is_said() -> None:
    refused = UsageError("not authorized", code="NOT_AUTHORIZED")
    with pytest.raises(UsageError):
        logs(brokers(), brokers({next(iter(PAIRS.values())): refused}))
