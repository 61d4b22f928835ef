"""Kerberos logins, with a real KDC: what is done with them, and with a keytab that is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.errors import Retriable, UsageError
from onceover.kafka.admin.acls import Acl, AclAdmin
from onceover.kafka.cluster import LiveCluster
from onceover_lab.embed.config import CLIENT_LISTENER
from onceover_lab.embed.connect import ConnectCluster
from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.ports import LOOPBACK
from onceover_lab.embed.security import Security
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.brokers.guarded import Pair
from tests.support.brokers.kdc import REALM, Kdc, running_kdc
from tests.support.brokers.rotating import goes_on_after
from tests.support.connect.connect import EXACTLY_ONCE, counting_plugin
from tests.support.connect.connect_tool import Case
from tests.support.flows.flows import assert_same
from tests.support.flows.grants import grant, source_rights, target_rights
from tests.support.flows.replica import Replica
from tests.support.session.wait import wait_until

pytestmark = pytest.mark.soak

_SERVICE = f"kafka/{LOOPBACK}@{REALM}"
_LISTENER = f"listener.name.{CLIENT_LISTENER.lower()}"


@pytest.fixture(scope="module")
def kdc(session_home: Path) -> Iterator[Kdc]:
    with running_kdc(session_home / "kdc") as found:
        yield found


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    """The keys of all brokers: they are one host."""
    return kdc.add(_SERVICE, "broker.keytab")


Start = Callable[..., KafkaCluster]


@pytest.fixture(scope="module")
def start(session_home: Path, kdc: Kdc, keytab: Path) -> Iterator[Start]:
    """Start a cluster whose listener takes tickets."""
    login = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    factory = ClusterFactory(session_home)
    flags = [f"-Djava.security.krb5.conf={kdc.broker_config}"]

    def begin(name: str, security: Security, **more: str) -> KafkaCluster:
        config = {
            # Whoever grants rights comes with a password.
            "sasl.enabled.mechanisms": "GSSAPI,PLAIN",
            f"{_LISTENER}.sasl.enabled.mechanisms": "GSSAPI,PLAIN",
            f"{_LISTENER}.gssapi.sasl.jaas.config": f'{login} keyTab="{keytab}" principal="{_SERVICE}";',
            f"{_LISTENER}.sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.service.name": "kafka",
            **more,
        }
        return factory(name, security=security, config=config, java_flags=flags)

    try:
        yield begin
    finally:
        factory.close()


@pytest.fixture(scope="module")
def cluster(start: Start) -> KafkaCluster:
    """One whose sessions end soon."""
    return start("kerberos", Security("PLAIN"), **{"connections.max.reauth.ms": "2000"})


@pytest.fixture(scope="module")
def guarded(start: Start) -> Pair:
    """Two clusters on which the flow's user may do nothing that was not granted."""

    def begin(name: str) -> Callable[[], KafkaCluster]:
        return lambda: start(name, Security("PLAIN", authorizer=True))

    source, target = start_all([begin("kerberos-source"), begin("kerberos-target")])
    return source, target


def with_tickets(cluster: KafkaCluster) -> dict[str, str]:
    """Return our keys, but for who it is."""
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.ca_path),
        "sasl.mechanism": "GSSAPI",
    }


@pytest.fixture
def client(cluster: KafkaCluster, kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Our keys; the machine's own Kerberos is left alone."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.client_config))
    return with_tickets(cluster)


@pytest.fixture(scope="module")
def user(kdc: Kdc) -> dict[str, str]:
    """The ordinary user of the guarded clusters, by another way."""
    me = f"{Security('PLAIN').username}@{REALM}"
    return {
        "sasl.kerberos.principal": me,
        "sasl.kerberos.keytab": str(kdc.add(me, "user.keytab")),
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


def test_acls_are_followed(
    guarded: Pair,
    user: dict[str, str],
    kdc: Kdc,
    tmp_path: Path,
    unique_name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read here and changed there with tickets, and with the rights of docs/operations.md."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.client_config))
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "home"))
    inside = [side.internal_bootstrap for side in guarded]
    clients = [{**with_tickets(side), **user} for side in guarded]
    with (
        Replica(tmp_path, unique_name, *clients, unsecured=(inside[0], inside[1])) as replica,
        LiveCluster(ClientConfig("source", {"bootstrap.servers": inside[0]})) as source,
        LiveCluster(ClientConfig("target", {"bootstrap.servers": inside[1]})) as target,
    ):
        replica.configure(topics={"sync_acls": True})
        grant(guarded[0], source_rights(replica.name))
        grant(guarded[1], target_rights(replica.name))
        topic = replica.topic()
        here, there = AclAdmin(source), AclAdmin(target)
        reads = Acl("LITERAL", topic, "User:ann", "*", "READ", "ALLOW")
        here.create([reads])
        wait_until(lambda: reads in here.topic_acls(), 30.0, "the source has it")

        def follow() -> frozenset[Acl]:
            code, document = replica.command(capsys, "topics", "apply", str(replica.flow.path))
            assert code == 0, document
            return there.topic_acls()

        assert reads in follow()
        here.delete([reads])
        wait_until(lambda: reads not in here.topic_acls(), 30.0, "the source has it no more")
        assert reads not in follow()


@pytest.mark.parametrize("kind", ["exactly_once", "plain"])
def test_a_connector_is_moved(
    guarded: Pair,
    user: dict[str, str],
    kdc: Kdc,
    session_home: Path,
    tmp_path: Path,
    unique_name: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """Its offsets are read, written in a transaction and without, and the run is written down."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.client_config))
    kafka = guarded[1]
    home = session_home / f"kerberos-workers-{kind}"
    plugin = counting_plugin()
    properties = EXACTLY_ONCE if kind == "exactly_once" else {}
    keys = {"kafka": {"client": {**with_tickets(kafka), **user}}}
    internal = {"bootstrap.servers": kafka.internal_bootstrap}
    with (
        ConnectCluster.start(
            home, kafka.internal_bootstrap, f"kerberos-{kind}", properties=properties, plugins=[plugin]
        ) as workers,
        Case(tmp_path, unique_name, workers, internal, keys=keys) as case,
    ):
        case.begin()
        grant(kafka, case.tool.rights(case.name))
        case.migrate()
        case.assert_goes_on()
        assert case.tool.downgrade(case.name).outcome(case.name) == "done"
        case.assert_goes_on()
        case.assert_never_back()


def test_what_a_kdc_says_and_that_there_is_none(
    kdc: Kdc, client: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown service is for a person, a KDC that is away passes."""
    keytab = kdc.add(f"other@{REALM}", "other.keytab")
    mine = {**client, "sasl.kerberos.principal": f"other@{REALM}", "sasl.kerberos.keytab": str(keytab)}
    with LiveCluster(ClientConfig("east", mine)) as found:
        assert found.cluster_id()
    with (
        LiveCluster(ClientConfig("east", {**mine, "sasl.kerberos.service.name": "nobody"})) as found,
        pytest.raises(UsageError, match="no Kerberos ticket"),
    ):
        found.cluster_id()
    nowhere = tmp_path / "krb5.conf"
    text = kdc.client_config.read_text()
    nowhere.write_text(text.replace(text.partition("  kdc = ")[2].split()[0], f"{LOOPBACK}:9"))
    monkeypatch.setenv("KRB5_CONFIG", str(nowhere))
    with LiveCluster(ClientConfig("east", mine)) as found, pytest.raises(Retriable, match="no KDC"):
        found.cluster_id()
