"""What an operator does who backs up brokers by their disks: stop, copy, start."""

from __future__ import annotations

import shutil
from pathlib import Path

from onceover_lab.embed.kafka import KafkaCluster


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
