"""Passwords and certificates that are replaced while a flow runs: it goes on, and nothing is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from onceover.embed.config import CLIENT_LISTENER
from onceover.embed.kafka import KafkaCluster
from onceover.embed.probe import create_scram_users
from onceover.embed.security import Security, make_certificates, write_private
from tests.support.clusters import ClusterFactory, SharedCluster
from tests.support.flows import assert_same
from tests.support.replica import Replica
from tests.support.wait import wait_until

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


def replace(replica: Replica, side: str, client: Mapping[str, str]) -> None:
    """Write the file anew that the flow reads for this side."""
    path = replica.flow.path.with_name(f"{replica.name}-{side}.yaml")
    write_private(path, yaml.safe_dump(dict(client)).encode())


def goes_on_after(
    replica: Replica,
    caplog: pytest.LogCaptureFixture,
    alias: str,
    change: Callable[[], None],
    mend: Callable[[], None],
) -> None:
    """Let a live flow's login be refused, then mend it: the same run copies what was written meanwhile."""
    caplog.set_level(logging.INFO, logger="onceover")
    topic = replica.topic()
    replica.copy()
    written = 0

    def write() -> None:
        nonlocal written
        replica.source.idempotent(topic, 0, replica.source.records(20))
        written += 20

    def await_copied() -> None:
        def copied() -> bool:
            batches = replica.target.batches(topic, 0)
            return sum(b.record_count for b in batches if not b.is_control) == written or not live.alive

        wait_until(copied, _TIMEOUT_S, "the flow goes on")
        assert live.alive

    with replica.running() as live:
        write()
        await_copied()
        change()
        words = f"{alias} refuses us, and did not before"
        wait_until(lambda: words in caplog.text or not live.alive, _TIMEOUT_S, words)
        write()
        mend()
        await_copied()
    for word in (_FIRST, _NEXT):
        assert word not in caplog.text


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
