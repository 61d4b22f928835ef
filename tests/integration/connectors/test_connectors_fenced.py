"""A producer that another one has fenced says so, whichever call it learns of it in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from onceover.config.clients.resolve import ClientConfig
from onceover.connectors import steps
from onceover.connectors.offsets.write import Entry, HeldProducer, write_in_transaction
from onceover.connectors.record.manifest import Manifest
from onceover.connectors.record.runrecords import RunRecords
from onceover.connectors.steps import StepName
from onceover.errors import Fenced, Retriable
from onceover.kafka.cluster import LiveCluster
from onceover.kafka.portions import OwnRecord
from onceover.model import TopicPartition
from tests.support.brokers.clusters import SharedCluster
from tests.support.flows.feeds import held
from tests.support.raw.adversary import Adversary
from tests.support.session.wait import wait_until

RECORD = (b"key", b"value")


@pytest.fixture
def topic(target_cluster: SharedCluster, unique_name: str) -> str:
    """A topic with one partition."""
    with Adversary(target_cluster.bootstrap) as adversary:
        return adversary.create_topic(unique_name)


@pytest.fixture
def cluster(target_cluster: SharedCluster) -> Iterator[LiveCluster]:
    """The cluster, as one run reaches it."""
    with LiveCluster(ClientConfig("target", target_cluster.client)) as found:
        yield found


def test_a_held_producer_that_was_fenced_says_so(
    target_cluster: SharedCluster, cluster: LiveCluster, topic: str
) -> None:
    """It learns of it when it writes, and closes without another word."""
    partition = TopicPartition(topic, 0)
    older, newer = (HeldProducer(cluster, partition, topic) for _ in range(2))
    with pytest.raises(Fenced) as fenced:
        older.write([RECORD])
    older.close()
    newer.write([RECORD])
    newer.close()
    assert fenced.value.code == "FENCED"
    # A broker says that it is committed before readers see it.
    wait_until(lambda: len(held(target_cluster.client, topic, 1)[0]) == 1, 30.0, "the newer one's is there")


def test_a_transaction_that_was_fenced_before_its_commit_says_so(
    target_cluster: SharedCluster, cluster: LiveCluster, topic: str
) -> None:
    """Its records are in the log by then, and nobody sees them."""

    def fence(step: StepName) -> None:
        if step is StepName.COPY_COMMIT:
            HeldProducer(cluster, TopicPartition(topic, 0), topic).close()

    steps.listen(fence)
    try:
        with pytest.raises(Fenced) as fenced:
            write_in_transaction(cluster, topic, topic, [Entry(0, *RECORD)], lambda: None)
    finally:
        steps.listen(lambda _step: None)
    assert fenced.value.code == "FENCED"
    assert held(target_cluster.client, topic, 1)[0] == []


@pytest.fixture
def runs(cluster: LiveCluster, topic: str) -> Iterator[RunRecords]:
    """What runs have written down, on a cluster that has none of this name yet."""
    found = RunRecords(cluster, topic, topic)
    yield found
    found.close()


def failing(monkeypatch: pytest.MonkeyPatch, *, landed: bool) -> None:
    """Let the next write fail, before it comes about or after that."""
    write = HeldProducer.write

    def once(producer: HeldProducer, records: Iterable[OwnRecord]) -> None:
        monkeypatch.setattr(HeldProducer, "write", write)
        if landed:
            write(producer, records)
        raise Retriable("away")

    monkeypatch.setattr(HeldProducer, "write", once)


@pytest.mark.parametrize("landed", [False, True])
def test_a_claim_goes_on_behind_a_broker_that_was_away(
    runs: RunRecords, monkeypatch: pytest.MonkeyPatch, *, landed: bool
) -> None:
    """What it has written itself is not another run's, whether it heard of that or not."""
    begun = Manifest.begin("migrate", "c", ("from", "to"), "RUNNING", {}, {}, exactly_once=True)
    runs.load("c", "migrate")
    claim = runs.claim("c")
    claim.write(begun)
    stopped = replace(begun, offsets={b"k": b"v"}).with_step("stop").with_given(7)
    failing(monkeypatch, landed=landed)
    claim.write(stopped)
    fenced = stopped.with_step("fence")
    claim.write(fenced)
    claim.close()
    found = runs.load("c", "migrate")
    assert found is not None and (found.steps, found.given, found.values) == (
        fenced.steps,
        (7,),
        {b"k": b"v"},
    )


def test_a_claim_that_was_taken_over_while_a_broker_was_away_ends(
    runs: RunRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves the other run alone."""
    begun = Manifest.begin("migrate", "c", ("from", "to"), "RUNNING", {}, {}, exactly_once=True)
    runs.load("c", "migrate")
    older = runs.claim("c")
    older.write(begun)
    runs.load("c", "migrate")
    newer = runs.claim("c")
    newer.write(begun.with_step("newer"))
    failing(monkeypatch, landed=False)
    with pytest.raises(Fenced):
        older.write(begun.with_step("older"))
    older.close()
    newer.write(begun.with_step("newer").with_step("more"))
    newer.close()
    found = runs.load("c", "migrate")
    assert found is not None and [step for step, _ in found.steps] == ["newer", "more"]
