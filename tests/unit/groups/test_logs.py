"""The logs that groups stand in: all are asked together, and nobody waits for what is only shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import pytest

from onceover.backoff import Backoff, Deadline
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.groups.logs import Logs, read_logs
from onceover.kafka import calls
from onceover.kafka.each import Each
from onceover.model import TopicPartition

PAIRS = {TopicPartition("orders", p): TopicPartition("east.orders", p) for p in range(100)}
AWAY = Retriable("nobody leads it")


class Brokers:
    """A cluster whose logs reach from 10 to 50.

    Attributes:
        away: what each partition's leader says instead; ``times``: how often, without end where it is None.
        asked: how many partitions each request has asked about.
    """

    def __init__(
        self, away: Mapping[TopicPartition, OnceoverError] | None = None, times: int | None = None
    ) -> None:
        self.away = dict(away or {})
        self.times = times
        self.asked: list[int] = []
        self.down: OnceoverError | None = None

    def each_offset(
        self, partitions: Collection[TopicPartition], at: int, isolation: int = calls.READ_COMMITTED
    ) -> Each[TopicPartition, int]:
        self.asked.append(len(partitions))
        if self.down is not None:
            raise self.down
        failed = {tp: self.away[tp] for tp in partitions if tp in self.away}
        if failed and self.times is not None:
            self.times -= 1
            if not self.times:
                self.away.clear()
        end = 10 if at == calls.EARLIEST else 50
        return Each({tp: end for tp in partitions if tp not in failed}, failed)

    def retry(self, attempt: Callable[[], None], deadline: Deadline) -> None:
        backoff = Backoff()
        while True:
            try:
                return attempt()
            except Retriable as error:
                backoff.pause(deadline, error)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceover.backoff.time.sleep", lambda _: None)


def logs(here: Brokers, there: Brokers) -> Logs:
    return read_logs(cast(Any, here), cast(Any, there), PAIRS)


def test_dead_leaders_of_the_giving_side_cost_the_lag_only_and_are_asked_once() -> None:
    """Five of six partitions have another leader; the sixth needs nothing of the source either."""
    dead = {tp: AWAY for tp in PAIRS if tp.partition % 6 == 0}
    here, there = Brokers(dead), Brokers()
    found = logs(here, there)
    assert found.giving_ends == {tp: 50 for tp in PAIRS if tp not in dead}
    assert (found.missing, found.not_asked, found.unread) == (len(dead), AWAY, {})
    assert found.starts == dict.fromkeys(PAIRS.values(), 10)
    assert found.ends == dict.fromkeys(PAIRS.values(), 50)
    assert (here.asked, there.asked) == ([100], [100, 100])


def test_a_giving_side_that_is_gone_takes_nothing_else() -> None:
    here, there = Brokers(), Brokers()
    here.down = AWAY
    found = logs(here, there)
    assert (found.giving_ends, found.missing, found.not_asked) == ({}, 100, AWAY)
    assert found.ends == dict.fromkeys(PAIRS.values(), 50)


def test_moving_leaders_of_the_receiving_side_are_asked_again_together() -> None:
    moving = {tp: AWAY for tp in PAIRS.values() if tp.partition < 30}
    there = Brokers(moving, times=3)
    found = logs(Brokers(), there)
    assert found.unread == {}
    assert there.asked == [100, 30, 30, 30, 100]


def test_what_stays_unread_there_takes_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceover.groups.logs._RETRY_S", 0.0)
    first, *others = PAIRS.values()
    found = logs(Brokers(), Brokers({first: AWAY}))
    assert found.unread == {first: AWAY}
    assert found.ends == dict.fromkeys(others, 50)


def test_a_missing_right_there_is_said() -> None:
    refused = UsageError("not authorized", code="NOT_AUTHORIZED")
    with pytest.raises(UsageError):
        logs(Brokers(), Brokers({next(iter(PAIRS.values())): refused}))
