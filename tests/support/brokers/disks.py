"""What an operator does who backs up brokers by their disks: stop, copy, start; and what an unclean election
leaves of a log."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from onceover.audit.records.batches import walk
from onceover.model import TopicPartition
from onceover_lab.embed.kafka import KafkaCluster

# What a broker makes anew of a log that it did not close.
_DERIVED: Final = "*.index", "*.timeindex", "*.txnindex", "*.snapshot"
_CLOSED: Final = ".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"


def restart(cluster: KafkaCluster, *, keep: Path | None = None, restore: Path | None = None) -> None:
    """Stop and start the only broker; copy its disk, or put a copy back, in between."""
    (node,) = cluster.nodes
    node.stop()
    if keep is not None:
        shutil.copytree(node.data, keep)
    if restore is not None:
        shutil.rmtree(node.data)
        shutil.copytree(restore, node.data)
    node.start()


def lose_ends(cluster: KafkaCluster, ends: Mapping[TopicPartition, int]) -> None:
    """Kill and start the only broker, as one whose replicas have missed the last batches of some logs.

    Args:
        ends: how many batches of each log are gone; all of them are in its first segment.
    """
    (node,) = cluster.nodes
    node.kill()
    for tp, batches in ends.items():
        folder = node.data / f"{tp.topic}-{tp.partition}"
        (log,) = folder.glob("*.log")
        sizes = [batch.size_bytes for batch in walk(memoryview(log.read_bytes()))]
        with log.open("r+b") as file:
            file.truncate(sum(sizes[:-batches]))
        for each in (path for pattern in _DERIVED for path in folder.glob(pattern)):
            each.unlink()
    for name in _CLOSED:
        (node.data / name).unlink(missing_ok=True)
    node.start()
