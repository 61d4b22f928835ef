"""A log that loses acknowledged records to an unclean election: a replica that lagged becomes the leader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import ElectionType, Producer

from onceover_lab.embed.kafka import KafkaCluster
from tests.support.raw.epochs import Epochs, epochs_of
from tests.support.session.wait import wait_until

KEPT, WRITTEN = 50, 100
_TIMEOUT_S = 60.0


def write(bootstrap: str, topic: str, count: int) -> None:
    """Write so many records."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=0)
    assert producer.flush(_TIMEOUT_S) == 0


@contextmanager
def truncated(
    cluster: KafkaCluster, topic: str, before: Callable[[], object] = lambda: None
) -> Iterator[tuple[Epochs, str]]:
    """Yield the two brokers that are left of three: KEPT of WRITTEN records, the last of which were lost.

    Args:
        before: is done while all of them are there.
    """
    first, second, _ = cluster.nodes
    with epochs_of(cluster.bootstrap) as epochs:
        epochs.create(topic, [1, 2])
        write(cluster.bootstrap, topic, KEPT)
        second.stop()
        wait_until(lambda: epochs.partition(topic)["isr_nodes"] == [1], _TIMEOUT_S, "broker 1 is alone")
        write(cluster.bootstrap, topic, WRITTEN - KEPT)
    before()
    first.kill()
    second.start()
    left = ",".join(cluster.bootstrap.split(",")[1:])
    with epochs_of(left) as epochs:
        wait_until(lambda: epochs.elected(topic, 2, ElectionType.UNCLEAN), _TIMEOUT_S, "broker 2 leads")
        yield epochs, left
