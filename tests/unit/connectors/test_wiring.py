"""From a Connect file to what the use cases take: nothing is connected, and nothing is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from onceover.config.connect.connectfile import load_connect
from onceover.connectors.settings import ConnectSettings
from onceover.errors import UsageError
from onceover.wiring.connectors import connect_settings

SECRET = "hunter2-planted"
OURS = "127.0.0.1:1"
Settings = Callable[..., ConnectSettings]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Resolve a Connect file with more keys."""

    def resolve(**keys: object) -> ConnectSettings:
        document = {
            "connect": "flights",
            "rest": ["https://w:1", "https://w:2"],
            "rest_auth": {"username": "u", "password": "${REST_PASSWORD}"},
            "rest_ca": "ca.pem",
            "worker": {
                "group.id": " connect ",
                "offset.storage.topic": "connect-offsets",
                "config.storage.topic": "connect-configs",
                "exactly.once.source.support": "Enabled",
            },
            "kafka": {"client": {"bootstrap.servers": OURS}},
            **keys,
        }
        path = tmp_path / "flights.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))
        return connect_settings(load_connect(path))

    monkeypatch.setenv("REST_PASSWORD", SECRET)
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path / "var"))
    return resolve


def test_everything_that_the_file_says_arrives(settings: Settings, tmp_path: Path) -> None:
    """Addresses, login, certificates, the workers' keys in one spelling, and where files are kept."""
    found = settings()
    assert found.rest.urls == ("https://w:1", "https://w:2")
    assert (found.rest.username, found.rest.password) == ("u", SECRET)
    assert found.rest.ca_file == tmp_path / "ca.pem"
    assert found.worker["group.id"] == "connect"
    assert found.worker["exactly.once.source.support"] == "enabled"
    assert found.home == tmp_path / "var" / "connect" / "flights"
    assert found.clients.worker().alias == "flights"
    assert SECRET not in repr(found)


def test_a_file_without_a_login_has_none(settings: Settings) -> None:
    """Workers that ask nobody are asked without."""
    found = settings(rest_auth=None, rest_ca=None).rest
    assert (found.username, found.password, found.ca_file) == (None, None, None)


def test_a_connectors_own_clients_are_those_of_the_workers_with_its_overrides(
    settings: Settings, tmp_path: Path
) -> None:
    """With what they log in as; why not, where that cannot be read here. No secret is shown."""
    path = tmp_path / "worker.properties"
    path.write_text(
        f"group.id=connect\noffset.storage.topic=o\nconfig.storage.topic=c\nbootstrap.servers={OURS}\n"
    )
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'{module} required username="u" password="{SECRET}";'
    config = {
        "name": "a",
        "producer.override.security.protocol": "SASL_PLAINTEXT",
        "producer.override.sasl.mechanism": "PLAIN",
        "producer.override.sasl.jaas.config": login,
        "admin.override.security.protocol": "SSL",
        "admin.override.ssl.keystore.location": "/etc/a.jks",
    }
    producer, consumer, admin = settings(worker=None, worker_config=str(path)).clients.roles(config)
    assert (producer.role, producer.principal) == ("producer", "User:u")
    assert producer.settings is not None and producer.settings.properties["sasl.password"] == SECRET
    assert (consumer.principal, consumer.settings is None) == ("User:ANONYMOUS", False)
    assert (admin.principal, admin.settings) == (None, None)
    assert "ssl.keystore.location" in admin.reason
    assert SECRET not in repr([producer, consumer, admin])
    assert {each.reason != "" for each in settings().clients.roles({"name": "a"})} == {True}


def test_a_connector_is_where_its_overrides_say(settings: Settings) -> None:
    """None is the workers' own cluster, which then has one client and one connection."""
    clients = settings().clients
    other = {f"{role}.override.bootstrap.servers": "other:9" for role in ("producer", "consumer", "admin")}
    assert clients.connector({"name": "a"}) is None
    assert clients.connector({"name": "a", "producer.override.linger.ms": "5"}) is None
    elsewhere = clients.connector({"name": "a", **other})
    assert elsewhere is not None
    assert elsewhere.properties["bootstrap.servers"] == "other:9"
    with pytest.raises(UsageError, match="name different Kafka servers"):
        clients.connector({"name": "a", "producer.override.bootstrap.servers": "other:9"})
