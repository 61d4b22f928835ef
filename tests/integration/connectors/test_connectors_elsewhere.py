"""Offsets on another cluster than the workers', and a user of Onceover without every right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceover_lab.embed.connect import ConnectCluster
from onceover_lab.embed.kafka import KafkaCluster
from onceover_lab.embed.security import Security
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.connect.connect import Connect, Workers, assert_counted, counting_plugin
from tests.support.connect.connect_tool import FIRST_RECORDS, Case
from tests.support.flows.grants import TOPIC, TRANSACTIONAL_ID, denied, grant


@pytest.mark.soak
def test_offsets_go_to_the_cluster_that_the_connector_writes_to(
    workers: Workers,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    unique_name: str,
    tmp_path: Path,
) -> None:
    """Its own topic is where its producer is: the workers' cluster keeps the global one."""
    overrides = {
        f"{client}__override__bootstrap__servers": source_cluster.bootstrap
        for client in ("producer", "consumer", "admin")
    }
    far = Connect(workers.exactly_once, source_cluster.client)
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        far.create_topic(case.topic)
        far.count(case.name, case.topic, **overrides)
        far.await_numbers(case.topic, FIRST_RECORDS)
        keys = set(case.connect.offsets(case.name).values)

        case.migrate()

        far.await_more(case.topic)
        assert_counted(far.numbers(case.topic))
        assert set(far.offsets(case.name, case.own_topic).values) == keys
        assert case.own_topic not in case.connect.topics()
        assert case.tool.downgrade(case.name).outcome(case.name) == "done"
        far.await_more(case.topic)
        assert_counted(far.numbers(case.topic))
    far.close()


@pytest.fixture(scope="module")
def guarded(session_home: Path) -> Iterator[tuple[KafkaCluster, ConnectCluster]]:
    """A cluster whose ordinary user may do nothing that was not granted, with a worker that may do all."""
    factory = ClusterFactory(session_home)
    try:
        kafka = factory("guarded-connect", security=Security("PLAIN", authorizer=True))
        home = session_home / "guarded-workers"
        plugin = counting_plugin()
        with ConnectCluster.start(home, kafka.internal_bootstrap, "guarded", plugins=[plugin]) as cluster:
            yield kafka, cluster
    finally:
        factory.close()


@pytest.mark.soak
def test_a_missing_right_is_named(
    guarded: tuple[KafkaCluster, ConnectCluster],
    unique_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who may not do what with which resource; with the rights of the generated table all goes well."""
    kafka, cluster = guarded
    monkeypatch.setenv("ONCEOVER_TRIAL_PASSWORD", kafka.client["sasl.password"])
    client = {**kafka.client, "sasl.password": "${ONCEOVER_TRIAL_PASSWORD}"}
    internal = {"bootstrap.servers": kafka.internal_bootstrap}
    with Case(tmp_path, unique_name, cluster, internal, keys={"kafka": {"client": client}}) as case:
        case.begin()
        rights = case.tool.rights(case.name)
        withheld = next(right for right in rights if right[0] is TRANSACTIONAL_ID)
        grant(kafka, [right for right in rights if right is not withheld])

        refused = case.tool.apply(case.name)

        assert refused.code in (2, 3)
        words = json.dumps(refused.document)
        assert "User:onceover may not WRITE transactional id" in words
        assert withheld[1] in words
        assert kafka.client["sasl.password"] not in words + case.tool.log.read_text()
        assert case.connect.states(case.name)[0] == "RUNNING"

        grant(kafka, [withheld])
        # Neither is there yet.
        for topic in (case.own_topic, f"__onceover.connect.{cluster.group_id}.runs"):
            for operation in ("CREATE", "READ", "WRITE"):
                with denied(kafka, (TOPIC, topic, False, operation)):
                    planned = case.tool.plan(case.name)
                assert planned.codes() == {"NOT_AUTHORIZED"}, (topic, operation)
                assert f"may not {operation} topic {topic}" in json.dumps(planned.document)
        case.migrate()
        case.assert_goes_on()


@pytest.mark.soak
def test_rights_of_the_connectors_own_clients_are_asked_before_the_stop(
    guarded: tuple[KafkaCluster, ConnectCluster], unique_name: str, tmp_path: Path
) -> None:
    """It logs in as somebody else than the workers and Onceover, who may not use the new topic yet."""
    kafka, cluster = guarded
    internal = {"bootstrap.servers": kafka.internal_bootstrap}
    with Case(tmp_path, unique_name, cluster, internal, keys={"kafka": {"client": internal}}) as case:
        grant(kafka, [(TOPIC, case.topic, False, "WRITE DESCRIBE")])
        case.begin(**own_login(kafka))
        before = case.connect.config(case.name)

        planned, applied = case.tool.plan(case.name), case.tool.apply(case.name)

        assert (planned.code, planned.codes()) == (3, {"NOT_AUTHORIZED"}), planned
        words = json.dumps(planned.document["refused"])
        for client, operation in {"producer": "WRITE", "consumer": "READ", "admin": "DESCRIBE"}.items():
            assert f"its {client} (User:onceover) may not {operation} topic {case.own_topic}" in words
        assert kafka.client["sasl.password"] not in json.dumps(planned.document) + case.tool.log.read_text()
        assert applied.outcome(case.name) == "refused"
        assert case.own_topic not in case.connect.topics()
        assert (case.connect.states(case.name)[0], case.connect.config(case.name)) == ("RUNNING", before)
        grant(kafka, [(TOPIC, case.own_topic, False, "WRITE")])
        assert "its consumer (User:onceover) may not READ" in json.dumps(case.tool.plan(case.name).document)
        grant(kafka, [(TOPIC, case.own_topic, False, "READ")])
        case.migrate()
        case.assert_goes_on()


def own_login(kafka: KafkaCluster) -> dict[str, str]:
    """Return what makes a connector's clients log in as the cluster's ordinary user."""
    login = f'username="{kafka.client["sasl.username"]}" password="{kafka.client["sasl.password"]}"'
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.ca_path),
    }
    return {
        f"{client}__override__{key.replace('.', '__')}": value
        for client in ("producer", "consumer", "admin")
        for key, value in settings.items()
    }
