"""What would make Connect read other offsets than those that were copied is found before the configuration
changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.clusters import SharedCluster
from tests.support.connect.connect import OFFSET_PARTITIONS, TIMEOUT_S, Workers, last_counts, source_partition
from tests.support.connect.connect_tool import Case, write_raw
from tests.support.raw.rawkafka import RawRecord
from tests.support.raw.rawtxn import OpenTransaction


@pytest.fixture
def case(workers: Workers, target_cluster: SharedCluster, unique_name: str, tmp_path: Path) -> Iterator[Case]:
    """A running counting connector on the exactly-once workers."""
    with Case(tmp_path, unique_name, workers.exactly_once, target_cluster.client) as case:
        case.begin()
        yield case


def create_own_topic(case: Case, policy: str = "compact") -> None:
    """Create the topic that the tool would create."""
    new = NewTopic(case.own_topic, OFFSET_PARTITIONS, replication_factor=1, config={"cleanup.policy": policy})
    # Kept in a variable: futures die with their client.
    client = AdminClient(dict(case.client))
    client.create_topics([new])[case.own_topic].result(TIMEOUT_S)


def assert_untouched(case: Case) -> None:
    """Fail unless the connector has its old configuration, and goes on with it."""
    assert "offsets.storage.topic" not in case.connect.config(case.name)
    case.connect.resume(case.name)
    case.assert_goes_on()


def test_a_topic_that_deletes_is_refused(case: Case) -> None:
    """Offsets would vanish with time; Connect itself fails only once the tasks start."""
    create_own_topic(case, "delete")

    planned, applied = case.tool.plan(case.name), case.tool.apply(case.name)

    assert planned.code == applied.code == 3
    assert "compact" in json.dumps(planned.document["refused"])
    assert applied.outcome(case.name) == "refused"
    assert_untouched(case)


@pytest.mark.soak
def test_a_topic_with_foreign_keys_is_refused(case: Case) -> None:
    """Somebody else's topic is left alone."""
    create_own_topic(case)
    write_raw(case.client, case.own_topic, [(0, b"somebody", b"else's")])

    assert case.tool.plan(case.name).code == 3
    assert case.tool.apply(case.name).outcome(case.name) == "refused"

    assert_untouched(case)


@pytest.mark.soak
def test_an_open_transaction_is_found_and_an_aborted_one_does_no_harm(
    case: Case, target_cluster: SharedCluster
) -> None:
    """Behind an open one tasks would not see their offsets, and begin at zero."""
    create_own_topic(case)
    key, place = next((k, min(p)) for k, p in case.connect.offsets(case.name).partitions.items())
    other = OpenTransaction(target_cluster.bootstrap, f"{case.name}-other", case.own_topic)
    other.send(place, [RawRecord(key=key, value=b'{"count":1000000}')])

    found = case.tool.apply(case.name)
    assert found.outcome(case.name) == "retriable" and found.code == 5, found
    assert "transaction is open" in found.of(case.name)["message"]
    assert "offsets.storage.topic" not in case.connect.config(case.name)

    other.abort()
    case.migrate()
    case.assert_goes_on()
    case.assert_never_back()


@pytest.mark.soak
def test_a_null_value_is_refused_and_the_global_values_survive(case: Case) -> None:
    """An offset that says null, or a source partition that does, is nothing that a task can go on from."""
    before = case.connect.offsets(case.name)
    key, place = next((key, min(places)) for key, places in before.partitions.items())
    case.connect.stop(case.name)
    kept = last_counts(case.connect.offsets(case.name))
    bad = json.dumps([case.name, None], separators=(",", ":")).encode()
    for records in ([(place, bad, b'{"count":1}')], [(place, key, b"null")]):
        write_raw(case.client, case.cluster.offsets_topic, records)
        applied = case.tool.apply(case.name)
        assert applied.outcome(case.name) == "refused"
        assert "null" in json.dumps(applied.document)
        write_raw(case.client, case.cluster.offsets_topic, [(place, bad, None)])
    value = b'{"count":%d}' % kept[source_partition(key)]
    write_raw(case.client, case.cluster.offsets_topic, [(place, key, value)])
    assert_untouched(case)
