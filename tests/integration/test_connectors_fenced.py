"""A producer that another one has fenced says so, whichever call it learns of it in."""

from __future__ import annotations

import pytest

from onceover.config.clients import ClientConfig
from onceover.connectors import steps
from onceover.connectors.steps import StepName
from onceover.connectors.write import Entry, HeldProducer, write_in_transaction
from onceover.errors import Fenced
from tests.support.adversary import Adversary
from tests.support.clusters import SharedCluster
from tests.support.feeds import held

ENTRY = Entry(0, b"key", b"value")
# Which of two words of the client comes first is its threads' business: the other order is one of a few.
TRIES = 5


@pytest.fixture
def topic(target_cluster: SharedCluster, unique_name: str) -> str:
    """A topic with one partition."""
    with Adversary(target_cluster.bootstrap) as adversary:
        return adversary.create_topic(unique_name)


@pytest.fixture
def settings(target_cluster: SharedCluster) -> ClientConfig:
    """How the cluster is reached."""
    return ClientConfig("target", target_cluster.client)


def test_a_held_producer_that_was_fenced_says_so(
    target_cluster: SharedCluster, settings: ClientConfig, topic: str
) -> None:
    """It learns of it when it writes, and closes without another word."""
    for _ in range(TRIES):
        older = HeldProducer(settings, topic, topic)
        newer = HeldProducer(settings, topic, topic)
        with pytest.raises(Fenced) as fenced:
            older.write([ENTRY])
        older.close()
        newer.write([ENTRY])
        newer.close()
        assert fenced.value.code == "FENCED"
    assert len(held(target_cluster.client, topic, 1)[0]) == TRIES


def test_a_transaction_that_was_fenced_before_its_commit_says_so(
    target_cluster: SharedCluster, settings: ClientConfig, topic: str
) -> None:
    """Its records are in the log by then, and nobody sees them."""

    def fence(step: StepName) -> None:
        if step is StepName.COPY_COMMIT:
            HeldProducer(settings, topic, topic).close()

    steps.listen(fence)
    try:
        with pytest.raises(Fenced) as fenced:
            write_in_transaction(settings, topic, topic, [ENTRY], lambda: None)
    finally:
        steps.listen(lambda _step: None)
    assert fenced.value.code == "FENCED"
    assert held(target_cluster.client, topic, 1)[0] == []
