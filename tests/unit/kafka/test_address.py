"""Addresses of a client's settings, or as a broker calls itself: nobody's, or several behind one name."""

from __future__ import annotations

import socket
import ssl
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse

from onceover.config.clients.resolve import ClientConfig
from onceover.errors import OnceoverError, Retriable, UsageError
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.link import connection as module
from onceover.kafka.link.channel import Address
from onceover.kafka.link.connection import CONNECT_TIMEOUT_S, Connection, ConnectionLost
from tests.unit.kafka.wiretap import ScriptedSocket, framed


@pytest.mark.parametrize(
    "address",
    [
        Address("kafka..example.com", 9092),
        Address(".kafka.example.com", 9092),
        Address("a" * 64, 9092),
        Address("127.0.0.1", 70_000),
        Address("127.0.0.1", -1),
    ],
)
def test_address_that_can_be_nobodys_is_a_fault_and_no_outage(address: Address) -> None:
    """Another try would not help, and Python's own error would end whoever asks."""
    with pytest.raises(UsageError, match="can be no address of a broker") as refusal:
        Connection(address, {})
    assert (refusal.value.code, refusal.value.where) == ("BAD_ADDRESS", str(address))


@pytest.mark.parametrize("problem", [socket.gaierror(-2, "Name or service not known"), TimeoutError()])
def test_name_that_is_not_known_now_may_be_later(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    """The near miss: a resolver that is away, or a pod that is not there yet."""

    def away(*_: Any, **__: Any) -> Any:
        raise problem

    monkeypatch.setattr(socket, "create_connection", away)
    with pytest.raises(ConnectionLost):
        Connection(Address("kafka.example.com", 9092), {})


NAME = "kafka.example"
EXPIRED = ssl.SSLCertVerificationError("it has expired")
EXPIRED.verify_message = "it has expired"
METADATA = MetadataResponse(
    version=12, throttle_time_ms=0, brokers=[], cluster_id="c", controller_id=1, topics=[], error_code=0
)


class Silent(ScriptedSocket):
    """A peer whose kernel takes the connection, and who is frozen."""

    def recv_into(self, into: memoryview) -> int:
        raise TimeoutError("no answer")


class Network:
    """Addresses behind one name, by what becomes of a connection to each; who is met, and for how long.

    A peer, or what connecting raises.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *hosts: str, servers: str = f"{NAME}:9092") -> None:
        self.hosts = hosts
        self.there: dict[str, ScriptedSocket | Exception] = {}
        self.met: list[str] = []
        self.waits_s: list[float] = []
        self.looked_up: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)
        monkeypatch.setattr(socket, "create_connection", self._connect)
        self.cluster = LiveCluster(ClientConfig("east", {"bootstrap.servers": servers}))

    def _resolve(self, host: str, *_: Any, **__: Any) -> list[Any]:
        self.looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in self._of(host)]

    def _of(self, name: str) -> tuple[str, ...]:
        return self.hosts if name == NAME else (name,)

    def _connect(self, at: Address, timeout: float) -> ScriptedSocket:
        self.met.append(at.host)
        self.waits_s.append(timeout)
        found = self.there.get(at.host) or answering()
        if isinstance(found, Exception):
            raise found
        return found


class Answering(ScriptedSocket):
    """A peer that answers, through TLS too."""

    def sendall(self, data: bytes) -> None:
        self.sendmsg([memoryview(data)])


def answering() -> ScriptedSocket:
    return Answering(lambda _key, _version, number: framed(number, b"\0" + bytes(METADATA.encode())))


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch, "10.0.0.1", "10.0.0.2", "10.0.0.3")


@pytest.mark.parametrize("problem", [Silent(lambda *_: b""), TimeoutError(), ConnectionRefusedError()])
def test_who_does_not_answer_behind_a_name_is_left_for_the_next(
    network: Network, problem: ScriptedSocket | Exception
) -> None:
    """Behind a headless service or DNS in turn there are brokers enough."""
    network.there["10.0.0.1"] = problem
    network.cluster.open()
    assert network.met == ["10.0.0.1", "10.0.0.2"]
    assert network.looked_up == [NAME]


@pytest.mark.parametrize("problem", [Silent(lambda *_: b""), TimeoutError()])
def test_who_was_silent_behind_a_name_is_met_last(
    network: Network, problem: ScriptedSocket | Exception
) -> None:
    """By the next connection, too, in whatever order the resolver names them."""
    network.there["10.0.0.1"] = problem
    network.cluster.open()
    network.met.clear()
    network.cluster.open()
    assert network.met == ["10.0.0.2"]
    network.there = {host: ConnectionRefusedError() for host in network.hosts}
    network.met.clear()
    with pytest.raises(Retriable):
        network.cluster.open()
    assert network.met == ["10.0.0.2", "10.0.0.3", "10.0.0.1"]


def test_a_certificate_that_has_expired_behind_a_name_keeps_nobody_out(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is held to the same name."""
    wrapped: list[str] = []

    def wrap(peer: ScriptedSocket, *, server_hostname: str) -> ScriptedSocket:
        wrapped.append(server_hostname)
        if network.met[-1] == "10.0.0.1":
            raise EXPIRED
        return peer

    monkeypatch.setattr(module, "tls_context", lambda _: SimpleNamespace(wrap_socket=wrap))
    network.cluster.open()
    assert (network.met, wrapped) == (["10.0.0.1", "10.0.0.2"], [NAME, NAME])
    network.hosts = ("10.0.0.1",)
    with pytest.raises(
        OnceoverError, match=r"the certificate of kafka\.example:9092 is not trusted: it has expired"
    ):
        network.cluster.open()


def test_addresses_that_nobody_has_any_more_are_waited_for_together(network: Network) -> None:
    """As long as a single one would be."""
    network.there = {host: TimeoutError() for host in network.hosts}
    with pytest.raises(Retriable):
        network.cluster.open()
    assert len(network.met) == 3 and sum(network.waits_s) <= CONNECT_TIMEOUT_S
    network.hosts, network.waits_s = ("10.0.0.1",), []
    with pytest.raises(Retriable):
        network.cluster.open()
    assert network.waits_s == [CONNECT_TIMEOUT_S]


def test_the_other_names_come_before_the_other_addresses_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen broker with two addresses is silent on both."""
    network = Network(monkeypatch, "10.0.0.1", "10.0.0.2", servers=f"{NAME}:9092,10.0.0.9:9092")
    network.there["10.0.0.1"] = Silent(lambda *_: b"")
    network.cluster.open()
    assert network.met == ["10.0.0.1", "10.0.0.9"]


@pytest.mark.parametrize(
    ("problem", "kind"),
    [(socket.gaierror(-2, "Name or service not known"), Retriable), (UnicodeError("label"), UsageError)],
)
def test_a_name_that_cannot_be_looked_up_is_what_it_was(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, kind: type[OnceoverError]
) -> None:
    """An outage, or a fault in the settings."""

    def away(*_: Any, **__: Any) -> Any:
        raise problem

    monkeypatch.setattr(socket, "getaddrinfo", away)
    config = ClientConfig("east", {"bootstrap.servers": f"{NAME}:9092"})
    with pytest.raises(kind):
        LiveCluster(config).open()


def test_a_name_that_cannot_be_looked_up_keeps_no_other_out(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is first."""

    def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
        if host == "gone.example":
            raise socket.gaierror(-2, "Name or service not known")
        return network._resolve(host)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    servers = {"bootstrap.servers": f"gone.example:9092,{NAME}:9092"}
    assert LiveCluster(ClientConfig("east", servers)).open().address == Address(NAME, 9092)
