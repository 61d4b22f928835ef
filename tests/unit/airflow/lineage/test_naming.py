"""A topic is called what Spark's and Flink's integrations call it, and Airflow's Kafka provider after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.providers.apache.kafka.assets.kafka import convert_asset_to_openlineage, create_asset
from airflow.sdk import Asset
from openlineage.client.naming.dataset import Kafka

from onceover.config.flow.load import load_flow
from onceover.errors import UsageError
from onceover_airflow.lineage.naming import FlowEnds, ends_of, namespaces, topic_uri

SECRET = "planted-2f6c"
FLOW = """
flow: flights
source: {alias: east, connection: kafka_source}
target: {alias: west, client: {bootstrap.servers: "127.0.0.1:2, b:3,127.0.0.1:2"}}
topics: {include: ["flights.*"]}
on_bad_record: dead_letter:letters
"""


def test_the_first_server_names_and_the_others_are_other_names() -> None:
    """In the order in which they are written, each once; as they are written, too: so do the others."""
    assert namespaces("A.example:9092,[::1]:9093,A.example:9092") == (
        "kafka://A.example:9092",
        "kafka://[::1]:9093",
    )


@pytest.mark.parametrize("server", ["kafka-1.example:9092", "A_b:1", "[::1]:9092"])
def test_the_same_dataset_whoever_makes_it(server: str) -> None:
    """OpenLineage's own naming, and what Airflow's Kafka provider makes of the asset."""
    (namespace,) = namespaces(server)
    asset = Asset(topic_uri(namespace, "a.b_c-d"))
    assert asset.uri == create_asset(server=server, topic="a.b_c-d").uri
    dataset = convert_asset_to_openlineage(asset, None)
    assert (dataset.namespace, dataset.name) == (namespace, "a.b_c-d")
    host, _, port = server.rpartition(":")
    assert Kafka(host, port, "a.b_c-d").get_namespace() == namespace


def test_of_a_flows_clients_only_the_servers_are_known(tmp_path: Path) -> None:
    """Whatever else is in a Connection stays there; one that is not in order is said so."""
    (tmp_path / "flights.yaml").write_text(FLOW)
    flow = load_flow(str(tmp_path / "flights.yaml"))
    extra = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": SECRET,
        "sasl.password": SECRET,
    }
    environ = {"AIRFLOW_CONN_KAFKA_SOURCE": json.dumps({"conn_type": "kafka", "extra": extra})}
    ends = ends_of(flow, environ)
    there = ("kafka://127.0.0.1:2", "kafka://b:3")
    assert ends == FlowEnds("flights", ("kafka://127.0.0.1:1",), there, False, "letters")
    with pytest.raises(UsageError, match="AIRFLOW_CONN_KAFKA_SOURCE is not set"):
        ends_of(flow, {})
