"""Passwords and certificates that are replaced while a flow runs: it goes on, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from onceover_lab.embed.config import CLIENT_LISTENER
from onceover_lab.embed.kafka import KafkaCluster
from onceover_lab.embed.probe import create_scram_users
from onceover_lab.embed.security import Security, make_certificates, write_private
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.brokers.rotating import goes_on_after, replace
from tests.support.flows.flows import assert_same
from tests.support.flows.replica import Replica

_TIMEOUT_S = 60.0
_MECHANISM: Final = "SCRAM-SHA-512"
_LISTENER = f"listener.name.{CLIENT_LISTENER.lower()}"
_FIRST, _NEXT = "first-3b1e", "next-77ac"


@pytest.fixture(scope="module")
def secured(session_home: Path) -> Iterator[KafkaCluster]:
    """A cluster with SASL_SSL and SCRAM whose sessions end soon: connections are made anew all the time."""
    factory = ClusterFactory(session_home)
    authority = make_certificates(session_home / "rotated" / "tls").ca
    config = {
        # The shortest life with which librdkafka's own clients still renew their sessions in peace.
        "connections.max.reauth.ms": "2000",
        f"{_LISTENER}.ssl.client.auth": "requested",
        f"{_LISTENER}.ssl.truststore.type": "PEM",
        f"{_LISTENER}.ssl.truststore.location": str(authority),
    }
    try:
        yield factory("rotated", security=Security(_MECHANISM), config=config)
    finally:
        factory.close()


@pytest.mark.soak
@pytest.mark.parametrize("side", ["source", "target"])
def test_password_that_is_replaced_first_on_the_brokers_and_then_in_our_file(
    secured: KafkaCluster,
    source_cluster: SharedCluster,
    tmp_path: Path,
    unique_name: str,
    caplog: pytest.LogCaptureFixture,
    side: str,
) -> None:
    """The old one is not valid any more; the run goes on with the new one, by itself."""
    login = {"sasl.username": unique_name, "sasl.password": _FIRST}
    ours, other = {**secured.client, **login}, source_cluster.client
    sides = (ours, other) if side == "source" else (other, ours)
    inside = [secured.internal_bootstrap, source_cluster.bootstrap]
    create_scram_users(secured.internal_bootstrap, _MECHANISM, {unique_name: _FIRST})
    adversaries = (inside[0], inside[1]) if side == "source" else (inside[1], inside[0])
    with Replica(tmp_path, unique_name, *sides, unsecured=adversaries) as replica:
        goes_on_after(
            replica,
            caplog,
            "east" if side == "source" else "west",
            lambda: create_scram_users(secured.internal_bootstrap, _MECHANISM, {unique_name: _NEXT}),
            lambda: replace(replica, side, {**ours, "sasl.password": _NEXT}),
            secrets=(_FIRST, _NEXT),
        )
        topic = f"{unique_name}.a"
        admins = (secured.client, other) if side == "source" else (other, secured.client)
        assert_same(*admins, [topic])


def alter_broker(cluster: KafkaCluster, values: Mapping[str, str]) -> None:
    """Change the configuration of the only broker while it runs."""
    entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in values.items()]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": cluster.internal_bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)


@pytest.mark.soak
def test_authority_and_client_certificate_are_replaced(
    secured: KafkaCluster,
    target_cluster: SharedCluster,
    tmp_path: Path,
    unique_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker shows, and wants, certificates of another authority: our files change, not their names."""
    after = make_certificates(secured.home / "tls-next")
    trusted, mine = tmp_path / "ca.pem", tmp_path / "client.pem"
    trusted.write_bytes(secured.ca_path.read_bytes())
    mine.write_bytes((secured.home / "tls" / "server.pem").read_bytes())
    files = {"ssl.ca.location": trusted, "ssl.certificate.location": mine, "ssl.key.location": mine}
    client = {**secured.client, **{key: str(path) for key, path in files.items()}}
    inside = (secured.internal_bootstrap, target_cluster.bootstrap)

    def change() -> None:
        alter_broker(
            secured,
            {
                f"{_LISTENER}.ssl.keystore.location": str(after.keystore),
                f"{_LISTENER}.ssl.truststore.location": str(after.ca),
            },
        )
        # For the tests that follow.
        write_private(secured.ca_path, after.ca.read_bytes())

    def mend() -> None:
        write_private(trusted, after.ca.read_bytes())
        write_private(mine, after.keystore.read_bytes())

    with Replica(tmp_path, unique_name, client, target_cluster.client, unsecured=inside) as replica:
        goes_on_after(replica, caplog, "east", change, mend)
        replica.assert_same()
