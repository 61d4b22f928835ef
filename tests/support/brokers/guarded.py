"""Two clusters with Kafka's own authorizer, and a flow with the documented rights and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.security import Security
from tests.support.brokers.clusters import NOTHING_EXPIRES, ClusterFactory
from tests.support.flows.grants import grant, source_rights, target_rights
from tests.support.flows.replica import Replica

Pair = tuple[KafkaCluster, KafkaCluster]


@contextmanager
def guarded_clusters(home: Path) -> Iterator[Pair]:
    """Start two clusters on which the flow's user may do nothing that was not granted."""
    factory = ClusterFactory(home)

    def start(name: str) -> Callable[[], KafkaCluster]:
        # Rights are what counts here; test_transport has the encryption.
        security = Security("PLAIN", authorizer=True, encrypted=False)
        return lambda: factory(name, security=security, config=NOTHING_EXPIRES)

    try:
        source, target = start_all([start("guarded-source"), start("guarded-target")])
        yield source, target
    finally:
        factory.close()


@contextmanager
def guarded_replica(pair: Pair, folder: Path, name: str) -> Iterator[Replica]:
    """Yield a flow with the rights of docs/operations.md; tests come through the brokers' own door."""
    source, target = pair
    inside = (source.internal_bootstrap, target.internal_bootstrap)
    with Replica(folder, name, source.client, target.client, unsecured=inside) as replica:
        grant(source, source_rights(replica.name))
        grant(target, target_rights(replica.name))
        yield replica
