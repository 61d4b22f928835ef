"""Damage inside the target's own log files: no broker and no reader notices, an audit names every record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from onceover.config.flow.load import load_flow
from onceover.wiring.audit import AuditRequest
from onceover_lab.embed.kafka import KafkaCluster
from tests.support.brokers.clusters import ClusterFactory, SharedCluster
from tests.support.flows.handled import handler_keys
from tests.support.flows.replica import Replica
from tests.support.raw.logfile import Records, alter, change_first_batch, double, remove, swap
from tests.support.worlds.contentaudit import audit

# What happens to each target partition; the last one stays right.
DAMAGE: Final[tuple[Callable[[Records], Records] | None, ...]] = (alter, remove, swap, double, None)
KINDS: Final[tuple[list[str], ...]] = (["ALTERED"], ["LOST"], ["REORDERED"], ["LOST", "REPEATED"], [])
MODES: Final[dict[str, dict[str, Any]]] = {
    "record": {},
    "compacted": {},
    "handler": handler_keys("spread", partitions=len(DAMAGE)),
    "once-or-more": {"delivery": "at_least_once"},
}
UNCLEANED: Final = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(1 << 50)}


@pytest.fixture
def flows(
    tmp_path: Path, unique_name: str, source_cluster: SharedCluster, start_cluster: ClusterFactory
) -> Iterator[tuple[KafkaCluster, dict[str, Replica]]]:
    """A flow for each mode, copied to a target of its own."""
    target = start_cluster("damaged")
    with ExitStack() as stack:
        replicas = {}
        for mode, keys in MODES.items():
            name = f"{unique_name}-{mode}"
            replica = stack.enter_context(Replica(tmp_path, name, source_cluster.client, target.client))
            replica.configure(**keys)
            replicas[mode] = replica
        yield target, replicas


def copied(mode: str, replica: Replica) -> str:
    """Copy a topic of the mode, in batches of twelve records of as many keys; return its name."""
    partitions = 1 if mode == "handler" else len(DAMAGE)
    topic = replica.topic("a", partitions, UNCLEANED if mode == "compacted" else None)
    for number in range(partitions):
        records = [
            replica.source.record(key=b"k%d" % index, value=b"v%d" % index)
            for index in range(60 if mode == "handler" else 12)
        ]
        replica.source.plain(topic, number, records)
    replica.copy()
    return topic


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_damage_in_a_brokers_log_files_is_found_in_every_mode(
    flows: tuple[KafkaCluster, dict[str, Replica]],
) -> None:
    """One record altered, removed, swapped, doubled, its checksum right again; at_least_once may repeat."""
    target, replicas = flows
    topics = {mode: copied(mode, replica) for mode, replica in replicas.items()}
    (node,) = target.nodes
    node.stop()
    for topic in topics.values():
        for number, change in enumerate(DAMAGE):
            if change is not None:
                change_first_batch(node.data / f"{topic}-{number}", change)
    node.start()

    for mode, replica in replicas.items():
        content = audit(load_flow(replica.write_flow()), AuditRequest(since="start"))
        found: dict[int, list[str]] = {number: [] for number in range(len(DAMAGE))}
        for result in (*content.partitions, *content.beside):
            for finding in result.findings:
                assert finding.target is not None
                found[finding.target.partition].append(str(finding.kind))
        expected = dict(enumerate(KINDS))
        if mode == "once-or-more":
            expected[3] = ["LOST"]
        assert {number: sorted(kinds) for number, kinds in found.items()} == expected, mode
