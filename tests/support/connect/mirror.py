"""A real MirrorMaker 2 beside a flow, and a producer that goes on while it is killed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer

from onceover_lab.embed.mirrormaker import MirrorMaker
from onceover_lab.embed.ports import LOOPBACK, PortReservation
from tests.support.session.background import Background

IDENTITY = "identity"
PREFIX = "prefix"
# Started and copying: 10 to 14 s on quiet cores.
START_S = 120.0
_TIMEOUT_S = 60.0
_PAUSE_S = 0.01
_POLICIES = {
    IDENTITY: "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    PREFIX: "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
}


def start_mirror(
    home: Path,
    source: Mapping[str, str],
    target: Mapping[str, str],
    aliases: tuple[str, str],
    topics: str,
    *,
    naming: str = IDENTITY,
    exactly_once: bool = False,
) -> MirrorMaker:
    """Start MirrorMaker in dedicated mode with aliases of its own, so that tests share nothing.

    Args:
        aliases: what it calls source and target.
        topics: regular expression.
        exactly_once: with transactions, read_committed, one per 200 ms.
    """
    left, right = aliases
    flow = f"{left}->{right}"
    properties = {
        "clusters": f"{left}, {right}",
        f"{left}.bootstrap.servers": source["bootstrap.servers"],
        f"{right}.bootstrap.servers": target["bootstrap.servers"],
        f"{flow}.enabled": "true",
        f"{flow}.topics": topics,
        f"{right}->{left}.enabled": "false",
        "replication.policy.class": _POLICIES[naming],
        "tasks.max": "2",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "offset.flush.interval.ms": "2000",
        # Forgotten as soon as the brokers allow after it was killed.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1500",
    }
    if exactly_once:
        reservation = PortReservation()
        reservation.release()
        properties |= {
            f"{right}.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://{LOOPBACK}:{reservation.port}",
            f"{left}.consumer.isolation.level": "read_committed",
            "transaction.boundary": "interval",
            "transaction.boundary.interval.ms": "200",
        }
    return MirrorMaker.start(home, "unused:1", "unused:1", ["unused"], properties=properties, heap_mb=512)


class Load(Background):
    """Plain records, every one different, over all partitions of a topic, in a background thread."""

    def __init__(self, client: Mapping[str, str], topic: str, partitions: int) -> None:
        super().__init__("load", _PAUSE_S)
        self.sent = 0
        self._topic, self._partitions = topic, partitions
        self._producer = Producer({**client, "enable.idempotence": True, "linger.ms": 5})

    def step(self) -> None:
        """Send twenty."""
        for _ in range(20):
            self.sent += 1
            number = self.sent % self._partitions
            self._producer.produce(self._topic, b"%d" % self.sent, b"k%d" % number, partition=number)
        self._producer.poll(0)

    def end(self) -> None:
        """Also wait until everything is acknowledged."""
        super().end()
        assert self._producer.flush(_TIMEOUT_S) == 0
