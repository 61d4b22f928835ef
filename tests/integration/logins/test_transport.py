"""The copy over TLS and SASL, and what people read when the connection cannot be made."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from typing import Any

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.errors import UsageError
from onceover.kafka.cluster import LiveCluster
from onceover.wiring.flows import open_clusters
from onceover_lab.embed.config import CLIENT_LISTENER
from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.ports import LOOPBACK, PortReservation
from onceover_lab.embed.security import Security, make_certificates
from tests.support.brokers.clusters import ClusterFactory
from tests.support.flows.flows import InlineFlow, write_flow
from tests.support.flows.replica import Replica
from tests.support.raw.adversary import Traffic
from tests.support.raw.rawkafka import Codec
from tests.support.session.serving import serving
from tests.support.session.wait import wait_until

_TIMEOUT_S = 30.0
# The shortest life with which librdkafka's own clients still renew their sessions in peace.
_SESSION_MS = 2000
_WRONG = "not-the-password-7f3a"

Pair = tuple[KafkaCluster, KafkaCluster]


@pytest.fixture(scope="module")
def secured(session_home: Path) -> Iterator[Pair]:
    """Two clusters with SASL_SSL and SCRAM, each with an authority, users and passwords of its own."""
    factory = ClusterFactory(session_home)
    listener = f"listener.name.{CLIENT_LISTENER.lower()}"

    def start(name: str) -> Callable[[], KafkaCluster]:
        authority = make_certificates(session_home / name / "tls").ca
        config = {
            "connections.max.reauth.ms": str(_SESSION_MS),
            # Clients without a certificate are welcome, and one of an unknown authority is not.
            f"{listener}.ssl.client.auth": "requested",
            f"{listener}.ssl.truststore.type": "PEM",
            f"{listener}.ssl.truststore.location": str(authority),
        }
        return lambda: factory(name, security=Security("SCRAM-SHA-512"), config=config)

    try:
        source, target = start_all([start("scram-source"), start("scram-target")])
        yield source, target
    finally:
        factory.close()


@pytest.fixture
def replica(secured: Pair, tmp_path: Path, unique_name: str) -> Iterator[Replica]:
    """A flow that knows only the secured listeners; the adversaries come through the brokers' own."""
    source, target = secured
    inside = (source.internal_bootstrap, target.internal_bootstrap)
    with Replica(tmp_path, unique_name, source.client, target.client, unsecured=inside) as replica:
        yield replica


def feed(replica: Replica, topic: str) -> None:
    """Write several kinds of batches."""
    for codec in Codec:
        replica.source.every_null_and_empty(topic, 0, codec)
        replica.source.idempotent(topic, 1, replica.source.records(20), codec)
    replica.source.interleaved(topic, 1)
    # Several TLS records each, so that answers arrive in pieces.
    replica.source.batch_of_size(topic, 0, 700_000, Codec.NONE)


def test_the_whole_copy_over_sasl_ssl_with_scram(
    replica: Replica, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fetch, produce, transactions, state, enrolment, status: everything through the secured listeners."""
    topic = replica.topic(partitions=2)
    feed(replica, topic)
    replica.copy()
    replica.assert_same()
    code, document = replica.command(capsys, "status", str(replica.flow.path))
    assert (code, document["flows"][0]["lag_offsets"]) == (0, 0)


def test_sessions_are_renewed_while_a_copy_runs(replica: Replica, caplog: pytest.LogCaptureFixture) -> None:
    """The broker closes a connection whose session has expired (KIP-368): renewed in time, nobody notices."""
    caplog.set_level(logging.INFO, logger="onceover")
    topic = replica.topic(partitions=2)
    # Made and enrolled before: a target topic without a leader yet makes a lane begin again, too.
    replica.copy()
    over_s = time.monotonic() + 3 * _SESSION_MS / 1000
    with (
        replica.running() as live,
        Traffic(replica.source.bootstrap, {topic: 2}, seed=11, pause_s=0.05) as traffic,
    ):
        wait_until(lambda: time.monotonic() > over_s, _TIMEOUT_S, "three sessions have passed")
    rest = replica.copy().records
    replica.assert_same()
    assert live.records + rest >= traffic.total > 0
    assert not [r.getMessage() for r in caplog.records if "begins again" in r.getMessage()]


@pytest.mark.soak
def test_plain_and_oauthbearer(start_cluster: ClusterFactory, tmp_path: Path, unique_name: str) -> None:
    """A source with PLAIN, a target with (unsecured) OAUTHBEARER tokens."""
    source, target = start_all(
        [
            lambda: start_cluster("plain", security=Security("PLAIN")),
            lambda: start_cluster("oauth", security=Security("OAUTHBEARER")),
        ]
    )
    inside = (source.internal_bootstrap, target.internal_bootstrap)
    with Replica(tmp_path, unique_name, source.client, target.client, unsecured=inside) as replica:
        feed(replica, replica.topic(partitions=2))
        replica.copy()
        replica.assert_same()


def refuse(pair: Pair, folder: Path, name: str, side: str, change: Mapping[str, str]) -> UsageError:
    """Start a flow whose client of one side is changed; return the error, which must hold no password."""
    clients: dict[str, dict[str, Any]] = {"source": dict(pair[0].client), "target": dict(pair[1].client)}
    clients[side].update(change)
    protocol = clients[side]["security.protocol"]
    # Keys that the protocol has no use for are a fault of the flow file.
    for prefix, used in (("sasl.", protocol.startswith("SASL_")), ("ssl.", protocol.endswith("SSL"))):
        if not used:
            clients[side] = {k: v for k, v in clients[side].items() if not k.startswith(prefix)}
    flow = InlineFlow(write_flow(folder, name, clients["source"], clients["target"], ["x"]))
    with pytest.raises(UsageError) as caught:
        flow.copy()
    text = f"{caught.value!r} {caught.value}"
    for client in (*clients.values(), pair[0].client):
        assert client.get("sasl.password", _WRONG) not in text
    assert caught.value.exit_code == 2
    assert caught.value.resolve
    return caught.value


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_wrong_password_is_named_and_not_shown(
    secured: Pair, tmp_path: Path, unique_name: str, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One clear error, no retries against a broker that will say no again."""
    error = refuse(secured, tmp_path, unique_name, side, {"sasl.password": _WRONG})
    assert "SCRAM-SHA-512" in error.message and "password" in str(error.resolve)
    assert _WRONG not in caplog.text


def test_a_certificate_of_an_unknown_authority_is_refused(
    secured: Pair, tmp_path: Path, unique_name: str
) -> None:
    """Before the password is sent to whoever is there."""
    stranger = make_certificates(tmp_path / "stranger").ca
    error = refuse(secured, tmp_path, unique_name, "source", {"ssl.ca.location": str(stranger)})
    assert "certificate" in error.message and "ssl.ca.location" in str(error.resolve)


def test_a_certificate_for_another_host_is_refused(secured: Pair, tmp_path: Path, unique_name: str) -> None:
    """The authority is right, the name is not."""
    _, _, port = secured[0].bootstrap.rpartition(":")
    error = refuse(secured, tmp_path, unique_name, "source", {"bootstrap.servers": f"127.1:{port}"})
    assert "certificate" in error.message and "mismatch" in error.message


@pytest.mark.parametrize(
    ("ours", "listener", "spoken"),
    [
        ("PLAINTEXT", "secured", "SSL or SASL_SSL"),
        ("SASL_PLAINTEXT", "secured", "SSL or SASL_SSL"),
        ("SSL", "secured", "SASL_SSL"),
        ("SSL", "plain", "PLAINTEXT"),
        ("SASL_SSL", "plain", "PLAINTEXT"),
    ],
)
def test_a_wrong_security_protocol_is_said_and_not_tried_again(
    secured: Pair, tmp_path: Path, unique_name: str, ours: str, listener: str, spoken: str
) -> None:
    """Both ways round, a broker only hangs up: what it speaks instead is asked of it."""
    address = secured[0].bootstrap if listener == "secured" else secured[0].internal_bootstrap
    change = {"security.protocol": ours, "bootstrap.servers": address}
    error = refuse(secured, tmp_path, unique_name, "source", change)
    assert (error.code, error.where, error.expected) == ("WRONG_PROTOCOL", address, spoken)
    assert ours in str(error.seen)


def test_sasl_where_the_listener_knows_none_is_said(secured: Pair, tmp_path: Path, unique_name: str) -> None:
    """The one mismatch that Kafka answers itself."""
    address = secured[0].internal_bootstrap
    change = {"security.protocol": "SASL_PLAINTEXT", "bootstrap.servers": address}
    assert "does without SASL" in refuse(secured, tmp_path, unique_name, "source", change).message


def test_a_client_certificate_that_the_broker_does_not_trust_is_refused(
    secured: Pair, tmp_path: Path, unique_name: str
) -> None:
    """The broker's alert comes after our side of the handshake is done (TLS 1.3)."""
    stranger = str(make_certificates(tmp_path / "stranger").keystore)
    change = {"ssl.certificate.location": stranger, "ssl.key.location": stranger}
    error = refuse(secured, tmp_path, unique_name, "source", change)
    assert error.code == "TLS_REFUSED" and "ssl.certificate.location" in str(error.resolve)


class WebServer(BaseRequestHandler):
    """Answers whatever comes as web servers answer what they do not understand."""

    def handle(self) -> None:
        self.request.recv(1024)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_an_address_of_something_else_is_said() -> None:
    """A web server's answer would read as a gigabyte to wait for."""
    with serving(TCPServer((LOOPBACK, 0), WebServer)) as port:
        client = ClientConfig("east", {"bootstrap.servers": f"{LOOPBACK}:{port}"})
        with LiveCluster(client) as cluster, pytest.raises(UsageError) as caught:
            cluster.cluster_id()
    assert caught.value.code == "NOT_KAFKA"


def test_an_address_where_nobody_listens_is_a_temporary_failure(
    secured: Pair,
    tmp_path: Path,
    unique_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 5 when the deadline has passed, naming cluster and address."""
    monkeypatch.setattr("onceover.kafka.cluster.DEFAULT_TIMEOUT_S", 1.0)
    nobody = PortReservation()
    address = f"{LOOPBACK}:{nobody.port}"
    client = {**secured[0].client, "bootstrap.servers": address}
    inside = (secured[0].internal_bootstrap, secured[1].internal_bootstrap)
    try:
        with Replica(tmp_path, unique_name, client, secured[1].client, unsecured=inside) as replica:
            code, document = replica.command(capsys, "status", str(replica.flow.path))
            source, target = open_clusters(replica.flow.watch.flow)
            source.close()
            target.close()
    finally:
        nobody.release()
    assert code == 5
    error = document["flows"][0]["source"]["error"]
    assert address in error["where"] and "east" in error["message"]
