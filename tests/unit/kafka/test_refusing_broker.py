"""TLS or SASL refuses us: at one broker of several it is that broker's trouble, at all of them ours."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.copy.known import Knowledge
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka import calls
from onceover.kafka import cluster as module
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.each import Each
from onceover.kafka.link.channel import Address
from onceover.kafka.link.connection import ConnectionLost
from onceover.kafka.link.login import REPLACED_WITHIN_S, Login
from onceover.kafka.ports import PartitionInfo, TopicInfo
from onceover.model import TopicPartition
from onceover.stops.aside import SILENT, TroubleSide, policy_of


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


REFUSED = UsageError("the certificate is not trusted: it has expired", resolve="renew it")
TOPIC = TopicInfo("t", UUID(int=1), {n: PartitionInfo(n, 0) for n in (1, 2, 3)}, is_internal=False)


class Brokers:
    """Brokers 1 to 3 at ports of the same number, which know each other.

    Args:
        wrong: what some of them do instead of answering, by number.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...], clock: Clock) -> None:
        self.wrong: dict[int, OnceoverError] = {}
        self.tried: list[int] = []
        nodes = [SimpleNamespace(node_id=n, host="b", port=n) for n in numbers]
        answer = SimpleNamespace(cluster_id="c", brokers=nodes, topics=[])
        monkeypatch.setattr(module, "Connection", self._connection)
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        monkeypatch.setattr(calls, "metadata", lambda *_: answer)
        servers = ",".join(f"b:{n}" for n in numbers)
        self.cluster = LiveCluster(ClientConfig("east", {"bootstrap.servers": servers}, Login(clock=clock)))

    def _connection(self, address: Address, *_: object) -> Any:
        self.tried.append(address.port)
        if address.port in self.wrong:
            raise self.wrong[address.port]
        return SimpleNamespace(address=address, usable=True, close=lambda: None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Brokers:
    return Brokers(monkeypatch, (1, 2, 3), clock)


def test_one_broker_that_refuses_us_takes_nothing_from_the_others(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions are in trouble like those of one that is silent, which has an end, and says why."""
    brokers.wrong[2] = REFUSED
    monkeypatch.setattr(LiveCluster, "each_topic", lambda *_: Each({"t": TOPIC}))
    monkeypatch.setattr(calls, "list_offsets", lambda _, tps, *__: {tp: (0, 5, 0) for tp in tps})
    tps = {n: TopicPartition("t", n) for n in (1, 2, 3)}
    each = brokers.cluster.each_offset(tps.values(), calls.LATEST)
    assert each.found == {tps[1]: 5, tps[3]: 5} and set(each.failed) == {tps[2]}
    problem = each.failed[tps[2]]
    assert policy_of(TroubleSide.SOURCE, problem) is SILENT
    assert (problem.resolve, REFUSED.message in problem.message) == ("renew it", True)


def test_any_broker_that_takes_us_will_do_and_is_asked_first_from_then_on(brokers: Brokers) -> None:
    """Only who is asked by name is missed."""
    brokers.wrong[1] = REFUSED
    assert brokers.cluster.open().address.port == 2
    assert brokers.tried == [1, 2]
    brokers.cluster.open()
    assert brokers.tried[2] != 1


def test_first_contact_that_nobody_grants_is_for_whoever_wrote_the_configuration(brokers: Brokers) -> None:
    """Also where some are away: asked again, the others would say the same."""
    brokers.wrong = {1: REFUSED, 2: ConnectionLost("refused"), 3: REFUSED}
    with pytest.raises(UsageError, match="expired"):
        brokers.cluster.open()


def test_all_that_refuse_us_end_the_run_and_some_while_others_are_away_do_not(
    brokers: Brokers, clock: Clock
) -> None:
    """Long after the first contact: the password was changed, for good; or one of several restarts badly."""
    brokers.cluster.open()
    brokers.wrong = {1: ConnectionLost("refused"), 2: REFUSED, 3: ConnectionLost("refused")}
    with pytest.raises(Retriable, match="refuses us"):
        brokers.cluster.open()
    brokers.wrong = dict.fromkeys((1, 2, 3), REFUSED)
    assert refused(brokers) is Retriable
    clock.now_s += REPLACED_WITHIN_S
    assert refused(brokers) is UsageError


def test_a_single_broker_is_the_cluster(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Reached by another name than the one it calls itself."""
    brokers = Brokers(monkeypatch, (1,), clock)
    brokers.cluster.open()
    brokers.wrong[1] = REFUSED
    assert refused(brokers, 1) is Retriable
    clock.now_s += REPLACED_WITHIN_S
    assert refused(brokers, 1) is UsageError


def test_login_that_is_replaced_in_time_ends_nothing_and_the_next_one_has_as_long(
    brokers: Brokers, clock: Clock
) -> None:
    """The brokers have the new password already, our file not yet."""
    brokers.cluster.open()
    for _ in range(3):
        brokers.wrong = dict.fromkeys((1, 2, 3), REFUSED)
        assert refused(brokers) is Retriable
        clock.now_s += REPLACED_WITHIN_S - 1
        with pytest.raises(Retriable, match="did not before") as caught:
            brokers.cluster.open()
        assert "client_file" in str(caught.value.resolve)
        brokers.wrong = {}
        brokers.cluster.open()


def test_what_a_lane_was_refused_for_counts_on_in_its_next_task() -> None:
    """Its clusters are new ones: that the run was let in is known, and since when it is not, too."""
    knowledge = Knowledge()
    logins = knowledge.of("f", "run", 0).logins
    assert all(login.refused() for login in logins)
    assert knowledge.of("f", "run", 0).logins is logins
    clock = Clock()
    first = Login(worked=True, clock=clock)
    assert first.refused()
    clock.now_s = REPLACED_WITHIN_S
    assert not Login(clock=clock).carrying_on(first).refused()


def refused(brokers: Brokers, node: int | None = None) -> type[OnceoverError]:
    with pytest.raises(OnceoverError, match="expired") as caught:
        brokers.cluster.open(node)
    return caught.type
