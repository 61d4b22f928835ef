"""One Airflow for all system tests, with the project's own DAGs and flows between real clusters."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from onceover.embed.airflow import AirflowStandalone
from onceover.embed.kafka import KafkaCluster
from onceover.embed.security import Security
from tests.support.clusters import SharedCluster
from tests.support.wait import wait_until

PROJECT = Path(__file__).parents[2]
PARTITIONS = 3
# The password of a real cluster: the run cannot succeed without it, so it is really handed over.
PLANTED = "planted-4d1f0c9ab2e75836"
CONNECTION_ID = "kafka_secured"
LOST_CLIENT = "lost-client.yaml"
_ADMIN_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Side:
    """One cluster of a test flow, as a client sees it."""

    client: Mapping[str, str]

    def create(self, topic: str) -> None:
        """Create a topic."""
        admin = AdminClient(dict(self.client))
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(_ADMIN_TIMEOUT_S)
        wait_until(lambda: topic in admin.list_topics(timeout=10).topics, 20, f"topic {topic}")

    def feed(self, topic: str, records: int, *, size_bytes: int = 100) -> None:
        """Write ``records`` records, spread over the partitions."""
        producer = Producer({**self.client, "compression.type": "lz4", "linger.ms": 20})
        # Not compressible, so that a bandwidth limit means what it says.
        values = [os.urandom(size_bytes) for _ in range(100)]
        for number in range(records):
            key = f"key-{number}".encode()
            producer.produce(topic, values[number % len(values)], key, partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(_ADMIN_TIMEOUT_S) == 0


@pytest.fixture(scope="session")
def secured_cluster(session_home: Path) -> Iterator[KafkaCluster]:
    """A cluster that wants a password (SASL_SSL, SCRAM)."""
    security = Security("SCRAM-SHA-512", password=PLANTED)
    cluster = KafkaCluster.start(session_home, "secured", security=security)
    try:
        yield cluster
    finally:
        cluster.close(remove=True)


@pytest.fixture(scope="session")
def flows(session_home: Path, target_cluster: SharedCluster) -> Path:
    """The flow files of the system tests. Airflow offers them because they are there."""
    folder = session_home / "flows"
    folder.mkdir()
    source = {"alias": "secured", "connection": CONNECTION_ID}
    target = {"alias": "target", "client": {"bootstrap.servers": target_cluster.bootstrap}}
    # Slow and in small transactions, so that a test can look at the running driver and kill it midway.
    slow = {"limits": {"bytes_per_second": "150KiB"}, "transaction": {"max_bytes": "64KiB"}}
    documents: dict[str, dict[str, object]] = {
        "sys-topics": {"source": source, "target": target},
        "sys-groups": {"source": source, "target": target},
        "sys-flights": {"source": source, "target": target, **slow},
        "sys-broken": {"source": source, "tarket": target},
        # In both directions at once, and one whose password is wrong: its client file comes with the test.
        "sys-one": {"source": source, "target": target},
        "sys-two": {"source": source, "target": target, "delivery": "at_least_once"},
        "sys-back": {"source": target, "target": source},
        "sys-lost": {"source": {"alias": "secured", "client_file": LOST_CLIENT}, "target": target},
    }
    for name, document in documents.items():
        topics = {"include": [f"{name}[.].*"], "discovery_interval": "1s"}
        quick = {"flow": name, "topics": topics, "lanes": 1, "spark": {"task_length": "5s"}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({**quick, **document}))
    return folder


@pytest.fixture(scope="session")
def airflow(session_home: Path, flows: Path) -> Iterator[AirflowStandalone]:
    """Airflow on SQLite, as `make up` starts it."""
    environ = {"ONCEOVER_FLOWS": str(flows), "ONCEOVER_HOME": str(session_home / "var")}
    plugins = PROJECT / "plugins"
    with AirflowStandalone.start(
        session_home / "airflow", dags=PROJECT / "dags", plugins=plugins, environ=environ
    ) as airflow:
        yield airflow


@pytest.fixture(scope="session")
def var(session_home: Path) -> Path:
    """ONCEOVER_HOME of the runs."""
    return session_home / "var"


@pytest.fixture(scope="module")
def connection(airflow: AirflowStandalone, secured_cluster: KafkaCluster) -> Iterator[None]:
    """The secured cluster as a Connection, stored in Airflow as an administrator would."""
    extra = json.dumps(secured_cluster.client)
    body = {"connection_id": CONNECTION_ID, "conn_type": "kafka", "extra": extra}
    airflow.call("POST", "/api/v2/connections", body)
    yield
    airflow.call("DELETE", f"/api/v2/connections/{CONNECTION_ID}")
