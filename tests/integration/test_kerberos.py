"""Kerberos logins, with a real KDC: what a flow does with them, and with a keytab that is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover.config.clients import ClientConfig
from onceover.embed.config import CLIENT_LISTENER
from onceover.embed.kafka import KafkaCluster
from onceover.embed.ports import LOOPBACK
from onceover.embed.security import Security
from onceover.errors import Retriable, UsageError
from onceover.kafka.cluster import Cluster
from tests.support.clusters import ClusterFactory, SharedCluster
from tests.support.flows import assert_same
from tests.support.kdc import REALM, Kdc, running_kdc
from tests.support.replica import Replica
from tests.support.rotating import goes_on_after

pytestmark = pytest.mark.soak

_LISTENER = f"listener.name.{CLIENT_LISTENER.lower()}"


@pytest.fixture(scope="module")
def kdc(session_home: Path) -> Iterator[Kdc]:
    with running_kdc(session_home / "kdc") as found:
        yield found


@pytest.fixture(scope="module")
def cluster(session_home: Path, kdc: Kdc) -> Iterator[KafkaCluster]:
    """A cluster whose listener takes tickets; sessions end soon."""
    service = f"kafka/{LOOPBACK}@{REALM}"
    keytab = kdc.add(service, "broker.keytab")
    login = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    config = {
        "connections.max.reauth.ms": "2000",
        "sasl.enabled.mechanisms": "GSSAPI",
        f"{_LISTENER}.sasl.enabled.mechanisms": "GSSAPI",
        f"{_LISTENER}.gssapi.sasl.jaas.config": f'{login} keyTab="{keytab}" principal="{service}";',
        f"{_LISTENER}.sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.service.name": "kafka",
    }
    factory = ClusterFactory(session_home)
    flags = [f"-Djava.security.krb5.conf={kdc.broker_config}"]
    try:
        yield factory("kerberos", security=Security("PLAIN"), config=config, java_flags=flags)
    finally:
        factory.close()


@pytest.fixture
def client(cluster: KafkaCluster, kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Our keys; the machine's own Kerberos is left alone."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.client_config))
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.ca_path),
        "sasl.mechanism": "GSSAPI",
    }


def replace_file(new: Path, old: Path) -> None:
    new.replace(old)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_flow_with_kerberos_bears_a_keytab_that_is_replaced(
    cluster: KafkaCluster,
    source_cluster: SharedCluster,
    kdc: Kdc,
    client: dict[str, str],
    tmp_path: Path,
    unique_name: str,
    caplog: pytest.LogCaptureFixture,
    side: str,
) -> None:
    """Topics are created, records, notes and positions written: all with tickets."""
    me = f"{side}@{REALM}"
    ours, renewed = kdc.add(me, f"{side}.keytab"), kdc.home / f"{side}-next.keytab"
    login = {"sasl.kerberos.principal": me, "sasl.kerberos.keytab": str(ours)}
    mine, other = {**client, **login}, source_cluster.client
    inside = {"bootstrap.servers": cluster.internal_bootstrap}
    sides = (mine, other) if side == "source" else (other, mine)
    plain = (inside, other) if side == "source" else (other, inside)
    servers = (plain[0]["bootstrap.servers"], plain[1]["bootstrap.servers"])
    with Replica(tmp_path, unique_name, *sides, unsecured=servers) as replica:
        goes_on_after(
            replica,
            caplog,
            "east" if side == "source" else "west",
            lambda: kdc.renew(me, renewed),
            lambda: replace_file(renewed, ours),
        )
        assert_same(*plain, [f"{unique_name}.a"])


def test_what_a_kdc_says_and_that_there_is_none(
    kdc: Kdc, client: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown service is for a person, a KDC that is away passes."""
    keytab = kdc.add(f"other@{REALM}", "other.keytab")
    mine = {**client, "sasl.kerberos.principal": f"other@{REALM}", "sasl.kerberos.keytab": str(keytab)}
    with Cluster(ClientConfig("east", mine)) as found:
        assert found.cluster_id()
    with (
        Cluster(ClientConfig("east", {**mine, "sasl.kerberos.service.name": "nobody"})) as found,
        pytest.raises(UsageError, match="no Kerberos ticket"),
    ):
        found.cluster_id()
    nowhere = tmp_path / "krb5.conf"
    text = kdc.client_config.read_text()
    nowhere.write_text(text.replace(text.partition("  kdc = ")[2].split()[0], f"{LOOPBACK}:9"))
    monkeypatch.setenv("KRB5_CONFIG", str(nowhere))
    with Cluster(ClientConfig("east", mine)) as found, pytest.raises(Retriable, match="no KDC"):
        found.cluster_id()
